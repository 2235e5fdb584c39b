"""A million identifiers under attack: the memory of their counters, and that no lock is lost."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fw_actors.access import attempts
from fw_actors.actors.sweeper import BATCH, auth_batches
from fw_actors.rules.lockout import Budget
from fw_actors.runtime import SystemClock, SystemEntropy
from fw_actors.store import Tx, open_sqlite

_A_TRANSACTION: Final = 500
_KEY: Final = bytes(32)
_BUDGET: Final = Budget(5, 15 * 60_000)
_VICTIMS: Final = Budget(5, 24 * 60 * 60_000)  # however slow the machine is
_KIB: Final = 1024


class LockLost(Exception):
    """Raised when the victim's lock is not there any more."""


async def grown(count: int, folder: Path, tell: Callable[[str], None]) -> float:
    """Let `count` identifiers fail once each; return by how many MiB the process has grown."""
    with TemporaryDirectory(dir=folder) as place:
        file = Path(place) / "fw.db"
        async with open_sqlite(file, clock=SystemClock(), entropy=SystemEntropy()) as store:
            await store.write(partial(_lock, "victim"))
            await store.write(partial(_fail, range(_A_TRANSACTION)))  # all is warm
            before, begun = _peak(), time.perf_counter()
            for start in range(_A_TRANSACTION, count, _A_TRANSACTION):
                await store.write(partial(_fail, range(start, start + _A_TRANSACTION)))
            filled = time.perf_counter() - begun
            wait = await store.read(lambda tx: attempts.wait_of(tx, _counter("victim"), _VICTIMS))
            if wait is None:
                raise LockLost(f"The lock is gone after {count} identifiers.")
            size = sum(f.stat().st_size for f in file.parent.iterdir()) / _KIB**2
            after, begun = _peak(), time.perf_counter()
            sweep = auth_batches(_BUDGET.window // 60_000)[2]
            swept = 0
            while (gone := await store.write(partial(_later, sweep))) == BATCH:
                swept += gone
            took = time.perf_counter() - begun
            tell(
                f"access/identifiers: {count:,} in {filled:.0f} s, the files {size:.0f} MiB, "
                f"{swept + gone:,} swept in {took:.0f} s, the victim still locked"
            )
            return after - before


def _later(sweep: Callable[[Tx], int], tx: Tx) -> int:
    tx.now += 2 * 3_600_000
    return sweep(tx)


def _counter(name: str) -> bytes:
    return attempts.counter_key(_KEY, attempts.IDENTIFIER, name)


def _fail(numbers: range, tx: Tx) -> None:
    for number in numbers:
        key = _counter(f"attacked {number}")
        attempts.charge(tx, f"{number}", key, _BUDGET)
        attempts.settle_failure(tx, f"{number}", key, _BUDGET)


def _lock(name: str, tx: Tx) -> None:
    key = _counter(name)
    for number in range(_VICTIMS.limit):
        attempts.charge(tx, f"{name} {number}", key, _VICTIMS)
        attempts.settle_failure(tx, f"{name} {number}", key, _VICTIMS)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB
