"""The operators' console: snapshots of the process, traces, and a few actions.

Pages and terminal use the same views. A view is computed only on request and shared by all who
wait for it. Computing views takes at most a fortieth of the time, so that inspecting a process
with 100,000 actors does not slow it down.

In a service of several processes there is one view of all, and actions on each of them. The console
of each process asks the others for their views and adds its own. A receiver is paused in all
processes, also in those that have sent nothing to it yet.

The module has more than 500 lines because that console extends each view and action of the console
of one process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from os import getpid
from socket import gethostname
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import trio

from fw_actors.access import users
from fw_actors.actors.console_view import (
    NO_STORE,
    SAMPLE_SECONDS,
    SEPARATOR,
    ConsoleHistory,
    ConsoleSample,
    ConsoleView,
    DeadLetterShown,
    Receiver,
    Traces,
    merge_histories,
    merge_views,
    node_shown,
    paths_of,
    rates_of,
    with_stored,
)
from fw_actors.actors.dispatcher import Pause, Resume
from fw_actors.actors.metrics import Counter
from fw_actors.config import ProcessPlace
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import require_administering
from fw_actors.errors import FwError, NotFoundError, OverloadedError, PermissionDeniedError
from fw_actors.ops.audit import Action
from fw_actors.ops.console_facts import ConsoleFacts
from fw_actors.ops.site import Site
from fw_actors.runtime import ActorError, ActorRef, Runtime
from fw_actors.store import Tx, jobs
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.subscriptions import stale_webhooks

VIEW_SECONDS: Final = 1.0
STORE_SECONDS: Final = 2.0
JOB_DIGITS: Final = 19
"""Of the largest number that a store may give to a job."""
COST_RATIO: Final = 40
"""A view that took t seconds to compute is not recomputed for 40 t."""
ASK_SECONDS: Final = 2.0
STOP_SECONDS: Final = 5.0
NODE: Final = "node"
DELIVERIES: Final = "deliveries"
CountKey = tuple[str, str]
"""`NODE` and the path of a node, or `DELIVERIES` and a status."""


def require_console(fw: Fw) -> None:
    """Check that a user may use the console. Raises: PermissionDeniedError."""
    require_administering(fw.rights, "The console")


class PauseReach(NamedTuple):
    """Whether a receiver that was to be paused or resumed is known to a process of the service,
    and the numbers of the processes that did not answer."""

    is_known: bool
    unanswered: Sequence[int] = ()


class Console:
    """Computes views and carries out actions; one per process, used on trio's thread.

    `ServiceConsole` does so for all processes of a service of several.
    """

    def __init__(
        self, site: Site, runtime: Runtime, dispatcher: ActorRef, delivered: Counter
    ) -> None:
        self._site, self._runtime = site, runtime
        self._dispatcher, self._delivered = dispatcher, delivered
        self._facts = ConsoleFacts(site.installation_key)
        self._traces = Traces(site.clock)
        self._lock = trio.Lock()
        self._view: ConsoleView | None = None
        self._view_due = 0.0
        self._viewed_at = 0.0
        self._store, self._store_due = NO_STORE, 0.0
        self._before: Mapping[CountKey, int] = {}
        self._history = ConsoleHistory()

    async def view(self, after: int = 0) -> ConsoleView:
        """Return the next view after number `after` as soon as it is due; 0 accepts any."""
        return await self._next_view(after, with_store=True)

    async def _next_view(self, after: int, *, with_store: bool) -> ConsoleView:
        """As `view`. `with_store`: include the store's facts, which one process reads for all."""
        async with self._lock:
            view = self._view
            lacks_store = view is not None and with_store and view.store is NO_STORE
            if (
                view is None
                or lacks_store
                or view.number <= after
                or trio.current_time() > self._view_due
            ):
                await trio.sleep_until(self._view_due)
                view = self._view = await self._compute_view(with_store)
            return view

    async def history(self) -> list[ConsoleSample]:
        """Return the samples of the last hour, the oldest first."""
        return self._history.samples()

    async def keep_history(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take a sample every ten seconds, also without an open console (O-224).

        The due jobs in the store are counted so seldom that it takes at most a fortieth of the
        time.
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
                waiting_due = trio.current_time() + COST_RATIO * (trio.current_time() - began)
            counted = self._counted()
            deliveries, messages = rates_of(before, counted)
            before = counted
            in_flight = _in_flight(await self._describe_dispatcher())
            now = self._site.clock.now()
            self._history.add(ConsoleSample(now, deliveries, in_flight, waiting, messages))

    def _counted(self) -> tuple[int, int]:
        """Return how many deliveries have ended, and how many messages were handled."""
        nodes = self._runtime.snapshot().walk()
        return sum(self._delivered.counts().values()), sum(node.handled for node in nodes)

    async def pause(self, user: str, receiver: str, request_id: str = "") -> None:
        """Stop starting attempts at a receiver in this service until it is resumed.

        Raises: NotFoundError if no delivery went to it since the start; OverloadedError if a
            process does not answer, or if the store cannot record the pause.
        """
        unanswered = await self._pause_or_resume(Pause(receiver))
        await self._record_action(
            user, Action.CONSOLE_PAUSE, receiver, request_id, done="The receiver is paused"
        )
        _require_answers(unanswered)

    async def resume(self, user: str, receiver: str, request_id: str = "") -> None:
        """Resume a receiver. Raises: as `pause`."""
        unanswered = await self._pause_or_resume(Resume(receiver))
        await self._record_action(
            user, Action.CONSOLE_RESUME, receiver, request_id, done="The receiver is resumed"
        )
        _require_answers(unanswered)

    async def restart(self, user: str, actor: str, request_id: str = "") -> None:
        """Stop a single actor; its supervisor starts it again. Raises: NotFoundError."""
        ref = self._single(actor)
        await self._record_action(user, Action.CONSOLE_RESTART, actor, request_id)
        ref.stop(trio.current_time() + STOP_SECONDS)

    async def trace(self, user: str, actor: str, request_id: str = "") -> None:
        """Trace a single actor for a minute. Raises: NotFoundError, OverloadedError."""
        self._traces.begin(self._single(actor))
        await self._record_action(
            user, Action.CONSOLE_TRACE, actor, request_id, done="The actor is traced"
        )

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

    async def use_stored_subscriptions(self) -> None:
        """Use the stored subscriptions at once, in all processes of the service (C-152).

        It is no action of an operator and writes no Audit Event: a command has changed a Webhook,
        which its Versions show. Raises: OverloadedError if the store does not answer.
        """
        await self._site.store.write(self._site.subscriptions.renew_after_commit)

    async def retry_job(self, user: str, job: str, request_id: str = "") -> None:
        """Make a job of an app or a mail due now. Raises: as `JobControl.retry`."""
        await self._change_job(self._site.jobs.retry, user, job, request_id)

    async def cancel_job(self, user: str, job: str, request_id: str = "") -> None:
        """Delete a job of an app or a mail. Raises: as `JobControl.cancel`."""
        await self._change_job(self._site.jobs.cancel, user, job, request_id)

    async def _change_job(
        self, action: Callable[[Fw, int], object], user: str, job: str, request_id: str
    ) -> None:
        if not (job.isascii() and job.isdigit() and len(job) < JOB_DIGITS):
            raise NotFoundError(f"There is no job {job[:40]}.")
        await self._site.write(user, lambda fw: action(fw, int(job)), request_id)
        self._store_due = 0.0

    def _single(self, name: str) -> ActorRef:
        for node in self._runtime.snapshot().walk():
            if node.kind == "actor" and node.name == name:
                return self._runtime.ref(name)
        raise _no_single(name)

    async def _pause_or_resume(self, message: Pause | Resume) -> Sequence[int]:
        """Pause or resume a receiver; return the numbers of the processes without an answer."""
        reach = await self.set_paused(message)
        if not reach.is_known and reach.unanswered:
            numbers = ", ".join(map(str, reach.unanswered))
            raise OverloadedError(
                f"These processes did not answer: {numbers}. The others have not sent to "
                f"{message.receiver[:200]} recently. Try again."
            )
        if not reach.is_known:
            raise NotFoundError(
                f"This service has not sent to {message.receiver[:200]} recently, so it can "
                "neither pause nor resume it. Pause the Webhooks that point to it."
            )
        return reach.unanswered

    async def set_paused(self, message: Pause | Resume) -> PauseReach:
        """Pause or resume a receiver in this process.

        Raises: OverloadedError if the Dispatcher does not respond.
        """
        try:
            return PauseReach(bool(await self._dispatcher.ask(message, deadline=ASK_SECONDS)))
        except ActorError:
            raise OverloadedError(
                f"The Dispatcher did not respond within {ASK_SECONDS:g} s. Try again."
            ) from None

    async def paused(self) -> list[str]:
        """Return the origins of the receivers that are paused in this process."""
        receivers = (await self._describe_dispatcher()).get("receivers", ())
        return [each["origin"] for each in receivers if each["health"] == "paused"]

    async def _record_action(
        self, user: str, action: Action, target: str, request_id: str, done: str = ""
    ) -> None:
        """Write the Audit Event of an action; `done`: what has been carried out before it.

        Raises: OverloadedError, which says what was done and is not recorded.
        """
        audit = self._site.audit
        try:
            await self._site.write(user, lambda fw: audit.record(fw, action, target), request_id)
        except OverloadedError as error:
            if not done:
                raise
            text = f"{done}, but the store could not record it. Repeat the action to record it."
            raise OverloadedError(text, error.retry_after) from None

    async def _compute_view(self, with_store: bool) -> ConsoleView:
        began = trio.current_time()
        if with_store and began >= self._store_due:
            await self._read_store()
        dispatcher = await self._describe_dispatcher()
        before = trio.current_time()
        snapshot = self._runtime.snapshot()
        nodes = paths_of(snapshot.tree)
        handled = {(NODE, path): node.handled for path, _, node in nodes}
        ended = {(DELIVERIES, status): n for status, n in self._delivered.counts().items()}
        rates = self._rates({**handled, **ended}, began)
        cost = trio.current_time() - before
        every = max(VIEW_SECONDS, COST_RATIO * cost)
        self._view_due = trio.current_time() + every
        return ConsoleView(
            number=(self._view.number if self._view else 0) + 1,
            at=self._site.clock.now(),
            every=round(every, 3),
            tree=[node_shown(path, level, node, rates[NODE, path]) for path, level, node in nodes],
            rates={name: rate for (kind, name), rate in rates.items() if kind == DELIVERIES},
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
            facts = await self._site.store.read(self._facts.read)
            stale = await stale_webhooks(self._site.store, self._site.subscriptions)
            self._store = msgspec.structs.replace(facts, stale_webhooks=list(stale))
        now = trio.current_time()
        self._store_due = now + max(STORE_SECONDS, COST_RATIO * (now - began))

    async def _describe_dispatcher(self) -> Mapping[str, Any]:
        try:
            return (await self._dispatcher.inspect(ASK_SECONDS)).described
        except ActorError:
            return {}  # restarting or busy; the tree shows it

    def _rates(self, totals: Mapping[CountKey, int], now: float) -> dict[CountKey, float]:
        """Return the counts a second since the previous view."""
        seconds = now - self._viewed_at
        before, self._before, self._viewed_at = self._before, totals, now
        if not before or seconds <= 0:
            return dict.fromkeys(totals, 0.0)
        # A restarted actor keeps its count; a reopened pool may restart from zero.
        return {
            key: round(max(0.0, count - before.get(key, count)) / seconds, 1)
            for key, count in totals.items()
        }


RequestHandler = Callable[[Any], Awaitable[object]]
"""Answers a request of another process; argument and result are in types of msgpack."""


class GatheredAnswers(Protocol):
    """The answers of other processes to one request."""

    @property
    def answers(self) -> Mapping[int, Any]:
        """The answers by the numbers of the processes."""

    @property
    def unanswered(self) -> Sequence[int]:
        """The processes that did not answer."""

    @property
    def restarts(self) -> Mapping[int, int]:
        """The number of restarts of each process; nothing if the supervisor did not answer."""


class Peers(Protocol):
    """The other processes of this service."""

    place: ProcessPlace

    def register(self, request: str, handler: RequestHandler) -> None:
        """Have `handler` answer this request of others."""

    async def gather(
        self, request: str, argument: object = None, *, to: int | None = None
    ) -> GatheredAnswers:
        """Ask the others, or number `to` alone."""


def _require_answers(unanswered: Sequence[int]) -> None:
    if unanswered:
        numbers = ", ".join(map(str, unanswered))
        raise OverloadedError(
            f"These processes did not answer: {numbers}. The others have carried it out. Try again."
        )


def _no_single(actor: str) -> NotFoundError:
    return NotFoundError(
        f"No actor is named {actor[:60]}. Actors of a pool cannot be restarted or traced."
    )


class ServiceConsole(Console):
    """The console of one process, which shows and reaches all of them."""

    def __init__(
        self,
        site: Site,
        runtime: Runtime,
        dispatcher: ActorRef,
        delivered: Counter,
        others: Peers,
    ) -> None:
        super().__init__(site, runtime, dispatcher, delivered)
        self._others = others
        self._own = others.place.number
        self._merging = trio.Lock()
        self._merged: ConsoleView | None = None
        for request, handler in {
            "view": self._view_here,
            "history": self._history_here,
            "pause": self._pause_here,
            "resume": self._resume_here,
            "paused": self._paused_here,
            "restart": self._restart_here,
            "trace": self._trace_here,
        }.items():
            others.register(request, handler)

    async def view(self, after: int = 0) -> ConsoleView:
        """Return the next view of all processes; see `Console.view`."""
        own_view = await super().view(after)
        async with self._merging:  # all watchers share one question to the other processes
            merged = self._merged
            if merged is None or merged.number < own_view.number:
                gathered = await self._others.gather("view")
                views = {
                    n: msgspec.convert(view, ConsoleView) for n, view in gathered.answers.items()
                }
                count = self._others.place.count
                merged = merge_views(
                    own_view, {**views, self._own: own_view}, count, gathered.restarts
                )
                self._merged = merged
            return merged

    async def history(self) -> list[ConsoleSample]:
        """Return the samples of all processes, added up."""
        answers = (await self._others.gather("history")).answers.values()
        others = [msgspec.convert(answer, list[ConsoleSample]) for answer in answers]
        return merge_histories([await super().history(), *others])

    async def restart(self, user: str, actor: str, request_id: str = "") -> None:
        """Restart an actor of the process in its name. Raises: NotFoundError."""
        await self._in_its_process("restart", super().restart, user, actor, request_id)

    async def trace(self, user: str, actor: str, request_id: str = "") -> None:
        """Trace an actor of the process in its name. Raises: NotFoundError, OverloadedError."""
        await self._in_its_process("trace", super().trace, user, actor, request_id)

    async def set_paused(self, message: Pause | Resume) -> PauseReach:
        """Pause or resume a receiver in all processes, if one that answers knows it.

        A process that starts asks the others once it is ready.
        Raises: OverloadedError if the dispatcher of this process does not answer, and none has
            paused or resumed the receiver.
        """
        request_name = "pause" if isinstance(message, Pause) else "resume"
        here = await super().set_paused(message)
        gathered = await self._others.gather(request_name, [message.receiver, False])
        unanswered = [*gathered.unanswered]
        if not here.is_known and not any(gathered.answers.values()):
            return PauseReach(False, unanswered)
        if isinstance(message, Pause):
            if not here.is_known:
                try:
                    await super().set_paused(Pause(message.receiver, known_elsewhere=True))
                except OverloadedError:
                    unanswered.append(self._own)
            for number, is_known in gathered.answers.items():
                if not is_known:
                    request = [message.receiver, True]
                    repeated = await self._others.gather("pause", request, to=number)
                    unanswered += repeated.unanswered
        return PauseReach(True, unanswered)

    async def _in_its_process(
        self,
        request: str,
        action_here: Callable[[str, str, str], Awaitable[None]],
        user: str,
        actor: str,
        request_id: str,
    ) -> None:
        name, _, number = actor.rpartition(SEPARATOR)
        if number == str(self._own):
            await action_here(user, name, request_id)
            return
        to = int(number) if number.isdecimal() and len(number) < 4 else 0
        answers = (await self._others.gather(request, [user, name, request_id], to=to)).answers
        if to not in answers:
            raise _no_single(actor)
        if answers[to]:
            kind = OverloadedError if answers[to][0] == OverloadedError.__name__ else NotFoundError
            raise kind(answers[to][1])

    async def _view_here(self, _argument: object) -> object:
        view = await self._next_view(0, with_store=False)  # the asking process reads the store
        return msgspec.to_builtins(msgspec.structs.replace(view, store=NO_STORE))

    async def _history_here(self, _argument: object) -> object:
        return msgspec.to_builtins(await super().history())

    async def _pause_here(self, argument: Sequence[Any]) -> bool:
        receiver, known_elsewhere = argument
        return (await super().set_paused(Pause(receiver, known_elsewhere))).is_known

    async def _resume_here(self, argument: Sequence[Any]) -> bool:
        return (await super().set_paused(Resume(argument[0]))).is_known

    async def _paused_here(self, _argument: object) -> list[str]:
        return await self.paused()

    async def _restart_here(self, argument: Sequence[str]) -> object:
        return await _error_of(super().restart(*argument))

    async def _trace_here(self, argument: Sequence[str]) -> object:
        return await _error_of(super().trace(*argument))


def process_name() -> str:
    """Return this process as the records of its attempts name it."""
    return f"{gethostname()}:{getpid()}"


def _in_flight(dispatcher: Mapping[str, Any]) -> int:
    return int(dispatcher.get("slots", 0)) - int(dispatcher.get("free", 0))


def _due_events(tx: Tx) -> int:
    return jobs.due_count(tx, QUEUE)


async def _error_of(action: Awaitable[None]) -> object:
    try:
        await action
    except FwError as error:
        return [type(error).__name__, error.message]
    return None
