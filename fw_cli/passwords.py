"""Reads a password for a command: typed twice without echo, or one line of stdin.

Passwords are never taken from arguments: every user of the machine can see these, and the shell's
history keeps them.
"""

from __future__ import annotations

import sys
from typing import Final

import click

from fw_cli.errors import CommandFailed

password_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
)

# Far above the policy's limit, so that the policy can reject it.
_MAX_PASSWORD_BYTES: Final = 65_536


def take_password(*, from_stdin: bool) -> str:
    """Return the password as given, without the line end.

    Raises: CommandFailed if there is no terminal, or if stdin is not text.
    """
    if from_stdin:
        return first_line("password", "--password-stdin")
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandFailed("there is no terminal for the password prompt; use --password-stdin")
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def first_line(noun: str, option: str) -> str:
    """Return the first line of stdin without its end; `noun` and `option` are for error texts.

    Raises: CommandFailed if stdin is empty or is not text.
    """
    line: bytes = b"" if sys.stdin is None else sys.stdin.buffer.readline(_MAX_PASSWORD_BYTES)
    if not line:
        raise CommandFailed(f"{option} was given, but stdin is empty")
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandFailed(f"the {noun} on stdin is not valid UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
