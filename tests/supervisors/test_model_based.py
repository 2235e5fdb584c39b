"""Random runs of scripted actors agree with a sequential model (`tests.supervisors.model_based`).

`TASK_ORDERS=1000 scripts/test tests/supervisors` performs a thousand runs instead of thirty, and
`FIRST_SEED=30000` begins with another seed.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.supervisors.model_based.random_run import violations_of
from tests.supervisors.orders import ORDERS

FIRST_SEED: Final = int(os.environ.get("FIRST_SEED", "0"))


@pytest.mark.timeout(60 + ORDERS)
def test_runtime_agrees_with_a_sequential_model() -> None:
    """Each message is handled once or is a dead letter, in order; each request is settled once and
    in time; no work, timer, watch or publication is lost or repeated; nothing waits that could go
    on; counters are right, and nothing is left (R-10 to R-13, R-31 to R-35, R-37 to R-45, R-50 to
    R-55, R-58 to R-62, R-76 to R-80, R-100 to R-104, R-110 to R-115, R-120, R-142)."""
    run_seeds = range(FIRST_SEED, FIRST_SEED + ORDERS)
    violations = {seed: violations_of(seed)[:3] for seed in run_seeds}
    assert {seed: found for seed, found in violations.items() if found} == {}
