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

from tests.fw_actors.actors.delivery_kit import SECRET, Receiver, delivering

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


@pytest.mark.parametrize(("answer", "tries", "status", "times"), ROWS)
async def test_the_answer_decides_status_and_tries(
    answer: str,
    tries: int,
    status: str,
    times: list[int],
    tmp_path: Path,
    autojump_clock: MockClock,
) -> None:
    """Each row of the table that ends an attempt, with all its tries."""
    receiver = Receiver([answer])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(max_attempts=tries)
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], receiver.times, found["attempts"]) == (status, times, len(times))
    assert found["next_attempt"] is None


async def test_one_that_recovers_at_the_third_attempt_is_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Queued or Retrying, receiver answers 2xx → Sent; the error of before is gone."""
    receiver = Receiver(["503", "timeout", "200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        found = await post.settled(delivery)
        queue = await post.jobs()
    assert (found["status"], found["attempts"], found["error"]) == ("Sent", 3, None)
    assert (found["response_status"], found["response_body"]) == (200, "what the receiver said")
    assert queue == []


async def test_each_retry_goes_out_at_the_instant_it_is_due(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The waits hold for deliveries of one Webhook that come due a moment apart, too (B-190)."""
    receiver = Receiver(["503"] * 4 + ["200"])
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


async def test_a_wait_of_less_than_a_second_is_kept_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Fractions of a wait from 0.1 are allowed (B-191), counted from the attempt's end (B-192)."""
    receiver = Receiver(["503"] * 5 + ["200"])
    async with delivering(tmp_path, receiver, backoff_seconds=0.1, backoff_cap_seconds=0.7) as post:
        await post.webhook()
        await trio.sleep(10.35)  # so that no look of each second is due just then
        receiver.began = trio.current_time()
        [delivery] = await post.emit()
        assert (await post.settled(delivery))["attempts"] == 6
    assert [round(got.at, 2) for got in receiver.posts] == [0.0, 0.1, 0.3, 0.7, 1.4, 2.1]


async def test_every_attempt_sends_the_same_bytes_with_a_signature_of_its_own_time(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """webhook-id and body stay; webhook-timestamp is that of the attempt."""
    receiver = Receiver(["500", "500", "204"])
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


async def test_a_webhook_that_is_disabled_meanwhile_fails_its_delivery_without_sending(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Queued or Retrying, webhook disabled → Failed, nothing sent."""
    receiver = Receiver(["500"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        await post.change(webhook, enabled=0)
        found = await post.settled(delivery)
    assert found["status"] == "Failed"
    assert found["error"].startswith("disabled:")
    assert len(receiver.posts) == 1


async def test_a_webhook_that_is_deleted_meanwhile_fails_its_delivery_without_sending(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Queued or Retrying, webhook deleted → Failed, nothing sent."""
    receiver = Receiver(["500"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        await post.site.write("Administrator", lambda fw: fw.get_doc("Webhook", webhook).delete())
        found = await post.settled(delivery)
    assert found["status"] == "Failed"
    assert found["error"].startswith("deleted:")
    assert len(receiver.posts) == 1


async def test_a_secret_that_another_key_sealed_fails_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """signing secret undecryptable (key changed since saved) → Failed, immediately, no retries."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
    async with delivering(tmp_path, receiver, seed=2, secrets={"key": "another key"}) as post:
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], receiver.posts) == ("Failed", [])
    assert found["error"].startswith("secret_unreadable:")


async def test_a_final_failure_is_a_warning_in_the_log(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """FW_LOG_LEVEL=warning hides neither a failure for good, nor shows the tries before (O-107)."""
    kept = LogCapture()
    log = structlog.wrap_logger(None, processors=[kept])
    async with delivering(tmp_path, Receiver(["500", "410"]), log=log) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
    ended = [entry for entry in kept.entries if entry["event"] == "delivery.ended"]
    assert [(entry["log_level"], entry["status"]) for entry in ended] == [
        ("info", "Retrying"), ("warning", "Failed"),
    ]  # fmt: skip


async def test_a_secret_that_is_gone_from_the_store_fails_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """signing secret missing → Failed, immediately, no retries."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        await post.site.write(
            "Administrator", lambda fw: fw.db.sql("UPDATE doc_webhook SET secret = NULL")
        )
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], receiver.posts) == ("Failed", [])
    assert found["error"].startswith("secret_missing:")


async def test_a_webhook_whose_url_raw_sql_emptied_fails_its_own_deliveries_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Raw SQL is not checked (A-317); an attempt that raises inside us ends as `internal`
    (B-174)."""
    receiver = Receiver(["200"])
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
        None, "internal: the webhook's url can't be sent to.",
    }  # fmt: skip


async def test_each_attempt_uses_the_url_of_its_moment_and_the_max_attempts_of_the_event(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Url, secret and timeout are those of the moment; `max_attempts` is the delivery's own
    (B-127)."""
    receiver = Receiver(["500"])
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


async def test_each_attempt_and_replay_is_signed_with_the_secret_of_its_moment(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt uses the Webhook's url, secret and timeout of that moment (B-127)."""
    raw = "a passphrase as it is"
    secrets = [SECRET, f"whsec_{base64.b64encode(b'another key').decode()}", raw]
    receiver = Receiver(["500", "200", "200"])
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
        # The package takes base64 alone.
        known = base64.b64encode(raw.encode()).decode() if secret == raw else secret
        verify_at(stamp, got.body, got.headers, monkeypatch, known)


async def test_each_attempt_has_the_timeout_of_its_moment(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The timeout is that of the moment (B-127); the wait is from an attempt's end (B-192)."""
    receiver = Receiver(["timeout"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook(max_attempts=3, timeout=10)
        [delivery] = await post.emit()
        await trio.sleep(20)
        await post.change(webhook, timeout=60)
        await post.settled(delivery)
    assert receiver.times == [0, 10 + 30, 40 + 60 + 60]


async def test_a_webhook_that_is_renamed_during_an_attempt_takes_its_outcome_along(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt's end decides; its delivery goes by the Webhook's new name (B-30)."""
    receiver = Receiver(["timeout", "200"])
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


async def test_a_stop_and_start_between_attempts_changes_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The next attempt is a row, not a sleeping task: it comes when it is due, after a restart."""
    receiver = Receiver(["500", "200"])
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
    """`Retry-After` lengthens a wait where `ops.honourRetryAfter` is true (B-193)."""
    receiver = Receiver([answer, "204"])
    async with delivering(tmp_path, receiver, honour_retry_after=honoured) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
    assert receiver.times == [0, second]
