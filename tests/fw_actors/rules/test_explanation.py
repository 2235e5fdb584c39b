"""Why a delivery waits: a sentence for each state that it can be in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fw_actors.rules.delivery_outcome import Status
from fw_actors.rules.explanation import Reason, Waiting, explain

NOW = 1_800_000_000_000
DUE = Waiting(NOW, Status.QUEUED, 0, 6, "No error was noted.", True, NOW - 1, False, 0, 0)


@pytest.mark.parametrize(
    ("changes", "reason", "goes_at", "words"),
    [
        ({"status": Status.SENT}, Reason.SENT, None, "answered 2xx"),
        (
            {"status": Status.FAILED, "attempts": 6, "error": "status: 400."},
            Reason.FAILED, None, "after 6 of 6 attempts. status: 400.",
        ),
        ({"next_at": None}, Reason.NO_JOB, None, "Nothing will happen"),
        ({"leased": True, "next_at": NOW + 1500}, Reason.UNDER_WAY, NOW + 1500, "1.5 s more"),
        ({"leased": True, "deaths": 2}, Reason.LEASE_ENDED, NOW, "2 of its workers died"),
        ({"hook_enabled": False}, Reason.DISABLED, NOW, "is disabled: at its next turn it fails"),
        ({"hook_enabled": None, "next_at": NOW + 9}, Reason.DELETED, NOW + 9, "was deleted"),
        (
            {"status": Status.RETRYING, "attempts": 2, "next_at": NOW + 60_000},
            Reason.BACKOFF, NOW + 60_000, "Attempt 2 of 6 failed. No error was noted. The next",
        ),
        ({}, Reason.PLACE, NOW, "waits for a place at its receiver. A receiver"),
        ({"ahead": 7}, Reason.PLACE, NOW, "7 deliveries of its Webhook are due before it"),
    ],
)  # fmt: skip
def test_each_state_has_its_reason_its_time_and_its_words(
    changes: dict[str, Any], reason: Reason, goes_at: int | None, words: str
) -> None:
    told = explain(replace(DUE, **changes))
    assert (told.reason, told.goes_at) == (reason, goes_at)
    assert words in told.text
