"""The promises of the service under faults, in virtual time. See docs/testing.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.run import simulate

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_simulation_of_forty_seeds_breaks_no_promise() -> None:
    """Every promise of the contract is kept (O-162); what is checked: `ledger`, `verdict`.

    Forty seeds, in a process for each core; a broken one says how to repeat it.
    """
    done = _run("--seeds", "1-40")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("40 seeds, 0 broken")


@pytest.mark.timeout(300)
def test_same_seed_gives_same_trace_across_processes() -> None:
    """Nothing depends on addresses, hash seeds, threads or the machine's clock."""
    traces = {_traces(hash_seed) for hash_seed in ("1", "2")}
    assert len(traces) == 1
    (text,) = traces
    assert text.count("starts") >= 3


def test_different_seeds_give_different_traces() -> None:
    """If seeds gave one trace, a thousand of them would test one run."""
    assert simulate(1, 5.0).digest != simulate(2, 5.0).digest


def _traces(hash_seed: str) -> str:
    done = _run("--seeds", "5-7", "--trace", "--jobs", "1", PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.rpartition("\n3 seeds")[0]


def _run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, timeout=800,
        check=False,
    )  # fmt: skip
