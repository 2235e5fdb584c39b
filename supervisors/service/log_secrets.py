"""What of a log entry is never written: the site's secrets, and fields named like one.

Pitfalls, Logs. It guards against a slip; code that logs has no secret to give in the first place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Final

from fw_actors.rules.scrubbing import SCRUBBED, Scrubber

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
_OURS: Final = frozenset({"_record", "level", "timestamp"})  # nothing of them comes from outside


class LogScrubber:
    """A structlog processor; `links` lets `link` pass in `mail.sent` (interface §2)."""

    def __init__(self, scrubber: Scrubber, *, links: bool) -> None:
        self._scrubber, self._links = scrubber, links

    def __call__(
        self, _logger: object, _method: str, entry: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        allowed = self._links and entry.get("event") == "mail.sent"
        # One search over all texts: an entry with a secret in it is a rare one.
        tainted = self._scrubber.finds("\0".join(v for v in entry.values() if type(v) is str))
        for name, value in entry.items():
            if name == "link":
                entry[name] = value if allowed else SCRUBBED
            elif name == "exception":  # a traceback, with whatever text was raised
                entry[name] = self._scrubber.scrub(str(value))
            elif name not in _OURS and (tainted or type(value) is not str or is_secret(name)):
                entry[name] = self._scrubbed(name, value, _MAX_DEPTH)
        return entry

    def _scrubbed(self, name: str, value: object, depth: int) -> object:
        if is_secret(name) and value is not None:
            return SCRUBBED
        if value is None or isinstance(value, (int, float)):
            return value
        if not isinstance(value, (Mapping, list, tuple)):
            return self._scrubber.scrub_known(str(value))
        if depth == 0:
            return "[too deep]"
        if isinstance(value, Mapping):
            return {
                self._scrubber.scrub_known(str(inner)): SCRUBBED
                if inner == "link"
                else self._scrubbed(str(inner), item, depth - 1)
                for inner, item in value.items()
            }
        return [self._scrubbed("", item, depth - 1) for item in value]


@lru_cache(maxsize=1024)  # names come from code, the same few in every entry
def is_secret(name: str) -> bool:
    """Whether a field of this name holds a secret: one of its words says so."""
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(name))
