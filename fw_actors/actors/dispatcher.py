"""Dispatcher: claims due deliveries for free slots and gives each to its DeliveryActor.

The row is the queue: whatever is due and unleased is found by a look at the store, at least once
a second; a nudge only makes the look come sooner. Nothing in memory grows with the rows due.
Rules: B-197, B-237, B-236, B-210, B-233, B-211.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

from fw_actors.actors.delivery import Attempt, Finished
from fw_actors.actors.outcome_writer import Settled
from fw_actors.actors.queue_worker import Nudge, Recall
from fw_actors.errors import OverloadedError, ValidationError
from fw_actors.http import Endpoint, Origin, parse_endpoint
from fw_actors.rules.concurrency import ReceiverSlots, startable
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import (
    Actor,
    KeyedPool,
    MailboxPolicy,
    Message,
    Overflow,
    Request,
    Timer,
    handles,
)
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import StatementError, Store
from fw_actors.webhooks.claims import Due, Hook
from fw_actors.webhooks.deliveries import Batch, Deliveries
from fw_actors.webhooks.events import QUEUE

URLS_KEPT: Final = 1024


class ClaimPlan:
    """How many attempts may start at each receiver, counted down while a claim takes them.

    Used in the store's thread, and after that by the Dispatcher.
    """

    def __init__(
        self,
        receivers: dict[Origin | None, ReceiverSlots],
        free: int,
        places: int,
        per_receiver: int,
    ) -> None:
        self._known, self._free = receivers, free
        self._places, self._per_receiver = places, per_receiver
        self._copies: dict[Origin | None, ReceiverSlots] = {}
        self._targets: dict[Hook | None, Endpoint | None] = {}

    def free(self, hook: Hook | None) -> int:
        """Return how many of this Webhook's deliveries may start now."""
        return startable(self._copy(hook), self._free, self._places)

    def take(self, hook: Hook | None, count: int) -> None:
        """So many were leased."""
        self._copy(hook).take(count)
        self._free -= count

    def target(self, hook: Hook | None) -> Endpoint | None:
        """Return where this Webhook's deliveries go; found out once a look."""
        if hook not in self._targets:
            self._targets[hook] = target_of(hook)
        return self._targets[hook]

    def _copy(self, hook: Hook | None) -> ReceiverSlots:
        target = self.target(hook)
        origin = target.origin if target is not None else None
        copy = self._copies.get(origin)
        if copy is None:
            known = self._known.get(origin)
            copy = (
                replace(known) if known else new_receiver(origin, self._places, self._per_receiver)
            )
            self._copies[origin] = copy
        return copy


def new_receiver(origin: Origin | None, places: int, per_receiver: int) -> ReceiverSlots:
    """Return the places of a receiver that is not known yet; of `places` in all.

    Where nothing is sent (deleted, disabled) nobody has to be spared.
    """
    if origin is None:
        return ReceiverSlots(limit=places, window=places)
    return ReceiverSlots(limit=per_receiver)


def target_of(hook: Hook | None) -> Endpoint | None:
    """Return where a Webhook's deliveries go; None when nothing is to be sent."""
    return _parsed(hook.url) if hook is not None and hook.enabled else None


@lru_cache(URLS_KEPT)
def _parsed(url: str) -> Endpoint | None:
    """Taking a URL apart costs more than what else a look does for its Webhook."""
    try:
        return parse_endpoint(url, development=True)  # judged when it was written
    except ValidationError:
        return None


LONGEST_SLEEP_SECONDS: Final = 1.0
AFTER_TROUBLE_SECONDS: Final = 0.5
GATHER_SECONDS: Final = 0.005
FEW: Final = 4  # places; fewer are gathered, so that one that refuses makes no look for each
TOKEN_BYTES: Final = 12
RECEIVERS_SHOWN: Final = 100


class Look(Message, frozen=True):
    """Look at the queue now; at most one is under way."""


class Pause(Request[bool], frozen=True):
    """Start no attempt at a receiver, an origin as text; answered whether it is known."""

    receiver: str


class Resume(Request[bool], frozen=True):
    """Go on with a receiver; answered whether it is known."""

    receiver: str


class Dispatcher(Actor):
    """See the module."""

    # A `Finished` without room would cost a place for good: while a look waits for the store,
    # all that others commit comes as well, a nudge each.
    mailbox = MailboxPolicy(capacity=65_536, overflow=Overflow.REFUSE, max_timers=4)

    def __init__(
        self,
        store: Store,
        deliveries: Deliveries,
        actors: KeyedPool,
        *,
        places: int,
        per_receiver: int,
    ) -> None:
        """`places`: `ops.deliveryConcurrency`; `per_receiver`: `ops.perReceiverConcurrency`."""
        self._store, self._deliveries, self._actors = store, deliveries, actors
        self._places, self._per_receiver = places, per_receiver
        self._free = places
        self._recall = Recall(QUEUE, deliveries.longest_wait)
        self._receivers: dict[Origin | None, ReceiverSlots] = {}
        self._look_waits = False
        self._look_comes = False
        self._more = True
        self._timer: Timer | None = None
        self._next_look = 0.0
        """When the timer sends us to look, on trio's clock."""

    async def started(self) -> None:
        """Look at once: there may be work. What the instance before has begun keeps its places."""
        with suppress(OverloadedError):
            await self._store.write(self._deliveries.warm_up, durable=False)
        self._free = max(0, self._places - len(self._actors))
        self._look_soon()

    @handles(Nudge)
    def nudged(self, message: Nudge) -> None:
        """Look soon; many nudges make one look."""
        self._look_soon()

    @handles(Finished)
    def finished(self, message: Finished) -> None:
        """A receiver's place is free again, and it has shown its pace."""
        receiver = self._receivers.get(message.origin)
        if receiver is None:
            return  # begun before this actor was restarted
        if message.timed_out:
            receiver.timed_out()
        elif message.head_seconds is not None:
            receiver.answered(message.head_seconds)
        else:
            receiver.ended()
        if not self._more or self._look_waits:
            return
        growing = message.head_seconds is not None and not receiver.slow
        if growing and receiver.window < receiver.limit:
            enough = max(1, receiver.window // 2)  # it has just shown that it copes
        else:
            enough = max(receiver.window // 2, min(FEW, receiver.limit))
        if receiver.free >= enough:
            self._look_soon()
        elif not self._look_comes:
            # Half a window at a time: a transaction for each place would cost more than it gives.
            self._look_after(GATHER_SECONDS)
            self._look_comes = True

    @handles(Settled)
    def settled(self, message: Settled) -> None:
        """So many deliveries are no longer held, and the first retry among them is due so soon."""
        scarce = self._free < max(self._per_receiver, self._places // 2)
        self._free = min(self._places, self._free + message.count)  # some were another's before us
        if self._more and scarce:  # else only receivers were short of places
            self._look_soon()
        elif message.next_at is not None:
            self._look_by((message.next_at - self.context.clock.now()) / MS_PER_SECOND)

    @handles(Look)
    async def look(self, message: Look) -> None:
        """Lease what can start now, start it, and sleep until the next is due."""
        self._look_waits = self._look_comes = False
        if self._timer is not None:
            self._timer.cancel()
        # Copies: a transaction that fails changes nothing here.
        plan = ClaimPlan(self._receivers, self._free, self._places, self._per_receiver)
        try:
            await self._recall.look(self._store, self.context.log, self.context.clock.now())
            token = record_id(self.context.entropy.bytes(TOKEN_BYTES))
            batch = await self._store.write(
                lambda tx: self._deliveries.claim(tx, plan, token),
                durable=False,  # a lease that a power failure takes back is taken again
            )
        except OverloadedError:
            self._look_after(AFTER_TROUBLE_SECONDS)
            return
        try:
            due = batch.due
        except StatementError as error:  # nothing is sent; the leases end by themselves
            self.context.log.error("delivery.claim_unusable", error=str(error))
            self._more = True
            self._look_after(AFTER_TROUBLE_SECONDS)
            return
        self._more = batch.more
        refused = self._start_all(due, plan)
        self._forget_idle_receivers()
        self._look_after(AFTER_TROUBLE_SECONDS if refused else self._seconds_until(batch))
        if refused:
            self._more = True
            await self._give_back(refused)

    @handles(Pause)
    def pause(self, message: Pause) -> bool:
        """Attempts that are in flight come to their end; what is due waits in the store."""
        return self._set_paused(message.receiver, paused=True)

    @handles(Resume)
    def resume(self, message: Resume) -> bool:
        """Look at once: there may be much that waited."""
        self._look_soon()
        return self._set_paused(message.receiver, paused=False)

    def describe(self) -> dict[str, object]:
        """What the console shows: the receivers with the most in flight first, paused ones too."""
        receivers = sorted(
            ((str(origin), each) for origin, each in self._receivers.items() if origin is not None),
            key=lambda pair: (not pair[1].paused, not pair[1].slow, -pair[1].in_flight, pair[0]),
        )
        return {
            "free": self._free,
            "places": self._places,
            "receivers": [
                {
                    "origin": origin,
                    "in_flight": each.in_flight,
                    "window": each.window,
                    "limit": each.limit,
                    "health": each.health,
                }
                for origin, each in receivers[:RECEIVERS_SHOWN]
            ],
        }

    def _set_paused(self, receiver: str, *, paused: bool) -> bool:
        for origin, each in self._receivers.items():
            if origin is not None and str(origin) == receiver:
                each.paused = paused
                return True
        return False

    def _start_all(self, dues: Sequence[Due], plan: ClaimPlan) -> list[Due]:
        """Give each an actor; return those for which none could be made."""
        refused, hook, target = [], None, None
        for due in dues:
            if due.hook is not hook:  # those of one Webhook come one after the other
                hook, target = due.hook, plan.target(due.hook)
            if not self._start(due, target):
                refused.append(due)
        return refused

    def _start(self, due: Due, target: Endpoint | None) -> bool:
        origin = target.origin if target is not None else None
        receiver = self._receivers.get(origin)
        if receiver is None:
            receiver = self._receivers[origin] = new_receiver(
                origin, self._places, self._per_receiver
            )
        self._free -= 1
        receiver.take(1)
        if self._actors.tell(due.delivery, Attempt(due, target)):
            return True
        self._free += 1  # no actor could be made, and the place is free again
        receiver.ended()
        return False

    async def _give_back(self, refused: Sequence[Due]) -> None:
        with suppress(OverloadedError):  # their leases end by themselves
            await self._store.write(
                lambda tx: [self._deliveries.give_back(tx, due) for due in refused], durable=False
            )

    def _forget_idle_receivers(self) -> None:
        """A receiver without an attempt in flight is forgotten once there are many."""
        if len(self._receivers) > self._places:
            self._receivers = {
                k: r for k, r in self._receivers.items() if r.in_flight or r.slow or r.paused
            }

    def _seconds_until(self, batch: Batch) -> float:
        """Never trusts the wall clock for more than a second at a time."""
        if batch.next_at is None:
            return LONGEST_SLEEP_SECONDS
        wait = (batch.next_at - self.context.clock.now()) / MS_PER_SECOND
        return max(0.0, min(LONGEST_SLEEP_SECONDS, wait))

    def _look_soon(self) -> None:
        if not self._look_waits:
            self._look_waits = self.context.ref.tell(Look())

    def _look_after(self, seconds: float) -> None:
        if not self._look_waits:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.context.after(seconds, Nudge())
            self._next_look = self.context.time() + seconds

    def _look_by(self, seconds: float) -> None:
        """Look in so many seconds, unless a look comes sooner: a retry may be due before that."""
        seconds = max(0.0, seconds)
        if self.context.time() + seconds < self._next_look:
            self._look_after(seconds)
