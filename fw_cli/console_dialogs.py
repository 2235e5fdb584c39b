"""The dialogs of the terminal's console: a question, the keys, a whole row."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Label, Static


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


class TextDialog(ModalScreen[None]):
    """A title and lines of text; the usual keys close it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,question_mark", "close", "Close")
    ]
    DEFAULT_CSS = """
    TextDialog { align: center middle; }
    TextDialog > VerticalScroll { width: 76; max-width: 100%; height: auto; max-height: 100%;
                                  padding: 0 2; border: round $primary; background: $surface; }
    """

    def __init__(self, title: str, lines: list[Text]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        """Lay out the lines."""
        with VerticalScroll() as box:
            box.border_title = self._title
            yield Static(Text("\n").join(self._lines))

    def action_close(self) -> None:
        """Close the dialog."""
        self.dismiss()
