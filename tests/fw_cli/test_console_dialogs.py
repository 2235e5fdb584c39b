"""The dialogs of the terminal's console: a question, and lines of text."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App
from textual.screen import ModalScreen
from textual.widgets import Label

from fw_cli.console_dialogs import ConfirmDialog, TextDialog

SECONDS = 60.0
QUESTION = "Restart [b]/service/mailer[/b]?"


class DialogHost(App[None]):
    """Shows one dialog, and keeps its answer."""

    def __init__(self, dialog: ModalScreen[bool] | ModalScreen[None]) -> None:
        super().__init__()
        self.answers: list[bool | None] = []
        self._dialog = dialog

    def on_mount(self) -> None:
        self.push_screen(self._dialog, self.answers.append)


def answers(
    dialog: ModalScreen[bool] | ModalScreen[None], *, key: str = "", button: str = ""
) -> list[bool | None]:
    """Return what a dialog answers to a key or a click."""

    async def run() -> list[bool | None]:
        host = DialogHost(dialog)
        async with host.run_test() as pilot, asyncio.timeout(SECONDS):
            await pilot.pause()
            if key:
                await pilot.press(key)
            else:
                await pilot.click(button)
            await pilot.pause()
            return host.answers

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "answer"),
    [("y", [True]), ("n", [False]), ("escape", [False]), ("enter", [False]), ("x", [])],
)
def test_confirm_dialog_agrees_only_by_its_key(key: str, answer: list[bool | None]) -> None:
    """Enter presses the button with the focus, which is No at first."""
    assert answers(ConfirmDialog(QUESTION), key=key) == answer


@pytest.mark.parametrize(("button", "answer"), [("#yes", True), ("#no", False)])
def test_confirm_dialog_answers_with_its_buttons(button: str, answer: bool) -> None:
    assert answers(ConfirmDialog(QUESTION), button=button) == [answer]


def test_confirm_dialog_shows_markup_of_a_name_as_text() -> None:
    """A name may have brackets, which are no markup."""

    async def run() -> str:
        async with DialogHost(ConfirmDialog(QUESTION)).run_test() as pilot:
            await pilot.pause()
            return str(pilot.app.screen.query_one(Label).render())

    assert asyncio.run(run()) == QUESTION


@pytest.mark.parametrize("key", ["escape", "enter", "q", "question_mark"])
def test_text_dialog_closes_by_each_of_its_keys(key: str) -> None:
    assert answers(TextDialog("Keys", []), key=key) == [None]
