"""The promises of the service under faults, in virtual time. See docs/testing.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.run import simulate

ROOT = Path(__file__).parents[2]
SEEDS_A_TEST = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, 201, SEEDS_A_TEST))
def test_every_promise_is_kept_whatever_fails(first: int) -> None:
    """Spec, States and transitions, Authentication, Limits; what is judged: `ledger`, `verdict`."""
    broken = [
        f"scripts/simulate --seeds {seed} --trace: {', '.join(result.broken)}"
        for seed in range(first, first + SEEDS_A_TEST)
        if (result := simulate(seed)).broken
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.timeout(300)
def test_the_same_seed_gives_the_same_trace_in_another_process_byte_for_byte() -> None:
    """Nothing depends on addresses, hash seeds, threads or the machine's clock."""
    told = {_traces(hash_seed) for hash_seed in ("1", "2")}
    assert len(told) == 1
    (text,) = told
    assert text.count("starts") >= 3


def test_another_seed_gives_another_trace() -> None:
    """Else a thousand seeds would be one."""
    assert simulate(1, 5.0).digest != simulate(2, 5.0).digest


def _traces(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "5-7", "--trace", "--jobs", "1"]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.rpartition("\n3 seeds")[0]
