"""Where a sign-in leads: to a path of this site and nowhere else. Pure; pitfalls, Input."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

HOME: Final = "/app"
LONGEST: Final = 2048
# One slash, then none and no backslash; printable ASCII, in which browsers drop nothing.
_LOCAL: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


def local_path(text: str | None) -> str:
    """Return `text` where it is a path of this site, else the page that comes after a sign-in.

    Refused are schemes and hosts (`//x`), what browsers take for them (`/\\x`, tabs and line
    breaks inside), and whatever is longer than 2,048 characters.
    """
    if text and len(text) <= LONGEST and _LOCAL.fullmatch(text):
        return text
    return HOME


def sign_in_path(wanted: str) -> str:
    """Return the sign-in page that leads on to `wanted`."""
    return "/login" if local_path(wanted) == HOME else f"/login?next={quote(wanted, safe='/')}"
