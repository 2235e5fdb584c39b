"""One supervisor: starts its children in order, restarts them, stops them in reverse.

A supervisor is one task that handles the events of its children one after the other and carries out
the decisions of `strategies.decide`. Each child has its own task, shielded from a cancellation
around the supervisor, so that leaving the block for any reason is an orderly stop.

The children of the list are static: they start in its order and stop in reverse. Those of
`start_child` are dynamic: each starts in the task that requests it, and leaves the supervisor when
it has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from itertools import chain
from math import inf
from typing import overload

import trio

from fw_actors.runtime import (
    ActorError,
    ActorFailed,
    ActorGone,
    ActorRef,
    EventKind,
    NodeSnapshot,
    RestartIntensity,
    Runtime,
)
from fw_actors.runtime.cell import ActorCell
from fw_actors.runtime.deadlock import waiting_for
from fw_actors.runtime.errors import StartOverdueError
from fw_actors.runtime.supervision import FailureHistory
from supervisors.children import ActorSpec, ActorT, ChildSpec, ExternalFailure
from supervisors.events import ChildEnded, RestartDue
from supervisors.strategies import (
    Escalate,
    RestartGroup,
    ShutDown,
    Strategy,
    decide,
)
from supervisors.supervised_child import EndedTooSoonError, Phase, SupervisedChild


class SupervisorFailed(Exception):
    """Raised by a supervisor's block if a child failed to start, or failed too often."""

    def __init__(self, supervisor: str, child: str, reason: str) -> None:
        self.supervisor, self.child = supervisor, child
        super().__init__(f"{supervisor!r} gave up because of {child!r}: {reason}")


class TooManyChildren(ActorError):
    """Raised by `start_child` if the supervisor has its maximum number of dynamic children."""

    def __init__(self, supervisor: str, limit: int) -> None:
        self.supervisor, self.limit = supervisor, limit
        super().__init__(f"{supervisor!r} has {limit} dynamic children, which is its limit.")


class Supervisor:
    """A running supervisor, made by `open_supervisor`."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        specs: Sequence[ChildSpec],
        strategy: Strategy,
        intensity: RestartIntensity,
        stop_seconds: float,
        limit: int,
        nursery: trio.Nursery,
    ) -> None:
        ids = [spec.id for spec in specs]
        if len(set(ids)) != len(ids):
            raise ValueError(f"children of {name!r} must have different ids, not {ids}")
        self.name = name
        self._runtime = runtime
        self._strategy = strategy
        self._intensity = intensity
        self._stop_seconds = stop_seconds
        self._nursery = nursery
        # A child must not inherit the context variables of the handler that starts it.
        self._context = copy_context()
        self._limit = limit
        self._dynamic: dict[SupervisedChild, None] = {}
        self._members = {spec.id: SupervisedChild(runtime, spec, self._ended) for spec in specs}
        self._history = FailureHistory()
        self._restarts = 0
        self._delayed: dict[RestartDue, None] = {}
        self._events: list[ChildEnded | RestartDue] = []
        self._happened = trio.Event()
        self._loop = trio.CancelScope(shield=True)
        self._loop_over = trio.Event()
        self._loop_over.set()
        self._stopping = False
        self._keeps_mailboxes = False
        self._stopped = trio.Event()

    async def start(self) -> None:
        """Start the children in order. Raises SupervisorFailed; `stop` ends the started ones."""
        for member in list(self._members.values()):
            error = await member.start(self._start_soon)
            if error is not None:
                self._log_failure(member, error)
                raise self._failed(member, error) from error
        self._loop_over = trio.Event()
        self._nursery.start_soon(self._supervise)

    @property
    def children(self) -> tuple[NodeSnapshot, ...]:
        """The current children in the order of their start, the static ones first."""
        return tuple(member.snapshot() for member in self._members.values())

    @overload
    async def start_child(self, spec: ActorSpec[ActorT]) -> ActorRef[ActorT]: ...

    @overload
    async def start_child(self, spec: ChildSpec) -> ActorRef | None: ...

    async def start_child(self, spec: ChildSpec) -> ActorRef | None:
        """Start a dynamic child and wait until it is ready; return the address of an actor.

        It is restarted according to its `restart`, and leaves the supervisor when it has ended. If
        the call is cancelled, the supervisor stops the child again. A failure to start is raised
        and not counted, and no child remains.

        Raises: TooManyChildren; ValueError if the id is in use; ActorGone if the supervisor is
        stopped, or the child was stopped or has ended before it was ready; ActorFailed if the actor
        failed or the start took too long, or the error of the task; AskCycle in a handler if the
        child waits for the caller.
        """
        if self._stopping:
            raise ActorGone(self.name)
        if spec.id in self._members:
            raise ValueError(f"{self.name!r} already has a child {spec.id!r}")
        if len(self._dynamic) >= self._limit:
            raise TooManyChildren(self.name, self._limit)
        member = SupervisedChild(self._runtime, spec, self._ended)
        self._members[spec.id] = member
        self._dynamic[member] = None
        try:
            with waiting_for(member.child.cells()):
                error = await member.start(self._start_soon)
        except BaseException:
            self._dismiss_soon(member)
            raise
        if error is not None:
            self._log_failure(member, error)
            await self._dismiss(member)
            raise self._start_error(spec, error)
        if not self._is_present(member):
            raise ActorGone(spec.id)
        return self._runtime.ref(spec.id) if isinstance(spec, ActorSpec) else None

    def _start_error(self, spec: ChildSpec, error: Exception) -> Exception:
        """Return the error that `start_child` raises for the failure of a start."""
        if isinstance(error, EndedTooSoonError):
            return ActorGone(spec.id)
        if isinstance(error, StartOverdueError):
            return ActorFailed(spec.id, self._runtime.one_line(error), error)
        return error

    async def stop_child(self, id: str) -> bool:
        """Stop a child within its shutdown seconds, and remove it.

        Returns False if there is no child with that id, for example because it has just ended. If
        the call is cancelled, the supervisor still stops the child. Raises AskCycle in a handler if
        the child is, or waits for, the caller.
        """
        member = self._members.get(id)
        if member is None:
            return False
        with waiting_for(member.child.cells()):
            await self._dismiss_soon(member).wait()
        return True

    async def stop(self, deadline: float, *, for_restart: bool = False) -> None:
        """Stop the children in reverse, all before `deadline`. A second call waits for the first.

        `for_restart`: the actors keep their mailboxes, for the supervisor that replaces this one,
        or until `terminate`. Raises AskCycle in a handler if a child is, or waits for, the caller.
        """
        with waiting_for(self.cells()):
            await self._stop(deadline, for_restart)

    def terminate(self) -> None:
        """Close the mailboxes that a stop for a restart has kept."""
        if self._keeps_mailboxes:
            self._keeps_mailboxes = False
            for member in self._members.values():
                member.terminate()

    def cells(self) -> Iterable[ActorCell]:
        """Return the actors for which a stop waits."""
        return chain.from_iterable(member.child.cells() for member in self._members.values())

    async def _stop(self, deadline: float, for_restart: bool) -> None:
        if self._stopping:
            await self._stopped.wait()
            return
        self._loop.cancel()
        with trio.CancelScope(shield=True):
            # A loop that was woken before the cancellation still runs, and may start a child.
            await self._loop_over.wait()
            await self._stop_members(deadline, for_restart)

    async def _stop_members(self, deadline: float, for_restart: bool = False) -> None:
        self._stopping = True
        self._keeps_mailboxes = for_restart
        self._drop_delayed(list(self._members.values()))
        members = list(self._members.values())
        kept = [member for member in members if member not in self._dynamic] if for_restart else []
        with trio.CancelScope(shield=True):  # bounded by the deadlines of the members
            await self._stop_in_order(members, kept, deadline)
        self._stopped.set()

    async def _stop_in_order(
        self,
        members: Sequence[SupervisedChild],
        kept: Collection[SupervisedChild],
        deadline: float = inf,
    ) -> None:
        """Stop members: the dynamic ones all together, then the others in reverse.

        Members in `kept` are started again, and keep their mailboxes.
        """
        dynamic = [member for member in members if member in self._dynamic]
        if dynamic:
            async with trio.open_nursery() as nursery:
                for member in dynamic:
                    stop = partial(self._stop_member, member, deadline, for_restart=member in kept)
                    nursery.start_soon(stop)
        for member in reversed(members):
            if member not in self._dynamic:
                await self._stop_member(member, deadline, for_restart=member in kept)

    def _dismiss_soon(self, member: SupervisedChild) -> trio.Event:
        """Dismiss a member in a task of the supervisor; return the event that is set then."""
        member.leaving = True
        if self._stopping:
            return self._stopped  # the member is being stopped
        dismissed = trio.Event()

        async def dismiss() -> None:
            await self._dismiss(member)
            dismissed.set()

        self._nursery.start_soon(dismiss)
        return dismissed

    async def _dismiss(self, member: SupervisedChild) -> None:
        """Stop a member and remove it."""
        member.leaving = True
        self._drop_delayed([member])
        with trio.CancelScope(shield=True):
            await self._stop_member(member)
        self._remove(member)

    def _remove(self, member: SupervisedChild) -> None:
        self._dynamic.pop(member, None)
        if self._members.get(member.spec.id) is member:
            del self._members[member.spec.id]

    def _is_present(self, member: SupervisedChild) -> bool:
        """Return whether the member should run: neither it nor the supervisor has ended or is
        ending."""
        if self._stopping or member.leaving:
            return False
        return self._members.get(member.spec.id) is member

    async def _stop_member(
        self, member: SupervisedChild, deadline: float = inf, *, for_restart: bool = False
    ) -> None:
        failure = await member.stop(deadline, for_restart=for_restart)
        if failure is not None:
            self._log_failure(member, failure)

    def snapshot(self) -> NodeSnapshot:
        """Return the supervisor as a node of the tree, with its children."""
        return NodeSnapshot(
            name=self.name,
            kind="supervisor",
            state="stopping" if self._stopping else "running",
            restarts=self._restarts,
            children=self.children,
        )

    def _restart_due(self, due: RestartDue) -> None:
        self._delayed.pop(due, None)
        self._add_event(due)

    def _ended(self, member: SupervisedChild, error: Exception | None) -> None:
        self._add_event(ChildEnded(member, error, member.restarts))

    def _add_event(self, event: ChildEnded | RestartDue) -> None:
        self._events.append(event)
        self._happened.set()

    async def _supervise(self) -> None:
        try:
            with self._loop:
                while True:
                    await self._happened.wait()
                    self._happened = trio.Event()
                    while self._events:
                        await self._handle(self._events.pop(0))
        finally:
            self._loop_over.set()

    async def _handle(self, event: ChildEnded | RestartDue) -> None:
        """Handle an event; an end that a sibling's restart has covered since is only logged."""
        if isinstance(event, RestartDue):
            await self._start_members(event.members)
            return
        if event.error is not None:
            self._log_failure(event.member, event.error)
        if not self._is_present(event.member) or self._is_covered(event.member):
            return
        if event.run == event.member.restarts:
            await self._decide(event.member, event.error)

    def _is_covered(self, member: SupervisedChild) -> bool:
        """Return whether a delayed restart will start the member, after its siblings."""
        return any(member in due.members for due in self._delayed)

    async def _decide(self, member: SupervisedChild, error: Exception | None) -> None:
        alone = self._strategy is Strategy.ONE_FOR_ONE  # the others stay, and may be many
        decision = decide(
            self._strategy,
            self._intensity,
            [other.spec.rules for other in ([member] if alone else self._members.values())],
            member.spec.id,
            failed=error is not None,
            history=self._history,
            now=trio.current_time(),
            entropy=self._runtime.entropy,
        )
        if isinstance(decision, RestartGroup):
            await self._restart(decision)
        elif isinstance(decision, Escalate):
            self._runtime.log.error(
                "supervisor_gave_up", supervisor=self.name, child=member.spec.id
            )
            self._runtime.events.emit(EventKind.GAVE_UP, self.name, reason=f"{member.spec.id!r}")
            await self._stop_members(trio.current_time() + self._stop_seconds)
            raise self._failed(member, error) from error
        elif isinstance(decision, ShutDown):
            await self._stop_members(trio.current_time() + self._stop_seconds)
            self._nursery.cancel_scope.cancel()  # ends the block; this loop is shielded
            self._loop.cancel()
        else:
            member.terminate()
            if member in self._dynamic:
                self._remove(member)

    async def _restart(self, decision: RestartGroup) -> None:
        self._history = decision.history
        group = [self._members[id] for id in decision.stop]
        again = [member for member in group if member.spec.id in decision.start]
        # A waiting member has ended, and has kept its mailbox.
        running = [member for member in group if member.phase is not Phase.WAITING]
        await self._stop_in_order(running, again)
        for member in running:
            if member in self._dynamic and member not in again:
                self._remove(member)
        members = [member for member in again if self._is_present(member)]
        for member in members:
            member.phase = Phase.WAITING
        self._drop_delayed(members)
        if decision.delay <= 0:
            await self._start_members(members)
            return
        due = RestartDue(self._restart_due, members, decision.delay)
        self._delayed[due] = None
        self._runtime.deadlines.add(due, decision.delay)

    def _drop_delayed(self, members: Sequence[SupervisedChild]) -> None:
        """Drop delayed restarts that a later decision covers."""
        for due in [due for due in self._delayed if due.is_within(members)]:
            del self._delayed[due]
            self._runtime.deadlines.withdraw(due, due.delay)
        self._events = [
            event
            for event in self._events
            if not (isinstance(event, RestartDue) and event.is_within(members))
        ]

    async def _start_members(self, members: Sequence[SupervisedChild]) -> None:
        for member in members:
            if member.phase is not Phase.WAITING or not self._is_present(member):
                continue
            self._restarts += 1
            self._runtime.log.info("child_restarted", supervisor=self.name, child=member.spec.id)
            self._runtime.events.emit(EventKind.RESTARTED, member.spec.id)
            error = await member.start(self._start_soon)
            if error is not None:
                self._ended(member, error)  # a separate event, also for the members after it
                return

    def _start_soon(self, run: Callable[[], Awaitable[object]], name: str) -> None:
        self._context.run(partial(self._nursery.start_soon, run, name=name))

    def _failed(self, member: SupervisedChild, error: Exception | None) -> SupervisorFailed:
        reason = "it ended" if error is None else self._runtime.one_line(error)
        return SupervisorFailed(self.name, member.spec.id, reason)

    def _log_failure(self, member: SupervisedChild, error: Exception) -> None:
        if isinstance(error, ActorFailed | SupervisorFailed):
            return  # logged where it happened
        reason = self._runtime.one_line(error)
        self._runtime.log.error(
            "child_failed",
            supervisor=self.name,
            child=member.spec.id,
            error=reason,
            exc_info=None if isinstance(error, ExternalFailure) else error,
        )
        self._runtime.events.emit(EventKind.CHILD_FAILED, member.spec.id, reason=reason)
