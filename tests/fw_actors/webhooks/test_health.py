"""The state of Webhooks by their outcomes (B-240 to B-243)."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
import trio
from trio.testing import MockClock

from fw_actors.actors.sweeper import webhook_batches
from fw_actors.documents import rest
from fw_actors.rules.findings import ServiceState
from fw_actors.store.schema import WEBHOOK_HEALTH
from fw_actors.webhooks.health import (
    WebhookHealth,
    counts_by_hour,
    counts_of_a_day,
    drop_old_hours,
    failing_webhooks,
    health_of,
    label_of_webhook,
)
from tests.fw_actors.actors.delivery_kit import DeliverySite, delivering
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver as Receiver

pytestmark = pytest.mark.usefixtures("on_both_stores")
NO_NEWS = ServiceState(running=True)
HOUR = 3_600_000


async def health(post: DeliverySite, name: str, service: ServiceState = NO_NEWS) -> WebhookHealth:
    return await post.site.store.read(lambda tx: health_of(tx, [name], service)[name])


async def test_health_of_takes_any_number_of_webhooks(tmp_path: Path) -> None:
    """A statement may bind 65,535 values on PostgreSQL, and 32,766 on SQLite."""
    async with delivering(tmp_path, Receiver([])) as post:
        name = await post.webhook()
        names = [*(f"none-{number}" for number in range(66_000)), name]
        found = await post.site.store.read(lambda tx: health_of(tx, names, NO_NEWS))
        assert list(found) == [name]


async def age(post: DeliverySite, by: int) -> None:
    """Move the counts into the past by so many milliseconds."""
    await post.site.write(
        "Administrator",
        lambda fw: fw.db.sql("UPDATE fw_webhook_hour SET hour = hour - :by", {"by": by}),
    )


async def sent(post: DeliverySite, count: int) -> None:
    for _ in range(count):
        [delivery] = await post.emit()
        await post.settled(delivery)


async def test_webhook_health_is_failing_after_three_failures(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Three failures in a row count as failing, until a success (B-240)."""
    async with delivering(tmp_path, Receiver(["200", "503", "410", "404", "200"])) as post:
        name = await post.webhook()
        untried = await health(post, name)
        await sent(post, 1)
        working = await health(post, name)
        [delivery] = await post.emit()
        await trio.sleep(1)
        since = (await post.read(delivery))["last_attempt"]
        await sent(post, 1)
        early = await health(post, name)
        await trio.sleep(60)  # the retry of the first
        failing = await health(post, name)
        listed = await post.site.store.read(lambda tx: failing_webhooks(tx, NO_NEWS, 10))
        await sent(post, 1)
        mended = await health(post, name)
    assert [each.state for each in (untried, working, early, failing, mended)] == [
        "untried", "working", "working", "failing", "working",
    ]  # fmt: skip
    assert (failing.failures, failing.last_error) == (3, "status: the receiver answered 404.")
    assert failing.failing_since is not None
    assert since is not None
    assert [each.name for each in listed] == [name]
    assert (mended.failures, mended.failing_since) == (0, None)
    assert mended.last_success is not None


async def test_outcome_counts_are_kept_per_hour(tmp_path: Path, autojump_clock: MockClock) -> None:
    """There are counts of an hour, a day and a week, with the share of successes (B-241)."""
    async with delivering(tmp_path, Receiver(["200", "200", "410", "503", "200"])) as post:
        name = await post.webhook()
        await sent(post, 3)
        await age(post, 3 * HOUR)
        await sent(post, 1)
        of_it = await health(post, name)
        hours = await post.site.store.read(lambda tx: counts_by_hour(tx, name, 24))
        day = await post.site.store.read(counts_of_a_day)
        await age(post, 9 * 24 * HOUR)
        later = await health(post, name)
        dropped = await post.site.store.write(lambda tx: drop_old_hours(tx, 100))
        again = await post.site.store.write(lambda tx: drop_old_hours(tx, 100))
    assert of_it.hour == (1, 0, 1)
    assert of_it.day == of_it.week == day == (3, 1, 1)
    assert of_it.day.rate == 0.75
    assert [counts for _, counts in hours if any(counts)] == [(2, 1, 0), (1, 0, 1)]
    assert len(hours) == 24
    assert (later.week, later.week.rate) == ((0, 0, 0), None)
    assert (dropped, again) == (2, 0)


async def test_outcome_counts_of_later_hours_are_not_shown(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """They were written while the clock was ahead (B-241)."""
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        await sent(post, 1)
        await age(post, -2 * HOUR)
        of_it = await health(post, name)
        day = await post.site.store.read(counts_of_a_day)
    assert of_it.hour == of_it.week == day == (0, 0, 0)


async def test_webhook_health_counts_waiting_deliveries_and_oldest_event(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with delivering(tmp_path, Receiver(["503"])) as post:
        name = await post.webhook()
        began = post.site.clock.now()
        await post.emit()
        await trio.sleep(1)
        of_it = await health(post, name)
    assert (of_it.waiting, of_it.oldest) == (1, began)


async def test_webhook_health_shows_disabled_and_paused_state(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        await sent(post, 1)
        states = []
        for at in ("paused", "slow", "healthy"):
            service = ServiceState(running=True, health={"https://receiver.example:443": at})
            states.append((await health(post, name, service)).state)
        await post.change(name, enabled=0)
        off = await health(post, name)
    assert states == ["paused", "slow", "working"]
    assert off.state == "disabled"


async def test_webhook_health_is_disabled_while_its_receiver_is_paused(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Only the pause of a Webhook holds back the deliveries of a disabled one (B-240, B-301)."""
    paused = ServiceState(running=True, health={"https://receiver.example:443": "paused"})
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        await post.change(name, enabled=0)
        off = await health(post, name, paused)
    assert off.state == "disabled"


async def test_outcome_counts_follow_rename_and_end_with_webhook(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        await sent(post, 2)
        before = await health(post, name)
        await post.site.write(
            "Administrator", lambda fw: rest.rename(fw, "Webhook", name, {"name": "new"})
        )
        assert (await health(post, "new")).day == before.day == (2, 0, 0)
        await post.site.write("Administrator", lambda fw: fw.get_doc("Webhook", "new").delete())
        day = await post.site.store.read(counts_of_a_day)
    assert day == (0, 0, 0)


async def test_new_webhook_starts_without_counts_of_namesake(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The counts come from deliveries that outlived the deleted Webhook (B-242)."""
    async with delivering(tmp_path, Receiver(["503"])) as post:
        await post.webhook(name="erp")
        [delivery] = await post.emit()
        await trio.sleep(1)
        await post.site.write("Administrator", lambda fw: fw.get_doc("Webhook", "erp").delete())
        assert (await post.settled(delivery))["status"] == "Failed"
        await post.webhook(name="erp")
        again = await health(post, "erp")
    assert (again.state, again.failures, again.day) == ("untried", 0, (0, 0, 0))


async def test_count_sweep_drops_rows_of_deleted_webhooks(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A delivery that was in progress fails later, and counts again (B-242)."""
    async with delivering(tmp_path, Receiver(["503"])) as post:
        deleted, kept = await post.webhook(), await post.webhook()
        [delivery, other] = await post.emit()
        await trio.sleep(1)
        await post.site.write("Administrator", lambda fw: fw.get_doc("Webhook", deleted).delete())
        await post.settled(delivery)
        await post.settled(other)
        store, named = post.site.store, sa.select(WEBHOOK_HEALTH.c.webhook)
        before = await store.read(lambda tx: tx.rows(named))
        dropped = [
            sum([await store.write(step) for step in webhook_batches(0, 0)]) for _ in range(2)
        ]
        after = await store.read(lambda tx: tx.rows(named))
    assert sorted(before) == sorted([(deleted,), (kept,)])
    assert (dropped, after) == ([1, 0], [(kept,)])


@pytest.mark.parametrize(
    ("title", "url", "label"),
    [
        ("Billing", "https://x.test/a", "Billing"),
        (None, "https://x.test/a?token=1", "x.test/a"),
        ("", "no url", "no url"),
    ],
)
def test_label_of_webhook_is_title_or_url_without_query(
    title: str | None, url: str, label: str
) -> None:
    """The query, which may contain a token, is omitted (B-31)."""
    assert label_of_webhook(title, url) == label
