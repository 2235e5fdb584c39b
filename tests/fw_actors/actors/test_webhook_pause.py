"""A paused Webhook sends nothing, and continues as if no time had passed (B-300 to B-302)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering


async def pause(post: DeliverySite, webhook: str, seconds: int | None = None) -> None:
    pauses = post.site.pauses
    await post.site.write("Administrator", lambda fw: pauses.pause(fw, webhook, seconds))


async def resume(post: DeliverySite, webhook: str) -> None:
    await post.site.write("Administrator", lambda fw: post.site.pauses.resume(fw, webhook))


@pytest.mark.usefixtures("on_both_stores")
async def test_paused_webhook_keeps_due_deliveries_in_order(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    receiver = ScriptedReceiver(["503", "200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [first] = await post.emit()
        await trio.sleep(1)
        await pause(post, webhook)
        await post.webhook("https://other.example/hook", event="other.event")
        [second] = await post.emit()
        [other] = await post.emit("other.event")
        assert (await post.settled(other))["status"] == "Sent"  # other Webhooks are not paused
        await trio.sleep(600)
        assert [each.url for each in receiver.posts].count("https://receiver.example/hook") == 1
        waiting = await post.read(first)
        assert (waiting["status"], waiting["attempts"]) == ("Retrying", 1)
        before = trio.current_time()
        await resume(post, webhook)
        assert (await post.settled(first))["attempts"] == 2
        assert (await post.settled(second))["attempts"] == 1
        assert trio.current_time() - before <= 2
        sent = [each.headers["webhook-id"] for each in receiver.posts]
    assert sent == [first, other, first, second]


async def test_resume_of_webhook_wakes_dispatcher(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """What waits is claimed at once, and not by the poll of the next second."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        await pause(post, webhook)
        [delivery] = await post.emit()
        await trio.sleep(10.5)
        resumed = trio.current_time() - receiver.began
        await resume(post, webhook)
        await post.settled(delivery)
    assert receiver.posts[0].at == pytest.approx(resumed, abs=0.1)


async def test_webhook_pause_ends_by_itself(tmp_path: Path, autojump_clock: MockClock) -> None:
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await pause(post, await post.webhook(), 60)
        [delivery] = await post.emit()
        await post.settled(delivery)
    assert 60 <= receiver.posts[0].at <= 61


async def test_replay_waits_while_webhook_is_paused(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        await pause(post, webhook, 30)
        await post.replay(delivery)
        await post.settled(delivery)
    assert [round(each.at) >= 30 for each in receiver.posts] == [False, True]
