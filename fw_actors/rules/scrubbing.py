"""What of a text of unknown content may be kept: all but what looks like a secret.

For messages of exceptions, which hold whatever an app put into them. Pitfalls, Logs: "no password,
token, sid, key, secret, nor the query string of any URL".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

SCRUBBED: Final = "[scrubbed]"
_SHORTEST_SECRET: Final = 4  # a shorter known one would tear words apart, and is no secret
_VALUE: Final = r"""("[^"]*"|'[^']*'|[^\s,;)}\]]+)"""
_NAMED: Final = re.compile(
    r"""(?ix) ( \b [\w.-]* (?: passw(?:or)?d | pwd | secret | token | authorization | cookie
        | api_?key | \b sid \b | _key \b | \b key \b ) [\w-]* ["']? \s* [:=] \s* (?:bearer\s+)? )"""
    + _VALUE
)
_PATTERNS: Final = (
    (_NAMED, rf"\1{SCRUBBED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+\S+"), rf"\1 {SCRUBBED}"),
    (re.compile(r"\b(fwk|whsec)_[\w+/=-]+"), rf"\1_{SCRUBBED}"),
    (re.compile(r"(\w://)[^\s/@]+@"), rf"\1{SCRUBBED}@"),
    (re.compile(r"(\w://[^\s?#'\"]*)[?#][^\s'\"]+"), rf"\1?{SCRUBBED}"),
    # As long as 192 bits in base64 or more, letters and digits mixed; a slash is a path's.
    (re.compile(r"\b(?=[\w+-]*\d)(?=[\w+-]*[A-Za-z])[\w+-]{32,}=*"), SCRUBBED),
)


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without the known `secrets` and without what looks like one.

    Names stay, so that one sees what was there: `password=[scrubbed]`.
    """
    text = scrub_known(text, secrets)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def scrub_known(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without the known `secrets`, whatever else is in it.

    For what code says of itself, such as the place of an error: a folder's name may look like
    a secret, and is none.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, SCRUBBED)
    return text
