"""Costs of stored password hashes and of decoys: pure functions.

A try at an unknown identifier is verified against a decoy. Hashes that were made before FW_ARGON2
was changed keep their cost until their owner's next sign-in, so a decoy of one fixed cost would
tell every such account apart. Decoys are drawn from the costs of the stored hashes, in their
proportion, by a point that an identifier always has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import argon2

from fw_actors.config import MAX_ARGON2, Argon2

_POINT_BYTES: Final = 8


def parameters_of(stored: str | None) -> argon2.Parameters | None:
    """Return what a stored hash asks for; None for one that is none, or that costs too much.

    It may come from a restored or edited store: its cost is bounded, too.
    """
    if not stored:
        return None
    try:
        asked = argon2.extract_parameters(stored)
    except argon2.exceptions.InvalidHashError:
        return None
    within_limits = (
        asked.memory_cost <= MAX_ARGON2.memory_kib
        and asked.time_cost <= MAX_ARGON2.time
        and asked.parallelism <= MAX_ARGON2.parallelism
    )
    return asked if within_limits else None


def cost_of(stored: str | None) -> Argon2 | None:
    """Return the cost of a stored hash; None for one that `parameters_of` gives none of."""
    asked = parameters_of(stored)
    if asked is None:
        return None
    return Argon2(asked.memory_cost, asked.time_cost, asked.parallelism)


@dataclass(frozen=True)
class StoredCosts:
    """The number of stored hashes of each cost, cheapest first."""

    counts: tuple[tuple[Argon2, int], ...]

    @classmethod
    def of(cls, counts: Mapping[Argon2, int]) -> StoredCosts:
        """Put counts in order; what is not above zero is left out."""
        there = [(cost, count) for cost, count in counts.items() if count > 0]
        return cls(tuple(sorted(there, key=lambda each: _work(each[0]))))

    @property
    def total(self) -> int:
        """The number of hashes."""
        return sum(count for _, count in self.counts)

    def outdated(self, live: Argon2) -> int:
        """Return how many hashes have another cost than new ones get."""
        return sum(count for cost, count in self.counts if cost != live)

    def draw(self, identifier_key: bytes) -> Argon2 | None:
        """Return the cost of an identifier's decoy; None while no hash is stored.

        `identifier_key` is an HMAC of the identifier. Its last bytes are a point between 0 and 1
        that nobody outside can compute; the cost in whose share of all hashes the point lies is
        drawn. The shares are in order of cost, so that few points change sides while hashes are
        made anew, and all of those in the same direction as the accounts do.
        """
        point = int.from_bytes(identifier_key[-_POINT_BYTES:], "big")
        scaled = point * self.total >> 8 * _POINT_BYTES  # below the total
        for (cost, _), up_to in zip(
            self.counts, accumulate(count for _, count in self.counts), strict=True
        ):
            if scaled < up_to:
                return cost
        return None


def _work(cost: Argon2) -> tuple[int, int, int, int]:
    return (cost.memory_kib * cost.time, cost.memory_kib, cost.time, cost.parallelism)
