"""A lease keeps a delivery from being lost (B-212, B-211, B-213)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from fw_actors.actors.delivery import Attempt
from fw_actors.errors import OverloadedError
from fw_actors.http import Endpoint, ReceiverResponse, parse_endpoint
from fw_actors.http.exchange import MakeHeaders
from fw_actors.rules.findings import ServiceState
from fw_actors.store import Tx, jobs
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.diagnostics import delivery_report
from tests.fw_actors.actors.delivery_kit import URL, DeliverySite, ScriptedReceiver, delivering
from tests.mail_kit import RecordingLog

pytestmark = pytest.mark.usefixtures("on_both_stores")

LEASE_SECONDS = 40  # timeout 10 and 30 more
ELSEWHERE = "https://elsewhere.example/hook"


async def steal(post: DeliverySite) -> None:
    """Let another process take over the lease, as if ours had expired."""

    def work(tx: Tx) -> None:
        tx.raw("UPDATE fw_job SET lease = 'another'")

    await post.site.store.write(work)


async def emit_unseen(post: DeliverySite, deaths: int = 0) -> list[str]:
    """Emit and lease the job to a dead worker in one transaction, before the Dispatcher can."""

    def work(tx: Tx) -> list[str]:
        fw = post.site.handle(tx, "Administrator")
        made = fw.webhooks.emit("invoice.paid", {"total": 12})["deliveries"]
        [head] = jobs.heads(tx, "webhook")
        jobs.claim(tx, "webhook", head.partition, 1, LEASE_SECONDS * 1000, "dead")
        tx.raw("UPDATE fw_job SET deaths = :deaths", {"deaths": deaths})
        return made

    return await post.site.store.write(work)


async def test_delivery_of_dead_worker_is_sent_at_lease_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A dying worker leaves a lease that expires; the next worker claims the delivery."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(max_attempts=1)
        [delivery] = await emit_unseen(post)
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 1)  # the death is not counted
    assert receiver.times == [LEASE_SECONDS]


@pytest.mark.parametrize(
    ("deaths_before", "posts", "error"), [(4, 1, None), (5, 1, "worker_lost:")]
)
async def test_worker_deaths_beyond_five_count_as_failed_attempt(
    deaths_before: int,
    posts: int,
    error: str | None,
    tmp_path: Path,
    autojump_clock: MockClock,
) -> None:
    """A delivery can neither be lost nor loop (B-195); a counted one is retried as usual
    (B-196)."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(max_attempts=2)
        [delivery] = await emit_unseen(post, deaths_before)
        await trio.sleep(LEASE_SECONDS + 2)
        seen = await post.read(delivery)
        found = await post.settled(delivery)
    assert (seen["error"] or "").startswith(error or "")
    assert found["status"] == "Sent"
    assert found["attempts"] == (1 if error is None else 2)
    assert len(receiver.posts) == posts


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("DELETE FROM doc_webhook", "deleted:"),
        ("UPDATE doc_webhook SET enabled = 0", "disabled:"),
        ("UPDATE doc_webhook SET secret = NULL", "secret_missing:"),
    ],
)
async def test_unsendable_delivery_fails_at_once_despite_worker_deaths(
    change: str, error: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Without a Webhook or a secret the attempt is the last one (B-166, B-167), even after more
    deaths than B-195 allows."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(max_attempts=2)
        [delivery] = await emit_unseen(post, deaths=5)
        await post.site.store.write(lambda tx: tx.raw(change))
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"], receiver.posts) == ("Failed", 1, [])
    assert found["error"].startswith(error)


async def test_outcome_of_lost_lease_changes_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Every outcome is written on condition of the lease's token (B-211)."""
    receiver = ScriptedReceiver(["200"], busy=5)
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(1)
        await steal(post)
        await trio.sleep(10)
        found = await post.read(delivery)
        [job] = await post.jobs()
    assert (found["status"], found["attempts"]) == ("Queued", 0)
    assert job["lease"] == "another"


async def test_outcome_unwritable_until_lease_end_is_logged_and_sent_again(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is retried for as long as the lease lasts (B-216), then dropped and logged."""
    receiver, kept = ScriptedReceiver(["200"], busy=5), LogCapture()
    log = structlog.wrap_logger(None, processors=[kept])

    async def refuse(*args: object, **options: object) -> None:
        raise OverloadedError

    async with delivering(tmp_path, receiver, log=log) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(1)
        with monkeypatch.context() as full:
            full.setattr(post.site.store, "write", refuse)
            await trio.sleep(LEASE_SECONDS)
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"], len(receiver.posts)) == ("Sent", 1, 2)
    assert LEASE_SECONDS <= receiver.posts[1].at <= LEASE_SECONDS + 2
    [lost] = [entry for entry in kept.entries if entry["event"] == "delivery.outcome_lost"]
    assert (lost["delivery"], lost["log_level"]) == (delivery, "error")
    assert lost["error"].startswith("OverloadedError")


async def test_attempt_after_expired_lease_is_recorded_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt that outlives its lease, as after a jump of the clock, delays the next one; that
    one sends nothing here, and has no request of its predecessor on record (B-186)."""
    receiver = ScriptedReceiver(["200"], busy=5)
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(1)
        await post.change(webhook, enabled=0)
        await post.site.store.write(lambda tx: tx.raw("UPDATE fw_job SET next_at = 1"))
        found = await post.settled(delivery)
        report = await post.site.read("Administrator", lambda fw: delivery_report(fw, delivery))
        document = report.as_json(ServiceState(running=True))
    assert (found["status"], found["attempts"], len(receiver.posts)) == ("Failed", 1, 1)
    assert found["error"].startswith("disabled:")
    assert [each["request"] for each in document["recorded"]] == [None]


async def test_stop_waits_for_attempt_in_flight(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Attempts in flight have at most 10 s (O-31)."""
    receiver = ScriptedReceiver(["200"], busy=8)
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(1)
    async with delivering(tmp_path, receiver, seed=2) as post:
        found = await post.read(delivery)
    assert (found["status"], found["attempts"], len(receiver.posts)) == ("Sent", 1, 1)


async def test_stop_returns_cancelled_attempts_to_queue(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """After the 10 s attempts are cancelled, not counted, and given back (O-31)."""
    receiver = ScriptedReceiver(["hang", "200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(timeout=60)
        [delivery] = await post.emit()
        await trio.sleep(1)
        began = trio.current_time()
    assert trio.current_time() - began < 15
    assert receiver.in_flight == 0
    async with delivering(tmp_path, receiver, seed=2) as post:
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 1)
    assert receiver.times[1:] == [0]  # at once, not after a lease


async def test_stop_logs_lease_that_store_cannot_release(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operating.md: the delivery is sent again when its lease ends."""

    def overloaded(*_: Any) -> None:
        raise OverloadedError

    receiver, log = ScriptedReceiver(["hang", "200"]), RecordingLog()
    async with delivering(tmp_path, receiver, log=log) as post:
        await post.webhook(timeout=60)
        [delivery] = await post.emit()
        await trio.sleep(1)
        monkeypatch.setattr(Deliveries, "release", overloaded)
    assert log.of("delivery.release_failed") == [{"delivery": delivery}]
    async with delivering(tmp_path, receiver, seed=2) as post:
        assert (await post.settled(delivery))["status"] == "Sent"
        assert receiver.times[1] > 60


async def test_concurrent_dispatchers_send_events_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Two Dispatchers claim from one queue; a lease belongs to one process."""
    first, second = ScriptedReceiver(["200"], busy=0.1), ScriptedReceiver(["200"], busy=0.1)
    async with (
        delivering(tmp_path, first) as post,
        delivering(tmp_path, second, seed=2),
    ):
        await post.webhook()
        made = [(await post.emit())[0] for _ in range(50)]
        for delivery in made:
            assert (await post.settled(delivery))["status"] == "Sent"
    sent = [got.headers["webhook-id"] for got in first.posts + second.posts]
    assert sorted(sent) == sorted(made)


class SlowConnectionReceiver(ScriptedReceiver):
    """Its first connection is ready only after the end of the lease."""

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        if trio.current_time() - self.began < LEASE_SECONDS:
            await trio.sleep(LEASE_SECONDS)
        return await super().post(target, body, make_headers, timeout=timeout)


async def test_attempt_sends_nothing_beyond_end_of_lease(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Nothing is sent after the end of the lease (B-213); the next holder sends the delivery, and
    the only slot is free again."""
    receiver = SlowConnectionReceiver(["200"])
    async with delivering(tmp_path, receiver, delivery_concurrency=1) as post:
        await post.webhook()
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 1)
    assert len(receiver.posts) == 1


@pytest.mark.parametrize(("waited", "sent_to"), [(30, URL), (31, ELSEWHERE)])
async def test_attempt_with_too_short_lease_is_returned_to_queue(
    waited: int, sent_to: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A lease lasts `timeout` + 30 s; an attempt that begins too late could outlive it (B-213)."""
    receiver, kept = ScriptedReceiver(["200"]), LogCapture()
    log = structlog.wrap_logger(None, processors=[kept])
    async with delivering(tmp_path, receiver, log=log) as post:
        webhook = await post.webhook(timeout=10)
        due = await post.lease()
        await post.change(webhook, url=ELSEWHERE)  # the target of later leases
        await trio.sleep(waited)
        post.pool[due.delivery].tell(Attempt(due, parse_endpoint(URL)))
        found = await post.settled(due.delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 1)
    assert [got.url for got in receiver.posts] == [sent_to]
    assert receiver.posts[0].at - waited < 0.1  # returned and claimed at once
    expired = [
        entry["delivery"] for entry in kept.entries if entry["event"] == "delivery.lease_expired"
    ]
    assert expired == ([due.delivery] if sent_to == ELSEWHERE else [])
