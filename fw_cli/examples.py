"""Examples at the end of a command's help, in the form in which they are typed."""

from __future__ import annotations

from typing import Final

import click

_HEAD: Final = "\b\nExamples:\n"  # \b: click does not rewrap this paragraph
_INDENT: Final = "  "


def examples(*lines: str) -> str:
    """Return an epilog with these lines."""
    return _HEAD + "\n".join(_INDENT + line for line in lines)


def examples_of(command: click.Command) -> list[str]:
    """Return the example lines of a command's epilog."""
    epilog = command.epilog or ""
    return [line.removeprefix(_INDENT) for line in epilog.removeprefix(_HEAD).splitlines()]
