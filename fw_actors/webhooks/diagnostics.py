"""Explains why a delivery waits, reports on it for operators, and sends test events.

The report has the attempts on record, and the next step. The request of an attempt is shown with
its headers and as a command for curl. It contains no secret: the URL has no query, and a signature
does not reveal its key.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors import __version__
from fw_actors.documents.core import Webhook, WebhookDelivery, missing_delivery
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.tables import table_of
from fw_actors.errors import ValidationError
from fw_actors.http import NetworkError, Sender, Times, parse_endpoint
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import (
    MAX_COUNTED_JOBS,
    Backoff,
    DeliveryStatus,
    Explanation,
    WaitingDelivery,
    error_of_response,
    explain,
    is_cancellation,
)
from fw_actors.rules.findings import ServiceState
from fw_actors.rules.identifiers import DeliveryIds
from fw_actors.rules.receivers import NOT_PAUSED, pause_end
from fw_actors.rules.signing import signed_headers
from fw_actors.runtime.clock import US_PER_MS
from fw_actors.store import Statement, Tx, one_of
from fw_actors.store.ordered_jobs import first_of
from fw_actors.store.schema import JOB
from fw_actors.tracing import CURRENT_TRACE, TraceContext
from fw_actors.webhooks.attempts import AttemptHistory, AttemptRun, RecordedAttempt, attempts_of
from fw_actors.webhooks.claims import StoredWebhook
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.health import receivers_of
from fw_actors.webhooks.signing_keys import NoSigningKey, SigningKeys

_NAME: Final[sa.BindParameter[Any]] = sa.bindparam("key")

_JOB: Final = Statement(
    sa.select(
        JOB.c.id, JOB.c.next_at, JOB.c.lease, JOB.c.deaths, JOB.c.partition, JOB.c.ordering_key
    )
    .where(JOB.c.queue == QUEUE, JOB.c.subject == _NAME)
    .order_by(JOB.c.id.desc())
    .limit(1)
)

_WEBHOOKS: Final = table_of(Webhook).table.c
_FORMER: Final = Statement(sa.select(_WEBHOOKS.former_delivery).where(_WEBHOOKS.name == _NAME))


def waiting_delivery(tx: Tx, delivery: str) -> WaitingDelivery:
    """Return the facts about a waiting delivery. Raises: NotFoundError."""
    row = table_of(WebhookDelivery).fetch(tx, delivery)
    if row is None:
        raise missing_delivery(delivery)
    webhook = table_of(Webhook).fetch(tx, row["webhook"])
    if webhook is not None and delivery <= (tx.scalar(_FORMER, key=row["webhook"]) or ""):
        webhook = None  # it has the name of the deleted one to which the delivery belongs
    job = tx.one(_JOB, key=delivery) or (0, None, None, 0, "", None)
    number, next_at, lease, expired_leases, partition, ordering_key = job
    receivers = receivers_of(tx)
    receiver = receivers.get(row["webhook"], "")
    webhooks = (
        [name for name, other in receivers.items() if other == receiver]
        if receiver
        else [partition]
    )
    behind = None
    if next_at is None and ordering_key is not None:
        behind = first_of(tx, partition, ordering_key)
    ahead = in_flight = 0
    if next_at is not None and lease is None:
        ahead, in_flight = _competing(tx, webhooks, next_at, number)
    return WaitingDelivery(
        now=tx.now,
        status=DeliveryStatus(row["status"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        error=_sentence(row["error"]),
        webhook_enabled=None if webhook is None else bool(webhook["enabled"]),
        next_at=next_at,
        leased=lease is not None,
        expired_leases=expired_leases,
        behind=behind or "",
        rate_limit=(0 if webhook is None else webhook["rate_limit"] or 0),
        paused_until=(
            NOT_PAUSED
            if webhook is None
            else pause_end(webhook["paused_since"], webhook["paused_until"], tx.now)
        ),
        receiver=receiver,
        ahead=ahead,
        in_flight=in_flight,
        cancelled=is_cancellation(row["error"]),
        erased=row["erased"] is not None,
    )


def _competing(tx: Tx, webhooks: list[str], due: int, number: int) -> tuple[int, int]:
    """Return how many deliveries of these Webhooks are due before a job, and how many are leased.

    Both at most `MAX_COUNTED_JOBS`, because a hundred thousand may wait for a dead receiver.
    """
    of_them = sa.select(JOB.c.id).where(JOB.c.queue == QUEUE, one_of(JOB.c.partition, webhooks))
    before = (JOB.c.next_at < due) | ((JOB.c.next_at == due) & (JOB.c.id < number))
    ahead = of_them.where(JOB.c.next_at <= due, before, JOB.c.lease.is_(None))
    leased = of_them.where(JOB.c.next_at > tx.now, JOB.c.lease.is_not(None))
    return _count(tx, ahead), _count(tx, leased)


def _count(tx: Tx, rows: sa.Select[Any]) -> int:
    limited = rows.limit(MAX_COUNTED_JOBS).subquery()
    count: int = tx.scalar(sa.select(sa.func.count()).select_from(limited))
    return count


def _sentence(error: str | None) -> str:
    return f"The last error: {error}" if error else "No error was recorded."


EVENT: Final = "fw.test"
_NO_WAITS: Final = Backoff(1.0, 1.0)  # trials are not repeated


class StepTimes(msgspec.Struct, frozen=True):
    """The duration of each step in ms; 0 for a step that was skipped or not reached."""

    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    answer: float = 0.0


class TestEventResult(msgspec.Struct, frozen=True):
    """The result of a test event: the status, if any; `error` as on a delivery, None after 2xx."""

    status: int | None
    error: str | None
    times: StepTimes


class TestEventSender:
    """Sends test events to the Webhooks of a site."""

    def __init__(self, site: Site, sender: Sender) -> None:
        self._site, self._sender = site, sender
        self._deliveries = Deliveries(_NO_WAITS)
        self._keys = SigningKeys(site.vault)
        self._ids = DeliveryIds(site.entropy.bytes)

    async def send(
        self,
        webhook: str,
        read: Callable[[Callable[[Fw], StoredWebhook]], Awaitable[StoredWebhook]],
    ) -> TestEventResult:
        """Send a test event to a Webhook, enabled or disabled.

        `read` runs a function in a transaction as the calling user.

        Raises: NotFoundError, PermissionDeniedError.
        """
        stored = await read(lambda fw: self._stored(fw, webhook))
        try:
            key = self._keys.of(stored)
            target = replace(  # the url was validated when it was written
                parse_endpoint(stored.url, development=True),
                certificate=stored.client_certificate or "",
            )
        except NoSigningKey as reason:
            return TestEventResult(None, str(reason), StepTimes())
        except ValidationError as reason:
            return TestEventResult(None, f"internal: {reason}", StepTimes())
        clock = self._site.clock
        now = clock.now()
        delivery = self._ids.new(now)
        event = {"type": EVENT, "timestamp": iso(now), "data": {"webhook": webhook}}
        body = msgspec.json.encode(event)

        caller, tracer = CURRENT_TRACE.get(), self._site.tracer
        span = None if caller is None or tracer is None else tracer.client("POST", caller)

        def headers() -> tuple[tuple[bytes, bytes], ...]:
            now = clock.now()
            signed = signed_headers(key, delivery, now, body, self._keys.old_of(stored, now))
            return signed if span is None else (*signed, *span.context.headers)

        try:
            answer = await self._sender.post(
                target, body, headers, timeout=stored.timeout, fresh=True
            )
        except NetworkError as fault:
            return TestEventResult(None, str(fault), _rounded(fault.times))
        finally:
            if span is not None:
                span.end()
        error = error_of_response(answer.status, answer.location)
        return TestEventResult(answer.status, error or None, _rounded(answer.times))

    def _stored(self, fw: Fw, webhook: str) -> StoredWebhook:
        fw.get_doc("Webhook", webhook)  # checks existence and permission
        stored = self._deliveries.stored_webhook(fw.tx, webhook)
        assert stored is not None
        return stored


def _rounded(times: Times | None) -> StepTimes:
    if times is None:
        return StepTimes()
    steps = (times.dns, times.connect, times.tls, times.answer)
    return StepTimes(*(round(step, 3) for step in steps))


MAX_IN_LINE: Final = 4096
"""The longest body in the command for curl, in characters; a longer one is read from a file."""

_FILE: Final = "@payload.json"


class SentRequest(msgspec.Struct, frozen=True):
    """A request that was sent; `headers` are those that curl does not add itself."""

    url: str
    headers: Mapping[str, str]
    curl: str


def sent_request(
    url: str,
    delivery: str,
    timestamp: int,
    signature: str,
    payload: str,
    trace: TraceContext | None = None,
) -> SentRequest:
    """Return the request of an attempt.

    Args:
        url: without its query.
        timestamp, signature: the values of `webhook-timestamp` and `webhook-signature`.
        trace: the trace context that was sent.
    """
    headers = {
        "content-type": "application/json",
        "user-agent": f"fw-webhooks/{__version__}",
        "webhook-id": delivery,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }
    if trace is not None:
        headers |= {name.decode(): value.decode() for name, value in trace.headers}
    options = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    body = payload if len(payload) <= MAX_IN_LINE else _FILE
    words = ["curl", "-i", "-X", "POST", url, *options, "--data-binary", body]
    return SentRequest(url, headers, shlex.join(words))


@dataclass(frozen=True)
class DeliveryReport:
    """A delivery at one moment."""

    delivery: str
    payload: str
    facts: WaitingDelivery
    history: AttemptHistory
    erased: str | None = None

    def explanation(self, service: ServiceState) -> Explanation:
        """Explain in words why the delivery waits, or how it ended."""
        return explain(self.facts, service)

    def request_of(self, attempt: RecordedAttempt) -> SentRequest | None:
        """Return the request of an attempt; None if nothing was sent, or if it was erased."""
        trace = attempt.trace
        if trace.timestamp is None or self.erased is not None:
            return None
        context = self.history.trace if trace.parent_id else None
        return sent_request(
            trace.url,
            self.delivery,
            trace.timestamp,
            trace.signature,
            self.payload,
            None if context is None else context.followed_by(trace.parent_id),
        )

    @property
    def trace_id(self) -> str | None:
        """The id of the event's trace, if it has one."""
        context = self.history.trace
        return None if context is None else context.trace_id

    def as_json(self, service: ServiceState) -> dict[str, Any]:
        """Return the report as in `core.services.webhooks.explain` and `--json`."""
        facts, explanation = self.facts, self.explanation(service)
        return {
            "delivery": self.delivery,
            "status": facts.status.value,
            "reason": explanation.reason.value,
            "dueAt": _time(explanation.due_at),
            "attempts": facts.attempts,
            "maxAttempts": facts.max_attempts,
            "receiver": facts.receiver or None,
            "ahead": facts.ahead,
            "leased": facts.in_flight,
            "text": explanation.text,
            "erased": self.erased,
            "traceId": self.trace_id,
            **_run(self.history.run),
            "recorded": [self._attempt(each) for each in self.history.attempts],
        }

    def _attempt(self, attempt: RecordedAttempt) -> dict[str, Any]:
        request = self.request_of(attempt)
        return {**attempt_as_json(attempt), "request": request}


def delivery_report(fw: Fw, delivery: str) -> DeliveryReport:
    """Return the report about a delivery. Raises: NotFoundError, PermissionDeniedError."""
    doc = fw.get_doc("Webhook Delivery", delivery)
    return DeliveryReport(
        delivery,
        str(doc.payload or ""),
        waiting_delivery(fw.tx, delivery),
        attempts_of(fw.tx, delivery),
        doc.erased,
    )


def attempt_as_json(attempt: RecordedAttempt) -> dict[str, Any]:
    """Return an attempt as in `--json`; durations of steps in milliseconds."""
    trace = attempt.trace
    steps = {"dns": trace.dns, "connect": trace.connect, "tls": trace.tls, "answer": trace.answer}
    return {
        "number": attempt.number,
        "trigger": attempt.trigger.value,
        **_run(attempt.run),
        "began": iso(attempt.began),
        "ended": iso(attempt.ended),
        "durationMs": attempt.duration_ms,
        "times": {name: step / US_PER_MS for name, step in steps.items()},
        "status": attempt.status,
        "responseStatus": attempt.response_status,
        "responseBody": attempt.response_body,
        "error": attempt.error,
        "nextAttempt": _time(attempt.next_attempt),
        "address": trace.address or None,
        "worker": trace.worker or None,
    }


def _run(run: AttemptRun) -> dict[str, Any]:
    return {"user": run.user or None, "queued": iso(run.at)}


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)
