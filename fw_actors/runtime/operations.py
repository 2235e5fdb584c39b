"""The pending operations of an actor's instance: kept replies, work, timers, watches, the stash.

The instance has begun them, and they end with it at the latest. Their number is bounded by its
`MailboxPolicy`, so that their completions, the messages by which work, timers and watches end, are
never refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fw_actors.runtime.errors import ActorError, MailboxFull
from fw_actors.runtime.stash import Stash
from fw_actors.runtime.watches import EndsTold

if TYPE_CHECKING:
    from fw_actors.runtime.background import Question, Work
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.mailbox import Item, MailboxPolicy
    from fw_actors.runtime.messages import Message
    from fw_actors.runtime.reply import PendingReply


class PendingOperation(Protocol):
    """A kept reply, work, timer or watch: the instance that started it has not ended it yet."""

    def abandon(self, error: ActorError) -> None:
        """End the operation because the instance has ended. Must not raise."""


class Completion(PendingOperation, Protocol):
    """A pending operation that ends with a message to its own actor."""

    @property
    def serves(self) -> PendingReply[Any] | None:
        """The request that the operation was begun for, if it is known."""

    def take(self) -> Message | PendingReply[Any] | None:
        """End the operation and return its message; None if it was cancelled meanwhile."""


class PendingOperations:
    """The operations of one instance. Its cell has none of these while there is no operation."""

    __slots__ = (
        "_cell",
        "_ends_told",
        "_limits",
        "_stash",
        "_waiting_work",
        "completions",
        "pending",
        "timers",
        "works",
    )

    def __init__(self, cell: ActorCell, limits: MailboxPolicy) -> None:
        self._cell = cell
        self._limits = limits
        self.pending: dict[PendingOperation, None] = {}
        self.completions: deque[Completion] | None = None  # made when needed: 600 bytes
        """Operations that have ended, and whose message is still to be handled."""
        self.works = 0
        """Pieces of work that were begun and whose completion was not taken yet."""
        self.timers = 0
        """Pending timers and watches."""
        self._waiting_work: deque[Work] | None = None
        """Pieces beyond `max_work`, in order."""
        self._ends_told: EndsTold | None = None
        self._stash: Stash | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to remember."""
        return bool(self.pending or self.completions) or self._ends_told is not None

    def add(self, operation: PendingOperation) -> None:
        """Record an operation; an idle keyed actor has none."""
        self.pending[operation] = None

    def remove(self, operation: PendingOperation) -> None:
        """Record the end of an operation; does nothing for one that was abandoned."""
        if operation in self.pending:
            del self.pending[operation]
            if not self.pending:
                self._cell.operations_ended()

    def abandon_all(self, error: Callable[[], ActorError]) -> None:
        """End all operations because the instance has ended, each with an error of its own."""
        pending, self.pending = self.pending, {}
        self.completions = self._waiting_work = None
        for operation in pending:
            operation.abandon(error())

    # Work.

    @property
    def room_for_work(self) -> int:
        """The number of pieces of work that would begin at once."""
        return max(0, self._limits.max_work - self.works)

    def begin_work(self, work: Work, *, wait: bool) -> None:
        """Begin a piece of work, or queue it until another one ends.

        While pieces beyond `max_work` are queued, the actor takes nothing from its mailbox. Up to
        the capacity of the mailbox may be. Raises MailboxFull beyond that, or without `wait` for
        a piece that would have to be queued.
        """
        limits = self._limits
        most = limits.max_work + (limits.capacity if wait and limits.max_work else 0)
        if self.works >= most:
            raise MailboxFull(self._cell.name, most, "pieces of work")
        self.add_work(work)
        if self.works <= limits.max_work:
            self._cell.runtime.workers.submit(work)
        else:
            if self._waiting_work is None:
                self._waiting_work = deque()
            self._waiting_work.append(work)
            self._cell.became_full_of_work()

    def add_work(self, work: Work | Question) -> None:
        """Record a piece of work, or a request that counts as one."""
        self.works += 1
        self.add(work)

    def remove_work(self, work: Work | Question) -> None:
        """Record the end of a piece of work, and begin the next one that waits."""
        self.works -= 1
        if self._waiting_work:
            self._cell.runtime.workers.submit(self._waiting_work.popleft())
            self._cell.full_of_work = bool(self._waiting_work)
        self.remove(work)

    # Messages set aside.

    @property
    def stashed(self) -> int:
        """The number of messages that are set aside."""
        return 0 if self._stash is None else len(self._stash)

    def stash(self, item: Item) -> bool:
        """Set an item aside; return False at `max_stash`."""
        if self._stash is None:
            self._stash = Stash(self._cell, self._limits.max_stash)
        if not self._stash.add(item):
            return False
        self.add(self._stash)
        return True

    def unstash(self) -> None:
        """Put what is set aside in front of the mailbox."""
        if self._stash is not None:
            stash, self._stash = self._stash, None
            stash.give_back()
            self.remove(stash)

    # Timers and watches.

    def add_timer(self, timer: PendingOperation) -> None:
        """Record a timer or watch. Raises MailboxFull at `max_timers`."""
        if self.timers >= self._limits.max_timers:
            raise MailboxFull(self._cell.name, self._limits.max_timers, "timers and watches")
        self.timers += 1
        self.add(timer)

    def remove_timer(self, timer: PendingOperation) -> None:
        """Record the end of a timer or watch."""
        self.timers -= 1
        self.remove(timer)

    @property
    def ends_told(self) -> EndsTold:
        """The ends of other actors that this instance was told of by its watches."""
        if self._ends_told is None:
            self._ends_told = EndsTold(self._limits.max_timers)
        return self._ends_told
