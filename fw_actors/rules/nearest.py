"""Which known name somebody meant who wrote one that there is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_LONGEST: Final = 80  # comparing costs the square of the length


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `name` in any case, None when none is like it."""
    folded = {candidate.casefold(): candidate for candidate in known}
    found = get_close_matches(name[:_LONGEST].casefold(), folded, n=1)
    return folded[found[0]] if found else None
