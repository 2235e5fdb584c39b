"""Records of a process for the console, in memory: the numbers of the last hour, and traces.

Both are bounded rings. A trace holds the last messages of one actor, for a minute, without values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
import trio

from fw_actors.errors import OverloadedError
from fw_actors.runtime import ActorRef, Clock, Message

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


class TracedMessage(msgspec.Struct, frozen=True):
    """A message about to be handled by an actor: its type and its fields' types, no values."""

    at: int
    message: str
    fields: str


class Trace(msgspec.Struct, frozen=True):
    """The recorded messages of an actor; `until` in ms since the epoch."""

    actor: str
    until: int
    seen: int
    messages: list[TracedMessage]


SECONDS: Final = 60.0
KEPT_SECONDS: Final = 300.0
MOST: Final = 4
MESSAGES: Final = 100
FIELDS_SHOWN: Final = 8


class Traces:
    """Runs at most four traces, each of the last 100 messages; a trace ends after a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, RunningTrace] = {}

    def begin(self, ref: ActorRef) -> None:
        """Start tracing an actor. Raises: OverloadedError if four actors are traced already."""
        self._forget()
        live = [each for each in self._running.values() if each.is_live]
        if len(live) >= MOST and ref.name not in self._running:
            raise OverloadedError("Four actors are traced already. Wait until a trace ends.")
        running = RunningTrace(ref, self._clock)
        self._running[ref.name] = running
        ref.trace(running.record)

    def shown(self) -> list[Trace]:
        """Return all traces; a finished trace is kept for five minutes."""
        self._forget()
        return [each.shown() for each in self._running.values()]

    def _forget(self) -> None:
        now = trio.current_time()
        for name, each in list(self._running.items()):
            each.end_when_over()
            if now > each.ends + KEPT_SECONDS:
                del self._running[name]


class RunningTrace:
    """Records the messages of one actor."""

    def __init__(self, ref: ActorRef, clock: Clock) -> None:
        self._ref, self._clock = ref, clock
        self.ends = trio.current_time() + SECONDS
        self._until = clock.now() + int(SECONDS * 1000)
        self._seen = 0
        self._messages: deque[tuple[int, type[Message]]] = deque(maxlen=MESSAGES)

    @property
    def is_live(self) -> bool:
        return trio.current_time() < self.ends

    def record(self, message: Message) -> None:
        """Record a message that is about to be handled."""
        if not self.is_live:
            self._ref.trace(None)
            return
        self._seen += 1
        self._messages.append((self._clock.now(), type(message)))

    def end_when_over(self) -> None:
        if not self.is_live:
            self._ref.trace(None)

    def shown(self) -> Trace:
        messages = [
            TracedMessage(at, kind.__name__, fields_of(kind)) for at, kind in self._messages
        ]
        return Trace(self._ref.name, self._until, self._seen, messages)


def fields_of(kind: type[Message]) -> str:
    """Return the names of a message's fields, without their values."""
    names = kind.__struct_fields__
    more = ", …" if len(names) > FIELDS_SHOWN else ""
    return ", ".join(names[:FIELDS_SHOWN]) + more
