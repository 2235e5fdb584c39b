"""The most common passwords, which a site may refuse (`auth.refuseCommonPasswords`).

A file of this package; where it is from stands in `common_passwords.NOTICE` beside it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

_FILE: Final = "common_passwords.txt"
_COMMENT: Final = "#"


@cache
def common_passwords() -> frozenset[str]:
    """Return the 10,000 most common passwords of 8 and more characters, casefolded.

    Read on first use, and kept: about a megabyte.
    """
    text = resources.files(__package__).joinpath(_FILE).read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith(_COMMENT))
