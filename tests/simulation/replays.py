"""Replays requested, answered, and carried out, counted by delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


def _counter() -> Counter[str]:
    return Counter()


@dataclass
class ReplayCounts:
    """Counts by delivery. `begun` is what the store shows."""

    begun: Counter[str] = field(default_factory=_counter)
    _requested: Counter[str] = field(default_factory=_counter)  # with permission, not refused
    _promised: Counter[str] = field(default_factory=_counter)
    _tried: Counter[str] = field(default_factory=_counter)  # without permission
    _denied: Counter[str] = field(default_factory=_counter)

    def ask(self, delivery: str, *, may: bool) -> None:
        """Record a request; `may` says whether its caller is authorised."""
        (self._requested if may else self._tried)[delivery] += 1

    def answered(self, delivery: str) -> None:
        """Record that the replay was carried out."""
        self._promised[delivery] += 1

    def denied(self, delivery: str) -> None:
        """Record that the caller was not authorised, which is audited."""
        self._denied[delivery] += 1

    def refused(self, delivery: str, *, may: bool) -> None:
        """Record that the replay was refused and wrote nothing."""
        (self._requested if may else self._tried)[delivery] -= 1

    def began(self, delivery: str) -> bool:
        """The store shows a replayed delivery; return whether a client requested it."""
        self.begun[delivery] += 1
        return self.begun[delivery] <= self._requested[delivery]

    def violations(
        self, recorded: Counter[str], denials: Counter[str], counted: int
    ) -> Iterator[str]:
        """Yield the final violations; `recorded` and `denials` are the Audit Events', and
        `counted` is how many denials have no event of their own."""
        for delivery in self._requested | self.begun | recorded:
            promised, begun, requested = (
                c[delivery] for c in (self._promised, self.begun, self._requested)
            )
            if not promised <= begun <= requested:
                yield f"{delivery}: {begun} restarts, {promised} promised, {requested} requested"
            if recorded[delivery] != begun:
                yield f"{delivery}: {begun} replays, {recorded[delivery]} Audit Events"
        for delivery in denials:
            if denials[delivery] > self._tried[delivery]:
                yield f"{delivery}: {denials[delivery]} denials, {self._tried[delivery]} made"
        missing = sum((self._denied - denials).values())
        least, upper = missing, (self._tried - denials).total()
        if not least <= counted <= upper:
            yield f"{counted} denials are counted together; it should be {least} to {upper}"
