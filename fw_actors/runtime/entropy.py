"""Gives randomness; the one place that does, so that a whole run can be repeated."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Entropy(Protocol):
    """A source of randomness, given to whatever needs some."""

    def bytes(self, n: int) -> bytes:
        """Return `n` random bytes."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, both included."""


class SystemEntropy:
    """The operating system's randomness: unpredictable, fit for tokens and keys."""

    def __init__(self) -> None:
        self._random = secrets.SystemRandom()

    def bytes(self, n: int) -> bytes:
        """Return `n` random bytes."""
        return secrets.token_bytes(n)

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, both included."""
        return self._random.uniform(low, high)


class SeededEntropy:
    """A repeatable sequence for tests and simulations; never for tokens of a real service."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, n: int) -> bytes:
        """Return the next `n` bytes of the sequence."""
        return self._random.randbytes(n)

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, both included."""
        return self._random.uniform(low, high)
