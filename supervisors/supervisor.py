"""One supervisor: starts its children in order, restarts them, stops them in reverse.

A supervisor is one task that takes the events of its children one after the other and carries out
what `strategies.decide` returns. Each child has a task of its own, shielded from a cancellation
around the supervisor, so that leaving the block for any reason is an ordered stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf

import trio

from fw_actors.runtime import ActorFailed, NodeSnapshot, Runtime
from fw_actors.runtime.cell import ActorCell
from fw_actors.runtime.deadlock import waiting_for
from supervisors.children import ChildSpec
from supervisors.events import ChildEnded, RestartDue
from supervisors.member import Member, Phase
from supervisors.strategies import (
    Escalate,
    History,
    RestartGroup,
    RestartIntensity,
    ShutDown,
    Strategy,
    decide,
)


class SupervisorFailed(Exception):
    """Raised out of a supervisor's block if a child failed to start, or failed too often."""

    def __init__(self, supervisor: str, child: str, reason: str) -> None:
        self.supervisor, self.child = supervisor, child
        super().__init__(f"{supervisor!r} gave up because of {child!r}: {reason}")


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
        self._members = {spec.id: Member(runtime, spec, self._ended) for spec in specs}
        self._history = History()
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
        """Start the children in order. Raises SupervisorFailed; `stop` undoes what was started."""
        for member in self._members.values():
            error = await member.start(self._nursery)
            if error is not None:
                self._log_failure(member, error)
                raise self._failed(member, error) from error
        self._loop_over = trio.Event()
        self._nursery.start_soon(self._supervise)

    async def stop(self, deadline: float, *, for_restart: bool = False) -> None:
        """Stop the children in reverse, all before `deadline`. A second call waits for the first.

        `for_restart`: the actors keep their mailboxes, for the supervisor that takes this one's
        place or until `terminate`.
        Raises AskCycle in a handler if a child is, or waits for, the caller.
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
        """Return the actors that a stop waits for."""
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
        with trio.CancelScope(shield=True):  # the deadlines of the members bound this
            for member in reversed(self._members.values()):
                await self._stop_member(member, deadline, for_restart=for_restart)
        self._stopped.set()

    async def _stop_member(
        self, member: Member, deadline: float = inf, *, for_restart: bool = False
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
            children=tuple(member.snapshot() for member in self._members.values()),
        )

    def _restart_due(self, due: RestartDue) -> None:
        self._delayed.pop(due, None)
        self._add_event(due)

    def _ended(self, member: Member, error: Exception | None) -> None:
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
        """Act on an event; an end that a sibling's restart has covered since is only logged."""
        if isinstance(event, RestartDue):
            await self._start_members(event.members)
            return
        if event.error is not None:
            self._log_failure(event.member, event.error)
        if event.run == event.member.restarts and not self._is_covered(event.member):
            await self._decide(event.member, event.error)

    def _is_covered(self, member: Member) -> bool:
        """Return whether a delayed restart will start the member, after its siblings."""
        return any(member in due.members for due in self._delayed)

    async def _decide(self, member: Member, error: Exception | None) -> None:
        decision = decide(
            self._strategy,
            self._intensity,
            [other.spec.rules for other in self._members.values()],
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
            await self._stop_members(trio.current_time() + self._stop_seconds)
            raise self._failed(member, error) from error
        elif isinstance(decision, ShutDown):
            await self._stop_members(trio.current_time() + self._stop_seconds)
            self._nursery.cancel_scope.cancel()  # ends the block; this loop is shielded
            self._loop.cancel()
        else:
            member.terminate()

    async def _restart(self, decision: RestartGroup) -> None:
        self._history = decision.history
        others = [self._members[id] for id in decision.stop]
        for member in reversed(others):
            if member.phase is not Phase.WAITING:  # else it has ended, and keeps its mailbox
                await self._stop_member(member, for_restart=member.spec.id in decision.start)
        members = [self._members[id] for id in decision.start]
        for member in members:
            member.phase = Phase.WAITING
        self._drop_delayed(members)
        if decision.delay <= 0:
            await self._start_members(members)
            return
        due = RestartDue(self._restart_due, members, decision.delay)
        self._delayed[due] = None
        self._runtime.deadlines.add(due, decision.delay)

    def _drop_delayed(self, members: Sequence[Member]) -> None:
        """Drop delayed restarts that a later decision covers."""
        for due in [due for due in self._delayed if due.is_within(members)]:
            del self._delayed[due]
            self._runtime.deadlines.withdraw(due, due.delay)
        self._events = [
            event
            for event in self._events
            if not (isinstance(event, RestartDue) and event.is_within(members))
        ]

    async def _start_members(self, members: Sequence[Member]) -> None:
        for member in members:
            if member.phase is not Phase.WAITING:
                continue
            self._restarts += 1
            self._runtime.log.info("child_restarted", supervisor=self.name, child=member.spec.id)
            error = await member.start(self._nursery)
            if error is not None:
                self._ended(member, error)  # decided in its turn, for the members after it too
                return

    def _failed(self, member: Member, error: Exception | None) -> SupervisorFailed:
        reason = "it ended" if error is None else self._runtime.one_line(error)
        return SupervisorFailed(self.name, member.spec.id, reason)

    def _log_failure(self, member: Member, error: Exception) -> None:
        if isinstance(error, ActorFailed | SupervisorFailed):
            return  # logged where it happened
        self._runtime.log.error(
            "child_failed",
            supervisor=self.name,
            child=member.spec.id,
            error=self._runtime.one_line(error),
            exc_info=error,
        )
