"""The base class of actors, and the context through which an actor uses the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, TypeVarTuple

from outcome import Outcome

from fw_actors.runtime.clock import Clock, Entropy
from fw_actors.runtime.deadlock import current_waiter
from fw_actors.runtime.errors import Faults
from fw_actors.runtime.mailbox import MailboxPolicy
from fw_actors.runtime.messages import Handler, HandlerTable, Message, Request, handler_tables
from fw_actors.runtime.operations import (
    Ticker,
    Timer,
    Work,
    check_period,
    check_seconds,
    operations_of,
)
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.supervision import Down, Up, Watch

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.system import Log

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NAMES_KEPT: Final = 64  # of timers; beyond that, names of timers that are not pending are dropped


class Actor:
    """Base class of actors: mark methods with `@handles(MessageType)`. One message at a time.

    Pass dependencies through the constructor. `self.context` is set before `started` is called.
    """

    mailbox: ClassVar[MailboxPolicy] = MailboxPolicy()
    faults: ClassVar[Faults] = Faults.PASS_ON
    """The treatment of runtime errors that a handler does not catch."""
    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors that a handler may raise to refuse a message, like `Refused`."""
    slow_seconds: ClassVar[float] = 0.1
    """Seconds after which a handler is logged as slow; infinity if handlers wait for long."""
    first_phase: ClassVar[Enum | None] = None
    """The phase in which an instance begins, if its handlers have phases."""
    phases: ClassVar[Mapping[Enum, HandlerTable]] = {}
    handlers: HandlerTable = MappingProxyType({})
    """The handlers of the current phase."""
    context: Context

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.handlers, cls.phases = handler_tables(cls, cls.first_phase)

    async def started(self) -> None:
        """Run before the first message. An error raised here is a failure of the instance."""

    async def stopping(self) -> None:
        """Run after the last message of an orderly end, but not after a failure."""

    def describe(self) -> dict[str, object]:
        """Return the state for an inspection: without secrets, and nothing large."""
        return {}


def check_made(made: object) -> None:
    """Raise TypeError if the result of a function `make` is not an actor."""
    if not isinstance(made, Actor):
        raise TypeError(f"make must return an actor, not {made!r}")


def construct_error(error: Exception) -> Exception:
    """Return the error of a constructor, with an explanation if it used the context, which it does
    not have yet.

    A `__getattr__` for this explanation would slow down every access to an actor's attributes.
    """
    if isinstance(error, AttributeError) and error.name == "context":
        actor = error.obj
        if isinstance(actor, Actor):
            kind = type(actor).__name__
            text = f"{kind} has no context in its constructor: use it in started"
            return AttributeError(text, name="context", obj=actor).with_traceback(
                error.__traceback__
            )
    return error


class KeyedActor(Actor):
    """Base class of actors that only run in a `KeyedPool`: their `context.key` is a text."""

    context: KeyedContext


class Context:
    """An actor's access to the runtime. For trio's thread only, during the lifetime of the
    instance."""

    __slots__ = (
        "_cell",
        "_handlers",
        "_phase",
        "_timers",
        "clock",
        "entropy",
        "key",
        "log",
        "time",
    )

    def __init__(self, cell: ActorCell, key: str | None = None) -> None:
        self._cell = cell
        self._timers: dict[str, Timer] | None = None
        """Named timers; created on demand."""
        self._phase: Enum | None = None
        self._handlers: dict[type[Message], Handler] | None = None
        """The instance's own table, if it has phases."""
        self.clock: Clock = cell.runtime.clock
        """The wall clock."""
        self.entropy: Entropy = cell.runtime.entropy
        """The source of randomness."""
        self.log: Log = cell.runtime.log
        """The runtime's logger."""
        self.time: Callable[[], float] = cell.runtime.deadlines.now
        """Returns trio's time in seconds, faster than `trio.current_time`."""
        self.key = key
        """The actor's key in its pool; None for a single actor."""

    @property
    def ref(self) -> Ref:
        """The actor's own address."""
        return self._cell.ref

    def one_line(self, error: BaseException) -> str:
        """Return an error as one short line, without secrets."""
        return self._cell.runtime.one_line(error)

    @property
    def left(self) -> float:
        """The seconds for which the asker of the current request still waits.

        Infinity if the message was told, or if its asker set no deadline; 0 if the asker no longer
        waits. In work: for the request whose reply was kept for it.
        """
        waiter = current_waiter()
        served = waiter.serves if waiter is not None else None
        if served is None or served.answered:
            return inf
        if not served.awaited or served.orphaned:
            return 0.0
        return max(0.0, served.due - self.time())

    def keep_reply(self) -> PendingReply[Any]:
        """Return the reply to the current message, to answer later.

        The handler's return value is then ignored. If the message was told, there is no asker, and
        an answer is only counted.
        """
        return self._cell.keep_reply()

    def stash(self, message: Message) -> PendingReply[Any]:
        """Stash the current message, unanswered, until `unstash` or `enter`.

        The handler of a request must return the result of this method. Beyond `max_stash` the
        message is refused: the asker gets MailboxFull, and a told message becomes a dead letter.
        When the instance ends, stashed messages return to the mailbox.
        """
        return self._cell.stash(message)

    def unstash(self) -> None:
        """Handle all stashed messages next, in order, before the mailbox."""
        self._cell.unstash()

    @property
    def phase(self) -> Enum | None:
        """The actor's phase, from `first_phase` on; None without phases."""
        return self._phase

    def enter(self, phase: Enum) -> None:
        """Change the phase, so that its handlers apply, and unstash all messages.

        A message that only other phases handle is stashed. Raises ValueError for a phase that the
        actor's class does not have.
        """
        actor = self._cell.actor
        table = None if actor is None else actor.phases.get(phase)
        if table is None or self._handlers is None:
            raise ValueError(f"{self._cell.name!r} has no phase {phase!r}")
        self._phase = phase
        self._handlers.clear()
        self._handlers.update(table)
        self._cell.unstash()

    def begin_phases(self, actor: Actor) -> None:
        """Give a new instance its first phase; for the runtime.

        The instance also gets its own table of handlers, which `enter` changes in place, because
        the running batch refers to it.
        """
        self._phase = actor.first_phase
        actor.handlers = self._handlers = dict(actor.handlers)

    def while_wanted(self) -> AbstractContextManager[object]:
        """Return a block that is cancelled once the asker of the current request stops waiting; for
        the runtime."""
        return self._cell.while_wanted()

    def work(
        self,
        fn: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        then: Callable[[Outcome[T]], Message] | None = None,
        wait: bool = True,
    ) -> None:
        """Run `await fn(*args)` concurrently, then send the message `then(outcome)` to this actor.

        Without `then` no message is sent, and an error of `fn` is only logged. If the instance ends
        first, the work is cancelled and no message is sent. Work beyond `max_work` is queued, and
        the actor takes no message from its mailbox while work is queued. Raises MailboxFull if more
        work is queued than the capacity of the mailbox, or, without `wait`, if this work would be
        queued.
        """
        operations_of(self._cell).begin_work(Work(self._cell, fn, args, then), wait=wait)

    def ask(
        self,
        ref: Ref,
        request: Request[T],
        *,
        then: Callable[[Outcome[T]], Message],
        deadline: float | None = None,
        capped: bool = True,
    ) -> None:
        """Send a request without waiting; its answer comes as the message `then(outcome)`.

        The outcome has the errors of `ref.ask`, and the deadline means the same. If the instance
        ends first, the request is withdrawn and no message is sent. The request counts as a piece
        of work, but needs no task; if it must wait for room in the other mailbox, or is queued, it
        becomes an ordinary piece of work.

        Raises MailboxFull as `work` does.
        """
        operations = self._cell.operations or operations_of(self._cell)
        operations.begin_ask(ref, request, then, deadline, capped=capped)

    @property
    def room_for_work(self) -> int:
        """The number of pieces of work that could begin at once."""
        return operations_of(self._cell).room_for_work

    @property
    def works(self) -> int:
        """The number of pieces of this actor's work that have not ended."""
        return self._cell.works

    def after(self, seconds: float, message: Message, *, name: str | None = None) -> Timer:
        """Send `message` to this actor in `seconds`, unless the timer is cancelled.

        A timer with a `name` replaces the earlier one of that name. Raises MailboxFull if
        `max_timers` of this actor's timers and watches are pending.
        """
        check_seconds(seconds)  # before the earlier timer is dropped
        if name is None:
            return Timer(self._cell, seconds, message)
        self._drop_timer(name)
        return self._keep_timer(name, Timer(self._cell, seconds, message))

    def every(
        self,
        seconds: float,
        message: Message,
        *,
        first: float | None = None,
        name: str | None = None,
    ) -> Timer:
        """Send `message` to this actor every so many seconds, until the timer is cancelled.

        The first message is sent in `first` seconds, by default in `seconds`. The times do not
        drift. A time is skipped if the previous message was not handled yet. A keyed actor with
        such a timer is not idle. `name` and errors as for `after`; ValueError unless `seconds` is
        positive.
        """
        first = seconds if first is None else first
        check_period(seconds, first)
        if name is not None:
            self._drop_timer(name)
        ticker = Ticker(self._cell, seconds, message, first)
        return ticker if name is None else self._keep_timer(name, ticker)

    def _drop_timer(self, name: str) -> None:
        if self._timers and (timer := self._timers.pop(name, None)):
            timer.cancel()

    def _keep_timer(self, name: str, timer: Timer) -> Timer:
        timers = self._timers or {}
        if len(timers) >= NAMES_KEPT:
            timers = {other: kept for other, kept in timers.items() if kept.pending}
        self._timers = {**timers, name: timer}
        return timer

    def watch(
        self,
        ref: Ref,
        then: Callable[[Down], Message],
        *,
        up: Callable[[Up], Message] | None = None,
        repeat: bool = False,
    ) -> Watch:
        """Send the message `then(Down)` to this actor when the instance behind `ref` has ended.

        If there is no instance, the message is sent at once, unless this instance was notified of
        that end before. With `up`, also send `up(Up)` when an instance has started. The watch ends
        with its first `Down`; with `repeat` it ends when it is cancelled or this instance ends. A
        watch creates no keyed actor; a passivated one counts as ended. Raises MailboxFull as
        `after` does.
        """
        return Watch(self._cell, ref, then, up, repeat)

    def stop(self) -> None:
        """Request an orderly end of this actor after the current message.

        A single actor handles the messages in its mailbox first. A keyed actor ends as soon as it
        is idle.
        """
        self._cell.stop(float("inf"))


class KeyedContext(Context):
    """The context of an actor in a pool."""

    __slots__ = ()

    key: str
