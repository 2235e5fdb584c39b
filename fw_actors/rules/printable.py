"""Escapes what does not print, in texts for terminals and logs (O-100).

A line break would start a second entry, an escape sequence would control the terminal, invisible or
direction-changing characters would disguise the text, and the effect of private or unassigned
characters depends on the terminal.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Everything that does not print, except the space. \s includes U+0085, U+2028 and U+2029.
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff]")
_SUSPECT_IN_JSON: Final = re.compile(r"[^\x00-\x7e\u00a1-\u00ac\u00ae-\u02ff]")
# Controls, format characters, surrogates, private and unassigned characters, line ends.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escaped(text: str) -> str:
    """Return `text` with every non-printing character replaced by its escape.

    The result prints on one line; it is for people and cannot be parsed back.
    """
    if text.isascii() and text.isprintable():  # most texts, checked in a tenth of the time
        return text
    return _SUSPECT.sub(_escape, text)


def escaped_json(text: str) -> str:
    """Return JSON text with every non-printing character as a JSON escape; its value is unchanged.

    In JSON non-ASCII characters and DEL occur only inside strings; white space between is kept.
    """
    if text.isascii() and "\x7f" not in text:  # JSON escapes all other controls anyway
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
    units = character.encode("utf-16-be")  # two escapes beyond U+FFFF, as in JSON
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
