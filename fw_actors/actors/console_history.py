"""The last hour of a process in numbers, for the console's graphs: a bounded ring of samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

SAMPLE_SECONDS: Final = 10
MAX_SAMPLES: Final = 3600 // SAMPLE_SECONDS
_MS: Final = SAMPLE_SECONDS * 1000


class ConsoleSample(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of ten seconds, which end at `at` (ms); `deliveries` and `messages` a second.

    `waiting` is how many events were due in the store, which all processes share.
    """

    at: int
    deliveries: float
    in_flight: int
    waiting: int
    messages: float


def rates_of(before: tuple[int, int], now: tuple[int, int]) -> tuple[float, float]:
    """Return two counts a second; a restarted pool may begin from zero."""
    first, second = (
        round(max(0, after - then) / SAMPLE_SECONDS, 1)
        for then, after in zip(before, now, strict=True)
    )
    return first, second


class ConsoleHistory:
    """Keeps the samples of an hour; the oldest one gives way to a new one."""

    def __init__(self) -> None:
        self._samples: deque[ConsoleSample] = deque(maxlen=MAX_SAMPLES)

    def add(self, sample: ConsoleSample) -> None:
        """Keep a sample."""
        self._samples.append(sample)

    def samples(self) -> list[ConsoleSample]:
        """Return the samples, the oldest first."""
        return list(self._samples)


def merged_history(histories: Iterable[list[ConsoleSample]]) -> list[ConsoleSample]:
    """Return one history of several processes: those of the same ten seconds are added up."""
    found: dict[int, ConsoleSample] = {}
    for samples in histories:
        for each in samples:
            slot = each.at // _MS
            known = found.get(slot)
            found[slot] = each if known is None else _sum(known, each)
    return [found[slot] for slot in sorted(found)][-MAX_SAMPLES:]


def _sum(one: ConsoleSample, other: ConsoleSample) -> ConsoleSample:
    return ConsoleSample(
        at=max(one.at, other.at),
        deliveries=round(one.deliveries + other.deliveries, 1),
        in_flight=one.in_flight + other.in_flight,
        waiting=max(one.waiting, other.waiting),
        messages=round(one.messages + other.messages, 1),
    )
