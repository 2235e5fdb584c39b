"""One log entry as one line: text for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

from supervisors.service.escaping import escaped

# Fields with a place of their own in a line of text.
_PLACED: Final = frozenset({"timestamp", "level", "event", "exception"})
_PLAIN: Final = re.compile(r"[^\s\"'=\\]+")


def json_line(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> str:
    """Return the entry as a JSON object; ASCII, so that no character can break or colour a line."""
    first = {"timestamp": _time(entry), "level": entry.get("level"), "event": entry.get("event")}
    return json.dumps(
        {**first, **{name: entry[name] for name in entry if name not in first}}, default=str
    )


def text_line(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> str:
    """Return `time level event name=value …`, a traceback below it, each of its lines marked."""
    head = f"{_time(entry)} {entry.get('level', ''):<7} {escaped(str(entry.get('event', '')))}"
    fields = "".join(
        f" {escaped(name)}={_value(value)}" for name, value in entry.items() if name not in _PLACED
    )
    trace = str(entry.get("exception", ""))
    below = "".join(f"\n  | {escaped(line)}" for line in trace.split("\n") if trace)
    return head + fields + below


def _time(entry: MutableMapping[str, Any]) -> str:
    moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if isinstance(value, str) and not _PLAIN.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return escaped(text)
