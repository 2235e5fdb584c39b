"""One delivery, from its lease to how the attempt ended. Rules: `delivery_outcome`, `signing`."""

from __future__ import annotations

from functools import partial
from hmac import HMAC
from typing import Final, Protocol

import msgspec
import trio

from fw_actors.actors.outcome_writer import Settle, Settled
from fw_actors.errors import OverloadedError
from fw_actors.http import Endpoint, NetworkError, Origin, ReceiverResponse, ResponseTimeout
from fw_actors.http.exchange import MakeHeaders
from fw_actors.rules.delivery import (
    MOST_DEATHS_IN_A_ROW,
    Ending,
    ending_of,
    error_of_answer,
    retry_after_seconds,
)
from fw_actors.rules.redaction import Scrubber
from fw_actors.rules.signing import signed_headers
from fw_actors.runtime import Actor, Clock, Log, MailboxPolicy, Message, Overflow, Ref, handles
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import Store
from fw_actors.webhooks.claims import Due
from fw_actors.webhooks.deliveries import Deliveries, Ended
from fw_actors.webhooks.signing_keys import NoSigningKey, SigningKeys

GIVE_BACK_SECONDS: Final = 2.0


class Poster(Protocol):
    """What sends: `fw_actors.http.Sender`, or a receiver in memory."""

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        """Send one POST within `timeout` seconds. Raises: NetworkError."""


class Attempt(Message, frozen=True):
    """Send a leased delivery once, to `target` (None: there is nothing to send)."""

    due: Due
    target: Endpoint | None

    @property
    def origin(self) -> Origin | None:
        """The receiver whose place the attempt has."""
        return None if self.target is None else self.target.origin


class Finished(Message, frozen=True):
    """The receiver's place is free. `head_seconds`: how long an answer's head took, if one came."""

    origin: Origin | None
    head_seconds: float | None = None
    timed_out: bool = False


class NotSent(Exception):
    """Raised when nothing is to be sent; the message is the delivery's `error`."""

    def __init__(self, ending: Ending, error: str) -> None:
        super().__init__(error)
        self.ending = ending


class LeaseOver(Exception):
    """Raised instead of sending when another process may hold the delivery by now."""


class Means(msgspec.Struct, frozen=True):
    """What attempts are made with: one for all DeliveryActors of a process.

    `outcomes`: the OutcomeWriter; `honour_retry_after`: `ops.honourRetryAfter`; `scrubber`: removes
    the site's secrets from errors.
    """

    store: Store
    deliveries: Deliveries
    sender: Poster
    keys: SigningKeys
    clock: Clock
    log: Log
    dispatcher: Ref
    outcomes: Ref
    honour_retry_after: bool = False
    scrubber: Scrubber = Scrubber()


class DeliveryActor(Actor):
    """Sends one attempt. However it ends, its outcome is handed on or its lease given back."""

    mailbox = MailboxPolicy(capacity=4, overflow=Overflow.REFUSE)

    def __init__(self, means: Means) -> None:
        self._means = means

    @handles(Attempt)
    async def attempt(self, message: Attempt) -> None:
        """Sign, post, free the receiver's place and hand on what came of it."""
        means, finished, handed_on = self._means, None, False
        try:
            ended, finished = await self._send(message)
            handed_on = means.outcomes.tell(Settle(message.due, ended))
        except LeaseOver:  # it waited for too long: for the store, or with the whole process
            means.log.warning("delivery.lease_over", delivery=message.due.delivery)
            await self._give_back(message.due)
        except trio.Cancelled:
            await self._give_back(message.due)
            raise
        finally:
            means.dispatcher.tell(finished or Finished(message.origin))
            if not handed_on:
                means.dispatcher.tell(Settled(1))
            self.context.stop()  # the next attempt is a row, and is a while off

    async def _send(self, message: Attempt) -> tuple[Ended, Finished]:
        due, origin = message.due, message.origin
        began = self.context.time()
        try:
            target, key, timeout = self._ready(message)
            headers = partial(self._headers, key, due)
            answer = await self._means.sender.post(target, due.payload, headers, timeout=timeout)
        except LeaseOver:
            raise
        except NotSent as reason:
            return self._ended(began, reason.ending, str(reason)), Finished(origin)
        except NetworkError as fault:
            timed_out = isinstance(fault, ResponseTimeout)
            ended = self._ended(began, Ending.TRANSIENT, str(fault))
            return ended, Finished(origin, None, timed_out)
        except Exception as defect:  # a defect of ours ends as a counted failure, never in a loop
            log, error = self._means.log, self._means.scrubber.scrub_known(repr(defect))[:200]
            log.error("delivery.defect", delivery=due.delivery, error=error)
            error = "internal: the attempt failed inside the service; its log says more."
            return self._ended(began, Ending.TRANSIENT, error), Finished(origin)
        return self._judged(began, answer), Finished(origin, answer.times.answer / MS_PER_SECOND)

    def _ready(self, message: Attempt) -> tuple[Endpoint, HMAC, int]:
        """Return where to send, the signing key and the timeout. Raises: NotSent, LeaseOver."""
        due = message.due
        if due.job.deaths > MOST_DEATHS_IN_A_ROW:
            raise NotSent(Ending.TRANSIENT, "worker_lost: its workers died, one after another.")
        if due.hook is None:
            raise NotSent(Ending.WITHDRAWN, "deleted: the webhook was deleted; nothing was sent.")
        if not due.hook.enabled:
            raise NotSent(Ending.WITHDRAWN, "disabled: the webhook is off; nothing was sent.")
        if message.target is None:
            raise NotSent(Ending.WITHDRAWN, "internal: the webhook's url can't be sent to.")
        if self._means.clock.now() + due.hook.timeout * MS_PER_SECOND > due.lease_end:
            raise LeaseOver
        try:
            return message.target, self._means.keys.of(due.hook), due.hook.timeout
        except NoSigningKey as reason:
            raise NotSent(Ending.UNSIGNABLE, str(reason)) from None

    def _headers(self, key: HMAC, due: Due) -> tuple[tuple[bytes, bytes], ...]:
        """Called once the connection is ready: the time is that of this attempt.

        Raises: LeaseOver; nothing is sent then.
        """
        now = self._means.clock.now()
        if now >= due.lease_end:
            raise LeaseOver
        return signed_headers(key, due.delivery, now, due.payload)

    def _ended(self, began: float, ending: Ending, error: str) -> Ended:
        error = self._means.scrubber.scrub_known(error)
        return Ended(ending, self._means.clock.now(), self._ms_since(began), error=error)

    def _judged(self, began: float, answer: ReceiverResponse) -> Ended:
        status, now, wait = answer.status, self._means.clock.now(), 0.0
        if self._means.honour_retry_after:
            wait = retry_after_seconds(status, answer.retry_after, now)
        ending, error = ending_of(status), error_of_answer(status, answer.location)
        if error:  # it may quote the receiver
            error = self._means.scrubber.scrub_known(error)
        return Ended(ending, now, self._ms_since(began), status, answer.body, error, wait)

    async def _give_back(self, due: Due) -> None:
        """A stop cuts the attempt off: it does not count, and the next worker may take it."""
        with trio.CancelScope(deadline=trio.current_time() + GIVE_BACK_SECONDS, shield=True):
            try:
                await self._means.store.write(lambda tx: self._means.deliveries.give_back(tx, due))
            except OverloadedError:
                self._means.log.warning("delivery.not_given_back", delivery=due.delivery)

    def _ms_since(self, began: float) -> int:
        return round((self.context.time() - began) * MS_PER_SECOND)
