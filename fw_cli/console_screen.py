"""The console's screen: tables that follow the service, and keys that act on the selected row."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import (
    DataTable,
    Footer,
    Header,
    Input,
    Sparkline,
    Static,
    TabbedContent,
    TabPane,
)

from fw_actors.rules.safe_output import escaped
from fw_cli.console_client import ConsoleClient
from fw_cli.console_dialogs import ConfirmDialog, TextDialog
from fw_cli.console_order import RowOrder, arranged, described
from fw_cli.console_rows import TABS, Tab, TableRow, now_of
from fw_cli.console_series import Series
from fw_cli.errors import CommandFailed

GRAPHS: Final = (
    ("deliveries", "Deliveries/s"),
    ("flight", "In flight"),
    ("waiting", "Events waiting"),
    ("messages", "Messages/s"),
)


RETRY_SECONDS: Final = 1.0
NO_ANSWER_TITLE: Final = "the service does not answer; trying again"


KEYS: Final = (
    ("t, r", "trace or restart the chosen actor (tab Actors)"),
    ("p", "pause or resume the chosen receiver, in all processes of the service (Receivers)"),
    ("s", "send the chosen delivery again (Failed)"),
    ("e, x", "retry or cancel the chosen job (Jobs)"),
    ("u", "unlock the chosen account (Lockouts)"),
    ("enter", "show the whole row"),
    ("/", "show only rows with a text; escape shows all"),
    ("o, O", "sort by the next column; the other way round"),
    ("tab, arrows", "go to the tabs and back; choose a tab, a row, or more columns"),
    ("q", "quit"),
)
"""The keys and their actions, for the help."""
HINTS: Final[Mapping[str, str]] = {
    "tree": "t trace  r restart",
    "receivers": "p pause or resume",
    "causes": "replay all of one: fw webhooks replay --webhook, or the web console",
    "failed": "s send again",
    "jobs": "e retry  x cancel",
    "locks": "u unlock",
}


class ConsoleScreen(App[None]):
    """The application; `address_file` is the file that names the service's socket."""

    TITLE = "fw console"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("o", "sort", "Sort"),
        Binding("O", "reverse", "Reverse", show=False),
        Binding("enter", "details", "Whole row"),
        Binding("escape", "show_all", "Show all", show=False),
        Binding("t", "trace", "Trace", show=False),
        Binding("r", "restart", "Restart", show=False),
        Binding("p", "pause", "Pause or resume", show=False),
        Binding("u", "unlock", "Unlock", show=False),
        Binding("s", "replay", "Send again", show=False),
        Binding("e", "retry_job", "Retry", show=False),
        Binding("x", "cancel_job", "Cancel", show=False),
        Binding("q", "quit", "Quit"),
    ]
    CSS = """
    #graphs { height: 4; padding: 0 1; }
    #graphs > Vertical { width: 1fr; padding-right: 1; }
    #graphs Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #graphs .scale { color: $text-muted; }
    #graphs Sparkline { height: 2; }
    Screen { overflow: hidden; }
    TabbedContent, ContentSwitcher, TabPane { height: 1fr; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    .nothing { display: none; padding: 0 1; color: $text-muted; }
    #hint { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    """

    def __init__(self, address_file: Path) -> None:
        super().__init__()
        self._watcher, self._actor = ConsoleClient(address_file), ConsoleClient(address_file)
        self._series = {name: Series() for name, _ in GRAPHS}
        self._orders = {tab.id: RowOrder() for tab in TABS}
        self.view: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        """Lay out graphs and tabs."""
        yield Header()
        with Horizontal(id="graphs"):
            for name, title in GRAPHS:
                with Vertical():
                    yield Static(title, id=f"now-{name}")
                    yield Sparkline([], id=f"graph-{name}")
                    yield Static("", id=f"scale-{name}", classes="scale")
        with TabbedContent(initial="tab-tree"):
            for tab in TABS:
                with TabPane(tab.title, id=f"tab-{tab.id}"):
                    yield Static(tab.nothing, id=f"no-{tab.id}", classes="nothing")
                    yield DataTable(id=tab.id, cursor_type="row", zebra_stripes=True)
        yield Static(id="hint", markup=False)
        yield Input(placeholder="show only rows with this text", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Create the columns, and start following the service."""
        for tab in TABS:
            self.query_one(f"#{tab.id}", DataTable).add_columns(*tab.columns)
        self.query_one("#tree", DataTable).focus()
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
                if not number:  # a new connection: the service may have been replaced
                    self._begin_graphs((await self._watcher.ask("history"))["history"])
                answer = await self._watcher.ask("view", after=number)
            except CommandFailed:  # stopped or restarting
                self.sub_title, number = NO_ANSWER_TITLE, 0
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.sub_title = ""
            if not self.is_running:  # quitting: the widgets may be gone already
                return
            self.view = answer["view"]
            number = self.view["number"]
            self._show()

    def _begin_graphs(self, history: Sequence[Mapping[str, Any]]) -> None:
        self._series = {name: Series() for name, _ in GRAPHS}
        keys = {"deliveries": "deliveries", "flight": "inFlight", "waiting": "waiting",
                "messages": "messages"}  # fmt: skip
        for sample in history:
            for name, series in self._series.items():
                series.keep(sample["at"], sample[keys[name]])

    def _show(self) -> None:
        for (name, title), value in zip(GRAPHS, now_of(self.view), strict=True):
            series = self._series[name]
            series.keep(self.view["at"], value)
            self.query_one(f"#graph-{name}", Sparkline).data = series.values
            self.query_one(f"#now-{name}", Static).update(f"{title} {value:g}")
            self.query_one(f"#scale-{name}", Static).update(series.scale)
        self._fill_all()

    def _fill_all(self) -> None:
        for tab in TABS:
            if self.view:
                rows = arranged(tab.rows(self.view), self._orders[tab.id])
                self._fill(tab, rows)
        self._hint()

    def _hint(self) -> None:
        """Show the keys of the visible tab, and the order of its rows."""
        tab = self._tab()
        parts = (HINTS.get(tab.id, ""), described(self._orders[tab.id], tab.columns))
        self.query_one("#hint", Static).update("   ".join(part for part in parts if part))

    def _tab(self) -> Tab:
        active = self.query_one(TabbedContent).active
        return next(tab for tab in TABS if f"tab-{tab.id}" == active)

    def on_tabbed_content_tab_activated(self) -> None:
        """Show the keys of the tab; hide the field of the filter, whose text is another tab's."""
        self.query_one("#filter", Input).display = False
        self._hint()

    def action_help(self) -> None:
        """Show the actions of the keys."""
        width = max(len(key) for key, _ in KEYS)
        lines = [Text(f"{key:<{width}}  {does}") for key, does in KEYS]
        self.push_screen(TextDialog("Keys", lines))

    def action_details(self) -> None:
        """Show all cells of the selected row, some of which a narrow terminal cuts off."""
        tab = self._tab()
        key = self._chosen(tab.id)
        cells = next((cells for row_key, cells in tab.rows(self.view) if row_key == key), None)
        if cells is None:
            self.notify("There is no row to show.")
            return
        width = max(map(len, tab.columns))
        lines = [
            Text(f"{name:<{width}}  ") + _literal(cell.strip())
            for name, cell in zip(tab.columns, cells, strict=True)
        ]
        self.push_screen(TextDialog(tab.title, lines))

    def on_data_table_row_selected(self) -> None:
        """Show the row on which enter was pressed."""
        self.action_details()

    def action_filter(self) -> None:
        """Ask for the text that rows must contain."""
        typed = self.query_one("#filter", Input)
        typed.value = self._orders[self._tab().id].text
        typed.display = True
        typed.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only the rows that contain the typed text."""
        self._arrange(replace(self._orders[self._tab().id], text=event.value))

    def on_input_submitted(self) -> None:
        """Return to the rows; the filter stays."""
        self._leave_filter()

    def action_show_all(self) -> None:
        """Show all rows again."""
        self._leave_filter()
        self._arrange(replace(self._orders[self._tab().id], text=""))

    def action_sort(self) -> None:
        """Sort by the next column."""
        tab = self._tab()
        self._arrange(self._orders[tab.id].next_column(len(tab.columns)))

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._arrange(self._orders[self._tab().id].reversed())

    def _leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(f"#{self._tab().id}", DataTable).focus()

    def _arrange(self, order: RowOrder) -> None:
        self._orders[self._tab().id] = order
        self._fill_all()

    def _fill(self, tab: Tab, rows: Sequence[TableRow]) -> None:
        """Update rows in place if their keys are unchanged, so that the cursor stays."""
        sentence = self.query_one(f"#no-{tab.id}", Static)
        filtered = bool(self._orders[tab.id].text)
        sentence.update("No row has this text; escape shows all." if filtered else tab.nothing)
        sentence.display = not rows
        table: DataTable[Text] = self.query_one(f"#{tab.id}", DataTable)
        if [key for key, _ in rows] != [str(key.value) for key in table.rows]:
            chosen = self._chosen(tab.id)
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

    def _chosen(self, tab: str) -> str:
        """Return the key of the row under the cursor, or an empty text."""
        table: DataTable[Text] = self.query_one(f"#{tab}", DataTable)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _on(self, tab: str) -> str:
        """Return the selected row of a tab if that tab is visible."""
        return self._chosen(tab) if self.query_one(TabbedContent).active == f"tab-{tab}" else ""

    def _selected(self, tab: str, key: str) -> str:
        """Return the selected row of a tab if it is visible; else show where the key applies."""
        chosen = self._on(tab)
        if not chosen:
            title = next(each.title for each in TABS if each.id == tab)
            self.notify(f"{key} applies to a row of the tab {title}.", markup=False)
        return chosen

    def _actor_row(self, key: str) -> str:
        """Return the name of the selected node, which in a service of several has its process."""
        path = self._selected("tree", key)
        return next(
            (node["name"] for node in self.view.get("tree", ()) if node["path"] == path), ""
        )

    def action_trace(self) -> None:
        """Trace the selected actor."""
        name = self._actor_row("t")
        if name:
            self._act("trace", name, "")

    def action_restart(self) -> None:
        """Restart the selected actor."""
        name = self._actor_row("r")
        if name:
            handled = "It first handles the messages in its mailbox, for at most 5 seconds."
            self._act("restart", name, f"Restart {name}? {handled}")

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

    def action_retry_job(self) -> None:
        """Make the selected job due now."""
        number = self._selected("jobs", "e")
        if number:
            self._act("retryJob", number, "")

    def action_cancel_job(self) -> None:
        """Cancel the selected job."""
        number = self._selected("jobs", "x")
        if number:
            self._act("cancelJob", number, f"Cancel job {number}? It is deleted and never run.")

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
