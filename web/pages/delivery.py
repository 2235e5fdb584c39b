"""The page of a delivery: its state, its attempts as a timeline, and the requests as sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fw_actors.documents.fields import iso
from fw_actors.rules.delivery import DeliveryStatus, is_cancellation
from fw_actors.rules.findings import ServiceState
from fw_actors.runtime.clock import US_PER_MS
from fw_actors.webhooks.attempts import AttemptRun, AttemptTrace, AttemptTrigger, RecordedAttempt
from fw_actors.webhooks.diagnostics import DeliveryReport, SentRequest, delivery_report
from fw_actors.webhooks.health import label_of_webhook
from web.pages.links import destinations
from web.pages.listing import BAD, GOOD, WARN, ListCell, badge
from web.pages.replays import path_of
from web.pages.wording import sentence

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

_TONES: Final[Mapping[str, str]] = {
    DeliveryStatus.SENT.value: GOOD,
    DeliveryStatus.RETRYING.value: WARN,
    DeliveryStatus.FAILED.value: BAD,
}


@dataclass(frozen=True)
class TimelineAttempt:
    """An attempt in the timeline; `steps` are the labels and durations of its steps."""

    id: str
    title: str
    result: ListCell
    began: str
    duration_ms: int
    error: str
    steps: tuple[tuple[str, str], ...]
    body: str
    address: str
    worker: str
    request: SentRequest | None


@dataclass(frozen=True)
class TimelineRun:
    """The attempts for an event (`user` is empty) or for a replay, the newest first."""

    user: str
    queued: str
    attempts: tuple[TimelineAttempt, ...]


def delivery_view(fw: Fw, values: Mapping[str, Any], service: ServiceState) -> dict[str, Any]:
    """Return the template's variables."""
    report = delivery_report(fw, values["name"])
    explanation = report.explanation(service)
    due_at = explanation.due_at
    meta = fw.documents.registry.meta("Webhook Delivery")
    [paths] = destinations(fw, meta, [values], ["reference_name"])
    return {
        "how": badge(values["status"]),
        "about_path": paths.get("reference_name", ""),
        "webhook_label": _label(fw, values["webhook"]),
        "error": sentence(values["error"]),
        "answer": readable(values["response_body"]),
        "payload": readable(values["payload"]),
        "explained": explanation.text,
        "replayable": report.facts.replayable,
        "due": None if due_at is None else iso(due_at),
        "is_due": due_at is not None and due_at <= fw.tx.now,
        "runs": tuple(runs(report)),
        "bulk_path": path_of(fw, values["replay_run"]),
    }


def _label(fw: Fw, webhook: str | None) -> str:
    """Return the label of a Webhook; the id of a deleted one."""
    if not webhook:
        return ""
    rows = fw.get_list("Webhook", [["name", "=", webhook]], ["title", "url"], limit=1)
    return label_of_webhook(rows[0]["title"], rows[0]["url"]) if rows else webhook


def runs(report: DeliveryReport) -> Iterator[TimelineRun]:
    """Yield the runs of a delivery, the newest first, including a run without an attempt yet."""
    history = report.history
    attempts_by_run: dict[AttemptRun, list[TimelineAttempt]] = {history.run: []}
    for place, attempt in zip(range(len(history.attempts), 0, -1), history.attempts, strict=True):
        timeline = _shown(report, attempt, f"attempt-{place}")
        attempts_by_run.setdefault(attempt.run, []).append(timeline)
    for run, attempts in attempts_by_run.items():
        yield TimelineRun(run.user, iso(run.at), tuple(attempts))


def _shown(report: DeliveryReport, attempt: RecordedAttempt, id_: str) -> TimelineAttempt:
    retry = attempt.trigger is AttemptTrigger.RETRY and not is_cancellation(attempt.error)
    return TimelineAttempt(
        id=id_,
        title=f"Attempt {attempt.number}{', a retry' if retry else ''}",
        result=ListCell("badge", _result(attempt), _TONES.get(attempt.status, WARN)),
        began=iso(attempt.began),
        duration_ms=attempt.duration_ms,
        error=sentence(attempt.error),
        steps=tuple(_steps(attempt.trace)),
        body=readable(attempt.response_body),
        address=attempt.trace.address,
        worker=attempt.trace.worker,
        request=report.request_of(attempt),
    )


def _result(attempt: RecordedAttempt) -> str:
    """Return the response's status, or else the kind of the error."""
    if attempt.response_status is not None:
        return str(attempt.response_status)
    return (attempt.error or "").partition(":")[0].replace("_", " ") or attempt.status


def _steps(trace: AttemptTrace) -> Iterator[tuple[str, str]]:
    steps = (trace.dns, trace.connect, trace.tls, trace.answer)
    for label, step in zip(("DNS", "Connect", "TLS", "Response"), steps, strict=True):
        if step:
            yield label, f"{step / US_PER_MS:,.1f} ms"


def readable(text: str | None) -> str:
    """Return JSON text indented; other text unchanged."""
    try:
        return json.dumps(json.loads(text or ""), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text or ""
