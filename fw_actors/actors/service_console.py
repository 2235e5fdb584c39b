"""The console of a service of several processes: one view of all, and actions on each of them.

The console of each process asks the others for their views and adds its own. An actor is named
with its process: `dispatcher@2` is that of process 2. A receiver is paused in all processes, also
in those that have sent nothing to it yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import trio

from fw_actors.actors.console import (
    NO_STORE,
    Console,
    ConsoleView,
    DeadLetterShown,
    Node,
)
from fw_actors.actors.console_records import ConsoleSample, Trace, merged_history
from fw_actors.actors.dispatcher import Pause, Resume
from fw_actors.actors.metrics import Counter
from fw_actors.config import ProcessPlace
from fw_actors.errors import FwError, NotFoundError, OverloadedError
from fw_actors.ops.site import Site
from fw_actors.runtime import ActorRef, Runtime
from fw_actors.webhooks.receivers import HEALTH_ORDER, Receiver, with_stored

SEPARATOR: Final = "@"
DEAD_LETTERS_SHOWN: Final = 100

Answer = Callable[[Any], Awaitable[object]]


class OtherProcesses(Protocol):
    """The other processes of this service."""

    place: ProcessPlace
    restarts: Mapping[int, int]

    def answers(self, what: str, answer: Answer) -> None:
        """Have `answer` answer this request of others."""

    async def gather(
        self, what: str, argument: object = None, *, to: int | None = None
    ) -> Mapping[int, Any]:
        """Ask the others, or number `to` alone; return the answers by number."""


class ServiceConsole(Console):
    """The console of one process, which shows and reaches all of them."""

    def __init__(
        self,
        site: Site,
        runtime: Runtime,
        dispatcher: ActorRef,
        delivered: Counter,
        others: OtherProcesses,
    ) -> None:
        super().__init__(site, runtime, dispatcher, delivered)
        self._others = others
        self._own = others.place.number
        self._merging = trio.Lock()
        self._merged: ConsoleView | None = None
        for what, answer in {
            "view": self._view_here,
            "history": self._history_here,
            "pause": self._pause_here,
            "resume": self._resume_here,
            "paused": self._paused_here,
            "restart": self._restart_here,
            "trace": self._trace_here,
        }.items():
            others.answers(what, answer)

    async def view(self, after: int = 0) -> ConsoleView:
        """Return the next view of all processes; see `Console.view`."""
        own = await super().view(after)
        async with self._merging:  # all watchers share one question to the other processes
            merged = self._merged
            if merged is None or merged.number < own.number:
                answers = await self._others.gather("view")
                views = {n: msgspec.convert(answer, ConsoleView) for n, answer in answers.items()}
                count = self._others.place.count
                merged = merged_view(own, {**views, self._own: own}, count, self._others.restarts)
                self._merged = merged
            return merged

    async def history(self) -> list[ConsoleSample]:
        """Return the samples of all processes, added up."""
        answers = await self._others.gather("history")
        others = [msgspec.convert(answer, list[ConsoleSample]) for answer in answers.values()]
        return merged_history([await super().history(), *others])

    async def restart(self, user: str, actor: str, request_id: str = "") -> None:
        """Restart an actor of the process in its name. Raises: NotFoundError."""
        await self._act("restart", super().restart, user, actor, request_id)

    async def trace(self, user: str, actor: str, request_id: str = "") -> None:
        """Trace an actor of the process in its name. Raises: NotFoundError, OverloadedError."""
        await self._act("trace", super().trace, user, actor, request_id)

    async def tell_dispatcher(self, message: Pause | Resume) -> bool:
        """Pause or resume a receiver in all processes; return whether one of them knows it."""
        what = "pause" if isinstance(message, Pause) else "resume"
        known_here = await super().tell_dispatcher(message)
        known = await self._others.gather(what, [message.receiver, False])
        if not known_here and not any(known.values()):
            return False
        if isinstance(message, Pause):
            if not known_here:
                await super().tell_dispatcher(Pause(message.receiver, known_elsewhere=True))
            for number, is_known in known.items():
                if not is_known:
                    await self._others.gather("pause", [message.receiver, True], to=number)
        return True

    async def _act(
        self,
        what: str,
        act_here: Callable[[str, str, str], Awaitable[None]],
        user: str,
        actor: str,
        request_id: str,
    ) -> None:
        name, _, number = actor.rpartition(SEPARATOR)
        if number == str(self._own):
            await act_here(user, name, request_id)
            return
        to = int(number) if number.isdecimal() and len(number) < 4 else 0
        answers = await self._others.gather(what, [user, name, request_id], to=to)
        if to not in answers:
            raise NotFoundError(f"There is no single actor {actor[:60]}.")
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
        return await super().tell_dispatcher(Pause(receiver, known_elsewhere))

    async def _resume_here(self, argument: Sequence[Any]) -> bool:
        return await super().tell_dispatcher(Resume(argument[0]))

    async def _paused_here(self, _argument: object) -> list[str]:
        return await self.paused()

    async def _restart_here(self, argument: Sequence[str]) -> object:
        return await _error_of(super().restart(*argument))

    async def _trace_here(self, argument: Sequence[str]) -> object:
        return await _error_of(super().trace(*argument))


async def paused_elsewhere(others: OtherProcesses) -> Sequence[str]:
    """Return the receivers that other processes have paused, for a process that starts."""
    found = await others.gather("paused")
    return sorted({receiver for receivers in found.values() for receiver in receivers})


async def _error_of(act: Awaitable[None]) -> object:
    try:
        await act
    except FwError as error:
        return [type(error).__name__, error.message]
    return None


def merged_view(
    own: ConsoleView, views: Mapping[int, ConsoleView], count: int, restarts: Mapping[int, int]
) -> ConsoleView:
    """Return one view of the processes 1 to `count`; the store's part is that of `own`.

    A process without a view is shown as not answering.
    """
    shown = dict(sorted(views.items()))
    letters = [
        DeadLetterShown(_named(letter.recipient, n), letter.message, letter.reason, letter.at)
        for n, view in shown.items()
        for letter in view.last_dead_letters
    ]
    return msgspec.structs.replace(
        own,
        tree=[
            node
            for n in range(1, count + 1)
            for node in _tree_of(n, shown.get(n), restarts.get(n, 0))
        ],
        rates=_sums(view.rates for view in shown.values()),
        in_flight=sum(view.in_flight for view in shown.values()),
        slots=sum(view.slots for view in shown.values()),
        receivers=with_stored(_receivers(shown.values()), own.store.receivers),
        dead_letters=sum(view.dead_letters for view in shown.values()),
        last_dead_letters=sorted(letters, key=lambda each: -each.at)[:DEAD_LETTERS_SHOWN],
        traces=[
            Trace(_named(trace.actor, n), trace.until, trace.seen, trace.messages)
            for n, view in shown.items()
            for trace in view.traces
        ],
        numbers=_sums(view.numbers for view in shown.values()),
        processes=[name for view in shown.values() for name in view.processes],
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
    found: dict[str, Receiver] = {}
    for view in views:
        for each in view.receivers:
            known = found.get(each.origin)
            found[each.origin] = each if known is None else _merged_receiver(known, each)
    return list(found.values())


def _merged_receiver(one: Receiver, other: Receiver) -> Receiver:
    worst = max(one, other, key=lambda each: each.failures)
    since = [each for each in (one.failing_since, other.failing_since) if each is not None]
    return Receiver(
        origin=one.origin,
        in_flight=one.in_flight + other.in_flight,
        window=one.window + other.window,
        limit=one.limit + other.limit,
        health=min(one.health, other.health, key=HEALTH_ORDER.index),
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
