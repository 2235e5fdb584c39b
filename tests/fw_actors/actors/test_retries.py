"""A day of retries in milliseconds (B-163, B-164, B-190)."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from tests.fw_actors.actors.delivery_kit import SECRET, ScriptedReceiver, delivering

pytestmark = pytest.mark.usefixtures("rare_polls")

ALL_SIX = [0, 30, 90, 210, 450, 930]  # 30 s, then 1, 2, 4, 8 minutes between them
SIX_TIMEOUTS = [0, 40, 110, 240, 490, 980]  # the wait begins at the end of an attempt of 10 s

ROWS = [  # answer, max_attempts, status in the end, attempts, seconds from the event to each
    ("200", 6, "Sent", [0]),
    ("204", 6, "Sent", [0]),
    ("refused", 6, "Failed", ALL_SIX),
    ("timeout", 6, "Failed", SIX_TIMEOUTS),
    ("408", 6, "Failed", ALL_SIX),
    ("429", 6, "Failed", ALL_SIX),
    ("500", 6, "Failed", ALL_SIX),
    ("599", 6, "Failed", ALL_SIX),
    ("503", 1, "Failed", [0]),
    ("302", 6, "Failed", [0]),
    ("404", 6, "Failed", [0]),
    ("410", 6, "Failed", [0]),
    ("defect", 2, "Failed", [0, 30]),
]


@pytest.mark.parametrize(("answer", "max_attempts", "status", "times"), ROWS)
async def test_delivery_answer_decides_status_and_attempts(
    answer: str,
    max_attempts: int,
    status: str,
    times: list[int],
    tmp_path: Path,
    autojump_clock: MockClock,
) -> None:
    """Each row of the table of outcomes, with all its attempts."""
    receiver = ScriptedReceiver([answer])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(max_attempts=max_attempts)
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], receiver.times, found["attempts"]) == (status, times, len(times))
    assert found["next_attempt"] is None


async def test_delivery_recovering_at_third_attempt_is_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Queued or Retrying, receiver answers 2xx → Sent; the earlier error is removed."""
    receiver = ScriptedReceiver(["503", "timeout", "200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        found = await post.settled(delivery)
        queue = await post.jobs()
    assert (found["status"], found["attempts"], found["error"]) == ("Sent", 3, None)
    assert (found["response_status"], found["response_body"]) == (200, "what the receiver said")
    assert queue == []


async def test_delivery_retry_is_sent_at_due_instant(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The waits also hold for deliveries of one Webhook with close due times (B-190)."""
    receiver = ScriptedReceiver(["503"] * 4 + ["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        owed = []
        for _ in range(4):
            owed += await post.emit()
            await trio.sleep(0.2)
        for delivery in owed:
            await post.settled(delivery)
    first, again = receiver.posts[:4], receiver.posts[4:]
    assert [round(post.at, 1) for post in first] == [0.0, 0.2, 0.4, 0.6]
    assert [round(post.at, 1) for post in again] == [30.0, 30.2, 30.4, 30.6]


async def test_backoff_below_one_second_is_kept(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Fractions of a wait from 0.1 are allowed (B-191), counted from the attempt's end (B-192)."""
    receiver = ScriptedReceiver(["503"] * 5 + ["200"])
    async with delivering(tmp_path, receiver, backoff_seconds=0.1, backoff_cap_seconds=0.7) as post:
        await post.webhook()
        await trio.sleep(10.35)  # so that no periodic poll coincides
        receiver.began = trio.current_time()
        [delivery] = await post.emit()
        assert (await post.settled(delivery))["attempts"] == 6
    assert [round(got.at, 2) for got in receiver.posts] == [0.0, 0.1, 0.3, 0.7, 1.4, 2.1]


async def test_attempt_sends_same_body_with_own_timestamp_signature(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """webhook-id and body stay; webhook-timestamp is that of the attempt."""
    receiver = ScriptedReceiver(["500", "500", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit(data={"text": "snowman ☃", "number": 1.0})
        await post.settled(delivery)
    assert len({got.body for got in receiver.posts}) == 1
    assert {got.headers["webhook-id"] for got in receiver.posts} == {delivery}
    stamps = [int(got.headers["webhook-timestamp"]) for got in receiver.posts]
    assert [stamp - stamps[0] for stamp in stamps] == [0, 30, 90]
    for got, stamp in zip(receiver.posts, stamps, strict=True):
        verify_at(stamp, got.body, got.headers, monkeypatch)


def verify_at(
    stamp: int,
    body: bytes,
    headers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    secret: str = SECRET,
) -> None:
    """Verify as a receiver whose clock shows the attempt's time."""
    webhook = standardwebhooks.Webhook(secret)
    monkeypatch.setattr(
        webhook,
        "_Webhook__verify_timestamp",
        lambda text: datetime.fromtimestamp(stamp, UTC),
    )
    webhook.verify(body, headers)


async def test_disabled_webhook_fails_pending_delivery_without_sending(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Queued or Retrying, webhook disabled → Failed, nothing sent."""
    receiver = ScriptedReceiver(["500"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        await post.change(webhook, enabled=0)
        found = await post.settled(delivery)
    assert found["status"] == "Failed"
    assert found["error"].startswith("disabled:")
    assert len(receiver.posts) == 1


async def test_deleted_webhook_fails_pending_delivery_without_sending(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Queued or Retrying, webhook deleted → Failed, nothing sent."""
    receiver = ScriptedReceiver(["500"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        await post.site.write("Administrator", lambda fw: fw.get_doc("Webhook", webhook).delete())
        found = await post.settled(delivery)
    assert found["status"] == "Failed"
    assert found["error"].startswith("deleted:")
    assert len(receiver.posts) == 1


async def test_undecryptable_secret_fails_delivery_immediately(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """signing secret undecryptable (key changed since saved) → Failed, immediately, no retries."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
    async with delivering(tmp_path, receiver, seed=2, secrets={"key": "another key"}) as post:
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], receiver.posts) == ("Failed", [])
    assert found["error"].startswith("secret_unreadable:")


async def test_final_delivery_failure_is_logged_as_warning(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """FW_LOG_LEVEL=warning shows a final failure, and hides the attempts before it (O-107)."""
    kept = LogCapture()
    log = structlog.wrap_logger(None, processors=[kept])
    async with delivering(tmp_path, ScriptedReceiver(["500", "410"]), log=log) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
    ended = [entry for entry in kept.entries if entry["event"] == "delivery.attempted"]
    assert [(entry["log_level"], entry["status"]) for entry in ended] == [
        ("info", "Retrying"), ("warning", "Failed"),
    ]  # fmt: skip


async def test_missing_secret_fails_delivery_immediately(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """signing secret missing → Failed, immediately, no retries."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        await post.site.write(
            "Administrator", lambda fw: fw.db.sql("UPDATE doc_webhook SET secret = NULL")
        )
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], receiver.posts) == ("Failed", [])
    assert found["error"].startswith("secret_missing:")


async def test_webhook_without_url_fails_own_deliveries_only(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Raw SQL is not checked (A-317); an attempt with an internal error ends as `internal`
    (B-174)."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        await post.site.write(
            "Administrator",
            lambda fw: fw.db.sql("UPDATE doc_webhook SET url = NULL, timeout = NULL"),
        )
        await post.webhook()
        [broken, other] = [await post.settled(each) for each in await post.emit()]
    assert {broken["status"], other["status"]} == {"Failed", "Sent"}
    assert {broken["error"], other["error"]} == {
        None, "internal: the Webhook's URL is not usable.",
    }  # fmt: skip


async def test_attempt_uses_current_url_and_recorded_max_attempts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt uses the current url, secret and timeout, but the delivery's `max_attempts`
    (B-127)."""
    receiver = ScriptedReceiver(["500"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook(max_attempts=2)
        [delivery] = await post.emit()
        await trio.sleep(10)
        await post.change(webhook, url="https://elsewhere.example/hook", max_attempts=9)
        found = await post.settled(delivery)
    assert [got.url for got in receiver.posts] == [
        "https://receiver.example/hook",
        "https://elsewhere.example/hook",
    ]
    assert found["attempts"] == found["max_attempts"] == 2


async def test_attempt_and_replay_are_signed_with_current_secret(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt uses the Webhook's current url, secret and timeout (B-127)."""
    raw = "a passphrase as it is"
    secrets = [SECRET, f"whsec_{base64.b64encode(b'another key').decode()}", raw]
    receiver = ScriptedReceiver(["500", "200", "200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook(secret=secrets[0])
        [delivery] = await post.emit()
        await trio.sleep(10)
        await post.change(webhook, secret=secrets[1])
        await post.settled(delivery)
        await post.change(webhook, secret=secrets[2])
        await post.replay(delivery)
        await post.settled(delivery)
    assert len({got.body for got in receiver.posts}) == 1
    assert {got.headers["webhook-id"] for got in receiver.posts} == {delivery}
    for got, secret in zip(receiver.posts, secrets, strict=True):
        stamp = int(got.headers["webhook-timestamp"])
        # The package accepts base64 only.
        known = base64.b64encode(raw.encode()).decode() if secret == raw else secret
        verify_at(stamp, got.body, got.headers, monkeypatch, known)


async def test_attempt_uses_current_timeout_of_webhook(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt uses the current timeout (B-127); the wait is from its end (B-192)."""
    receiver = ScriptedReceiver(["timeout"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook(max_attempts=3, timeout=10)
        [delivery] = await post.emit()
        await trio.sleep(20)
        await post.change(webhook, timeout=60)
        await post.settled(delivery)
    assert receiver.times == [0, 10 + 30, 40 + 60 + 60]


async def test_webhook_renamed_during_attempt_keeps_outcome(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The outcome is stored under the Webhook's new name (B-30)."""
    receiver = ScriptedReceiver(["timeout", "200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(5)

        def rename(fw: Any) -> None:
            fw.get_doc("Webhook", webhook).rename("our receiver")

        await post.site.write("Administrator", rename)
        found = await post.settled(delivery)
    assert (found["webhook"], found["status"], found["attempts"]) == ("our receiver", "Sent", 2)
    assert receiver.times == [0, 10 + 30]


async def test_restart_between_attempts_keeps_retry_schedule(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The next attempt is a stored row, not a sleeping task, so it survives a restart."""
    receiver = ScriptedReceiver(["500", "200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(5)
    assert len(receiver.posts) == 1
    async with delivering(tmp_path, receiver, seed=2) as post:
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 2)


WAITS = [  # honoured, answer, seconds from the event to the second attempt
    (True, "503 after 90", 90),
    (True, "429 after 90", 90),
    (True, "503 after 10", 30),  # it never shortens a wait
    (True, "503 after 999999", 3600),
    (True, "503 after whenever", 30),
    (True, "500 after 90", 30),
    (False, "503 after 90", 30),
]


@pytest.mark.parametrize(("honoured", "answer", "second"), WAITS)
async def test_retry_after_lengthens_a_wait_where_it_is_honoured(
    honoured: bool, answer: str, second: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """`Retry-After` lengthens a wait where `ops.honourRetryAfter` is true (B-193, C-40)."""
    receiver = ScriptedReceiver([answer, "204"])
    async with delivering(tmp_path, receiver, honour_retry_after=honoured) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
    assert receiver.times == [0, second]
