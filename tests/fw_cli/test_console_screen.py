"""The console's screen over a view that it is given (O-228); with a service: test_console.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent

from fw_actors.runtime.clock import MS_PER_DAY
from fw_cli import console_screen
from fw_cli.console_client import ConsoleClient
from fw_cli.console_rows import TABS
from fw_cli.console_screen import KEYS, ConsoleScreen
from fw_cli.errors import CommandFailed

SECONDS = 60.0
STORE: dict[str, list[Any]] = {
    "queues": [],
    "locks": [],
    "inFlight": [],
    "upcoming": [],
    "failed": [],
    "failures": [],
    "jobs": [],
    "senders": [],
}
VIEW: dict[str, Any] = {
    "number": 1, "at": 0, "rates": {}, "inFlight": 0, "tree": [], "receivers": [], "store": STORE,
    "lastDeadLetters": [], "traces": [], "processes": [],
}  # fmt: skip
NODE: dict[str, Any] = {
    "kind": "actor", "state": "running", "level": 1, "depth": 0, "capacity": 64, "alive": 1,
    "rate": 0.5, "handled": 7, "failed": 0, "restarts": 0, "lastError": "",
}  # fmt: skip


async def shown(view: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return what each tab shows: its rows' cells, or its sentence if empty."""
    seen = asyncio.Event()

    async def ask(_client: ConsoleClient, do: str, **_arguments: object) -> Any:
        if do == "history":
            return {"history": []}
        if seen.is_set():
            await asyncio.Event().wait()
        seen.set()
        return {"view": view}

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    screen = ConsoleScreen(Path("none"))
    async with screen.run_test(size=(120, 40)) as pilot, asyncio.timeout(SECONDS):
        await seen.wait()
        await pilot.pause()
        tabs: dict[str, list[str]] = {}
        for tab in TABS:
            table: DataTable[Any] = screen.query_one(f"#{tab.id}", DataTable)
            rows = [table.get_row_at(n) for n in range(table.row_count)]
            sentence = screen.query_one(f"#no-{tab.id}", Static)
            said = [str(sentence.content)] if sentence.display else []
            tabs[tab.id] = [cell.plain for row in rows for cell in row] + said
    return tabs


def test_receiver_text_is_shown_without_markup_or_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver chooses the Location that a failure contains."""
    failed = {
        "delivery": "msg_1", "event": "e", "webhook": "w", "at": 0,
        "error": "status: the receiver leads to https://x.test/[/b][red]\x1b[2J",
    }  # fmt: skip
    receiver = {
        "health": "failing", "inFlight": 0, "window": 1, "limit": 16, "failures": 3,
        "failingSince": 0, "lastError": "status: [b]\x1b[2J", "waiting": 2, "moreWait": False,
    }  # fmt: skip
    view = VIEW | {
        "receivers": [{"origin": "http://[::1]:9", **receiver}],
        "store": STORE | {"failed": [failed]},
    }
    tabs = asyncio.run(shown(view, monkeypatch))
    assert tabs["receivers"][0] == "http://[::1]:9"
    assert tabs["receivers"][1] == "failing"
    assert tabs["receivers"][2] == "2"
    assert tabs["receivers"][3].endswith(": status: [b]\\u001b[2J")
    assert tabs["failed"][-1] == (
        "status: the receiver leads to https://x.test/[/b][red]\\u001b[2J"
    )


def test_time_of_another_day_is_shown_with_its_day() -> None:
    """A receiver may fail, and an identifier be locked, for days (O-226)."""
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).astimezone()
    now = round(noon.timestamp() * 1000)
    lock = {"key": "k", "identifier": "ann", "account": "ann"}
    locks = [{**lock, "until": now + 1000}, {**lock, "until": now + 2 * MS_PER_DAY}]
    view = VIEW | {"at": now, "store": STORE | {"locks": locks}}
    tab = next(tab for tab in TABS if tab.id == "locks")
    assert [cells[-1] for _, cells in tab.rows(view)] == [
        f"{noon + timedelta(seconds=1):%H:%M:%S}",
        f"{noon + timedelta(days=2):%Y-%m-%d %H:%M:%S}",
    ]


def test_causes_of_webhooks_with_spaces_have_rows_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repeated key would end the console."""
    groups = [
        {
            "webhook": webhook,
            "label": webhook,
            "error": error,
            "deliveries": 1,
            "first": 0,
            "last": 0,
        }
        for webhook, error in (("erp", "HTTP 500"), ("erp HTTP", "500"))
    ]
    rows = asyncio.run(shown(VIEW | {"store": STORE | {"failures": groups}}, monkeypatch))["causes"]
    assert (rows[:2], rows[5:7]) == (["erp", "HTTP 500"], ["erp HTTP", "500"])


def test_empty_board_shows_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    tabs = asyncio.run(shown(VIEW, monkeypatch))
    assert tabs == {tab.id: [tab.nothing] for tab in TABS}


def test_view_received_during_quit_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The widgets are already removed: using them would print a traceback in the terminal."""
    quitting, shown = asyncio.Event(), asyncio.Event()

    async def ask(_client: ConsoleClient, do: str, **_arguments: object) -> Any:
        if do == "history":
            return {"history": []}
        if shown.is_set():
            await quitting.wait()
        shown.set()
        return {"view": VIEW}

    async def on_unmount(_widget: Widget) -> None:
        quitting.set()
        await asyncio.sleep(0.05)  # the view comes now

    async def use() -> None:
        async with ConsoleScreen(Path("none")).run_test(), asyncio.timeout(SECONDS):
            await shown.wait()

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    monkeypatch.setattr(Footer, "on_unmount", on_unmount, raising=False)
    asyncio.run(use())


async def _gone_and_back(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the screen's messages while the service restarts, and after it."""
    gone, back, seen = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ask(_client: ConsoleClient, do: str, **_arguments: object) -> Any:
        if not back.is_set():
            gone.set()
            raise CommandFailed("the service is not running")
        if do == "history":
            return {"history": []}
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


def test_console_reconnects_after_service_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen stays open without a service and continues after its restart."""
    assert asyncio.run(_gone_and_back(monkeypatch)) == (console_screen.NO_ANSWER_TITLE, "")


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


@pytest.mark.parametrize(
    ("key", "tab"),
    [("p", "Receivers"), ("u", "Lockouts"), ("s", "Failed"), ("e", "Jobs"), ("x", "Jobs")],
)
def test_inapplicable_key_names_its_tab(
    key: str, tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = asyncio.run(_pressed(key, monkeypatch))
    assert said == [f"{key} applies to a row of the tab {tab}."]


async def _asked(keys: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Press keys on the last row of the tree of a service of two processes."""
    nodes = [
        NODE | {"path": f"/process {n}{path}", "name": name, "kind": kind}
        for n in (1, 2)
        for path, name, kind in (
            ("", f"process {n}", "process"),
            ("/mailer", f"mailer@{n}", "actor"),
        )
    ]
    seen, done = asyncio.Event(), []

    async def ask(_client: ConsoleClient, do: str, **arguments: object) -> Any:
        if do == "history":
            return {"history": []}
        if do != "view":
            done.append((do, arguments["name"]))
        elif seen.is_set():
            await asyncio.Event().wait()
        seen.set()
        return {"view": VIEW | {"tree": nodes}}

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    screen = ConsoleScreen(Path("none"))
    async with screen.run_test(size=(120, 40)) as pilot, asyncio.timeout(SECONDS):
        await seen.wait()
        await pilot.pause()
        screen.query_one("#tree", DataTable).move_cursor(row=3)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        while not done:
            await pilot.pause(0.02)
    return done


@pytest.mark.parametrize(("keys", "act"), [("t", "trace"), ("ry", "restart")])
def test_keys_act_on_actor_of_selected_process(
    keys: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actors of several processes are named with their process (H-176)."""
    assert asyncio.run(_asked(keys, monkeypatch)) == [(act, "mailer@2")]


@asynccontextmanager
async def screen_of(
    view: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    history: Sequence[Any] = (),
    acts: list[tuple[str, Any]] | None = None,
) -> AsyncIterator[tuple[ConsoleScreen, Pilot[None]]]:
    """A screen of 80x24 that has shown a view; what it asks of the service is added to `acts`."""
    seen = asyncio.Event()

    async def ask(_client: ConsoleClient, do: str, **arguments: object) -> Any:
        if do == "history":
            return {"history": history}
        if do != "view" and acts is not None:
            acts.append((do, arguments["name"]))
            return {}
        if seen.is_set():
            await asyncio.Event().wait()
        seen.set()
        return {"view": view}

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    screen = ConsoleScreen(Path("none"))
    async with screen.run_test(size=(80, 24)) as pilot, asyncio.timeout(SECONDS):
        await seen.wait()
        await pilot.pause()
        yield screen, pilot


def test_keys_act_on_selected_job_and_cancel_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """O-221: a cancelled job never runs, so that a slip of the key must not be enough."""
    job = {
        "state": "failed", "function": "f", "subject": None, "due": None, "attempts": 10,
        "error": "", "user": "ann",
    }  # fmt: skip
    view = VIEW | {"store": STORE | {"jobs": [job | {"id": number} for number in (7, 8)]}}
    acts: list[tuple[str, Any]] = []

    async def story() -> None:
        async with screen_of(view, monkeypatch, acts=acts) as (screen, pilot):
            screen.query_one(TabbedContent).active = "tab-jobs"
            await pilot.pause()
            screen.query_one("#jobs", DataTable).move_cursor(row=1)
            for key in "exnxy":
                await pilot.press(key)
                await pilot.pause()

    asyncio.run(story())
    assert acts == [("retryJob", "8"), ("cancelJob", "8")]


def test_console_row_follows_service_under_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with new numbers is updated in place, and the cursor stays on its row."""
    before = {"path": "/mailer", "name": "mailer", "handled": 7}
    first = VIEW | {"tree": [NODE | before | {"path": "/web", "name": "web"}, NODE | before]}
    more = NODE | before | {"handled": 8}
    views = [
        first,
        first | {"number": 2, "tree": [first["tree"][0], more]},
        first | {"number": 3, "tree": [more]},
    ]
    following = [asyncio.Event() for _ in views]

    async def ask(_client: ConsoleClient, do: str, **arguments: Any) -> Any:
        if do == "history":
            return {"history": []}
        number = arguments["after"]
        if number == len(views):
            await asyncio.Event().wait()
        await following[number].wait()
        return {"view": views[number]}

    async def story() -> list[tuple[int, str, int]]:
        seen = []
        screen = ConsoleScreen(Path("none"))
        async with screen.run_test(size=(120, 40)) as pilot, asyncio.timeout(SECONDS):
            table: DataTable[Any] = screen.query_one("#tree", DataTable)
            for number, event in enumerate(following, 1):
                event.set()
                while screen.view.get("number") != number:
                    await pilot.pause(0.01)
                await pilot.pause()
                if number == 1:
                    table.move_cursor(row=1)
                row = table.get_row_at(table.cursor_row)
                seen.append((table.row_count, row[0].plain.strip(), int(row[7].plain)))
        return seen

    monkeypatch.setattr(ConsoleClient, "ask", ask)
    assert asyncio.run(story()) == [(2, "mailer", 7), (2, "mailer", 8), (1, "mailer", 8)]


def names_in(screen: ConsoleScreen) -> list[str]:
    table: DataTable[Any] = screen.query_one("#tree", DataTable)
    return [table.get_row_at(n)[0].plain.strip() for n in range(table.row_count)]


def test_console_rows_are_filtered_sorted_and_shown_in_80x24(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = "ValueError: " + "a long reason " * 6
    tree = [
        NODE | {"path": f"/{name}", "name": name, "restarts": restarts, "lastError": error}
        for name, restarts in (("mailer", 3), ("dispatcher", 20), ("web", 0))
    ]

    async def story() -> None:
        async with screen_of(VIEW | {"tree": tree}, monkeypatch) as (screen, pilot):
            assert names_in(screen) == ["mailer", "dispatcher", "web"]
            await pilot.press("slash", *"er")
            await pilot.pause()
            assert names_in(screen) == ["mailer", "dispatcher", "web"]  # an error has it
            await pilot.press("backspace", "backspace", *"DISP", "enter")
            await pilot.pause()
            assert names_in(screen) == ["dispatcher"]
            await pilot.press("enter")
            await pilot.pause()
            shown = str(screen.screen.query_one("TextDialog Static", Static).content)
            assert error.strip() in shown
            await pilot.press("escape", "escape")
            await pilot.pause()
            await pilot.press(*"oooo")  # name, state, per second, restarts
            await pilot.pause()
            assert names_in(screen) == ["web", "mailer", "dispatcher"]
            await pilot.press("O")
            await pilot.pause()
            assert names_in(screen) == ["dispatcher", "mailer", "web"]
            hint = str(screen.query_one("#hint", Static).content)
            assert hint == "t trace  r restart   sorted by Restarts, reversed"
            for widget in screen.query("Header, #graphs, DataTable#tree, #hint, Footer"):
                region = widget.region
                assert region.height > 0, widget
                assert (region.right, region.bottom) <= (80, 24), widget
            assert screen.query_one("#tree").region.height >= 10

    asyncio.run(story())


def test_filter_field_is_hidden_in_another_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed the text of a filter that the other tab does not have (O-228)."""

    async def story() -> tuple[bool, bool]:
        async with screen_of(VIEW, monkeypatch) as (screen, pilot):
            field = screen.query_one("#filter", Input)
            await pilot.press("slash", *"er")
            await pilot.pause()
            before = field.display
            screen.query_one(TabbedContent).active = "tab-receivers"
            await pilot.pause()
            return before, field.display

    assert asyncio.run(story()) == (True, False)


def test_question_mark_lists_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> str:
        async with screen_of(VIEW, monkeypatch) as (screen, pilot):
            await pilot.press("question_mark")
            await pilot.pause()
            return str(screen.screen.query_one("TextDialog Static", Static).content)

    output = asyncio.run(story())
    assert [line.split("  ")[0] for line in output.splitlines()] == [key for key, _ in KEYS]


def test_console_graphs_begin_with_last_hour_and_name_scale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample = {"deliveries": 4.5, "inFlight": 2, "waiting": 0, "messages": 9.0}
    history = [sample | {"at": at * 10_000} for at in range(31)]

    async def story() -> str:
        view = VIEW | {"at": 310_000}
        async with screen_of(view, monkeypatch, history=history) as (screen, _):
            return str(screen.query_one("#scale-deliveries", Static).content)

    assert asyncio.run(story()) == "max 4.5, 5 min"
