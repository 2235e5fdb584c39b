"""Counts of stored password hashes per cost, updated wherever a hash is written.

A transaction that changes the counts adds rows and locks none, so that concurrent rehashes do not
wait for each other. The count of a cost is the sum of its rows; a refresh that reads many rows
merges them. Neither a sign-in nor a refresh reads the hashes themselves, of which there may be
millions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import sqlalchemy as sa

from fw_actors.config import Argon2
from fw_actors.hashing import StoredCosts, cost_of
from fw_actors.store import Row, Statement, Tx
from fw_actors.store.schema import PASSWORD_COST

REFRESH_MS: Final = 10_000
MAX_ROWS: Final = 1000  # a refresh that finds more merges the rows

_T: Final = PASSWORD_COST.c
_ADD: Final = Statement(
    sa.insert(PASSWORD_COST).values(cost=sa.bindparam("cost"), hashes=sa.bindparam("hashes"))
)
_SUMS: Final = Statement(
    sa.select(_T.cost, sa.func.sum(_T.hashes), sa.func.count()).group_by(_T.cost)
)
_TAKE: Final = Statement(sa.delete(PASSWORD_COST).returning(_T.cost, _T.hashes))


def count_change(tx: Tx, before: str | None, after: str | None) -> None:
    """Count the replacement of the hash `before` by `after`; None stands for no hash.

    Damaged hashes and hashes with a cost out of bounds are not counted.
    """
    old, new = cost_of(before), cost_of(after)
    if old == new:
        return
    for cost, hashes in ((old, -1), (new, 1)):
        if cost is not None:
            tx.run(_ADD, cost=_text(cost), hashes=hashes)


def stored_costs(tx: Tx) -> StoredCosts:
    """Return the current counts; in a write transaction, also merge the rows if there are many.

    Take all other locks before calling: a concurrent merge blocks this one.
    """
    sums = tx.rows(_SUMS)
    if tx.writable and sum(rows for *_, rows in sums) > MAX_ROWS:
        for cost, hashes in _counted(tx.rows(_TAKE)).items():
            tx.run(_ADD, cost=cost, hashes=hashes)
    return StoredCosts.of({_cost(cost): int(hashes) for cost, hashes, _ in sums})


class RecentCosts:
    """A cache of the counts, refreshed after `REFRESH_MS`."""

    def __init__(self) -> None:
        self._costs = StoredCosts(())
        self._read_at: int | None = None

    def get(self, tx: Tx) -> StoredCosts:
        """Return the counts; read them again if expired or if the clock was set back."""
        read_at = self._read_at
        if read_at is None or not 0 <= tx.now - read_at < REFRESH_MS:
            self._costs, self._read_at = stored_costs(tx), tx.now
        return self._costs


def _counted(rows: Iterable[Row]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for cost, hashes in rows:
        counts[cost] += hashes
    return counts


def _text(cost: Argon2) -> str:
    """Return a cost in the format of FW_ARGON2."""
    return f"{cost.memory_kib},{cost.time},{cost.parallelism}"


def _cost(text: str) -> Argon2:
    return Argon2(*map(int, text.split(",")))
