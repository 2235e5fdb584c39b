"""How a command comes by a password: typed twice unseen, or one line of stdin; never an argument.

Arguments are seen by every user of the machine, and kept in the shell's history.
"""

from __future__ import annotations

import sys
from typing import Final

import click

from fw_cli.refusals import CommandFailed

password_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
)

_MAX_BYTES: Final = 65_536  # far beyond what the policy takes, so that it can say "too long"


def take_password(*, from_stdin: bool) -> str:
    """Return the password, as it was given: only the line's end is taken off.

    Raises: CommandFailed, when there is nobody to ask, or stdin is no text.
    """
    if from_stdin:
        return _first_line()
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandFailed("no terminal to ask for the password; give it with --password-stdin")
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _first_line() -> str:
    line: bytes = b"" if sys.stdin is None else sys.stdin.buffer.readline(_MAX_BYTES)
    if not line:
        raise CommandFailed("--password-stdin was given, and stdin is empty")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise CommandFailed("the password on stdin is not valid UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
