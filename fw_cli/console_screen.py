"""The console's screen: tables that follow the service, and keys that act on the selected row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import (
    Button,
    DataTable,
    Footer,
    Header,
    Label,
    Sparkline,
    Static,
    TabbedContent,
    TabPane,
)

from fw_cli.console_client import ConsoleClient
from fw_cli.console_rows import BOARDS, Board, Row, now_of
from fw_cli.errors import CommandFailed
from supervisors.service.logs import escaped

HISTORY_LENGTH: Final = 120
GRAPHS: Final = (
    ("deliveries", "Deliveries/s"),
    ("flight", "In flight"),
    ("waiting", "Events waiting"),
    ("messages", "Messages/s"),
)


RETRY_SECONDS: Final = 1.0
NOT_THERE: Final = "the service does not answer; trying again"


class ConfirmDialog(ModalScreen[bool]):
    """A confirmation dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]
    DEFAULT_CSS = """
    ConfirmDialog { align: center middle; }
    ConfirmDialog > Vertical { width: 60; height: auto; padding: 1 2; border: round $primary;
                          background: $surface; }
    ConfirmDialog Label { width: 100%; }
    ConfirmDialog Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    ConfirmDialog Button { margin-left: 2; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Lay out the question and its buttons."""
        with Vertical():
            yield Label(self._text, markup=False)
            with Horizontal():
                yield Button("No (n)", id="no")
                yield Button("Yes (y)", id="yes", variant="primary")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with a button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Answer with a key."""
        self.dismiss(answer)


class ConsoleScreen(App[None]):
    """The application; `address_file` is the file that names the service's socket."""

    TITLE = "fw console"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "trace", "Trace"),
        Binding("r", "restart", "Restart"),
        Binding("p", "pause", "Pause or resume"),
        Binding("u", "unlock", "Unlock"),
        Binding("s", "replay", "Send again"),
        Binding("q", "quit", "Quit"),
    ]
    CSS = """
    #graphs { height: 5; padding: 0 1; }
    #graphs > Vertical { width: 1fr; padding-right: 2; }
    #graphs Sparkline { height: 3; }
    Screen { overflow: hidden; }
    TabbedContent, ContentSwitcher, TabPane { height: 1fr; }
    DataTable { height: 1fr; }
    .nothing { display: none; padding: 0 1; color: $text-muted; }
    """

    def __init__(self, address_file: Path) -> None:
        super().__init__()
        self._watcher, self._actor = ConsoleClient(address_file), ConsoleClient(address_file)
        self._series: dict[str, list[float]] = {name: [0.0] * HISTORY_LENGTH for name, _ in GRAPHS}
        self.view: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        """Lay out graphs and tabs."""
        yield Header()
        with Horizontal(id="graphs"):
            for name, title in GRAPHS:
                with Vertical():
                    yield Static(title, id=f"now-{name}")
                    yield Sparkline(self._series[name], id=f"graph-{name}")
        with TabbedContent(initial="tab-tree"):
            for board in BOARDS:
                with TabPane(board.title, id=f"tab-{board.id}"):
                    yield Static(board.nothing, id=f"no-{board.id}", classes="nothing")
                    yield DataTable(id=board.id, cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Create the columns, and start following the service."""
        for board in BOARDS:
            self.query_one(f"#{board.id}", DataTable).add_columns(*board.columns)
        self.watch_service()

    async def on_unmount(self) -> None:
        """Disconnect from the service."""
        await self._watcher.close()
        await self._actor.close()

    @work(exclusive=True)
    async def watch_service(self) -> None:
        """Show one view after another while the service runs."""
        number = 0
        while True:
            try:
                answer = await self._watcher.ask("view", after=number)
            except CommandFailed:  # stopped or restarting: the moment one watches for
                self.sub_title, number = NOT_THERE, 0
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.sub_title = ""
            self.view = answer["view"]
            number = self.view["number"]
            self._show()

    def _show(self) -> None:
        for (name, title), value in zip(GRAPHS, now_of(self.view), strict=True):
            series = self._series[name]
            series.append(value)
            del series[:-HISTORY_LENGTH]
            self.query_one(f"#graph-{name}", Sparkline).data = list(series)
            self.query_one(f"#now-{name}", Static).update(f"{title}  {value:g}")
        for board in BOARDS:
            self._fill(board, list(board.rows(self.view)))

    def _fill(self, board: Board, rows: Sequence[Row]) -> None:
        """Update rows in place if their keys are unchanged, so that the cursor stays."""
        self.query_one(f"#no-{board.id}", Static).display = not rows
        table: DataTable[Text] = self.query_one(f"#{board.id}", DataTable)
        if [key for key, _ in rows] != [str(key.value) for key in table.rows]:
            chosen = self._chosen(board.id)
            table.clear()
            for key, cells in rows:
                table.add_row(*map(_literal, cells), key=key)
            keys = [key for key, _ in rows]
            if chosen in keys:
                table.move_cursor(row=keys.index(chosen))
            return
        for index, (_, cells) in enumerate(rows):
            for place, cell in enumerate(map(_literal, cells)):
                if table.get_cell_at((index, place)) != cell:  # type: ignore[arg-type] # a Coordinate
                    table.update_cell_at((index, place), cell)  # type: ignore[arg-type]

    def _chosen(self, board: str) -> str:
        """Return the key of the row under the cursor, or an empty text."""
        table: DataTable[Text] = self.query_one(f"#{board}", DataTable)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _on(self, board: str) -> str:
        """Return the selected row of a board if that board is visible."""
        return self._chosen(board) if self.query_one(TabbedContent).active == f"tab-{board}" else ""

    def _selected(self, board: str, key: str) -> str:
        """Return the selected row of a board if it is visible; else say where the key applies."""
        chosen = self._on(board)
        if not chosen:
            title = next(each.title for each in BOARDS if each.id == board)
            self.notify(f"{key} applies to a row of the tab {title}.", markup=False)
        return chosen

    def action_trace(self) -> None:
        """Trace the selected actor."""
        name = self._selected("tree", "t").rpartition("/")[2]
        if name:
            self._act("trace", name, "")

    def action_restart(self) -> None:
        """Restart the selected actor."""
        name = self._selected("tree", "r").rpartition("/")[2]
        if name:
            self._act("restart", name, f"Restart {name}? The messages in its mailbox are dropped.")

    def action_pause(self) -> None:
        """Pause or resume the selected receiver."""
        name = self._selected("receivers", "p")
        paused = {
            each["origin"]: each["health"] == "paused" for each in self.view.get("receivers", ())
        }
        if paused.get(name):
            self._act("resume", name, "")
        elif name:
            self._act("pause", name, f"Pause {name}? Nothing is sent there until it is resumed.")

    def action_unlock(self) -> None:
        """Unlock the selected account."""
        key = self._selected("locks", "u")
        account = next((x["account"] for x in self._locks() if x["key"] == key), "")
        if account:
            self._act("unlock", account, f"Unlock {account}?")
        elif key:
            self.notify("No account has this identifier: there is nothing to unlock.")

    def _locks(self) -> Sequence[Any]:
        """Return the lockouts of the last view; none before the first one."""
        return self.view["store"]["locks"] if self.view else ()

    def action_replay(self) -> None:
        """Replay the selected failed delivery."""
        name = self._selected("failed", "s")
        if name:
            self._act("replay", name, f"Send {name} again, with the same id and body?")

    @work
    async def _act(self, do: str, name: str, question: str) -> None:
        if question and not await self.push_screen_wait(ConfirmDialog(question)):
            return
        try:
            await self._actor.ask(do, name=name)
        except CommandFailed as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            self.notify(f"{do}: {name}", markup=False)


def _literal(cell: str) -> Text:
    """Return a cell without markup or terminal control: clients influence its text."""
    return Text(escaped(cell))
