"""Time that does not go as it should (O-160, B-198)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.runtime import TrioClock
from tests.fw_actors.actors.delivery_kit import Receiver, delivering

HOUR_MS = 3_600_000


def jump(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Move the wall clock, as seen by everybody; trio's own time goes on."""
    right = TrioClock.now
    monkeypatch.setattr(TrioClock, "now", lambda clock: right(clock) + ms)


JUMPS = [  # ms, when the second attempt comes that was due after 30 s
    (0, 30),
    (HOUR_MS, 11),  # what is due is seen within a second, whatever the clock did
    (-1_000 * 5, 35),
    (-3 * HOUR_MS, 11),  # further away than any wait: due now
]


@pytest.mark.parametrize(("ms", "second"), JUMPS)
async def test_a_clock_that_jumps_costs_at_most_what_it_jumped(
    ms: int,
    second: int,
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waiting never trusts the wall clock for more than a second at a time (O-160)."""
    receiver = Receiver(["500", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        jump(monkeypatch, ms)
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 2)
    assert abs(receiver.times[1] - second) <= 1


async def test_an_hour_back_delays_a_retry_by_no_more_than_that_hour(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver(["500", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await trio.sleep(10)
        jump(monkeypatch, -HOUR_MS)
        await post.settled(delivery)
    assert abs(receiver.times[1] - 3630) <= 1


async def test_what_was_written_with_a_clock_far_ahead_is_due_at_the_next_start(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A next attempt further away than the cap and five minutes is due now, logged once (B-198)."""
    receiver = Receiver(["204"])
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
    receiver = Receiver(["204"])
    async with delivering(tmp_path, receiver, seed=2):
        await trio.sleep(2)
    assert len(receiver.posts) == 1


async def test_a_timeout_of_sixty_seconds_is_waited_for_and_counted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The timeout is 1 to 60 seconds (B-26)."""
    receiver = Receiver(["timeout", "204"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(timeout=60)
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (receiver.times, found["attempts"]) == ([0, 90], 2)
