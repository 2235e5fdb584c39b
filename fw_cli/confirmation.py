"""Asks before a command destroys or replaces something."""

from __future__ import annotations

import sys
from typing import Final

import click

from fw_cli.errors import CommandFailed

yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
"""The option of every command that asks for confirmation (C-153)."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless `yes`.

    Raises: CommandFailed if the answer is no, or if there is no terminal.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandFailed(f"{question} Stdin is not a terminal: confirm it with --yes.")
    if not click.confirm(question, err=True):
        raise CommandFailed("nothing was changed")
