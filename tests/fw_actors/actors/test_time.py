"""Deliveries under jumps of the wall clock (O-160, B-198)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.runtime import TrioClock
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver, delivering

HOUR_MS = 3_600_000


def jump(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Move the wall clock; trio's own time is unchanged."""
    right = TrioClock.now
    monkeypatch.setattr(TrioClock, "now", lambda clock: right(clock) + ms)


JUMPS = [  # ms, seconds until the second attempt, which was due after 30 s
    (0, 30),
    (HOUR_MS, 11),  # a due job is found within a second, independent of the clock
    (-1_000 * 5, 35),
    (-3 * HOUR_MS, 11),  # further away than any wait: due now
]


@pytest.mark.parametrize(("ms", "second"), JUMPS)
async def test_clock_jump_shifts_retry_by_its_length_at_most(
    ms: int,
    second: int,
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waiting never trusts the wall clock for more than a second at a time (O-160)."""
    receiver = ScriptedReceiver(["500", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        jump(monkeypatch, ms)
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 2)
    assert abs(receiver.times[1] - second) <= 1


async def test_backward_clock_jump_delays_retry_by_own_length(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = ScriptedReceiver(["500", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        jump(monkeypatch, -HOUR_MS)
        await post.settled(delivery)
    assert abs(receiver.times[1] - 3630) <= 1


async def test_job_scheduled_by_fast_clock_is_due_on_restart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A next attempt further away than the cap and five minutes is due now, logged once (B-198)."""
    receiver = ScriptedReceiver(["204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        await post.site.write(
            "Administrator",
            lambda fw: (
                fw.webhooks.emit("invoice.paid", {}),
                fw.db.sql("UPDATE fw_job SET next_at = next_at + 86400000000"),
            ),
        )
        await trio.sleep(30)
    assert receiver.times == []
    receiver = ScriptedReceiver(["204"])
    async with delivering(tmp_path, receiver, seed=2):
        await trio.sleep(2)
    assert len(receiver.posts) == 1


async def test_webhook_timeout_of_sixty_seconds_counts_as_attempt(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The timeout is 1 to 60 seconds (B-26)."""
    receiver = ScriptedReceiver(["timeout", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(timeout=60)
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (receiver.times, found["attempts"]) == ([0, 90], 2)
