"""What of a log entry is never written: secrets by their fields' names, and in tracebacks.

Pitfalls, Logs. It guards against a slip; code that logs has no secret to give in the first place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Final

from fw_actors.rules.scrubbing import scrub

SCRUBBED: Final = "[scrubbed]"

_SECRET_WORDS: Final = frozenset(
    {
        "authorization",
        "cookie",
        "key",
        "password",
        "passwd",
        "pwd",
        "secret",
        "sid",
        "token",
    }
)
# The parts of snake_case, kebab-case and camelCase names.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_DEPTH: Final = 8


class Scrubber:
    """A structlog processor; `links` lets `link` pass in `mail.sent` (interface §2)."""

    def __init__(self, *, links: bool) -> None:
        self._links = links

    def __call__(
        self, _logger: object, _method: str, entry: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        allowed = self._links and entry.get("event") == "mail.sent"
        for name, value in entry.items():
            if name == "link":
                entry[name] = value if allowed else SCRUBBED
            elif name == "exception":  # a traceback, with whatever text was raised
                entry[name] = scrub(str(value))
            elif name != "_record":
                entry[name] = _scrubbed(name, value, _MAX_DEPTH)
        return entry


@lru_cache(maxsize=1024)  # names come from code, the same few in every entry
def is_secret(name: str) -> bool:
    """Whether a field of this name holds a secret: one of its words says so."""
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(name))


def _scrubbed(name: str, value: object, depth: int) -> object:
    if is_secret(name) and value is not None:
        return SCRUBBED
    if value is None or isinstance(value, (str, int)):
        return value
    if depth == 0:
        return "[too deep]"
    if isinstance(value, Mapping):
        return {
            str(inner): SCRUBBED if inner == "link" else _scrubbed(str(inner), item, depth - 1)
            for inner, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_scrubbed("", item, depth - 1) for item in value]
    return value
