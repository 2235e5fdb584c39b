"""All faults that the simulation or a test has to find."""

from __future__ import annotations

from typing import Final

from tests.mutants.access_mutations import ACCESS
from tests.mutants.delivery_mutations import DELIVERY
from tests.mutants.front_mutations import FRONT

MUTATIONS: Final = (*ACCESS, *DELIVERY, *FRONT)
