"""Dispatcher: claims due deliveries for free slots and gives each to its DeliveryActor.

The rows are the queue: a poll of the store, at least once a second, finds deliveries that are due
and unleased; a wake-up only makes the next poll earlier. Memory does not grow with the number of
due rows.
Rules: B-197, B-237, B-238, B-236, B-210, B-233, B-211.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from math import inf
from typing import Any, Final

from fw_actors.actors.delivery import AttemptsEnded, AttemptsInFlight, RetryDue, SlotFreed
from fw_actors.actors.queue_worker import (
    MAX_SLEEP_SECONDS,
    UNAVAILABLE_SECONDS,
    ClockSkewRepair,
    Poll,
    PollSchedule,
    PollTimer,
    UnclaimedWorkNotifier,
    WakeUp,
    new_lease_token,
)
from fw_actors.documents.core import MAX_TIMEOUT
from fw_actors.errors import OverloadedError
from fw_actors.http import Origin, parse_endpoint
from fw_actors.rules.delivery import LEASE_MARGIN_SECONDS
from fw_actors.rules.receivers import ReceiverSlots
from fw_actors.runtime import (
    Actor,
    ActorError,
    KeyedPool,
    MailboxPolicy,
    Overflow,
    Ref,
    Request,
    handles,
)
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import StatementError, Store
from fw_actors.webhooks.claims import (
    NO_TURN,
    ClaimedBatch,
    ClaimPlan,
    LeasedDelivery,
    Turn,
    new_receiver,
)
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.events import QUEUE

BATCH_SECONDS: Final = 0.005
RECORDED_SECONDS: Final = 0.02  # the time to record an outcome, its batch window included
MIN_FREE_SLOTS: Final = 4
"""Fewer free slots wait for the batch window, so that each failure does not cause a poll."""
DEFER_SECONDS: Final = 1.0
LONGEST_LEASE_SECONDS: Final = MAX_TIMEOUT + LEASE_MARGIN_SECONDS
RECEIVERS_SHOWN: Final = 100
MAX_TURNS: Final = 10_000
_ORDER_SHOWN: Final = ("paused", "failing", "slow", "healthy")


class Pause(Request[bool], frozen=True):
    """Request to pause a receiver, given by its origin; answered with whether it is known.

    `known_elsewhere`: it is paused also if nothing has been sent to it here, because another
    process of the service knows it.
    """

    receiver: str
    known_elsewhere: bool = False


class Resume(Request[bool], frozen=True):
    """Request to resume a receiver; answered with whether it is known."""

    receiver: str


async def receiver_health(dispatcher: Ref, seconds: float) -> Mapping[str, str]:
    """Return the health of each receiver by its origin; nothing if the Dispatcher is busy.

    `seconds`: the time to wait for it.
    """
    try:
        described = (await dispatcher.inspect(seconds)).described
    except ActorError:
        return {}
    receivers: Any = described.get("receivers", ())
    return {each["origin"]: each["health"] for each in receivers}


class Dispatcher(Actor):
    """Claims due deliveries, and limits the attempts in flight per receiver and in all."""

    # While a poll waits for the store, a `RetryDue` of each slot may arrive. A lost one does no
    # harm: the next poll finds the retries and the freed slots.
    mailbox = MailboxPolicy(capacity=8192, overflow=Overflow.REFUSE, max_timers=4)

    def __init__(
        self,
        store: Store,
        deliveries: Deliveries,
        actors: KeyedPool,
        attempts: AttemptsInFlight,
        *,
        slots: int,
        per_receiver: int,
        paused: set[str] | None = None,
    ) -> None:
        """`slots` is `ops.deliveryConcurrency`; `per_receiver` is `ops.perReceiverConcurrency`.

        `paused` are the origins of paused receivers; pauses and resumptions change it, so that the
        next instance knows them.
        """
        self._store, self._deliveries, self._actors = store, deliveries, actors
        self._attempts = attempts
        self._slots, self._per_receiver = slots, per_receiver
        self._repair = ClockSkewRepair(QUEUE, deliveries.max_wait_seconds, LONGEST_LEASE_SECONDS)
        self._receivers: dict[Origin | None, ReceiverSlots] = {}
        self._batching = False  # a poll is planned for several slots that come free
        self._more = True
        self._packed = True
        """Whether the next claim reads all rows as one; not after an unusable claim."""
        self._turns: dict[str, Turn] = {}
        self._claims = 0
        self._deferred: set[str] = set()
        """Webhooks whose payloads are too long while so many bytes are in flight."""
        self._deferred_until, self._bytes_when_deferred = -inf, 0
        self._paused = set() if paused is None else paused
        for receiver in list(self._paused):
            self._set_paused(receiver, paused=True, create=True)

    async def started(self) -> None:
        """Poll at once: there may be work. Attempts of the previous instance keep their slots."""
        self._polls = PollSchedule(self.context)
        self._unclaimed = UnclaimedWorkNotifier(self._store, self.context, self._polls)
        present = {cell.key for cell in self._actors.cells()}
        for origin, count in self._attempts.running_by_receiver(present).items():
            self._receiver(origin).take(count)
        with suppress(OverloadedError):
            await self._store.write(self._deliveries.warm_up, durable=False)
        self._polls.soon()

    async def stopping(self) -> None:
        """Leave the deliveries that are due, and those of lost wake-ups, to other processes."""
        self._store.notify_others()

    @handles(WakeUp)
    def woken_up(self, message: WakeUp) -> None:
        """Poll soon."""
        message.acknowledge()
        if not message.elsewhere:
            self._unclaimed.new_work()
        self._polls.soon()

    @handles(PollTimer)
    def timer_fired(self, _message: PollTimer) -> None:
        """Poll, unless the poll was put off."""
        if self._polls.is_due():
            if self._polls.for_new_work:
                self._unclaimed.new_work()
            self._polls.soon()

    @handles(AttemptsEnded)
    def attempts_ended(self, _message: AttemptsEnded) -> None:
        """Free the slots of ended attempts, and poll if enough are free."""
        self._take_freed_slots()

    @handles(RetryDue)
    def retry_due(self, message: RetryDue) -> None:
        """A retry may be due sooner than the next poll."""
        self._unclaimed.new_work()
        self._polls.within((message.at - self.context.clock.now()) / MS_PER_SECOND)

    @handles(Poll)
    async def poll(self, message: Poll) -> None:
        """Lease the deliveries that can start now, start them, and sleep until the next is due."""
        self._batching = False
        self._take_freed_slots()  # also those without a message
        self._polls.begin()
        occupied = len(self._actors)
        awaited = occupied > self._attempts.count
        if occupied >= self._slots:  # a claim would lease nothing
            self._more = True
            self._polls.after(
                RECORDED_SECONDS if awaited else MAX_SLEEP_SECONDS, for_new_work=not awaited
            )
            self._unclaimed.polled(True)
            return
        plan = self._plan(self._slots - occupied)
        try:
            await self._repair.run(self._store, self.context.log, self.context.clock.now())
            began = self.context.time()
            batch = await self._claim(plan)
        except OverloadedError:
            self._polls.after(UNAVAILABLE_SECONDS)
            return
        try:
            deliveries = batch.deliveries
        except StatementError as error:  # nothing is sent
            self.context.log.error("delivery.claim_unusable", error=str(error))
            await self._release_claim(batch)
            return
        if deliveries:  # else the deliveries of an unusable claim may still be leased
            self._packed = True
        self._record_turns(batch)
        self._more = batch.more
        unstarted = self._start_all(deliveries, plan)
        self._evict_idle_receivers()
        self._plan_next_poll(
            batch, deliveries, plan, began, awaited=awaited, unstarted=bool(unstarted)
        )
        if unstarted:
            self._more = True
            await self._release(unstarted)

    def _plan_next_poll(
        self,
        batch: ClaimedBatch,
        deliveries: Sequence[LeasedDelivery],
        plan: ClaimPlan,
        began: float,
        *,
        awaited: bool,
        unstarted: bool,
    ) -> None:
        """Poll when a job is due or slots come free, as a claim that began at `began` shows.

        `awaited`: whether outcomes were awaited when the poll began; `unstarted`: whether there are
        leased deliveries that no actor could take.
        """
        wait = self._seconds_until(batch)
        if not wait and batch.leased is None:
            # It may take long to skip many locked rows; so claims occupy the store half of the time
            # at most.
            wait = min(MAX_SLEEP_SECONDS, self.context.time() - began)
        self._polls.after(UNAVAILABLE_SECONDS if unstarted else wait)
        # Recorded outcomes send no message, and an outcome that holds a slot may have been recorded
        # while the claim ran. Only the slots that the claim left free show whether they are scarce.
        if self._more and self._is_scarce(plan.left) and (awaited or self._outcomes_awaited):
            self._polls.within(RECORDED_SECONDS, for_new_work=False)
        self._unclaimed.polled(batch.more)
        if plan.read_limit_reached or self._defer_returned(batch, deliveries, plan):
            self._polls.soon()

    def _plan(self, free: int) -> ClaimPlan:
        """Return the plan of a claim for `free` slots. It has copies: a failed transaction leaves
        this actor's state unchanged."""
        return ClaimPlan(
            self._receivers,
            free,
            self._slots,
            self._per_receiver,
            self._attempts.long_bytes,
            self._turns,
            self._still_deferred(),
            self._attempts.by_webhook,
        )

    async def _claim(self, plan: ClaimPlan) -> ClaimedBatch:
        """Lease deliveries by `plan`. Raises: OverloadedError."""
        claims = self._deliveries if self._packed else self._deliveries.row_by_row
        token = new_lease_token(self.context.entropy)
        # Not durable: a lease that is lost in a power failure is taken again.
        return await self._store.write(lambda tx: claims.claim(tx, plan, token), durable=False)

    @handles(Pause)
    def pause(self, message: Pause) -> bool:
        """Pause a receiver: attempts in flight finish, due deliveries wait in the store."""
        return self._set_paused(message.receiver, paused=True, create=message.known_elsewhere)

    @handles(Resume)
    def resume(self, message: Resume) -> bool:
        """Resume a receiver, and poll at once: many deliveries may have waited."""
        self._polls.soon()
        return self._set_paused(message.receiver, paused=False)

    def describe(self) -> dict[str, object]:
        """Return the console's facts: receivers, those first that need attention."""
        receivers = sorted(
            ((str(origin), each) for origin, each in self._receivers.items() if origin is not None),
            key=lambda pair: (
                _ORDER_SHOWN.index(pair[1].health),
                -pair[1].failures,
                -pair[1].in_flight,
                pair[0],
            ),
        )
        return {
            "free": self._free,
            "slots": self._slots,
            "receivers": [
                {
                    "origin": origin,
                    "in_flight": each.in_flight,
                    "window": each.window,
                    "limit": each.limit,
                    "health": each.health,
                    "failures": each.failures,
                    "failing_since": each.failing_since,
                    "last_error": each.last_error,
                }
                for origin, each in receivers[:RECEIVERS_SHOWN]
            ],
        }

    def _set_paused(self, receiver: str, *, paused: bool, create: bool = False) -> bool:
        """Pause or resume a receiver; `create`: also if it is unknown. Returns whether it is known.

        Raises: ValidationError if `receiver` is unknown, and is not an origin.
        """
        is_known = self._mark_paused(receiver, paused=paused, create=create)
        if is_known and paused:
            self._paused.add(receiver)
        elif is_known:
            self._paused.discard(receiver)
        return is_known

    def _mark_paused(self, receiver: str, *, paused: bool, create: bool) -> bool:
        for origin, each in self._receivers.items():
            if origin is not None and str(origin) == receiver:
                each.paused = paused
                return True
        if create:
            origin = parse_endpoint(receiver, development=True).origin
            slots = self._receivers[origin] = new_receiver(origin, self._slots, self._per_receiver)
            slots.paused = paused
        return create

    def _start_all(
        self, deliveries: Sequence[LeasedDelivery], plan: ClaimPlan
    ) -> list[LeasedDelivery]:
        """Pass each delivery to an actor; return those for which no actor could be created."""
        unstarted, stored, target = [], None, None
        receiver: ReceiverSlots | None = None
        for leased in deliveries:
            if receiver is None or leased.stored is not stored:  # those of one Webhook are adjacent
                stored, target = leased.stored, plan.target(leased.stored)
                receiver = self._receiver(target.origin if target is not None else None)
            attempt = self._attempts.begin(leased, target)
            if self._actors.tell(leased.delivery, attempt):
                receiver.take(1)
            else:  # no actor could be created
                self._attempts.withdraw(attempt)
                unstarted.append(leased)
        return unstarted

    def _receiver(self, origin: Origin | None) -> ReceiverSlots:
        """Return the slots of a receiver; made if necessary."""
        receiver = self._receivers.get(origin)
        if receiver is None:
            receiver = self._receivers[origin] = new_receiver(
                origin, self._slots, self._per_receiver
            )
        return receiver

    def _take_freed_slots(self) -> None:
        for freed in self._attempts.take_freed():
            self._take_freed(freed)

    def _take_freed(self, freed: SlotFreed) -> None:
        """Free a slot of a receiver, and adapt its window to the measured pace."""
        receiver = self._receivers[freed.origin]
        if freed.error:
            receiver.failed(freed.error, self.context.clock.now())
        elif freed.error is not None and receiver.failures:
            receiver.succeeded()
        if freed.timed_out:
            receiver.timed_out()
        elif freed.head_seconds is not None:
            receiver.answered(freed.head_seconds)
        else:
            receiver.ended()
        if not self._more or self._polls.pending:
            return
        is_fast = freed.head_seconds is not None and not receiver.slow
        if is_fast and receiver.window < receiver.limit:
            wanted_slots = max(1, receiver.window // 2)  # it has just responded in time
        else:
            wanted_slots = max(receiver.window // 2, min(MIN_FREE_SLOTS, receiver.limit))
        if receiver.free >= wanted_slots and self._free:
            self._polls.soon()
        elif not self._batching:
            # Wait for half a window: one transaction per slot would cost more than it gains.
            self._polls.after(BATCH_SECONDS, for_new_work=False)
            self._batching = True

    @property
    def _free(self) -> int:
        """The number of free slots; an actor holds one until its outcome is recorded."""
        return max(0, self._slots - len(self._actors))

    @property
    def _outcomes_awaited(self) -> bool:
        """Whether some slots only wait for an outcome to be recorded."""
        return len(self._actors) > self._attempts.count

    def _is_scarce(self, free: int) -> bool:
        """Return whether so few free slots may be too few for some receiver."""
        return free < max(self._per_receiver, self._slots // 2)

    def _record_turns(self, batch: ClaimedBatch) -> None:
        if batch.leased is None:
            return
        if len(self._turns) > MAX_TURNS:
            self._turns.clear()
        self._claims += 1
        for lease in batch.leased.leases:
            before = self._turns.get(lease.webhook, NO_TURN)
            self._turns[lease.webhook] = Turn(self._claims, before.leased + lease.leased)

    def _still_deferred(self) -> Set[str]:
        """Return the deferred Webhooks; none once bytes came free, or after a second."""
        ended = self.context.time() >= self._deferred_until
        if self._deferred and (ended or self._attempts.long_bytes < self._bytes_when_deferred):
            self._deferred = set()
        return self._deferred

    def _defer_returned(
        self, batch: ClaimedBatch, deliveries: Sequence[LeasedDelivery], plan: ClaimPlan
    ) -> bool:
        """Defer Webhooks of which the claim has returned all deliveries.

        Returns: whether to claim again, because the returned ones have had the slots of others. It
        ends, since each such claim sends something or defers a further Webhook.
        """
        if batch.leased is None or not batch.leased.returned:
            return False
        if not self._deferred:
            self._deferred_until = self.context.time() + DEFER_SECONDS
        self._bytes_when_deferred = plan.bytes_in_flight
        returned = set(batch.leased.returned.values())
        self._deferred |= returned.difference(leased.job.partition for leased in deliveries)
        return True

    async def _release_claim(self, batch: ClaimedBatch) -> None:
        """Release an unusable claim; the next one does without packed rows."""
        leased, self._packed, self._more = batch.leased, False, True
        self._polls.soon()
        try:
            if leased is not None:
                await self._store.write(
                    lambda tx: self._deliveries.release_claim(tx, leased), durable=False
                )
        except OverloadedError:  # the leases expire
            self._polls.after(UNAVAILABLE_SECONDS)

    async def _release(self, unstarted: Sequence[LeasedDelivery]) -> None:
        with suppress(OverloadedError):  # their leases expire
            await self._store.write(
                lambda tx: [self._deliveries.release(tx, leased) for leased in unstarted],
                durable=False,
            )

    def _evict_idle_receivers(self) -> None:
        """Evict receivers without attempts in flight once there are many."""
        if len(self._receivers) > self._slots:
            self._receivers = {
                k: r for k, r in self._receivers.items() if r.in_flight or r.slow or r.paused
            }

    def _seconds_until(self, batch: ClaimedBatch) -> float:
        """Return the time until the next poll, at most a second: the wall clock may change."""
        if batch.next_at is None:
            return MAX_SLEEP_SECONDS
        wait = (batch.next_at - self.context.clock.now()) / MS_PER_SECOND
        return max(0.0, min(MAX_SLEEP_SECONDS, wait))
