"""Why a delivery waits: each sentence is true of every delivery that it is shown for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.delivery import DeliveryStatus, WaitingDelivery, WaitReason, explain
from fw_actors.rules.findings import ServiceState
from fw_actors.rules.receivers import UNTIL_RESUMED

NOW = 1_800_000_000_000
RECEIVER = "https://receiver.test:443"
DUE = WaitingDelivery(
    NOW,
    DeliveryStatus.QUEUED,
    0,
    6,
    "No error was recorded.",
    True,
    NOW - 1,
    False,
    0,
    RECEIVER,
    0,
    0,
)
RUNS = ServiceState(running=True, health={RECEIVER: "healthy"})
SPEED = (
    "A slow receiver gets one attempt at a time; any other gets up to ops.perReceiverConcurrency."
)
AHEAD = (
    "It is due. Deliveries to https://receiver.test:443 that are due before it: {}; leased for an "
    "attempt: {}."
)
FAILED: dict[str, Any] = {
    "status": DeliveryStatus.FAILED, "attempts": 6, "next_at": None, "error": "The error."
}  # fmt: skip
ENDED_AS_FAILED = "It failed permanently after 6 of 6 attempts. The error."
DISABLED = (
    "Its Webhook is disabled: unless the Webhook is enabled first, the next attempt fails, and "
    "nothing is sent."
)
ENDED = (
    "Its lease has expired without an outcome: the process that leased it has died or is blocked. "
    "The next process with a free slot takes it over. Expired leases in a row: {}; 6 in a row "
    "count as a failed attempt."
)

PAUSED = "Its Webhook is paused for 9 s more; fw webhooks resume ends the pause."
BEHIND = (
    "Its Webhook sends one delivery at a time for each document (ordering). It waits until msg_1, "
    "and those between them, are sent or have failed."
)


@pytest.mark.parametrize(
    ("changes", "reason", "due_at", "text"),
    [
        (
            {"status": DeliveryStatus.SENT, "next_at": None},
            WaitReason.SENT, None, "It was sent, and the receiver answered 2xx.",
        ),
        (
            FAILED, WaitReason.FAILED, None,
            f"{ENDED_AS_FAILED} To send it again, use fw webhooks replay.",
        ),
        (
            {"status": DeliveryStatus.FAILED, "attempts": 4, "next_at": None,
             "error": "The error.", "cancelled": True},
            WaitReason.FAILED, None,
            "It was cancelled after 3 of 6 attempts. The error. To send it again, use fw webhooks "
            "replay.",
        ),
        (
            {**FAILED, "webhook_enabled": False}, WaitReason.FAILED, None,
            f"{ENDED_AS_FAILED} To send it again, enable its Webhook, and use fw webhooks replay.",
        ),
        (
            {**FAILED, "erased": True}, WaitReason.FAILED, None,
            f"{ENDED_AS_FAILED} It cannot be sent again, because its body was erased.",
        ),
        (
            {**FAILED, "webhook_enabled": None, "erased": True}, WaitReason.FAILED, None,
            f"{ENDED_AS_FAILED} It cannot be sent again, because its Webhook was deleted.",
        ),
        (
            {"next_at": None}, WaitReason.NO_JOB, None,
            "fw_job has no scheduled job for it, because the table was changed by hand. It is not "
            "sent until the row is restored.",
        ),
        (
            {"leased": True, "next_at": NOW + 1500}, WaitReason.LEASED, None,
            "A process has leased it for an attempt. The lease lasts 1.5 s more; if the process "
            "has died, another process then takes the delivery over.",
        ),
        ({"leased": True}, WaitReason.LEASE_ENDED, None, ENDED.format(1)),
        ({"leased": True, "expired_leases": 2}, WaitReason.LEASE_ENDED, None, ENDED.format(3)),
        ({"webhook_enabled": False}, WaitReason.DISABLED, NOW - 1, DISABLED),
        (
            {"webhook_enabled": None, "next_at": NOW + 9}, WaitReason.DELETED, NOW + 9,
            "Its Webhook was deleted: the next attempt fails, and nothing is sent.",
        ),
        (
            {"status": DeliveryStatus.RETRYING, "attempts": 2, "next_at": NOW + 60_000},
            WaitReason.BACKOFF, NOW + 60_000, "Attempt 2 of 6 failed. No error was recorded.",
        ),
        (
            {"next_at": NOW + 60_000},
            WaitReason.BACKOFF, NOW + 60_000, "It has not been attempted and is not due yet.",
        ),
        (
            {"paused_until": UNTIL_RESUMED}, WaitReason.PAUSED, None,
            "Its Webhook is paused until it is resumed (fw webhooks resume).",
        ),
        ({"paused_until": NOW + 9_000}, WaitReason.PAUSED, NOW + 9_000, PAUSED),
        (
            {"paused_until": NOW + 9_000, "next_at": NOW + 60_000}, WaitReason.PAUSED,
            NOW + 60_000, PAUSED,
        ),
        (
            {"paused_until": NOW + 9_000, "leased": True}, WaitReason.PAUSED, NOW + 9_000, PAUSED,
        ),
        (
            {"paused_until": NOW + 9_000, "leased": True, "next_at": NOW + 1500},
            WaitReason.LEASED, None,
            "A process has leased it for an attempt. The lease lasts 1.5 s more; if the process "
            "has died, another process then takes the delivery over.",
        ),
        ({"behind": "msg_1", "next_at": None}, WaitReason.ORDER, None, BEHIND),
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
    explanation = explain(replace(DUE, **changes), RUNS)
    assert (explanation.reason, explanation.due_at, explanation.text) == (reason, due_at, text)


def test_explain_reports_stopped_service() -> None:
    stopped = ServiceState(running=False)
    nobody = "The service is not running on this machine. Start it with fw start."
    assert explain(DUE, stopped).text == f"{AHEAD.format(0, 0)} {nobody} {SPEED}"
    later = replace(DUE, next_at=NOW + 1, attempts=1)
    assert explain(later, stopped).text == (
        f"Attempt 1 of 6 failed. No error was recorded. {nobody}"
    )


def test_explain_reports_pause_of_delivery_behind_another_one() -> None:
    """Both reasons apply (B-305, B-326)."""
    behind = replace(DUE, behind="msg_1", next_at=None, paused_until=NOW + 9_000)
    explanation = explain(behind, RUNS)
    assert (explanation.reason, explanation.text) == (WaitReason.ORDER, f"{BEHIND} {PAUSED}")


def test_explain_reports_paused_receiver() -> None:
    paused = ServiceState(running=True, health={RECEIVER: "paused", "https://other:443": "slow"})
    assert explain(DUE, paused).text == (
        f"{AHEAD.format(0, 0)} This receiver is paused; resume it in fw console."
    )


@given(
    st.builds(
        WaitingDelivery,
        now=st.just(NOW),
        status=st.sampled_from(DeliveryStatus),
        attempts=st.integers(0, 10),
        max_attempts=st.integers(1, 10),
        error=st.just("No error was recorded."),
        webhook_enabled=st.sampled_from([True, False, None]),
        next_at=st.one_of(st.none(), st.integers(NOW - 10_000, NOW + 10_000)),
        leased=st.booleans(),
        expired_leases=st.integers(0, 5),
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
    explanation = explain(facts, service)
    waits = facts.status in (DeliveryStatus.QUEUED, DeliveryStatus.RETRYING) and not facts.leased
    assert explanation.due_at == (facts.next_at if waits else None)
    assert not (service.running and "not running" in explanation.text)
