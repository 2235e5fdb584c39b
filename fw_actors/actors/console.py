"""The operators' console: snapshots of the process, traces, and a few actions.

Pages and terminal use the same views. A view is computed only on request and shared by all who
wait for it. Computing views takes at most a fortieth of the time, so that inspecting a process
with 100,000 actors does not slow it down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio

from fw_actors.access import users
from fw_actors.actors.counters import Counter
from fw_actors.actors.dispatcher import Pause, Resume
from fw_actors.actors.subscription_watch import stale_webhooks
from fw_actors.documents.handle import Fw
from fw_actors.errors import NotFoundError, OverloadedError, PermissionDeniedError
from fw_actors.ops.audit import Action
from fw_actors.ops.console_facts import ConsoleFacts, StoreFacts
from fw_actors.ops.site import Site
from fw_actors.runtime import (
    ActorError,
    ActorRef,
    AskTimeout,
    Clock,
    Message,
    NodeSnapshot,
    Runtime,
)


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


class Receiver(msgspec.Struct, frozen=True, rename="camel"):
    """A receiver: its slots, their use, and its health."""

    origin: str
    in_flight: int
    window: int
    limit: int
    health: str
    """healthy, slow, failing or paused."""
    failures: int = 0
    """Attempts that have failed since the last success."""
    failing_since: int | None = None
    """When the first of these failures was (ms)."""
    last_error: str = ""


class DeadLetterShown(msgspec.Struct, frozen=True):
    """A message that could not be delivered to an actor."""

    recipient: str
    message: str
    reason: str
    at: int


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


EVERY_SECONDS: Final = 1.0
STORE_SECONDS: Final = 2.0
SHARE: Final = 40
"""A view that took t seconds to compute is not recomputed for 40 t."""
ASK_SECONDS: Final = 2.0
STOP_SECONDS: Final = 5.0
NO_STORE: Final = StoreFacts([], [], [], [], [])


class Console:
    """Computes views and carries out actions; one per process, used on trio's thread.

    `ServiceConsole` does so for all processes of a service of several.
    """

    def __init__(
        self, site: Site, runtime: Runtime, dispatcher: ActorRef, delivered: Counter
    ) -> None:
        self._site, self._runtime = site, runtime
        self._dispatcher, self._delivered = dispatcher, delivered
        self._facts = ConsoleFacts(site.registry, site.installation_key)
        self._traces = Traces(site.clock)
        self._lock = trio.Lock()
        self._view: ConsoleView | None = None
        self._due = 0.0
        self._made_at = 0.0
        self._store, self._store_due = NO_STORE, 0.0
        self._before: Mapping[str, float] = {}

    async def view(self, after: int = 0) -> ConsoleView:
        """Return the next view after number `after` as soon as it is due; 0 accepts any."""
        async with self._lock:
            view = self._view
            if view is None or view.number <= after or trio.current_time() > self._due:
                await trio.sleep_until(self._due)
                view = self._view = await self._compute_view()
            return view

    async def pause(self, user: str, receiver: str, request_id: str = "") -> None:
        """Stop starting attempts at a receiver in this process until it is resumed.

        Raises: NotFoundError if no delivery went to it since the start.
        """
        await self._ask_dispatcher(Pause(receiver))
        await self._note(user, Action.CONSOLE_PAUSE, receiver, request_id)

    async def resume(self, user: str, receiver: str, request_id: str = "") -> None:
        """Resume a receiver. Raises: NotFoundError."""
        await self._ask_dispatcher(Resume(receiver))
        await self._note(user, Action.CONSOLE_RESUME, receiver, request_id)

    async def restart(self, user: str, actor: str, request_id: str = "") -> None:
        """Stop a single actor; its supervisor starts it again. Raises: NotFoundError."""
        ref = self._single(actor)
        await self._note(user, Action.CONSOLE_RESTART, actor, request_id)
        ref.stop(trio.current_time() + STOP_SECONDS)

    async def trace(self, user: str, actor: str, request_id: str = "") -> None:
        """Trace a single actor for a minute. Raises: NotFoundError, OverloadedError."""
        self._traces.begin(self._single(actor))
        await self._note(user, Action.CONSOLE_TRACE, actor, request_id)

    async def unlock(self, user: str, identifier: str, request_id: str = "") -> None:
        """Lift the lockouts of an account's name and e-mail. Raises: NotFoundError."""
        site = self._site

        def work(fw: Fw) -> None:
            name = users.unlock(fw, site.accounts, site.installation_key, identifier)
            site.audit.record(fw, Action.CONSOLE_UNLOCK, name)

        await site.write(user, work, request_id)
        self._store_due = 0.0

    async def replay(self, user: str, delivery: str, request_id: str = "") -> None:
        """Replay a delivery. Raises: PermissionDeniedError, NotFoundError, ConflictError."""
        site = self._site
        replayed = await site.write(user, lambda fw: site.replays.replay(fw, delivery), request_id)
        if isinstance(replayed, PermissionDeniedError):  # its record is committed
            raise replayed
        self._store_due = 0.0

    async def refresh(self, user: str, name: str, request_id: str = "") -> None:
        """Use the stored subscriptions at once, in all processes of the service (C-152).

        Raises: OverloadedError if the store does not answer.
        """
        await self._site.store.write(self._site.subscriptions.renew_after_commit)

    def _single(self, name: str) -> ActorRef:
        for node in self._runtime.snapshot().walk():
            if node.kind == "actor" and node.name == name:
                return self._runtime.ref(name)
        raise NotFoundError(f"There is no single actor {name[:60]}.")

    async def _ask_dispatcher(self, message: Pause | Resume) -> None:
        if not await self.tell_dispatcher(message):
            raise NotFoundError(f"No delivery has gone to {message.receiver[:200]} recently.")

    async def tell_dispatcher(self, message: Pause | Resume) -> bool:
        """Pause or resume a receiver in this process; return whether it is known here.

        Raises: OverloadedError if the dispatcher does not answer.
        """
        try:
            return bool(await self._dispatcher.ask(message, deadline=ASK_SECONDS))
        except (ActorError, AskTimeout):
            raise OverloadedError("The dispatcher does not answer. Try again.") from None

    async def paused(self) -> list[str]:
        """Return the origins of the receivers that are paused in this process."""
        receivers = (await self._dispatcher_described()).get("receivers", ())
        return [each["origin"] for each in receivers if each["health"] == "paused"]

    async def _note(self, user: str, action: Action, target: str, request_id: str) -> None:
        audit = self._site.audit
        await self._site.write(user, lambda fw: audit.record(fw, action, target), request_id)

    async def _compute_view(self) -> ConsoleView:
        began = trio.current_time()
        if began >= self._store_due:
            await self._read_store()
        dispatcher = await self._dispatcher_described()
        before = trio.current_time()
        snapshot = self._runtime.snapshot()
        totals = {f"deliveries {k}": float(n) for k, n in self._delivered.counts().items()}
        totals |= {f"node {p}": float(node.handled) for p, _, node in _paths(snapshot.tree)}
        rates = self._rates(totals, began)
        cost = trio.current_time() - before
        every = max(EVERY_SECONDS, SHARE * cost)
        self._due = trio.current_time() + every
        return ConsoleView(
            number=(self._view.number if self._view else 0) + 1,
            at=self._site.clock.now(),
            every=round(every, 3),
            tree=[_node(path, level, node, rates) for path, level, node in _paths(snapshot.tree)],
            rates={k.removeprefix("deliveries "): r for k, r in rates.items() if k[0] == "d"},
            in_flight=int(dispatcher.get("slots", 0)) - int(dispatcher.get("free", 0)),
            slots=int(dispatcher.get("slots", 0)),
            receivers=[Receiver(**each) for each in dispatcher.get("receivers", ())],
            store=self._store,
            dead_letters=sum(snapshot.dead_letters.values()),
            last_dead_letters=[
                DeadLetterShown(letter.recipient, letter.message, letter.reason.value, letter.at)
                for letter in reversed(snapshot.last_dead_letters)
            ],
            traces=self._traces.shown(),
            numbers={
                "deadlines": snapshot.deadlines,
                "workers": snapshot.workers,
                "workersParked": snapshot.workers_parked,
                "lateReplies": snapshot.late_replies,
            },
        )

    async def _read_store(self) -> None:
        """Read the store's facts; an unavailable store leaves the last ones."""
        began = trio.current_time()
        with suppress(OverloadedError):
            found = await self._site.store.read(self._facts.read)
            stale = await stale_webhooks(self._site.store, self._site.subscriptions)
            self._store = msgspec.structs.replace(found, stale_webhooks=list(stale))
        now = trio.current_time()
        self._store_due = now + max(STORE_SECONDS, SHARE * (now - began))

    async def _dispatcher_described(self) -> Mapping[str, Any]:
        try:
            return (await self._dispatcher.inspect(ASK_SECONDS)).described
        except (ActorError, AskTimeout):
            return {}  # restarting or busy; the tree shows it

    def _rates(self, totals: Mapping[str, float], now: float) -> dict[str, float]:
        seconds = now - self._made_at
        before, self._before, self._made_at = self._before, totals, now
        if not before or seconds <= 0:
            return dict.fromkeys(totals, 0.0)
        # A restarted actor keeps its count; a reopened pool may restart from zero.
        return {
            key: round(max(0.0, count - before.get(key, count)) / seconds, 1)
            for key, count in totals.items()
        }


def _paths(
    nodes: tuple[NodeSnapshot, ...], above: str = "", level: int = 0
) -> list[tuple[str, int, NodeSnapshot]]:
    """Return every node with its path and level, parents first."""
    found = []
    for node in nodes:
        path = f"{above}/{node.name}"
        found.append((path, level, node))
        found += _paths(node.children, path, level + 1)
    return found


def _node(path: str, level: int, node: NodeSnapshot, rates: Mapping[str, float]) -> Node:
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
        rate=rates.get(f"node {path}", 0.0),
        failed=node.failed,
        restarts=node.restarts,
        last_error=node.last_error or "",
    )
