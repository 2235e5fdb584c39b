"""Why a delivery waits: each sentence is true of every delivery that it is shown for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.delivery import DeliveryStatus, WaitingDelivery, WaitReason, explain
from fw_actors.rules.findings import ServiceState

NOW = 1_800_000_000_000
RECEIVER = "https://receiver.test:443"
DUE = WaitingDelivery(
    NOW, DeliveryStatus.QUEUED, 0, 6, "No error was noted.", True, NOW - 1, False, 0, RECEIVER, 0, 0
)
RUNS = ServiceState(running=True, health={RECEIVER: "healthy"})
SPEED = (
    "When it goes depends on how quickly the receiver answers: one that is slow or silent gets "
    "one attempt at a time, another up to ops.perReceiverConcurrency."
)
AHEAD = (
    "It is due. Deliveries to https://receiver.test:443 that are due before it: {}; leased for an "
    "attempt: {}."
)
DISABLED = (
    "Its Webhook is disabled: unless it is enabled before, it fails when its turn comes, and "
    "nothing is sent."
)
ENDED = (
    "Its lease has ended without an outcome: the process that had it died, or is held up. The next "
    "process that has a free slot takes it over. Leases that ended like this in a row before: "
    "{}; after 5 the next counts as a failed attempt."
)


@pytest.mark.parametrize(
    ("changes", "reason", "due_at", "text"),
    [
        (
            {"status": DeliveryStatus.SENT, "next_at": None},
            WaitReason.SENT, None, "It was sent, and the receiver answered 2xx.",
        ),
        (
            {"status": DeliveryStatus.FAILED, "attempts": 6, "next_at": None,
             "error": "The error."},
            WaitReason.FAILED, None,
            "It failed for good after 6 of 6 attempts. The error. To send it again: fw webhooks "
            "replay.",
        ),
        (
            {"status": DeliveryStatus.FAILED, "attempts": 4, "next_at": None,
             "error": "The error.", "cancelled": True},
            WaitReason.FAILED, None,
            "It was cancelled after 3 of 6 attempts. The error. To send it again: fw webhooks "
            "replay.",
        ),
        (
            {"next_at": None}, WaitReason.NO_JOB, None,
            "It has no job that is due at any time: fw_job was changed by hand. It is not sent by "
            "itself.",
        ),
        (
            {"leased": True, "next_at": NOW + 1500}, WaitReason.LEASED, None,
            "A process has leased it for an attempt. The lease lasts 1.5 s more; if that process "
            "has died, another one takes the delivery over then.",
        ),
        ({"leased": True}, WaitReason.LEASE_ENDED, None, ENDED.format(0)),
        ({"leased": True, "deaths": 2}, WaitReason.LEASE_ENDED, None, ENDED.format(2)),
        ({"webhook_enabled": False}, WaitReason.DISABLED, NOW - 1, DISABLED),
        (
            {"webhook_enabled": None, "next_at": NOW + 9}, WaitReason.DELETED, NOW + 9,
            "Its Webhook was deleted: it fails when its turn comes, and nothing is sent.",
        ),
        (
            {"status": DeliveryStatus.RETRYING, "attempts": 2, "next_at": NOW + 60_000},
            WaitReason.BACKOFF, NOW + 60_000, "Attempt 2 of 6 failed. No error was noted.",
        ),
        (
            {"next_at": NOW + 60_000},
            WaitReason.BACKOFF, NOW + 60_000, "It was not tried yet, and is not due yet.",
        ),
        ({}, WaitReason.SLOT, NOW - 1, f"{AHEAD.format(0, 0)} {SPEED}"),
        (
            {"ahead": 103, "in_flight": 1}, WaitReason.SLOT, NOW - 1,
            f"{AHEAD.format(103, 1)} {SPEED}",
        ),
    ],
)  # fmt: skip
def test_explain_gives_reason_time_and_text(
    changes: dict[str, Any], reason: WaitReason, due_at: int | None, text: str
) -> None:
    told = explain(replace(DUE, **changes), RUNS)
    assert (told.reason, told.due_at, told.text) == (reason, due_at, text)


def test_explain_reports_stopped_service() -> None:
    stopped = ServiceState(running=False)
    nobody = "The service does not run on this machine (fw start)."
    assert explain(DUE, stopped).text == f"{AHEAD.format(0, 0)} {nobody} {SPEED}"
    later = replace(DUE, next_at=NOW + 1, attempts=1)
    assert explain(later, stopped).text == (f"Attempt 1 of 6 failed. No error was noted. {nobody}")


def test_explain_reports_paused_receiver() -> None:
    paused = ServiceState(running=True, health={RECEIVER: "paused", "https://other:443": "slow"})
    assert explain(DUE, paused).text == (
        f"{AHEAD.format(0, 0)} The service has paused this receiver: fw console resumes it."
    )


@given(
    st.builds(
        WaitingDelivery,
        now=st.just(NOW),
        status=st.sampled_from(DeliveryStatus),
        attempts=st.integers(0, 10),
        max_attempts=st.integers(1, 10),
        error=st.just("No error was noted."),
        webhook_enabled=st.sampled_from([True, False, None]),
        next_at=st.one_of(st.none(), st.integers(NOW - 10_000, NOW + 10_000)),
        leased=st.booleans(),
        deaths=st.integers(0, 5),
        receiver=st.just(RECEIVER),
        ahead=st.integers(0, 1000),
        in_flight=st.integers(0, 16),
    ),
    st.sampled_from([RUNS, ServiceState(running=False)]),
)
def test_explain_gives_due_time_of_waiting_delivery_only(
    facts: WaitingDelivery, service: ServiceState
) -> None:
    """The due time is that of the job; a leased or final delivery has none."""
    told = explain(facts, service)
    waits = facts.status in (DeliveryStatus.QUEUED, DeliveryStatus.RETRYING) and not facts.leased
    assert told.due_at == (facts.next_at if waits else None)
    assert not (service.running and "does not run" in told.text)
