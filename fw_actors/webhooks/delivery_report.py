"""The report on one delivery for operators: its attempts on record, and the next step.

The request of an attempt is shown with its headers and as a command for curl. It contains no
secret: the URL has no query, and a signature does not reveal its key.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.rules.explanation import Explanation, Waiting, explain
from fw_actors.rules.findings import ServiceState
from fw_actors.version import __version__
from fw_actors.webhooks.attempts import AttemptHistory, AttemptRun, RecordedAttempt, attempts_of
from fw_actors.webhooks.diagnostics import waiting

MAX_IN_LINE: Final = 4096
"""The longest body in the command for curl, in characters; a longer one is read from a file."""

_FILE: Final = "@payload.json"


class SentRequest(msgspec.Struct, frozen=True):
    """A request that was sent; `headers` are those that curl does not add by itself."""

    url: str
    headers: Mapping[str, str]
    curl: str


def sent_request(
    url: str, delivery: str, timestamp: int, signature: str, payload: str
) -> SentRequest:
    """Return the request of an attempt.

    Args:
        url: without its query.
        timestamp, signature: the values of `webhook-timestamp` and `webhook-signature`.
    """
    headers = {
        "content-type": "application/json",
        "user-agent": f"fw-webhooks/{__version__}",
        "webhook-id": delivery,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }
    given = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    body = payload if len(payload) <= MAX_IN_LINE else _FILE
    words = ["curl", "-i", "-X", "POST", url, *given, "--data-binary", body]
    return SentRequest(url, headers, shlex.join(words))


_MICROSECONDS: Final = 1000  # in a millisecond


@dataclass(frozen=True)
class DeliveryReport:
    """A delivery at one moment."""

    delivery: str
    payload: str
    facts: Waiting
    history: AttemptHistory
    erased: str | None = None

    def explanation(self, service: ServiceState) -> Explanation:
        """Explain in words why it waits, or how it ended."""
        return explain(self.facts, service)

    def request_of(self, attempt: RecordedAttempt) -> SentRequest | None:
        """Return the request of an attempt; None if it came to none, or was erased."""
        trace = attempt.trace
        if trace.timestamp is None or self.erased is not None:
            return None
        return sent_request(
            trace.url, self.delivery, trace.timestamp, trace.signature, self.payload
        )

    def as_json(self, service: ServiceState) -> dict[str, Any]:
        """Return all of it as `core.services.webhooks.explain` and `--json` show it."""
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
        waiting(fw.tx, fw.documents.registry, delivery),
        attempts_of(fw.tx, delivery),
        doc.erased,
    )


def attempt_as_json(attempt: RecordedAttempt) -> dict[str, Any]:
    """Return an attempt as `--json` shows it; times of steps in milliseconds."""
    trace = attempt.trace
    steps = {"dns": trace.dns, "connect": trace.connect, "tls": trace.tls, "answer": trace.answer}
    return {
        "number": attempt.number,
        "trigger": attempt.trigger.value,
        **_run(attempt.run),
        "began": iso(attempt.began),
        "ended": iso(attempt.ended),
        "durationMs": attempt.duration_ms,
        "times": {name: step / _MICROSECONDS for name, step in steps.items()},
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
