"""The console's health of a receiver follows from the outcomes of its attempts (B-239)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from fw_actors.actors.dispatcher import receiver_health
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering


async def health(post: DeliverySite) -> dict[str, Any]:
    inspection = await post.runtime.ref("dispatcher").inspect()
    described: Any = inspection.described
    (receiver,) = described["receivers"]
    found: dict[str, Any] = receiver
    return found


@pytest.mark.parametrize("answer", ["503", "404", "refused", "timeout"])
async def test_receiver_with_consecutive_failures_is_failing(
    answer: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with delivering(tmp_path, ScriptedReceiver([answer])) as post:
        await post.webhook(max_attempts=1)
        errors = []
        for _ in range(4):
            [delivery] = await post.emit()
            errors.append((await post.settled(delivery))["error"])
        shown = await health(post)
    assert (shown["health"], shown["failures"]) == ("failing", 4)
    assert shown["last_error"] == errors[-1]
    assert shown["failing_since"] is not None


async def test_receiver_success_resets_failures(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with delivering(tmp_path, ScriptedReceiver(["503", "503", "503", "204"])) as post:
        await post.webhook()
        [delivery] = await post.emit()
        assert (await post.settled(delivery))["attempts"] == 4
        shown = await health(post)
    assert (shown["health"], shown["failures"], shown["last_error"]) == ("healthy", 0, "")
    assert shown["failing_since"] is None


async def test_receiver_health_ignores_internal_failures(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An internal defect is no failure of the receiver."""
    async with delivering(tmp_path, ScriptedReceiver(["defect"])) as post:
        await post.webhook(max_attempts=1)
        for _ in range(4):
            [delivery] = await post.emit()
            await post.settled(delivery)
        shown = await health(post)
    assert (shown["health"], shown["failures"]) == ("healthy", 0)


async def test_receiver_health_is_empty_while_dispatcher_does_not_answer(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Pages are shown without it."""
    async with delivering(tmp_path, ScriptedReceiver(["200"])) as post:
        dispatcher = post.runtime.ref("dispatcher")
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        assert await receiver_health(dispatcher, 1.0) == {"https://receiver.example:443": "healthy"}
    assert await receiver_health(dispatcher, 1.0) == {}
