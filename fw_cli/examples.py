"""Examples at the end of a command's help, in the form in which they are typed."""

from __future__ import annotations

from typing import Final

HEAD: Final = "\b\nExamples:\n"  # \b: click does not rewrap this paragraph
INDENT: Final = "  "


def examples(*lines: str) -> str:
    """Return an epilog with these lines."""
    return HEAD + "\n".join(INDENT + line for line in lines)
