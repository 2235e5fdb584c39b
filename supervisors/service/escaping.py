"""Text from outside, made safe for a terminal or a line of a log.

Pitfalls, Logs: a line break would make a second entry, an escape would command the terminal,
invisible or direction-changing characters would show something else than is there, and what a
private or unassigned character does is the terminal's own choice.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Everything that does not print, but for the space. \s takes in U+0085, U+2028 and U+2029.
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff]")
_SUSPECT_IN_JSON: Final = re.compile(r"[^\x00-\x7e\u00a1-\u00ac\u00ae-\u02ff]")
# Controls, format characters, surrogates, private ones, unassigned ones, ends of lines.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escaped(text: str) -> str:
    """Return `text` with each character that may act instead of print as its escape.

    What is left is printed as it is, on one line; for people, not to be read back.
    """
    if text.isascii() and text.isprintable():  # most texts, told in a tenth of the time
        return text
    return _SUSPECT.sub(_escape, text)


def escaped_json(text: str) -> str:
    """Return JSON text with each such character as JSON's own escape; it says the same as before.

    In JSON what is not ASCII, or DEL, stands inside strings alone; white space between is left.
    """
    if text.isascii() and "\x7f" not in text:  # other controls are escaped in all JSON
        return text
    return _SUSPECT_IN_JSON.sub(_escape_in_json, text)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_in_json(found: re.Match[str]) -> str:
    character = found.group()
    if unicodedata.category(character) not in _UNSAFE:
        return character
    units = character.encode("utf-16-be")  # beyond U+FFFF two escapes, as JSON has it
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
