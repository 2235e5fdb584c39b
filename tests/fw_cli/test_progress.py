"""A long command moves a bar on a terminal, and leaves a program's stderr alone."""

from __future__ import annotations

import os
import pty

import pytest

from tests.fw_cli.conftest import CommandLine

LONG = {
    ("migrate",): "bringing the store up to date",
    ("sweep", "auth"): "deleting expired rows",
    ("sweep", "webhooks"): "deleting expired rows",
    ("backup", "copy.db"): "copying the store",
}


def shown_on_a_terminal(fw: CommandLine, *args: str) -> str:
    """Return what a successful command writes on its stderr, a terminal."""
    terminal, inner = pty.openpty()
    fw.environ["TERM"] = "xterm"
    process = fw.process(*args, stderr=inner)
    os.close(inner)
    shown = b""
    try:
        while chunk := os.read(terminal, 1000):
            shown += chunk
    except OSError:  # Linux's way to say that the other side has closed
        pass
    os.close(terminal)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert said
    return shown.decode()


@pytest.mark.parametrize("args", LONG, ids=" ".join)
def test_long_command_shows_progress_bar_on_terminal(
    fw: CommandLine, args: tuple[str, ...]
) -> None:
    fw.done("migrate")
    assert LONG[args] in shown_on_a_terminal(fw, *args)


@pytest.mark.parametrize("args", LONG, ids=" ".join)
def test_long_command_writes_no_bar_to_pipe(fw: CommandLine, args: tuple[str, ...]) -> None:
    fw.done("migrate")
    assert fw.done(*args)
