"""All faults that the simulation or a test has to find."""

from __future__ import annotations

from typing import Final

from tests.mutants.access_mutations import ACCESS
from tests.mutants.asvs_access import ASVS_ACCESS
from tests.mutants.asvs_data import ASVS_DATA
from tests.mutants.asvs_front import ASVS_FRONT
from tests.mutants.asvs_house import ASVS_HOUSE
from tests.mutants.client_mutations import CLIENT
from tests.mutants.delivery_mutations import DELIVERY
from tests.mutants.front_mutations import FRONT
from tests.mutants.platform_mutations import PLATFORM
from tests.mutants.receiver_mutations import RECEIVERS
from tests.mutants.runtime_mutations import RUNTIME

MUTATIONS: Final = (*ACCESS, *DELIVERY, *RECEIVERS, *PLATFORM, *FRONT, *RUNTIME, *CLIENT)
ASVS: Final = (*ASVS_FRONT, *ASVS_ACCESS, *ASVS_DATA, *ASVS_HOUSE)
"""Those that the rows of docs/asvs.toml name, each found by one test function."""
ALL: Final = (*MUTATIONS, *ASVS)
