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
# Made once: json.dumps with options makes an encoder at each call.
_to_ascii_json: Final = json.JSONEncoder(default=str).encode
_to_json: Final = json.JSONEncoder(default=str, ensure_ascii=False).encode


def json_line(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> str:
    """Return the entry as a JSON object; ASCII, so that no character can break or colour a line."""
    first = {"timestamp": _time(entry), "level": entry.get("level"), "event": entry.get("event")}
    return _to_ascii_json({**first, **{name: entry[name] for name in entry if name not in first}})


def text_line(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> str:
    """Return `time level event name=value …`, a traceback below it, each of its lines marked."""
    parts = [_time(entry), f"{entry.get('level', ''):<7}", str(entry.get("event", ""))]
    parts += [f"{name}={_value(value)}" for name, value in entry.items() if name not in _PLACED]
    trace = str(entry.get("exception", ""))
    below = "".join(f"\n  | {escaped(line)}" for line in trace.split("\n") if trace)
    return escaped(" ".join(parts)) + below


def _time(entry: MutableMapping[str, Any]) -> str:
    moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value):
            return value
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value) if type(value) is int else _to_json(value)
