"""Random plays of actors agree with a sequential model (`tests.supervisors.plays`).

`TASK_ORDERS=1000 scripts/test tests/supervisors` performs more plays than a usual run, and
`FIRST_PLAY=30000` other ones.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.supervisors.orders import ORDERS
from tests.supervisors.plays.random_play import violations_of

FIRST_PLAY: Final = int(os.environ.get("FIRST_PLAY", "0"))


@pytest.mark.timeout(60 + ORDERS)
def test_runtime_agrees_with_a_sequential_model() -> None:
    """Each message is handled once or is a dead letter, in order; each question is settled once and
    in time; no work, timer, watch or publication is lost or repeated; nothing waits that could go
    on; counters are right, and nothing is left (R-10 to R-13, R-31 to R-35, R-37 to R-45, R-50 to
    R-55, R-58 to R-62, R-76 to R-80, R-100 to R-104, R-110 to R-115, R-120, R-142)."""
    plays = range(FIRST_PLAY, FIRST_PLAY + ORDERS)
    broken = {seed: violations_of(seed)[:3] for seed in plays}
    assert {seed: found for seed, found in broken.items() if found} == {}
