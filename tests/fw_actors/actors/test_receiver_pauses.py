"""Pauses of receivers: kept over restarts, and in every process of a service (H-176)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.console import RequestHandler, ServiceConsole
from fw_actors.actors.dispatcher import Pause, Resume
from fw_actors.config import ProcessPlace
from fw_actors.errors import OverloadedError
from fw_actors.runtime.testing import restarted
from supervisors.service.control_channel import PeerAnswers
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver, delivering
from tests.fw_actors.virtual_site_kit import VirtualSite, site

__all__ = ["site"]

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
        self.hangs = False

    def register(self, what: str, handler: RequestHandler) -> None:
        """Do nothing: this process asks nothing."""

    async def gather(
        self, what: str, argument: object = None, *, to: int | None = None
    ) -> PeerAnswers:
        return PeerAnswers(unanswered=[2]) if self.hangs else PeerAnswers({2: True})


class AcceptingDispatcher:
    """A dispatcher that knows every receiver."""

    async def ask(self, message: Pause | Resume, *, deadline: float) -> bool:
        return True


def console_beside(site: VirtualSite, other: OtherProcess) -> ServiceConsole:
    nothing, dispatcher = cast("Any", None), cast("Any", AcceptingDispatcher())
    return ServiceConsole(site.site, nothing, dispatcher, nothing, other)


async def recorded(site: VirtualSite) -> list[str]:
    events = "SELECT action FROM doc_audit_event WHERE action LIKE 'console.%' ORDER BY row_id"
    return [action for (action,) in await site.sql(events)]


async def test_console_pause_reports_processes_that_did_not_answer(site: VirtualSite) -> None:
    """Otherwise the receiver would still get requests, and the operator would not know. What the
    others have done is recorded (O-89)."""
    other = OtherProcess()
    console = console_beside(site, other)
    await console.pause("Administrator", ORIGIN)
    other.hangs = True
    for act in (console.pause, console.resume):
        with pytest.raises(OverloadedError, match="These processes did not answer: 2"):
            await act("Administrator", ORIGIN)
    assert await recorded(site) == ["console.pause", "console.pause", "console.resume"]


async def test_console_pause_that_is_not_recorded_is_reported(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain error of a full store says that nothing was changed (O-89)."""

    async def full(*_given: object) -> None:
        raise OverloadedError

    console = console_beside(site, OtherProcess())
    with monkeypatch.context() as patched:
        patched.setattr(site.site.store, "write", full)
        with pytest.raises(OverloadedError, match="is paused, but the store could not record it"):
            await console.pause("Administrator", ORIGIN)
    assert await recorded(site) == []
