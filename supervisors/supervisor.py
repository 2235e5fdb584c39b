"""One supervisor: starts its children in order, carries out decisions, stops them in reverse.

A supervisor is one task that reads what happened to its children and does what
`strategies.decide` says. Each child has a task of its own, shielded from cancellation around the
supervisor: leaving the block, for whatever reason, is always a stop in order.
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
from supervisors.events import Due, Ended
from supervisors.member import Member, Phase
from supervisors.strategies import (
    Again,
    Escalate,
    Finish,
    History,
    RestartIntensity,
    Strategy,
    decide,
)


class SupervisorFailed(Exception):
    """Raised out of a supervisor's block: a child could not be started, or failed too often."""

    def __init__(self, supervisor: str, child: str, reason: str) -> None:
        self.supervisor, self.child = supervisor, child
        super().__init__(f"{supervisor!r} gave up because of {child!r}: {reason}")


class Supervisor:
    """Made by `open_supervisor`."""

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
            raise ValueError(f"{name!r} has two children of one id among {ids}")
        self.name = name
        self._runtime = runtime
        self._strategy = strategy
        self._intensity = intensity
        self._stop_seconds = stop_seconds
        self._nursery = nursery
        self._members = {spec.id: Member(runtime, spec, self._ended) for spec in specs}
        self._history = History()
        self._restarts = 0
        self._waiting: dict[Due, None] = {}
        self._events: list[Ended | Due] = []
        self._happened = trio.Event()
        self._loop = trio.CancelScope(shield=True)
        self._loop_over = trio.Event()
        self._loop_over.set()
        self._stopping = False
        self._stopped = trio.Event()

    async def start(self) -> None:
        """Start the children in order. Raises SupervisorFailed; nothing runs then."""
        for member in self._members.values():
            error = await member.start(self._nursery)
            if error is not None:
                self._log_failure(member, error)
                raise self._failed(member, error) from error
        self._loop_over = trio.Event()
        self._nursery.start_soon(self._supervise)

    async def stop(self, deadline: float) -> None:
        """Stop the children in reverse, all before `deadline`; again, it waits for the first.

        Raises AskCycle (in a handler) when a child would wait for the caller, or is the caller.
        """
        with waiting_for(self.cells()):
            await self._stop(deadline)

    def cells(self) -> Iterable[ActorCell]:
        """Return the actors whose ends a stop waits for."""
        return chain.from_iterable(member.child.cells() for member in self._members.values())

    async def _stop(self, deadline: float) -> None:
        if self._stopping:
            await self._stopped.wait()
            return
        self._loop.cancel()
        with trio.CancelScope(shield=True):
            # A loop that is about to run does so before it sees that: it may start a child yet.
            await self._loop_over.wait()
            await self._stop_members(deadline)

    async def _stop_members(self, deadline: float) -> None:
        self._stopping = True
        self._forget_waits(list(self._members.values()))
        with trio.CancelScope(shield=True):  # members end by their deadlines, and in order
            for member in reversed(self._members.values()):
                await self._stop_member(member, deadline)
        self._stopped.set()

    async def _stop_member(self, member: Member, deadline: float) -> None:
        failure = await member.stop(deadline)
        if failure is not None:
            self._log_failure(member, failure)

    def snapshot(self) -> NodeSnapshot:
        """Return what can be seen of it and of all below it."""
        return NodeSnapshot(
            name=self.name,
            kind="supervisor",
            state="stopping" if self._stopping else "running",
            restarts=self._restarts,
            children=tuple(member.snapshot() for member in self._members.values()),
        )

    def _due(self, due: Due) -> None:
        self._waiting.pop(due, None)
        self._note(due)

    def _ended(self, member: Member, error: Exception | None) -> None:
        self._note(Ended(member, error, member.restarts))

    def _note(self, event: Ended | Due) -> None:
        self._events.append(event)
        self._happened.set()

    async def _supervise(self) -> None:
        try:
            with self._loop:
                while True:
                    await self._happened.wait()
                    self._happened = trio.Event()
                    while self._events:
                        await self._carry_out(self._events.pop(0))
        finally:
            self._loop_over.set()

    async def _carry_out(self, event: Ended | Due) -> None:
        """Do what follows; the end of a life that was restarted with a sibling since is told."""
        if isinstance(event, Due):
            await self._start_again(event.members)
            return
        if event.error is not None:
            self._log_failure(event.member, event.error)
        if event.life == event.member.restarts and not self._is_covered(event.member):
            await self._decide(event.member, event.error)

    def _is_covered(self, member: Member) -> bool:
        """Whether it waits to be restarted behind a sibling already: it must not come first."""
        return any(member in due.members for due in self._waiting)

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
        if isinstance(decision, Again):
            await self._again(decision)
        elif isinstance(decision, Escalate):
            self._runtime.log.error(
                "supervisor_gave_up", supervisor=self.name, child=member.spec.id
            )
            await self._stop_members(trio.current_time() + self._stop_seconds)
            raise self._failed(member, error) from error
        elif isinstance(decision, Finish):
            await self._stop_members(trio.current_time() + self._stop_seconds)
            self._nursery.cancel_scope.cancel()  # the block's end; this loop is shielded from it
            self._loop.cancel()
        else:
            member.leave()

    async def _again(self, decision: Again) -> None:
        self._history = decision.history
        others = [self._members[id] for id in decision.stop]
        for member in reversed(others):
            if member.phase is not Phase.WAITING:  # what waits keeps its mailbox
                await self._stop_member(member, inf)
        members = [self._members[id] for id in decision.start]
        for member in members:
            member.phase = Phase.WAITING
        self._forget_waits(members)
        if decision.wait <= 0:
            await self._start_again(members)
            return
        due = Due(self._due, members, decision.wait)
        self._waiting[due] = None
        self._runtime.deadlines.add(due, decision.wait)

    def _forget_waits(self, members: Sequence[Member]) -> None:
        """Drop restarts that a later decision covers."""
        for due in [due for due in self._waiting if due.is_within(members)]:
            del self._waiting[due]
            self._runtime.deadlines.withdraw(due, due.wait)
        self._events = [
            event
            for event in self._events
            if not (isinstance(event, Due) and event.is_within(members))
        ]

    async def _start_again(self, members: Sequence[Member]) -> None:
        for member in members:
            if member.phase is not Phase.WAITING:
                continue
            self._restarts += 1
            self._runtime.log.info("child_restarted", supervisor=self.name, child=member.spec.id)
            error = await member.start(self._nursery)
            if error is not None:
                self._ended(member, error)  # decided in its turn, together with who waits after it
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
