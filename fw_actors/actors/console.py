"""The operators' console: snapshots of the process, traces, and a few actions.

Pages and terminal use the same views. A view is computed only on request and shared by all who
wait for it. Computing views takes at most a fortieth of the time, so that inspecting a process
with 100,000 actors does not slow it down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from os import getpid
from socket import gethostname
from typing import Any, Final

import msgspec
import trio

from fw_actors.access import users
from fw_actors.actors.background import stale_webhooks
from fw_actors.actors.console_records import (
    SAMPLE_SECONDS,
    ConsoleHistory,
    ConsoleSample,
    Trace,
    Traces,
    rates_of,
)
from fw_actors.actors.dispatcher import Pause, Resume
from fw_actors.actors.metrics import Counter
from fw_actors.documents.handle import Fw
from fw_actors.errors import NotFoundError, OverloadedError, PermissionDeniedError
from fw_actors.ops.audit import Action
from fw_actors.ops.console_facts import ConsoleFacts, StoreFacts
from fw_actors.ops.site import Site
from fw_actors.runtime import (
    ActorError,
    ActorRef,
    AskTimeout,
    NodeSnapshot,
    Runtime,
)
from fw_actors.store import Tx, jobs
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.receivers import Receiver, with_stored


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


EVERY_SECONDS: Final = 1.0
STORE_SECONDS: Final = 2.0
JOB_DIGITS: Final = 19
"""Of the largest number that a store may give to a job."""
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
        self._history = ConsoleHistory()

    async def view(self, after: int = 0) -> ConsoleView:
        """Return the next view after number `after` as soon as it is due; 0 accepts any."""
        return await self._next_view(after, with_store=True)

    async def _next_view(self, after: int, *, with_store: bool) -> ConsoleView:
        """Like `view`; `with_store`: with the store's facts, which one process reads for all."""
        async with self._lock:
            view = self._view
            lacks_store = view is not None and with_store and view.store is NO_STORE
            if (
                view is None
                or lacks_store
                or view.number <= after
                or trio.current_time() > self._due
            ):
                await trio.sleep_until(self._due)
                view = self._view = await self._compute_view(with_store)
            return view

    async def history(self) -> list[ConsoleSample]:
        """Return the samples of the last hour, the oldest first."""
        return self._history.samples()

    async def keep_history(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take a sample every ten seconds, also while nobody watches (O-224).

        What is due in the store is counted so seldom that it takes at most a fortieth of the time.
        """
        task_status.started()
        waiting, waiting_due = 0, trio.current_time()
        before = self._counted()
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            began = trio.current_time()
            if began >= waiting_due:
                with suppress(OverloadedError):
                    waiting = await self._site.store.read(_due_events)
                waiting_due = trio.current_time() + SHARE * (trio.current_time() - began)
            counted = self._counted()
            deliveries, messages = rates_of(before, counted)
            before = counted
            in_flight = _in_flight(await self._dispatcher_described())
            now = self._site.clock.now()
            self._history.add(ConsoleSample(now, deliveries, in_flight, waiting, messages))

    def _counted(self) -> tuple[int, int]:
        """Return how many deliveries have ended, and how many messages were handled."""
        nodes = self._runtime.snapshot().walk()
        return sum(self._delivered.counts().values()), sum(node.handled for node in nodes)

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

    async def retry_job(self, user: str, job: str, request_id: str = "") -> None:
        """Make a job of an app or a mail due now. Raises: as `JobControl.retry`."""
        await self._change_job(self._site.jobs.retry, user, job, request_id)

    async def cancel_job(self, user: str, job: str, request_id: str = "") -> None:
        """Delete a job of an app or a mail. Raises: as `JobControl.cancel`."""
        await self._change_job(self._site.jobs.cancel, user, job, request_id)

    async def _change_job(
        self, act: Callable[[Fw, int], object], user: str, job: str, request_id: str
    ) -> None:
        if not (job.isascii() and job.isdigit() and len(job) < JOB_DIGITS):
            raise NotFoundError(f"There is no job {job[:40]}.")
        await self._site.write(user, lambda fw: act(fw, int(job)), request_id)
        self._store_due = 0.0

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

    async def _compute_view(self, with_store: bool) -> ConsoleView:
        began = trio.current_time()
        if with_store and began >= self._store_due:
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
            in_flight=_in_flight(dispatcher),
            slots=int(dispatcher.get("slots", 0)),
            receivers=with_stored(
                [Receiver(**each) for each in dispatcher.get("receivers", ())],
                self._store.receivers,
            ),
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
            processes=[process_name()],
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


def process_name() -> str:
    """Return this process as the records of its attempts name it."""
    return f"{gethostname()}:{getpid()}"


def _in_flight(dispatcher: Mapping[str, Any]) -> int:
    return int(dispatcher.get("slots", 0)) - int(dispatcher.get("free", 0))


def _due_events(tx: Tx) -> int:
    return next((row.ready for row in jobs.stats(tx) if row.queue == QUEUE), 0)


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
