"""Examples at the end of a command's help: lines as one would type them."""

from __future__ import annotations

from typing import Final

import click

_HEAD: Final = "\b\nExamples:\n"  # \b: click leaves the lines of this paragraph as they are
_INDENT: Final = "  "


def examples(*lines: str) -> str:
    """Return the epilog that shows these lines."""
    return _HEAD + "\n".join(_INDENT + line for line in lines)


def examples_of(command: click.Command) -> list[str]:
    """Return the lines that a command's epilog shows."""
    epilog = command.epilog or ""
    return [line.removeprefix(_INDENT) for line in epilog.removeprefix(_HEAD).splitlines()]
