"""The grammar of event names. Source: spec, App events; interface §8 "Webhooks"."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARACTERS: Final = 140
RESERVED_PREFIX: Final = "doc."
GRAMMAR: Final = "lower-case words of a-z, 0-9 and _, joined by dots"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\Z")

DOCUMENT_EVENTS: Final = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")


class UnusableEventNameError(ValueError):
    """Raised for a name that no app can emit; the message says why."""


def judge_event_name(name: str) -> None:
    """Refuse a name that an app can't emit.

    Raises: UnusableEventNameError.
    """
    if name.startswith(RESERVED_PREFIX):
        raise UnusableEventNameError("Event names that begin with doc. are the framework's own.")
    if len(name) > MAX_CHARACTERS or not _NAME.match(name):
        raise UnusableEventNameError(
            f"An event name is {GRAMMAR}, at most {MAX_CHARACTERS} characters."
        )
