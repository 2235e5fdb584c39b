"""The console's screen over a view that it is given; with a service: test_console.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import DataTable, Static

from fw_cli import console_screen
from fw_cli.console_client import ConsoleClient
from fw_cli.console_rows import BOARDS
from fw_cli.console_screen import ConsoleScreen
from fw_cli.errors import CommandFailed

SECONDS = 60.0
STORE: dict[str, list[Any]] = {
    "queues": [],
    "locks": [],
    "inFlight": [],
    "upcoming": [],
    "failed": [],
}
VIEW: dict[str, Any] = {
    "number": 1, "rates": {}, "inFlight": 0, "tree": [], "receivers": [], "store": STORE,
    "lastDeadLetters": [], "traces": [],
}  # fmt: skip


async def shown(view: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What each board shows of a view: its rows' cells, or else its sentence."""
    seen = asyncio.Event()

    async def ask(_client: ConsoleClient, _do: str, **_arguments: object) -> Any:
        if seen.is_set():
            await asyncio.Event().wait()
        seen.set()
        return {"view": view}

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    screen = ConsoleScreen(Path("none"))
    async with screen.run_test(size=(120, 40)) as pilot, asyncio.timeout(SECONDS):
        await seen.wait()
        await pilot.pause()
        boards: dict[str, list[str]] = {}
        for board in BOARDS:
            table: DataTable[Any] = screen.query_one(f"#{board.id}", DataTable)
            rows = [table.get_row_at(n) for n in range(table.row_count)]
            sentence = screen.query_one(f"#no-{board.id}", Static)
            said = [str(sentence.content)] if sentence.display else []
            boards[board.id] = [cell.plain for row in rows for cell in row] + said
    return boards


def test_what_others_say_is_shown_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver chooses the Location that a failure names: it is no markup, and no escape."""
    failed = {
        "delivery": "msg_1", "event": "e", "webhook": "w", "at": 0,
        "error": "status: the receiver leads to https://x.test/[/b][red]\x1b[2J",
    }  # fmt: skip
    receiver = {
        "health": "failing", "inFlight": 0, "window": 1, "limit": 16, "failures": 3,
        "failingSince": 0, "lastError": "status: [b]\x1b[2J",
    }  # fmt: skip
    view = VIEW | {
        "receivers": [{"origin": "http://[::1]:9", **receiver}],
        "store": STORE | {"failed": [failed]},
    }
    boards = asyncio.run(shown(view, monkeypatch))
    assert boards["receivers"][0] == "http://[::1]:9"
    assert boards["receivers"][1] == "failing"
    assert boards["receivers"][-1].endswith(": status: [b]\\u001b[2J")
    assert boards["failed"][-1] == (
        "status: the receiver leads to https://x.test/[/b][red]\\u001b[2J"
    )


def test_an_empty_board_says_what_that_means(monkeypatch: pytest.MonkeyPatch) -> None:
    boards = asyncio.run(shown(VIEW, monkeypatch))
    assert boards == {board.id: [board.nothing] for board in BOARDS}


async def _gone_and_back(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What the screen says while the service restarts, and after it."""
    gone, back, seen = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ask(_client: ConsoleClient, _do: str, **_arguments: object) -> Any:
        if not back.is_set():
            gone.set()
            raise CommandFailed("the service is not running")
        if seen.is_set():
            await asyncio.Event().wait()
        seen.set()
        return {"view": VIEW}

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    monkeypatch.setattr(console_screen, "RETRY_SECONDS", 0.01)
    screen = ConsoleScreen(Path("none"))
    async with screen.run_test(size=(120, 40)) as pilot, asyncio.timeout(SECONDS):
        await gone.wait()
        await pilot.pause()
        meanwhile = screen.sub_title
        back.set()
        await seen.wait()
        await pilot.pause()
        return meanwhile, screen.sub_title


def test_the_console_waits_for_a_service_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment one watches for."""
    assert asyncio.run(_gone_and_back(monkeypatch)) == (console_screen.NOT_THERE, "")


async def _pressed(key: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    async def ask(_client: ConsoleClient, _do: str, **_arguments: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    screen = ConsoleScreen(Path("none"))
    said: list[str] = []
    monkeypatch.setattr(screen, "notify", lambda text, **_how: said.append(text))
    async with screen.run_test(size=(120, 40)) as pilot, asyncio.timeout(SECONDS):
        await pilot.press(key)
        await pilot.pause()
    return said


@pytest.mark.parametrize(("key", "tab"), [("p", "Receivers"), ("u", "Lockouts"), ("s", "Failed")])
def test_a_key_that_does_not_apply_says_where_it_does(
    key: str, tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = asyncio.run(_pressed(key, monkeypatch))
    assert said == [f"{key} applies to a row of the tab {tab}."]
