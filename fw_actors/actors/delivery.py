"""DeliveryActor: one delivery from its lease to its recorded outcome.

It signs and sends, frees its receiver's slot when the response has arrived, waits until the outcome
is recorded, and logs and measures it. Rules: `fw_actors.rules.delivery`, `fw_actors.rules.signing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import partial
from hmac import HMAC
from math import inf
from typing import Final, NamedTuple, Protocol

import msgspec
import trio
from outcome import Outcome

from fw_actors.actors.metrics import DeliveryMeter
from fw_actors.actors.outcome_writer import Record, Recorded
from fw_actors.errors import OverloadedError
from fw_actors.http import (
    Endpoint,
    ForbiddenAddress,
    NetworkError,
    Origin,
    ReceiverResponse,
    ResponseTimeout,
)
from fw_actors.http.exchange import MakeHeaders
from fw_actors.rules.delivery import (
    DEFECT_ERROR,
    MAX_EXPIRED_LEASES,
    WORKER_LOST_ERROR,
    DeliveryStatus,
    OutcomeKind,
    error_of_response,
    kind_of_status,
    retry_after_seconds,
)
from fw_actors.rules.safe_output import Scrubber
from fw_actors.rules.signing import SignedHeaders, signed_headers
from fw_actors.runtime import (
    Actor,
    ActorError,
    Clock,
    Log,
    MailboxPolicy,
    Message,
    Overflow,
    Ref,
    handles,
)
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store import Store
from fw_actors.tracing import Span, Tracer, decode_context
from fw_actors.webhooks.attempts import url_without_query
from fw_actors.webhooks.claims import MAX_INLINE_BYTES, LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from fw_actors.webhooks.signing_keys import NoSigningKey, SigningKeys

RELEASE_SECONDS: Final = 2.0


class RequestSender(Protocol):
    """Sends requests: `fw_actors.http.Sender`, or a receiver in memory."""

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        """Send one POST within `timeout` seconds. Raises: NetworkError."""


class Attempt(Message, frozen=True):
    """Request to send a leased delivery once, to `target` (None: there is nothing to send).

    `number` is that of `AttemptsInFlight`; 0 for an attempt that uses no slot.
    """

    leased: LeasedDelivery
    target: Endpoint | None
    number: int = 0

    @property
    def origin(self) -> Origin | None:
        """The receiver whose slot the attempt uses."""
        return None if self.target is None else self.target.origin


class SlotFreed(NamedTuple):
    """A receiver's slot is free.

    `head_seconds` is the time until the response's head, if any. `error` is that of a failed
    attempt, empty after a success, None if the attempt does not depend on the receiver.
    """

    origin: Origin | None
    head_seconds: float | None = None
    timed_out: bool = False
    error: str | None = None


class AttemptsEnded(Message, frozen=True):
    """Attempts have ended; their slots are those of `AttemptsInFlight.take_freed`."""


class AttemptsInFlight:
    """The attempts that use slots of receivers, and the freed slots that wait for the Dispatcher.

    The Dispatcher and the DeliveryActors share it, and it outlives their instances. A full mailbox
    would refuse a message about a slot, which would never be free again; and a new Dispatcher would
    not know what the previous one has started. The slots (`ops.deliveryConcurrency`) bound both.
    """

    def __init__(self, dispatcher: Ref) -> None:
        self._dispatcher = dispatcher
        self._running: dict[int, Attempt] = {}
        self.by_webhook = Counter[str]()
        """The number of these attempts by Webhook."""
        self.long_bytes = 0
        """The bytes of the long payloads of these attempts."""
        self._freed: list[SlotFreed] = []
        self._notified = False
        """Whether an `AttemptsEnded` is in the Dispatcher's mailbox."""
        self._last_number = 0

    @property
    def count(self) -> int:
        """The number of attempts that have not ended."""
        return len(self._running)

    def begin(self, leased: LeasedDelivery, target: Endpoint | None) -> Attempt:
        """Return a new attempt, which uses a slot of its receiver until it ends."""
        self._last_number = number = self._last_number + 1
        attempt = self._running[number] = Attempt(leased, target, number)
        self.by_webhook[leased.job.partition] += 1
        self.long_bytes += _long_bytes(attempt)
        return attempt

    def withdraw(self, attempt: Attempt) -> None:
        """Forget an attempt that was not started."""
        self._forget(attempt)

    def end(self, attempt: Attempt, freed: SlotFreed) -> None:
        """Free the slot of an attempt, and notify the Dispatcher, once for all freed slots."""
        if not self._forget(attempt):
            return
        self._freed.append(freed)
        if not self._notified:
            self._notified = self._dispatcher.tell(AttemptsEnded())

    def take_freed(self) -> Sequence[SlotFreed]:
        """Return the slots that were freed since the last call."""
        freed, self._freed = self._freed, []
        self._notified = False
        return freed

    def running_by_receiver(self, deliveries: Set[str]) -> Mapping[Origin | None, int]:
        """Return the number of attempts by receiver, for a new instance of the Dispatcher.

        `deliveries` are those whose actors exist: an attempt without one has ended unhandled.
        """
        self.take_freed()
        self._running = {n: a for n, a in self._running.items() if a.leased.delivery in deliveries}
        self.by_webhook = Counter(each.leased.job.partition for each in self._running.values())
        self.long_bytes = sum(map(_long_bytes, self._running.values()))
        return Counter(attempt.origin for attempt in self._running.values())

    def _forget(self, attempt: Attempt) -> bool:
        """Remove an attempt from the counts; return whether it was among them."""
        if self._running.pop(attempt.number, None) is None:
            return False
        self.long_bytes -= _long_bytes(attempt)
        webhook = attempt.leased.job.partition
        self.by_webhook[webhook] -= 1
        if not self.by_webhook[webhook]:
            del self.by_webhook[webhook]
        return True


def _long_bytes(attempt: Attempt) -> int:
    """Return the bytes of the attempt's payload; 0 for a short one."""
    size = len(attempt.leased.payload)
    return size if size > MAX_INLINE_BYTES else 0


class RetryDue(Message, frozen=True):
    """A retry was recorded that is due at `at` (ms)."""

    at: int


class OutcomeRecorded(Message, frozen=True):
    """The answer of the OutcomeWriter about an attempt."""

    leased: LeasedDelivery
    outcome: AttemptOutcome
    answer: Outcome[Recorded]


class Unsendable(Exception):
    """Raised if nothing can be sent; the message becomes the delivery's `error`."""

    def __init__(self, kind: OutcomeKind, error: str) -> None:
        super().__init__(error)
        self.kind = kind


class LeaseExpired(Exception):
    """Raised instead of sending if another process may have leased the delivery by now."""


class DeliveryDependencies(msgspec.Struct, frozen=True):
    """The dependencies that all DeliveryActors of a process share.

    `outcomes` is the OutcomeWriter; `attempts` frees the slots; `meter` counts recorded attempts;
    `honour_retry_after` is `ops.honourRetryAfter`; `scrubber` removes the site's secrets from
    errors; `tracer` sends the traces of events on.
    """

    store: Store
    deliveries: Deliveries
    sender: RequestSender
    keys: SigningKeys
    clock: Clock
    log: Log
    dispatcher: Ref
    outcomes: Ref
    attempts: AttemptsInFlight
    meter: DeliveryMeter
    honour_retry_after: bool = False
    scrubber: Scrubber = Scrubber()
    tracer: Tracer | None = None


class DeliveryActor(Actor):
    """Owns one delivery while it is leased: each attempt is recorded, or its lease released."""

    mailbox = MailboxPolicy(capacity=4, overflow=Overflow.REFUSE)
    slow_seconds = inf  # it waits for the receiver

    def __init__(self, delivery: str, dependencies: DeliveryDependencies) -> None:
        """`delivery` is its name, the key of this actor."""
        self._delivery, self._deps = delivery, dependencies
        self._signed: SignedHeaders = ()
        self._span: Span | None = None

    @handles(Attempt)
    async def attempt(self, message: Attempt) -> None:
        """Sign, send, free the receiver's slot, and have the outcome recorded."""
        leased, freed = message.leased, SlotFreed(message.origin)
        self._signed = ()  # an attempt whose lease was lost may precede this one
        try:
            self._span = self._begin_span(leased)
            outcome, freed = await self._send(message)
        except LeaseExpired:  # delayed by the store, or with the whole process
            self._deps.log.warning("delivery.lease_expired", delivery=self._delivery)
            await self._release(leased)
            self._tell_due(self._deps.clock.now())
        except trio.Cancelled:
            await self._release(leased)
            self._deps.store.notify_others()  # this process is stopping
            raise
        else:
            if self._span is not None:
                end_attempt(self._span, message, outcome)
            # From here on the OutcomeWriter owns the lease: if a stop ends this actor, the outcome
            # is still written, or the lease expires. It answers by the end of the leases at the
            # latest, or it ends.
            self.context.ask(
                self._deps.outcomes,
                Record(leased, outcome),
                then=partial(OutcomeRecorded, leased, outcome),
            )
        finally:
            if self._span is not None:
                self._span.end("cancelled")  # unless it has ended
            self._deps.attempts.end(message, freed)
            self.context.stop()  # after the answer; the next attempt is a row, due later

    @handles(OutcomeRecorded)
    def outcome_recorded(self, message: OutcomeRecorded) -> None:
        """Log and measure the attempt."""
        recorded = _recorded(message.answer)
        if recorded.status is not None:
            self._report(message.leased, message.outcome, recorded.status)
        elif recorded.error:
            log = self._deps.log
            log.error("delivery.outcome_lost", delivery=self._delivery, error=recorded.error)
        else:
            self._deps.log.warning("delivery.lease_lost", delivery=self._delivery)
        if recorded.next_at is not None:
            self._tell_due(recorded.next_at)

    def _tell_due(self, at: int) -> None:
        """Notify the Dispatcher of a delivery that is due at `at` (ms); if the Dispatcher has ended
        and the delivery is due now, notify the other processes."""
        if not self._deps.dispatcher.tell(RetryDue(at)) and at <= self._deps.clock.now():
            self._deps.store.notify_others()

    def _report(
        self, leased: LeasedDelivery, outcome: AttemptOutcome, status: DeliveryStatus
    ) -> None:
        """Count and log an attempt; for the first one, also measure the wait of its event."""
        meter = self._deps.meter
        meter.add(status)
        meter.durations.observe(outcome.duration_ms / MS_PER_SECOND)
        if leased.attempts == 0 and leased.job.expired_leases == 0:
            began = outcome.at - outcome.duration_ms
            meter.waits.observe((began - leased.job.created) / MS_PER_SECOND)
        # At thousands of deliveries a second, logging a success costs more than delivering it.
        log = self._deps.log.info
        if status is DeliveryStatus.SENT:
            log = self._deps.log.debug
        elif status is DeliveryStatus.FAILED:
            log = self._deps.log.warning  # it is not retried without a replay
        context = decode_context(leased.trace) if leased.trace else None
        if context is not None:
            log = partial(log, trace_id=context.trace_id)
        log(
            "delivery.attempted",
            delivery=self._delivery,
            webhook=leased.job.partition,
            status=str(status),
            attempt=leased.attempts + 1,
            response_status=outcome.response_status,
            duration_ms=outcome.duration_ms,
            error=outcome.error or None,
        )

    def _begin_span(self, leased: LeasedDelivery) -> Span | None:
        """Begin the span of an attempt; None without a trace."""
        tracer = self._deps.tracer
        context = decode_context(leased.trace) if leased.trace and tracer is not None else None
        return None if context is None or tracer is None else tracer.client("POST", context)

    async def _send(self, message: Attempt) -> tuple[AttemptOutcome, SlotFreed]:
        leased, origin = message.leased, message.origin
        began = self.context.time()
        try:
            target, key, timeout = self._prepare(message)
            headers = partial(self._headers, key, leased)
            answer = await self._deps.sender.post(target, leased.payload, headers, timeout=timeout)
        except LeaseExpired:
            raise
        except Unsendable as reason:
            return self._failed_outcome(began, reason.kind, str(reason)), SlotFreed(origin)
        except NetworkError as fault:
            timed_out = isinstance(fault, ResponseTimeout)
            forbidden = isinstance(fault, ForbiddenAddress)
            kind = OutcomeKind.REFUSED if forbidden else OutcomeKind.TRANSIENT
            outcome = self._failed_outcome(began, kind, str(fault), fault)
            return outcome, SlotFreed(origin, None, timed_out, outcome.error)
        except Exception as defect:  # counted as a failure, so that it cannot loop
            log, error = self._deps.log, self._deps.scrubber.scrub_known(repr(defect))[:200]
            log.error("delivery.defect", delivery=leased.delivery, error=error)
            return self._failed_outcome(began, OutcomeKind.TRANSIENT, DEFECT_ERROR), SlotFreed(
                origin
            )
        outcome, seconds = self._outcome_of(began, answer), answer.times.answer / MS_PER_SECOND
        return outcome, SlotFreed(origin, seconds, error=outcome.error)

    def _prepare(self, message: Attempt) -> tuple[Endpoint, HMAC, int]:
        """Return target, signing key and timeout. Raises: Unsendable, LeaseExpired."""
        leased = message.leased
        if leased.stored is None:
            raise Unsendable(
                OutcomeKind.WITHDRAWN, "deleted: the Webhook was deleted; nothing was sent."
            )
        if not leased.stored.enabled:
            raise Unsendable(
                OutcomeKind.WITHDRAWN, "disabled: the Webhook is disabled; nothing was sent."
            )
        if message.target is None:
            raise Unsendable(OutcomeKind.WITHDRAWN, "internal: the Webhook's URL is not usable.")
        try:
            key = self._deps.keys.of(leased.stored)
        except NoSigningKey as reason:
            raise Unsendable(OutcomeKind.UNSIGNABLE, str(reason)) from None
        if leased.job.expired_leases > MAX_EXPIRED_LEASES:  # last: a retry could succeed
            raise Unsendable(OutcomeKind.TRANSIENT, WORKER_LOST_ERROR)
        if self._deps.clock.now() + leased.stored.timeout * MS_PER_SECOND > leased.lease_end:
            raise LeaseExpired
        return message.target, key, leased.stored.timeout

    def _headers(self, key: HMAC, leased: LeasedDelivery) -> SignedHeaders:
        """Return the headers; called when the connection is ready, so that the time is current.

        Raises: LeaseExpired, before anything is sent.
        """
        now = self._deps.clock.now()
        if now >= leased.lease_end:
            raise LeaseExpired
        stored = leased.stored
        old = None
        if stored is not None and stored.old_secret is not None:  # its secret is being rotated
            old = self._deps.keys.old_of(stored, now)
        signed = signed_headers(key, leased.delivery, now, leased.payload, old)
        if self._span is not None:
            signed = (*signed, *self._span.context.headers)
        self._signed = signed
        return signed

    def _failed_outcome(
        self, began: float, kind: OutcomeKind, error: str, fault: NetworkError | None = None
    ) -> AttemptOutcome:
        times, address = (None, "") if fault is None else (fault.times, fault.address)
        return AttemptOutcome(
            kind, self._deps.clock.now(), self._ms_since(began),
            error=self._deps.scrubber.scrub_known(error),
            times=times, address=address, signed=self._signed,
        )  # fmt: skip

    def _outcome_of(self, began: float, answer: ReceiverResponse) -> AttemptOutcome:
        status, now, wait = answer.status, self._deps.clock.now(), 0.0
        if self._deps.honour_retry_after:
            wait = retry_after_seconds(status, answer.retry_after, now)
        kind, error = kind_of_status(status), ""
        if kind is not OutcomeKind.DELIVERED:  # its error may quote the receiver
            error = self._deps.scrubber.scrub_known(error_of_response(status, answer.location))
        return AttemptOutcome(
            kind, now, self._ms_since(began), status, answer.body, error, wait,
            answer.times, answer.address, self._signed,
        )  # fmt: skip

    async def _release(self, leased: LeasedDelivery) -> None:
        """Release the lease of an aborted attempt; it does not count and may be claimed again."""
        with trio.CancelScope(deadline=trio.current_time() + RELEASE_SECONDS, shield=True):
            try:
                await self._deps.store.write(lambda tx: self._deps.deliveries.release(tx, leased))
            except OverloadedError:
                self._deps.log.warning("delivery.release_failed", delivery=leased.delivery)

    def _ms_since(self, began: float) -> int:
        return round((self.context.time() - began) * MS_PER_SECOND)


def end_attempt(span: Span, message: Attempt, outcome: AttemptOutcome) -> None:
    """End the span of an attempt, with attributes as OpenTelemetry names them."""
    leased, origin, status = message.leased, message.origin, outcome.response_status
    if span.is_recorded:
        attributes: dict[str, str | int] = {
            "http.request.method": "POST",
            "messaging.message.id": leased.delivery,
            "fw.webhook": leased.job.partition,
            "fw.attempt": leased.attempts + 1,
            "fw.queued_ms": max(0, outcome.at - outcome.duration_ms - leased.job.created),
        }
        if leased.stored is not None and origin is not None:
            attributes["url.full"] = url_without_query(leased.stored.url)
            attributes["server.address"], attributes["server.port"] = origin.host, origin.port
        if leased.attempts:
            attributes["http.request.resend_count"] = leased.attempts
        if status is not None:
            attributes["http.response.status_code"] = status
        span.note(attributes)
    kind = outcome.error.partition(":")[0]
    span.end(str(status) if kind and status is not None else kind)


def _recorded(answer: Outcome[Recorded]) -> Recorded:
    """Return the OutcomeWriter's answer; an error of the runtime becomes its error."""
    try:
        return answer.unwrap()
    except ActorError as fault:
        return Recorded(None, error=str(fault))
