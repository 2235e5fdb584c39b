"""One delivery, from its lease to its outcome. Rules: `delivery_outcome`, `signing`."""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import trio

from fw_actors.actors.counters import Counter
from fw_actors.documents.vault import UnreadableError, Vault
from fw_actors.errors import OverloadedError
from fw_actors.http import Answer, AnswerTimeout, NetworkError, Origin, Target
from fw_actors.http.request import MakeHeaders
from fw_actors.rules.delivery_outcome import MOST_DEATHS_IN_A_ROW, Ending, ending_of
from fw_actors.rules.signing import UnusableSecretError, key_of, sign
from fw_actors.runtime import Actor, Clock, Log, MailboxPolicy, Message, Overflow, Ref, handles
from fw_actors.services.deliveries import Deliveries, Due, Ended, Hook
from fw_actors.store import Store

GIVE_BACK_SECONDS: Final = 2.0
SETTLE_AGAIN_SECONDS: Final = 0.5
_MS: Final = 1000


class Poster(Protocol):
    """What sends: `fw_actors.http.Sender`, or a receiver in memory."""

    async def post(
        self, target: Target, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> Answer:
        """Send one POST within `timeout` seconds. Raises: NetworkError."""


class Attempt(Message, frozen=True):
    """Send a leased delivery once, to `target` (None: there is nothing to send)."""

    due: Due
    target: Target | None

    @property
    def origin(self) -> Origin | None:
        """The receiver whose place the attempt has."""
        return None if self.target is None else self.target.origin


class Finished(Message, frozen=True):
    """The place is free again. `head_seconds`: how long an answer's head took, if one came."""

    origin: Origin | None
    head_seconds: float | None = None
    timed_out: bool = False


class NotSent(Exception):
    """Raised when nothing is to be sent; the message is the delivery's `error`."""

    def __init__(self, ending: Ending, error: str) -> None:
        super().__init__(error)
        self.ending = ending


class DeliveryActor(Actor):
    """Sends one attempt. Whatever happens inside, an outcome is written or the lease given back."""

    mailbox = MailboxPolicy(capacity=4, overflow=Overflow.REFUSE)

    def __init__(
        self,
        store: Store,
        deliveries: Deliveries,
        sender: Poster,
        vault: Vault,
        clock: Clock,
        log: Log,
        dispatcher: Ref,
        outcomes: Counter,
    ) -> None:
        """`outcomes` counts the statuses that attempts end with."""
        self._store, self._deliveries, self._sender = store, deliveries, sender
        self._vault, self._clock, self._log, self._dispatcher = vault, clock, log, dispatcher
        self._outcomes = outcomes

    @handles(Attempt)
    async def attempt(self, message: Attempt) -> None:
        """Sign, post, write the outcome, and tell the Dispatcher that the place is free."""
        finished = Finished(message.origin)
        try:
            began = trio.current_time()
            ended, finished = await self._send(message)
            await self._settle(message.due, _timed(ended, began))
        except trio.Cancelled:
            await self._give_back(message.due)
            raise
        finally:
            self._dispatcher.tell(finished)

    async def _send(self, message: Attempt) -> tuple[Ended, Finished]:
        due, origin = message.due, message.origin
        try:
            target, key, timeout = self._ready(message)
            headers = partial(self._headers, key, due)
            answer = await self._sender.post(target, due.payload, headers, timeout=timeout)
        except NotSent as reason:
            return self._ended(reason.ending, str(reason)), Finished(origin)
        except NetworkError as fault:
            timed_out = isinstance(fault, AnswerTimeout)
            return self._ended(Ending.TRANSIENT, str(fault)), Finished(origin, None, timed_out)
        except Exception as defect:  # a defect of ours ends as a counted failure, never in a loop
            self._log.error("delivery.defect", delivery=due.delivery, error=repr(defect)[:200])
            error = "internal: the attempt failed inside the service; its log says more."
            return self._ended(Ending.TRANSIENT, error), Finished(origin)
        return self._judged(answer), Finished(origin, answer.times.answer / _MS)

    def _ready(self, message: Attempt) -> tuple[Target, bytes, int]:
        """Return where to send, the signing key and the timeout. Raises: NotSent."""
        due = message.due
        if due.job.deaths > MOST_DEATHS_IN_A_ROW:
            raise NotSent(Ending.TRANSIENT, "worker_lost: its workers died, one after another.")
        if due.hook is None:
            raise NotSent(Ending.WITHDRAWN, "deleted: the webhook was deleted; nothing was sent.")
        if not due.hook.enabled:
            raise NotSent(Ending.WITHDRAWN, "disabled: the webhook is off; nothing was sent.")
        if message.target is None:
            raise NotSent(Ending.WITHDRAWN, "internal: the webhook's url can't be sent to.")
        return message.target, self._key(due.hook), due.hook.timeout

    def _headers(self, key: bytes, due: Due) -> tuple[tuple[bytes, bytes], ...]:
        """Called once the connection is ready: the time is that of this attempt."""
        delivery = due.delivery.encode()
        timestamp = b"%d" % (self._clock.now() // _MS)
        return (
            (b"webhook-id", delivery),
            (b"webhook-timestamp", timestamp),
            (b"webhook-signature", sign(key, delivery, timestamp, due.payload)),
        )

    def _key(self, hook: Hook) -> bytes:
        if not hook.secret:
            reason = "secret_missing: the webhook has no signing secret."
            raise NotSent(Ending.UNSIGNABLE, reason)
        try:
            return key_of(self._vault.open(hook.secret, "Webhook", "secret", hook.row_id))
        except UnreadableError as error:
            reason = f"secret_unreadable: the signing secret does not open; {error}."
            raise NotSent(Ending.UNSIGNABLE, reason) from None
        except UnusableSecretError as error:
            raise NotSent(Ending.UNSIGNABLE, f"secret_unreadable: {error}") from None

    def _ended(self, ending: Ending, error: str) -> Ended:
        return Ended(ending, self._clock.now(), error=error)

    def _judged(self, answer: Answer) -> Ended:
        ending = ending_of(answer.status)
        error = ""
        if ending is not Ending.DELIVERED:
            where = f", and pointed to {answer.location}" if answer.location else ""
            error = f"status: the receiver answered {answer.status}{where}."
        return Ended(
            ending,
            self._clock.now(),
            response_status=answer.status,
            response_body=answer.body,
            error=error,
        )

    async def _settle(self, due: Due, ended: Ended) -> None:
        """Write the outcome; a store that can't take it is asked again while the lease holds."""
        while True:
            try:
                status = await self._store.write(lambda tx: self._deliveries.settle(tx, due, ended))
            except OverloadedError:
                if self._clock.now() >= due.lease_end:
                    self._log.error("delivery.outcome_lost", delivery=due.delivery)
                    return
                await trio.sleep(SETTLE_AGAIN_SECONDS)
                continue
            break
        if status is None:
            self._log.warning("delivery.lease_lost", delivery=due.delivery)
            return
        self._outcomes.add(str(status))
        self._log.info(
            "delivery.ended",
            delivery=due.delivery,
            webhook=due.job.partition,
            status=str(status),
            attempt=due.attempts + 1,
            response_status=ended.response_status,
            duration_ms=ended.duration_ms,
            error=ended.error or None,
        )

    async def _give_back(self, due: Due) -> None:
        """A stop cuts the attempt off: it does not count, and the next worker may take it."""
        with trio.CancelScope(deadline=trio.current_time() + GIVE_BACK_SECONDS, shield=True):
            try:
                await self._store.write(lambda tx: self._deliveries.give_back(tx, due))
            except OverloadedError:
                self._log.warning("delivery.not_given_back", delivery=due.delivery)


def _timed(ended: Ended, began: float) -> Ended:
    duration = round((trio.current_time() - began) * _MS)
    return Ended(
        ended.ending, ended.at, duration, ended.response_status, ended.response_body, ended.error
    )
