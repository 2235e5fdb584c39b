"""Costs of stored password hashes: their counts, updated wherever a hash is written, and decoys.

An attempt at an unknown identifier is verified against a decoy. Hashes from before a change of
FW_ARGON2, and those of imported accounts, keep their cost until the owner's next sign-in, so decoys
of one fixed cost would reveal these accounts by their response time. Therefore the cost of a decoy
is drawn from the costs of the stored hashes, in proportion to their number, by a value that is
constant for each identifier.

A transaction that changes the counts only inserts rows and locks none, so that concurrent rehashes
do not wait for each other. The count of a cost is the sum of its rows; a refresh that reads many
rows merges them. Neither a sign-in nor a refresh reads the hashes, of which there may be millions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import sqlalchemy as sa

from fw_actors.config import Argon2
from fw_actors.hashing import HashCost, ImportedCost, cost_from, cost_of
from fw_actors.store import Row, Statement, Tx
from fw_actors.store.schema import PASSWORD_COST

REFRESH_MS: Final = 10_000
MAX_COST_ROWS: Final = 1000  # a refresh that finds more merges the rows
_POINT_BYTES: Final = 8

_T: Final = PASSWORD_COST.c
_ADD: Final = Statement(
    sa.insert(PASSWORD_COST).values(cost=sa.bindparam("cost"), hashes=sa.bindparam("hashes"))
)
_SUMS: Final = Statement(
    sa.select(_T.cost, sa.func.sum(_T.hashes), sa.func.count()).group_by(_T.cost)
)
_TAKE: Final = Statement(sa.delete(PASSWORD_COST).returning(_T.cost, _T.hashes))


@dataclass(frozen=True)
class StoredCosts:
    """The number of stored hashes of each cost, cheapest first."""

    counts: tuple[tuple[HashCost, int], ...]

    @classmethod
    def of(cls, counts: Mapping[HashCost, int]) -> StoredCosts:
        """Sort counts; omit those that are not above zero."""
        positive = [(cost, count) for cost, count in counts.items() if count > 0]
        return cls(tuple(sorted(positive, key=lambda each: _work(each[0]))))

    @property
    def total(self) -> int:
        """The number of hashes."""
        return sum(count for _, count in self.counts)

    def outdated(self, live: Argon2) -> int:
        """Return the number of hashes whose cost differs from that of new hashes."""
        return sum(count for cost, count in self.counts if cost != live)

    def draw(self, identifier_key: bytes) -> HashCost | None:
        """Return the cost of an identifier's decoy; None while no hash is stored.

        `identifier_key` is an HMAC of the identifier. Its last bytes are a point between 0 and 1,
        which a client cannot compute. Each cost has an interval that is proportional to its number
        of hashes; the cost whose interval contains the point is drawn. The intervals are in order
        of cost, so that few points change their cost while accounts are rehashed, and in the same
        direction as the accounts.
        """
        point = int.from_bytes(identifier_key[-_POINT_BYTES:], "big")
        scaled = point * self.total >> 8 * _POINT_BYTES  # below the total
        for (cost, _), up_to in zip(
            self.counts, accumulate(count for _, count in self.counts), strict=True
        ):
            if scaled < up_to:
                return cost
        return None


def _work(cost: HashCost) -> tuple[int, int, int, int, str]:
    if isinstance(cost, ImportedCost):  # first: all of them are rehashed in time
        return (0, 0, 0, 0, cost.text)
    return (cost.memory_kib * cost.time, cost.memory_kib, cost.time, cost.parallelism, "")


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
    if tx.writable and sum(rows for *_, rows in sums) > MAX_COST_ROWS:
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


def _text(cost: HashCost) -> str:
    """Return a cost in the format of FW_ARGON2, or as `ImportedCost.text`."""
    if isinstance(cost, ImportedCost):
        return cost.text
    return f"{cost.memory_kib},{cost.time},{cost.parallelism}"


def _cost(text: str) -> HashCost:
    return cost_from(text) if " " in text else Argon2(*map(int, text.split(",")))
