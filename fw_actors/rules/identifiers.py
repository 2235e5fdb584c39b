"""The canonical form of an account identifier: one spelling for all ways to type a name.

Used wherever an identifier is compared or counted: creation, sign-in, recovery, throttle,
unlock, command line (interface §2 "Lockout"; pitfalls, "Canonical form").
"""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_CHARACTERS: Final = 320

# Unicode's Default_Ignorable_Code_Point beyond category Cf, and the bidi controls (all Cf).
_IGNORABLE: Final = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xFFF0, 0xFFF9),
        *range(0xE0000, 0xE1000),
    ]
)
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs"})


class UnusableIdentifierError(ValueError):
    """Raised when no canonical form exists: too long, or hidden or control characters inside.

    At sign-in the try takes the decoy path; where an account is made it is refused (interface §8).
    """


def canonical(text: str) -> str:
    """Return the canonical form of `text`; canonical(canonical(x)) == canonical(x).

    Raises: UnusableIdentifierError.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnusableIdentifierError(f"longer than {MAX_CHARACTERS} characters")
    folded = _fold(text)
    if any(_refused(character) for character in folded):
        raise UnusableIdentifierError("holds control or invisible characters")
    if len(folded) > MAX_CHARACTERS:
        raise UnusableIdentifierError(f"longer than {MAX_CHARACTERS} characters")
    return folded


def _fold(text: str) -> str:
    """NFKC and casefold until nothing changes: one round of either order is not idempotent."""
    while True:
        folded = unicodedata.normalize("NFKC", text).strip().casefold()
        folded = unicodedata.normalize("NFKC", folded).strip()
        if folded == text:
            return folded
        text = folded


def _refused(character: str) -> bool:
    return unicodedata.category(character) in _REFUSED_CATEGORIES or ord(character) in _IGNORABLE
