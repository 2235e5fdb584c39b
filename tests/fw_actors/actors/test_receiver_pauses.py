"""Pauses of receivers: kept over restarts, and in every process of a service (H-176)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.console import Answer, Console, ServiceConsole
from fw_actors.actors.dispatcher import Pause, Resume
from fw_actors.config import ProcessPlace
from fw_actors.errors import OverloadedError
from fw_actors.runtime.testing import restarted
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver, delivering

ORIGIN = "https://hook.example:443"


async def test_dispatcher_restart_keeps_pauses(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Neither is a pause forgotten, nor one that was ended remembered."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook("https://hook.example/")
        dispatcher = post.runtime.ref("dispatcher")
        for message, sent in ((Pause(ORIGIN, known_elsewhere=True), 0), (Resume(ORIGIN), 2)):
            assert await dispatcher.ask(message, deadline=5.0)
            async with restarted(dispatcher):
                dispatcher.stop(trio.current_time() + 5.0)
            await post.emit()
            await trio.sleep(30)
            assert len(receiver.posts) == sent


class OtherProcess:
    """The other process of two, which may leave requests unanswered."""

    def __init__(self) -> None:
        self.place = ProcessPlace(1, 2)
        self.restarts: Mapping[int, int] = {}
        self.unanswered: Sequence[int] = ()
        self.hangs = False

    def answers(self, what: str, answer: Answer) -> None:
        """Do nothing: this process asks nothing."""

    async def gather(
        self, what: str, argument: object = None, *, to: int | None = None
    ) -> Mapping[int, Any]:
        self.unanswered = [2] if self.hangs else []
        return {} if self.hangs else {2: True}


async def test_console_pause_reports_processes_that_did_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the receiver would still get requests, and the operator would not know."""
    monkeypatch.setattr(Console, "__init__", lambda *_: None)

    async def known(self: Console, message: Pause | Resume) -> bool:
        return True

    monkeypatch.setattr(Console, "set_paused", known)
    other, nothing = OtherProcess(), cast("Any", None)
    console = ServiceConsole(nothing, nothing, nothing, nothing, other)
    assert await console.set_paused(Pause(ORIGIN))
    other.hangs = True
    for message in (Pause(ORIGIN), Resume(ORIGIN)):
        with pytest.raises(OverloadedError, match="These processes did not answer: 2"):
            await console.set_paused(message)
