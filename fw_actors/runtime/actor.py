"""The class that actors are written as, and what an actor has in its hands while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, TypeVarTuple

from outcome import Outcome

from fw_actors.runtime.background import Timer, Watch, Work
from fw_actors.runtime.clock import Clock, Entropy
from fw_actors.runtime.errors import ActorGone, MailboxFull
from fw_actors.runtime.mailbox import MailboxPolicy
from fw_actors.runtime.messages import HandlerTable, Message, handler_table
from fw_actors.runtime.reply import PendingReply

if TYPE_CHECKING:
    from fw_actors.runtime.cell import Cell, Down
    from fw_actors.runtime.ref import ActorRef, Ref
    from fw_actors.runtime.system import Log

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Actor:
    """Subclass it; mark methods with `@handles(MessageType)`. One message at a time.

    Collaborators come through the constructor. `self.context` is there from `started` on.
    """

    mailbox: ClassVar[MailboxPolicy] = MailboxPolicy()
    handlers: ClassVar[HandlerTable] = {}
    context: Context

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.handlers = handler_table(cls)

    async def started(self) -> None:
        """Run before the first message. A failure here is a failure of the instance."""

    async def stopping(self) -> None:
        """Run after the last message of an ordered end; not after a failure."""

    def describe(self) -> dict[str, object]:
        """Return what an inspection shows of the state: no secrets, nothing large."""
        return {}


class Context(ABC):
    """What the runtime gives to an actor, for use on trio's thread and while it lives."""

    __slots__ = ("_cell", "key")

    def __init__(self, cell: Cell, key: str | None = None) -> None:
        self._cell = cell
        self.key = key
        """The actor's key in its pool; None outside of one."""

    @property
    @abstractmethod
    def ref(self) -> Ref:
        """This actor's own address."""

    @property
    def clock(self) -> Clock:
        """The wall clock."""
        return self._cell.runtime.clock

    @property
    def entropy(self) -> Entropy:
        """The source of randomness."""
        return self._cell.runtime.entropy

    @property
    def log(self) -> Log:
        """The runtime's logger."""
        return self._cell.runtime.log

    def one_line(self, error: BaseException) -> str:
        """Return a failure as one short line, without what must not be told."""
        return self._cell.runtime.one_line(error)

    def time(self) -> float:
        """Trio's time in seconds, without the way through trio's globals."""
        return self._cell.runtime.deadlines.now()

    def keep_reply(self) -> PendingReply[Any]:
        """Take over the answer to the message in hand; the handler's return value is ignored.

        For a message that was told, not asked, the reply is one that nobody wants.
        """
        cell = self._cell
        slot = cell.current
        if slot is None:
            return PendingReply(cell, Message(), wanted=False)
        cell.current = None
        slot.kept = True
        cell.hold(slot)
        return slot

    def work(
        self,
        fn: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        then: Callable[[Outcome[T]], Message],
    ) -> None:
        """Run `await fn(*args)` beside the mailbox; `then(outcome)` comes as a message at its end.

        If the instance goes away first, the work is cancelled and no message comes.
        Raises MailboxFull when `max_work` of this actor's are under way.
        """
        cell = self._cell
        limit = _policy(cell).max_work
        if cell.works >= limit:
            raise MailboxFull(cell.name, limit, "pieces of work")
        cell.runtime.workers.submit(Work(cell, fn, args, then))

    def after(self, seconds: float, message: Message) -> Timer:
        """Have the message come to this actor in `seconds`, unless the timer is cancelled.

        Raises MailboxFull when `max_timers` of this actor's timers and watches are pending.
        """
        self._limit_timers()
        return Timer(self._cell, seconds, message)

    def watch(self, ref: ActorRef, then: Callable[[Down], Message]) -> Watch:
        """Have `then(Down)` come when the single actor's present instance goes away.

        At once, when there is none. Raises MailboxFull as `after` does.
        """
        self._limit_timers()
        return Watch(self._cell, ref.cell, then)

    def stop(self) -> None:
        """End this actor in order after the message in hand; it is a normal end.

        A single actor handles what is in its mailbox first. A keyed one goes away as soon as it
        is idle.
        """
        self._cell.stop(float("inf"))

    def _limit_timers(self) -> None:
        limit = _policy(self._cell).max_timers
        if self._cell.timers >= limit:
            raise MailboxFull(self._cell.name, limit, "timers and watches")


def _policy(cell: Cell) -> MailboxPolicy:
    """Return the actor's limits. Raises ActorGone when its instance has gone."""
    if cell.actor is None:
        raise ActorGone(cell.name)
    return cell.actor.mailbox
