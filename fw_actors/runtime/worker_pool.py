"""Worker pools: several actors of one kind behind one address, with one mailbox.

The next free worker takes the next message. A worker is a single actor, except that it takes its
messages from the pool's mailbox, one at a time. Therefore a failure loses only the current message,
and the other workers take the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import trio

from fw_actors.runtime.cell import ActorCell, ActorState, FaultInjector
from fw_actors.runtime.mailbox import Item, Mailbox, MailboxPolicy
from fw_actors.runtime.ref import Ref
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.single import SingleCell
from fw_actors.runtime.supervision import Presence

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.messages import Message
    from fw_actors.runtime.snapshot import Inspection
    from fw_actors.runtime.supervision import Watch
    from fw_actors.runtime.system import Runtime

ActorT_co = TypeVar("ActorT_co", bound="Actor", covariant=True)


class PoolFront(ActorCell):
    """The part of a worker pool to which senders send: mailbox and free workers. It has no
    instance."""

    __slots__ = ("_free", "any_of", "pool")

    def __init__(self, pool: WorkerPool[Any], policy: MailboxPolicy) -> None:
        closed = Mailbox(policy.capacity)
        closed.close()
        super().__init__(pool.runtime, pool.name, closed, {})
        self.pool = pool
        self.any_of: tuple[WorkerCell, ...] = ()
        """The workers, one of which is enough to continue."""
        self._free: OrderedDict[WorkerCell, None] = OrderedDict()
        """Parked workers that would take a message, the longest free first."""
        self.policy = policy

    @property
    def ref(self) -> Ref:
        """The pool's address."""
        return self.pool

    @property
    def state(self) -> ActorState:
        """Whether the pool takes messages."""
        return ActorState.ABSENT if self.mailbox.is_closed else ActorState.RUNNING

    @property
    def watches(self) -> Collection[Watch]:
        """None: a pool is not watched."""
        return ()

    @property
    def free(self) -> int:
        """The number of workers that would take a message at once."""
        return len(self._free)

    def schedule(self) -> None:
        """Wake the next free worker."""
        next(iter(self._free)).schedule()

    async def offer_when_room(self, item: Item) -> None:
        """Wait for room and put an item, and wake a free worker for it.

        The mailbox may be full while workers are free: the worker that has made room was woken for
        another message.
        """
        await super().offer_when_room(item)
        self.pass_on()

    def stop(self, deadline: float) -> None:
        """Take no further messages."""
        self.mailbox.close()

    def open(self) -> None:
        """Take messages again."""
        if self.mailbox.is_closed:
            self.mailbox = self.runtime.mailbox_of(self, self.mailbox.capacity)

    def add_free(self, worker: WorkerCell) -> None:
        """Record that a worker has nothing to do."""
        self._free[worker] = None
        self.scheduled = False

    def remove_free(self, worker: WorkerCell) -> None:
        """Record that a worker has something to do, or has ended."""
        self._free.pop(worker, None)
        self.scheduled = not self._free

    def pass_on(self) -> None:
        """Have another worker check the mailbox, since the one that was woken for it may not."""
        if self._free and self.mailbox.depth:
            self.schedule()


class WorkerMailbox(Mailbox):
    """One worker's access to the mailbox of its pool. Closing it closes only this access."""

    __slots__ = ("_front", "_worker")

    def __init__(self, front: PoolFront, worker: WorkerCell) -> None:
        super().__init__(1)
        self._front, self._worker = front, worker
        self.capacity = front.mailbox.capacity
        self.put = self._put_for_all
        self.take = self._take_for_worker

    def _put_for_all(self, item: Item) -> None:
        self._front.mailbox.put(item)

    def _usual_take(self) -> Callable[[], Item]:
        return self._take_for_worker

    def _take_for_worker(self) -> Item:
        shared = self._front.mailbox
        if self.is_closed and not shared.is_closed:
            raise trio.EndOfChannel  # the worker ends, the pool continues
        item = shared.take()
        if isinstance(item, PendingReply):
            item.cell = self._worker
        return item

    async def put_when_room(self, item: Item) -> None:
        """Wait for room in the mailbox of the pool."""
        await self._front.mailbox.put_when_room(item)


class WorkerCell(SingleCell):
    """The cell of one worker."""

    __slots__ = ("_front",)

    def __init__(self, front: PoolFront, name: str) -> None:
        super().__init__(front.runtime, name)
        self._front = front

    @property
    def ref(self) -> Ref:
        """The pool's address: any worker takes what this one sends to itself."""
        return self._front.ref

    def schedule(self) -> None:
        """Wake the parked task."""
        super().schedule()
        self._front.remove_free(self)

    def settle_mailbox(self) -> None:
        """Leave the messages to the other workers; `WorkerPool.settle` settles those that
        remain."""
        self.mailbox.close()
        self._front.mailbox.put_back([self.mailbox.take() for _ in range(self.mailbox.returned)])
        self._refuse_inspections()

    def _new_mailbox(self, capacity: int) -> Mailbox:
        return WorkerMailbox(self._front, self)

    @property
    def _takes_messages(self) -> bool:
        return not (
            self._suspended or self.mailbox_held or self.full_of_work or self.mailbox.is_closed
        )

    def _park(self) -> None:
        super()._park()
        if self._takes_messages:
            self._front.add_free(self)
        else:
            self._front.pass_on()

    def _unpark(self, cancelled: object) -> trio.lowlevel.Abort:
        self._front.remove_free(self)
        return super()._unpark(cancelled)

    def _finish(self, failure: str | None, *, terminate: bool) -> None:
        super()._finish(failure, terminate=terminate)
        self._front.pass_on()


class WorkerPool(Ref, Generic[ActorT_co]):
    """The address of `size` actors of one kind, of which the next free one takes a message.

    `make` creates each actor. `mailbox` is the policy of the pool's one mailbox; of the policy of
    its actors only `max_work` and `max_timers` count. A supervisor runs the workers, see
    `supervisors.worker_pool_child`; the pool is closed before they start and after they have ended.
    """

    __slots__ = ("_front", "_name", "make", "runtime", "size")

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        make: Callable[[], ActorT_co],
        *,
        size: int,
        mailbox: MailboxPolicy | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"{name!r}: size must be at least 1")
        self.runtime = runtime
        self._name = name
        self.make = make
        self.size = size
        self._front = PoolFront(self, mailbox or MailboxPolicy())
        self._front.any_of = tuple(
            WorkerCell(self._front, f"{name}/{number}") for number in range(1, size + 1)
        )

    @property
    def name(self) -> str:
        """The pool's name; the workers are called `name/1`, `name/2`, …"""
        return self._name

    @property
    def workers(self) -> Sequence[WorkerCell]:
        """The cells of the workers; for supervisors and tests."""
        return self._front.any_of

    @property
    def free(self) -> int:
        """The number of workers that would take a message at once."""
        return self._front.free

    @property
    def depth(self) -> int:
        """The number of messages that no worker has taken."""
        return self._front.mailbox.depth

    @property
    def waiting(self) -> int:
        """The number of senders that wait for room."""
        return self._front.mailbox.waiting

    @property
    def capacity(self) -> int:
        """The limit of messages that no worker has taken."""
        return self._front.mailbox.capacity

    def tell(self, message: Message, /) -> bool:
        """Send without waiting; see `Ref.tell`."""
        return self._front.tell(message)

    def tell_from_thread(self, message: Message) -> bool:
        """Send from any thread; see `Ref.tell_from_thread`."""
        return self.runtime.from_threads.tell(self, message)

    def target(self, message: Message | None = None) -> ActorCell:
        return self._front

    async def inspect(self, deadline: float = 1.0) -> Inspection:
        """Raise TypeError: a pool has no one state; its snapshot is in that of the runtime."""
        self._refuse("inspected")

    def presence(self) -> Presence:
        """Raise TypeError: a pool has no one instance."""
        self._refuse("watched")

    def add_watch(self, watch: Watch) -> None:
        """Raise TypeError."""
        self._refuse("watched")

    def remove_watch(self, watch: Watch) -> None:
        """Do nothing."""

    def inject_faults(self, injector: FaultInjector | None) -> None:
        """Pass the items of all workers through `injector`; for tests."""
        for worker in self.workers:
            worker.inject_faults(injector)

    # For the supervisor.

    def open(self) -> None:
        """Accept messages; they wait until a worker has started."""
        self._front.open()

    def close(self) -> None:
        """Refuse messages; those inside will still be taken."""
        self._front.mailbox.close()

    def settle(self) -> None:
        """Close the pool, and settle the messages that no worker has taken; no worker may run."""
        self._front.settle_mailbox()

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"{self.name!r} is a worker pool, which cannot be {what}")

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return hash(self._name)
