"""kill -9 loses no committed event (O-34, B-199)."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests.live_site import LiveReceiver, LiveSite, eventually
from tests.webhook_kit import deliveries, make_webhook

pytestmark = pytest.mark.usefixtures("on_both_stores")

DEVELOPMENT = {"FW_MODE": "development"}
AFTER_THE_LEASE = {**DEVELOPMENT, "FW_CLOCK_OFFSET": "45"}  # timeout 10 and 30 more


def test_kill_between_commit_and_post_loses_no_delivery(tmp_path: Path) -> None:
    """One POST hangs, so that the others are committed and not yet sent when the kill comes."""
    with LiveSite(tmp_path) as site, LiveReceiver(None, 204) as receiver:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client:
            make_webhook(client, receiver.url, max_attempts=1)
            for number in range(8):
                answer = client.post("/api/resource/Note", json={"title": f"note {number}"})
                assert answer.status_code == 201
            eventually(lambda: receiver.got)
            committed = [row["name"] for row in deliveries(client)]
        site.end(signal.SIGKILL)
        assert len(receiver.got) == 1
        site.start(**AFTER_THE_LEASE)
        with site.client() as client:
            sent = eventually(lambda: _all_final(deliveries(client)))
    assert {row["name"]: (row["status"], row["attempts"]) for row in sent} == dict.fromkeys(
        committed, ("Sent", 1)
    )
    assert sorted(receiver.ids) == sorted([*committed, receiver.ids[0]])  # only the cut one twice


def test_kill_keeps_failed_sign_in_counter(tmp_path: Path) -> None:
    """The counter is durable: a restart keeps the lock (A-77)."""
    with LiveSite(tmp_path) as site:
        site.add_manager()
        site.start()
        wrong = {"usr": "admin", "pwd": "wrong"}
        header = {"X-FW-CSRF": "1"}
        for expected in (401, 401, 401):
            answer = httpx.post(site.url + "/api/login", json=wrong, headers=header)
            assert answer.status_code == expected
        site.end(signal.SIGKILL)
        site.start()
        for expected in (401, 429, 429):
            answer = httpx.post(site.url + "/api/login", json=wrong, headers=header)
            assert answer.status_code == expected


def _all_final(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return rows if all(row["status"] in ("Sent", "Failed") for row in rows) else []
