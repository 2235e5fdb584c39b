"""Makes output safe and readable: removes secrets from payloads and texts, escapes unprintable
characters, and writes numbers with their unit.

Secrets are removed from event payloads by field, and from free text by value and by pattern. The
patterns are for messages of exceptions, which an app may compose: they must show no password,
token, `sid`, key or secret, nor the query string of any URL (O-101).

Unprintable characters are escaped in texts for terminals and logs (O-100). A line break would start
a second entry, an escape sequence would control the terminal, invisible or direction-changing
characters would disguise the text, and the effect of private or unassigned characters depends on
the terminal.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

_NAMES: Final = frozenset({"password", "password_hash", "new_password", "api_secret", "secret"})
_SUFFIXES: Final = ("_password", "_secret")


class FieldRedaction(Enum):
    """Treatments of a field in events."""

    SHOWN = "as it is"
    BLANKED = "null (rule 1)"
    CONFIGURED = 'null, or {"configured": true} when a secret is stored (rule 2)'
    REMOVED = "not at all (rule 3)"


def redaction_of(fieldname: str, fieldtype: str, permlevel: int) -> FieldRedaction:
    """Return the form of a field in an event, decided once per DocType.

    Removal by permlevel comes first (B-90); a Vault field named like a secret follows the
    Vault rule (B-91).
    """
    if permlevel > 0:
        return FieldRedaction.REMOVED
    if fieldtype == "Vault":
        return FieldRedaction.CONFIGURED
    if fieldtype == "Password" or fieldname in _NAMES or fieldname.endswith(_SUFFIXES):
        return FieldRedaction.BLANKED
    return FieldRedaction.SHOWN


def is_secret(fieldname: str, fieldtype: str) -> bool:
    """Whether a field's value is never sent, whatever the reader's permissions."""
    return redaction_of(fieldname, fieldtype, 0) is not FieldRedaction.SHOWN


SCRUBBED: Final = "[scrubbed]"
MIN_SECRET_CHARACTERS: Final = 6
"""Characters of the shortest secret that is removed: a shorter one would tear words apart."""

_MIN_LINE_CHARACTERS: Final = 12  # of a secret of several lines; `{` alone is a line of many texts
_MIN_BASE64_CHARACTERS: Final = 8
_VALUE: Final = r"""("[^"]*"|'[^']*'|[^\s,;)}\]]+)"""
_NAMED: Final = re.compile(
    r"""(?ix) ( (?: passw(?:or)?d | pwd | secret | token | authorization | cookie
        | api_?key | \b sid \b | _key \b | \b key \b ) [\w-]{0,128}+ ["']? \s* [:=] \s*
        (?:bearer\s+)? )"""
    + _VALUE
)


MAX_SEARCHED_CHARACTERS: Final = 32 * 1024
"""The characters of a text that are searched for what looks like a secret, and kept: the search of
a MiB takes half a second, during which no other request is served."""
_MAX_TOKEN_CHARACTERS: Final = 4096


def _without_query(url: re.Match[str]) -> str:
    return url[0] if url[2] is None else f"{url[1]}?{SCRUBBED}"


def _without_digits_and_letters(run: re.Match[str]) -> str:
    mixed = re.search(r"\d", run[0]) and re.search("[A-Za-z]", run[0])
    return SCRUBBED if mixed else run[0]


# The text may be long and come from an attacker, so no pattern may backtrack over more than a
# bounded number of characters.
_PATTERNS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (_NAMED, rf"\1{SCRUBBED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+\S+"), rf"\1 {SCRUBBED}"),
    (re.compile(r"\b(fwk|whsec)_[\w+/=-]+"), rf"\1_{SCRUBBED}"),
    (re.compile(r"(\w://)[^\s/@]+@"), rf"\1{SCRUBBED}@"),
    (re.compile(r"(\w://[^\s?#'\"]*)([?#][^\s'\"]+)?"), _without_query),
    # As long as 192 bits in base64 or more, letters and digits mixed; a slash is a path's.
    (re.compile(r"\b\w[\w+-]{31,}=*"), _without_digits_and_letters),
)


class Scrubber:
    """Removes the secrets of one site from texts. Made once, from the whole configuration."""

    __slots__ = ("_pattern", "_written", "forms")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets` shorter than `MIN_SECRET_CHARACTERS` characters are left out."""
        self._written = [frozenset(_written_forms(secret)) for secret in secrets]
        forms = frozenset[str]().union(*self._written)
        self.forms = tuple(sorted(forms, key=len, reverse=True))
        """The texts in which a secret of the site may appear."""
        self._pattern = re.compile("|".join(map(re.escape, self.forms)))

    def scrub_known(self, text: str) -> str:
        """Return `text` without the secrets of the site.

        Call it before a text is cut, because a part of a secret is not found.
        """
        # The search alone is ten times as fast as the pattern, and rarely finds anything.
        has_secret = any(map(text.__contains__, self.forms))
        return self._pattern.sub(SCRUBBED, text) if has_secret else text

    def scrub_unless_sent(self, text: str, sent_texts: Callable[[], str]) -> str:
        """Return `text` without the secrets of the site, except those that the recipient has sent.

        For an answer that may repeat its request: if only a correct guess of a secret came back
        scrubbed, the answer would confirm it (C-85).

        Args:
            sent_texts: returns all that the recipient has sent. Called only if `text` has a
                secret. The service may have changed a text's case or normal form before it repeats
                it.
        """
        if self.scrub_known(text) == text:
            return text
        folded = _folded(sent_texts())
        forms_sent = frozenset[str]().union(
            *(forms for forms in self._written if any(_folded(form) in folded for form in forms))
        )
        return self._pattern.sub(
            lambda match: match[0] if match[0] in forms_sent else SCRUBBED, text
        )

    def scrub(self, text: str) -> str:
        """Return `text` without the secrets of the site, and without texts that look like secrets.

        Names stay, so that the kind of the secret is visible: `password=[scrubbed]`. Beyond
        `MAX_SEARCHED_CHARACTERS` the text is cut, with the number of the other characters.
        """
        text = self.scrub_known(text)
        kept = _beginning(text)
        rest = f" … ({len(text) - len(kept):,} more characters)" if len(kept) < len(text) else ""
        for pattern, replacement in _PATTERNS:
            kept = pattern.sub(replacement, kept)
        return kept + rest

    def __repr__(self) -> str:
        return f"<Scrubber: {len(self.forms)} texts>"


def _beginning(text: str) -> str:
    """Return at most `MAX_SEARCHED_CHARACTERS` of a text, up to a white space if it is cut: a part
    of a secret may not look like one."""
    if len(text) <= MAX_SEARCHED_CHARACTERS:
        return text
    at = MAX_SEARCHED_CHARACTERS - _MAX_TOKEN_CHARACTERS
    words = text[at:MAX_SEARCHED_CHARACTERS].rsplit(maxsplit=1)
    return text[:at] + (words[0] if len(words) > 1 else "")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _written_forms(secret: str) -> Iterator[str]:
    """Yield the texts in which a secret may appear: plain, escaped, encoded, line by line."""
    plain = secret.strip()
    if len(plain) < MIN_SECRET_CHARACTERS:
        return
    yield secret
    lines = plain.splitlines()
    pieces = [plain, " ".join(plain.split())]  # an error on one line has its white space folded
    if len(lines) > 1:
        pieces += [line.strip() for line in lines if len(line.strip()) >= _MIN_LINE_CHARACTERS]
    for piece in pieces:
        yield piece
        yield from _escaped_forms(piece)
    yield from _base64_forms(secret)
    yield from _base64_forms(plain)


def _escaped_forms(text: str) -> Iterator[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    encoded = text.encode("utf-8", "surrogatepass")
    yield repr(encoded)[2:-1]
    yield quote(encoded)
    yield quote(encoded, safe="")
    yield quote_plus(encoded)


def _base64_forms(text: str) -> Iterator[str]:
    """Yield the base64 of a text at each of the three offsets; characters that depend on neighbours
    are cut.
    """
    encoded = text.encode("utf-8", "surrogatepass")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + encoded).decode().rstrip("=")
        first = (0, 2, 3)[before]
        last = len(whole) if (before + len(encoded)) % 3 == 0 else len(whole) - 1
        part = whole[first:last]
        if len(part) >= _MIN_BASE64_CHARACTERS:
            yield part
            yield part.replace("+", "-").replace("/", "_")


# PostgreSQL stores no NUL, and neither store a lone surrogate.
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Return `text` in a form that both stores accept: NUL and lone surrogates are replaced.

    For texts that are not validated, such as the message of an app's exception: a row that cannot
    be written would lose the outcome that it records.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def text_of(error: BaseException) -> str:
    """Return the text of an exception; an app's exception may fail to give one."""
    try:
        return str(error)
    except Exception as failed:
        return f"<its text raised {type(failed).__name__}>"


_ROOT: Final = Path(__file__).parents[2]
# Frames of these are of no app: the project, the standard library, and installed libraries.
_OWN: Final = tuple(f"{_ROOT / name}/" for name in ("fw_actors", "fw_cli", "supervisors", "web"))
_STANDARD: Final = (f"{Path(traceback.__file__).parent}/", "<frozen ")
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")


def app_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame of an app's code that an exception passed through, if any.

    An app that is installed as a library cannot be told from one.
    """
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame for frame in frames if is_app_file(frame.filename)), None)


def is_app_file(file: str) -> bool:
    """Whether a file with code is of an app: neither of the project nor of a library."""
    return not file.startswith((*_OWN, *_STANDARD)) and not any(p in file for p in _INSTALLED)


def raised_at(error: BaseException) -> str:
    """Return `RuntimeError in shop.py, line 12`, without the text, which may hold secrets.

    The line is the app's, even if a library that it called raised the error.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    place = app_frame(error) or frames[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"


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


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_in_json(match: re.Match[str]) -> str:
    character = match.group()
    if unicodedata.category(character) not in _UNSAFE:
        return character
    units = character.encode("utf-16-be")  # two escapes beyond U+FFFF, as in JSON
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def counted(number: int, unit: str) -> str:
    """Return a number with its unit, in the plural unless it is one: `1 attempt`, `1,000 days`."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
