"""Views of a process for the console, its samples of the last hour, and traces of its actors.

Samples and traces are in memory, in bounded rings. A trace holds the last messages of one actor,
for a minute, without values. The views of several processes are merged into one: an actor is named
with its process (`dispatcher@2` is that of process 2), and a receiver is shown once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from fw_actors.errors import OverloadedError
from fw_actors.ops.console_facts import StoredReceiver, StoreFacts
from fw_actors.rules.receivers import FAILURES
from fw_actors.runtime import ActorRef, Clock, Message, NodeSnapshot
from fw_actors.runtime.clock import MS_PER_SECOND

SEPARATOR: Final = "@"
DEAD_LETTERS_SHOWN: Final = 100
NO_STORE: Final = StoreFacts([], [], [], [], [])


SAMPLE_SECONDS: Final = 10
MAX_SAMPLES: Final = 3600 // SAMPLE_SECONDS
_SAMPLE_MS: Final = SAMPLE_SECONDS * MS_PER_SECOND


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


def merge_histories(histories: Iterable[list[ConsoleSample]]) -> list[ConsoleSample]:
    """Return one history of several processes: those of the same ten seconds are added up."""
    by_slot: dict[int, ConsoleSample] = {}
    for samples in histories:
        for each in samples:
            slot = each.at // _SAMPLE_MS
            sample = by_slot.get(slot)
            by_slot[slot] = each if sample is None else _sum(sample, each)
    return [by_slot[slot] for slot in sorted(by_slot)][-MAX_SAMPLES:]


def _sum(first: ConsoleSample, second: ConsoleSample) -> ConsoleSample:
    return ConsoleSample(
        at=max(first.at, second.at),
        deliveries=round(first.deliveries + second.deliveries, 1),
        in_flight=first.in_flight + second.in_flight,
        waiting=max(first.waiting, second.waiting),
        messages=round(first.messages + second.messages, 1),
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


TRACE_SECONDS: Final = 60.0
TRACE_KEPT_SECONDS: Final = 300.0
MAX_TRACES: Final = 4
MESSAGES_KEPT: Final = 100
FIELDS_SHOWN: Final = 8


class Traces:
    """Runs at most four traces, each of the last 100 messages; a trace ends after a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, RunningTrace] = {}

    def begin(self, ref: ActorRef) -> None:
        """Start tracing an actor. Raises: OverloadedError if `MAX_TRACES` actors are traced."""
        self._drop_expired()
        live = [each for each in self._running.values() if each.is_live]
        if len(live) >= MAX_TRACES and ref.name not in self._running:
            raise OverloadedError(
                f"At most {MAX_TRACES} actors can be traced at once. Wait until a trace ends."
            )
        running = RunningTrace(ref, self._clock)
        self._running[ref.name] = running
        ref.trace(running.record)

    def shown(self) -> list[Trace]:
        """Return all traces; a finished trace is kept for five minutes."""
        self._drop_expired()
        return [each.shown() for each in self._running.values()]

    def _drop_expired(self) -> None:
        now = trio.current_time()
        for name, each in list(self._running.items()):
            each.end_when_over()
            if now > each.ends + TRACE_KEPT_SECONDS:
                del self._running[name]


class RunningTrace:
    """Records the messages of one actor."""

    def __init__(self, ref: ActorRef, clock: Clock) -> None:
        self._ref, self._clock = ref, clock
        self.ends = trio.current_time() + TRACE_SECONDS
        self._until = clock.now() + int(TRACE_SECONDS * MS_PER_SECOND)
        self._seen = 0
        self._messages: deque[tuple[int, type[Message]]] = deque(maxlen=MESSAGES_KEPT)

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


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """A node of the tree; `rate` is messages per second since the previous view."""

    path: str
    name: str
    kind: str
    state: str
    level: int
    depth: int
    capacity: int
    alive: int
    running: int
    handled: int
    rate: float
    failed: int
    restarts: int
    last_error: str


class DeadLetterShown(msgspec.Struct, frozen=True):
    """A message that could not be delivered to an actor."""

    recipient: str
    message: str
    reason: str
    at: int


HEALTH_ORDER: Final = ("paused", "failing", "slow", "healthy", "untried")
"""The order of the list: those that need attention first."""


class Receiver(msgspec.Struct, frozen=True, rename="camel"):
    """A receiver: its slots, their use, its health, and its waiting deliveries. Times in ms."""

    origin: str
    in_flight: int
    window: int
    limit: int
    health: str
    """healthy, slow, failing, paused, or untried: nothing was sent there since the start."""
    failures: int = 0
    """Attempts that have failed since the last success."""
    failing_since: int | None = None
    """The time of the first of these failures."""
    last_error: str = ""
    webhooks: int = 0
    waiting: int = 0
    """Deliveries that wait in the store for all processes, at most 1,000 of a Webhook."""
    more_wait: bool = False
    last_success: int | None = None


def with_stored(live: Sequence[Receiver], stored: Sequence[StoredReceiver]) -> list[Receiver]:
    """Merge the receivers that processes know with the stored facts; return them, the worst first.

    A receiver that is failing by the store is failing, whatever a process has seen since its start.
    A receiver that no process knows is added if deliveries wait for it or fail.
    """
    by_origin = {each.origin: each for each in stored}
    merged = [_with_stored(each, by_origin.pop(each.origin, None)) for each in live]
    merged += [
        _with_stored(Receiver(each.origin, 0, 0, 0, "untried"), each)
        for each in by_origin.values()
        if each.waiting or each.failures >= FAILURES
    ]
    return sorted(merged, key=_urgency)


def _urgency(each: Receiver) -> tuple[int, int, int, int, str]:
    order = HEALTH_ORDER.index(each.health)
    return order, -each.failures, -each.waiting, -each.in_flight, each.origin


def _with_stored(receiver: Receiver, stored: StoredReceiver | None) -> Receiver:
    if stored is None:
        return receiver
    merged = msgspec.structs.replace(
        receiver,
        webhooks=stored.webhooks,
        waiting=stored.waiting,
        more_wait=stored.more_wait,
        last_success=stored.last_success,
    )
    if stored.failures <= receiver.failures:
        return merged
    fails = stored.failures >= FAILURES and receiver.health != "paused"
    return msgspec.structs.replace(
        merged,
        health="failing" if fails else receiver.health,
        failures=stored.failures,
        failing_since=stored.failing_since,
        last_error=stored.last_error,
    )


class ConsoleView(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the process at one moment. Times in ms since the epoch; `rates` per second."""

    number: int
    at: int
    every: float
    """Seconds until the next view may be computed."""
    tree: list[Node]
    rates: Mapping[str, float]
    in_flight: int
    slots: int
    receivers: list[Receiver]
    store: StoreFacts
    dead_letters: int
    last_dead_letters: list[DeadLetterShown]
    traces: list[Trace]
    numbers: Mapping[str, Any]
    processes: list[str] = []
    """The processes that this view covers and acts reach, as `host:process number`."""


def paths_of(
    nodes: tuple[NodeSnapshot, ...], above: str = "", level: int = 0
) -> list[tuple[str, int, NodeSnapshot]]:
    """Return every node with its path and level, parents first."""
    paths = []
    for node in nodes:
        path = f"{above}/{node.name}"
        paths.append((path, level, node))
        paths += paths_of(node.children, path, level + 1)
    return paths


def node_shown(path: str, level: int, node: NodeSnapshot, rate: float) -> Node:
    """Return a node of the tree as views show it; `rate` is in messages a second."""
    return Node(
        path=path,
        name=node.name,
        kind=node.kind,
        state=node.state,
        level=level,
        depth=node.depth,
        capacity=node.capacity,
        alive=node.alive,
        running=node.running,
        handled=node.handled,
        rate=rate,
        failed=node.failed,
        restarts=node.restarts,
        last_error=node.last_error or "",
    )


def merge_views(
    own: ConsoleView, views: Mapping[int, ConsoleView], count: int, restarts: Mapping[int, int]
) -> ConsoleView:
    """Return one view of the processes 1 to `count`; the store's part is that of `own`.

    A process without a view is shown as not answering.
    """
    by_process = dict(sorted(views.items()))
    letters = [
        DeadLetterShown(_named(letter.recipient, n), letter.message, letter.reason, letter.at)
        for n, view in by_process.items()
        for letter in view.last_dead_letters
    ]
    return msgspec.structs.replace(
        own,
        tree=[
            node
            for n in range(1, count + 1)
            for node in _tree_of(n, by_process.get(n), restarts.get(n, 0))
        ],
        rates=_sums(view.rates for view in by_process.values()),
        in_flight=sum(view.in_flight for view in by_process.values()),
        slots=sum(view.slots for view in by_process.values()),
        receivers=with_stored(_receivers(by_process.values()), own.store.receivers),
        dead_letters=sum(view.dead_letters for view in by_process.values()),
        last_dead_letters=sorted(letters, key=lambda each: -each.at)[:DEAD_LETTERS_SHOWN],
        traces=[
            Trace(_named(trace.actor, n), trace.until, trace.seen, trace.messages)
            for n, view in by_process.items()
            for trace in view.traces
        ],
        numbers=_sums(view.numbers for view in by_process.values()),
        processes=[name for view in by_process.values() for name in view.processes],
    )


def _named(name: str, process: int) -> str:
    return f"{name}{SEPARATOR}{process}"


def _tree_of(number: int, view: ConsoleView | None, restarts: int) -> list[Node]:
    """Return the node of a process, and those of its actors below it."""
    path = f"/process {number}"
    process = Node(
        path=path,
        name=f"process {number}",
        kind="process",
        state="not answering" if view is None else "running",
        level=0,
        depth=0,
        capacity=0,
        alive=int(view is not None),
        running=0,
        handled=0,
        rate=0.0,
        failed=0,
        restarts=restarts,
        last_error="",
    )
    below = () if view is None else view.tree
    return [
        process,
        *(
            msgspec.structs.replace(
                node,
                path=path + node.path,
                name=_named(node.name, number),
                level=node.level + 1,
            )
            for node in below
        ),
    ]


def _receivers(views: Iterable[ConsoleView]) -> list[Receiver]:
    """Return each receiver once: its slots added up, its health the worst of all processes."""
    by_origin: dict[str, Receiver] = {}
    for view in views:
        for each in view.receivers:
            merged = by_origin.get(each.origin)
            by_origin[each.origin] = each if merged is None else _merge_receivers(merged, each)
    return list(by_origin.values())


def _merge_receivers(first: Receiver, second: Receiver) -> Receiver:
    worst = max(first, second, key=lambda each: each.failures)
    since = [each for each in (first.failing_since, second.failing_since) if each is not None]
    return Receiver(
        origin=first.origin,
        in_flight=first.in_flight + second.in_flight,
        window=first.window + second.window,
        limit=first.limit + second.limit,
        health=min(first.health, second.health, key=HEALTH_ORDER.index),
        failures=worst.failures,
        failing_since=min(since, default=None),
        last_error=worst.last_error,
    )


def _sums(of: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for numbers in of:
        for name, number in numbers.items():
            total[name] = total.get(name, 0) + number
    return total
