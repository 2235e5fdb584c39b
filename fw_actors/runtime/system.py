"""The runtime of one program: the tables that its actors share, and its single actors by name."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import get_ident
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload
from weakref import WeakValueDictionary

import trio

from fw_actors.runtime.clock import (
    SHUTDOWN_SECONDS,
    START_SECONDS,
    Clock,
    Deadlines,
    DeadlineStatistics,
    Entropy,
)
from fw_actors.runtime.errors import main_error, one_line
from fw_actors.runtime.keyed_pool import KeyedPool
from fw_actors.runtime.mailbox import DeadLetters, Mailbox, MailboxPolicy, MessagesFromThreads
from fw_actors.runtime.ref import ActorRef
from fw_actors.runtime.single import SingleCell
from fw_actors.runtime.snapshot import Inspectable, RuntimeSnapshot
from fw_actors.runtime.topics import EventKind, EventTopic
from fw_actors.runtime.tracing import CURRENT_MESSAGE, TracedMailbox, TraceHooks, Tracing
from fw_actors.runtime.workers import Workers, WorkerStatistics

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.cell import ActorCell

ActorT = TypeVar("ActorT", bound="Actor")


class Log(Protocol):
    """A logger that takes an event and fields, such as structlog's."""

    def debug(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class StderrLog:
    """A logger that writes a line to the standard error stream, and the traceback of an error."""

    def debug(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def info(self, event: str, **fields: object) -> None:
        """Write an event."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write an event."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write an event."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        error = fields.pop("exc_info", None)
        text = "".join(f" {name}={value!r}" for name, value in fields.items())
        trace = "".join(format_exception(error)) if isinstance(error, BaseException) else ""
        sys.stderr.write(f"{level} {event}{text}\n{trace}")


class SilentLog:
    """A logger that drops everything; for tests and benchmarks."""

    def debug(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def info(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def warning(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def error(self, event: str, **fields: object) -> None:
        """Do nothing."""


@contextmanager
def unwrap_single_error(
    actor: str | None = None, causes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise the only error of an exception group instead of the group; leave larger groups
    unchanged.

    For blocks such as `open_runtime` whose nursery is an implementation detail: callers want to
    catch the error itself. Errors that follow from another one do not count; see `main_error`.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = main_error(group, actor, causes)
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__


@dataclass(frozen=True, slots=True)
class RuntimeStatistics:
    """Sizes of the tables of a runtime, for tests."""

    deadlines: DeadlineStatistics
    workers: WorkerStatistics
    single_cells: int
    """Cells of single actors that run or to which a ref exists."""


class Runtime:
    """The actor system, with all that its actors share. Created by `open_runtime`; for trio's
    thread."""

    def __init__(
        self,
        nursery: trio.Nursery,
        clock: Clock,
        entropy: Entropy,
        log: Log,
        scrub: Callable[[str], str] = str,
        carry: Iterable[ContextVar[Any]] = (),
        hooks: TraceHooks | None = None,
    ) -> None:
        self.clock = clock
        self.entropy = entropy
        self.log = log
        self.deadlines = Deadlines()
        self.tracing = None if hooks is None else Tracing(self, hooks)
        """The hooks for each message, if there are any."""
        self.carry = (*carry, CURRENT_MESSAGE) if self.tracing is not None else tuple(carry)
        """Context variables that travel with ask, send and work."""
        self.from_threads = MessagesFromThreads()
        self.thread = get_ident()
        """The identifier of trio's thread."""
        self.next_incarnation = count(1).__next__
        """Returns the number of a new instance, greater than all earlier ones."""
        self.workers = Workers(nursery)
        self.events = EventTopic(self)
        """The events of this runtime, as a topic."""
        self.dead_letters = DeadLetters(clock, log, self.events)
        self._scrub = scrub
        self._ended = False
        self._late_replies = 0
        self._slow: Counter[type[Actor]] = Counter()
        self._nodes: dict[Inspectable, None] = {}
        # Weak: a cell that does not run and to which no ref points is dropped.
        self._cells: WeakValueDictionary[str, SingleCell] = WeakValueDictionary()

    @overload
    def ref(self, name: str) -> ActorRef: ...

    @overload
    def ref(self, name: str, of: type[ActorT]) -> ActorRef[ActorT]: ...

    def ref(self, name: str, of: type[Actor] | None = None) -> ActorRef[Any]:
        """Return the address `name`, whether an actor of that name runs or not.

        `of` is the class of the actor, for type checkers.
        """
        return ActorRef(self.cell(name))

    def cell(self, name: str) -> SingleCell:
        """Return the cell behind that address, for a supervisor to run an actor in."""
        cell = self._cells.get(name)
        if cell is None:
            cell = self._cells[name] = SingleCell(self, name)
        return cell

    @asynccontextmanager
    async def running(
        self,
        name: str,
        make: Callable[[], ActorT],
        shutdown_seconds: float = SHUTDOWN_SECONDS,
        *,
        mailbox: MailboxPolicy | None = None,
        start_seconds: float = START_SECONDS,
    ) -> AsyncIterator[ActorRef[ActorT]]:
        """Run an actor without a supervisor while the block runs; then stop it in an orderly way.

        `mailbox` replaces the policy of the actor's class. A start that takes longer than
        `start_seconds` is a failure. A failure of the actor cancels the block, which then raises
        ActorFailed, even if the block waited for an answer. Raises ValueError if an actor of that
        name is running, and RuntimeError if the runtime has ended.
        """
        cell = self.cell(name)
        cell.check_not_running()
        self.add_node(cell)
        try:
            with unwrap_single_error(name):
                async with trio.open_nursery() as nursery:
                    run = partial(cell.run, make, mailbox=mailbox, start_seconds=start_seconds)
                    ref: ActorRef[ActorT] = await nursery.start(run)
                    try:
                        yield ref
                    finally:
                        cell.stop(trio.current_time() + shutdown_seconds)
        finally:
            cell.terminate()
            self.remove_node(cell)

    def mailbox_of(self, cell: ActorCell, capacity: int) -> Mailbox:
        """Return a new mailbox for a cell."""
        if self.tracing is None:
            return Mailbox(capacity)
        return TracedMailbox(self.tracing, cell, capacity)

    def check_open(self) -> None:
        """Raise RuntimeError if the block of `open_runtime` has ended: deadlines would never
        expire."""
        if self._ended:
            raise RuntimeError("The runtime has ended: the block of open_runtime is over.")

    def check_thread(
        self, name: str, call: str = "A message to", instead: str = "ref.tell_from_thread"
    ) -> None:
        """Raise RuntimeError outside of trio's thread, before anything is done for `name`.

        Not called for a tell to an actor that is running, which would cost 7 % more: such a message
        wakes no task, and arrives.
        """
        if get_ident() != self.thread:
            raise RuntimeError(
                f"{call} {name!r} came from a thread other than trio's: use {instead}."
            )

    def one_line(self, error: BaseException) -> str:
        """Return an error as one short line, without secrets."""
        return one_line(error, self._scrub)

    def report_slow(
        self, name: str, kind: type[Actor], types: tuple[str, ...], seconds: float
    ) -> None:
        """Log that handlers of messages of these types took long in total.

        Only the 1st, 2nd, 4th, 8th... of each class of actors is logged.
        """
        self._slow[kind] += 1
        self.events.emit(
            EventKind.SLOW, name, reason=f"{seconds:.3f} s", message_type=", ".join(types)
        )
        count = self._slow[kind]
        if count & (count - 1) == 0:
            self.log.warning(
                "slow_handler",
                actor=name,
                message_types=types,
                seconds=round(seconds, 3),
                count=count,
            )

    def report_overdue(self, name: str, place: str, **sizes: int) -> None:
        """Log that the deadline of a stop has passed, and the `file:line` of the code that still
        runs."""
        self.log.warning("stop_overdue", child=name, at=place, **sizes)
        self.events.emit(EventKind.STOP_OVERDUE, name, reason=f"at {place}")

    def count_late_reply(self) -> None:
        """Count an answer whose asker no longer waits."""
        self._late_replies += 1

    def add_node(self, node: Inspectable) -> None:
        """Show a node at the top of the tree."""
        self._nodes[node] = None

    def remove_node(self, node: Inspectable) -> None:
        """Stop showing a node at the top: it has ended, or a supervisor shows it."""
        self._nodes.pop(node, None)

    def snapshot(self) -> RuntimeSnapshot:
        """Return the state of the whole runtime as a frozen value."""
        workers = self.workers.statistics()
        return RuntimeSnapshot(
            tree=tuple(node.snapshot() for node in self._nodes),
            deadlines=len(self.deadlines),
            workers=workers.alive,
            workers_parked=workers.parked,
            late_replies=self._late_replies,
            dead_letters=self.dead_letters.counts(),
            last_dead_letters=self.dead_letters.last(),
        )

    def statistics(self) -> RuntimeStatistics:
        """Return the sizes of the runtime's tables."""
        return RuntimeStatistics(
            self.deadlines.statistics(), self.workers.statistics(), len(self._cells)
        )

    async def close(self, deadline: float) -> None:
        """Close the pools that are still open, then end the runtime's own tasks."""
        self.from_threads.close()
        try:
            for pool in [node for node in self._nodes if isinstance(node, KeyedPool)]:
                await pool.close(deadline)
        finally:
            self._ended = True
            self.workers.close()
            self.deadlines.close()


@asynccontextmanager
async def open_runtime(
    *,
    clock: Clock,
    entropy: Entropy,
    log: Log | None = None,
    scrub: Callable[[str], str] = str,
    carry: Iterable[ContextVar[Any]] = (),
    hooks: TraceHooks | None = None,
) -> AsyncIterator[Runtime]:
    """Open a runtime for the time of the block.

    When the block ends, also by cancellation, pools that are still open have five seconds to
    finish. `log` is a structlog-like logger; without one, lines are written to the standard error
    stream. `scrub` removes secrets from the texts of errors, which appear in snapshots, answers and
    the log. The context variables `carry`, such as a request's id, have the sender's values in
    work, and in handlers of asked and sent messages. `hooks` are called for each message; see
    `TraceHooks`.
    """
    with unwrap_single_error():
        async with trio.open_nursery() as nursery:
            runtime = Runtime(nursery, clock, entropy, log or StderrLog(), scrub, carry, hooks)
            nursery.start_soon(runtime.deadlines.run)
            try:
                yield runtime
            finally:
                with trio.CancelScope(shield=True):
                    await runtime.close(trio.current_time() + SHUTDOWN_SECONDS)
