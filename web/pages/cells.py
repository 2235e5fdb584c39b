"""One value as a list or a history shows it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from fw_actors.documents.doctype import Meta
from web.pages.wording import DOCSTATUS

GOOD, WARN, BAD, PLAIN = "good", "warn", "bad", "plain"
TONES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Sent": GOOD,
        "Submitted": GOOD,
        "Retrying": WARN,
        "Failed": BAD,
        "Cancelled": BAD,
        "Denied": BAD,
    }
)
_TIMES: Final = ("creation", "modified")
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"Datetime": "time", "Int": "number", "Float": "number"}
)
LONGEST: Final = 80


@dataclass(frozen=True)
class Cell:
    """A value to show: `kind` is text, time, number, check or badge; `tone` colours a badge."""

    kind: str
    text: str
    tone: str = PLAIN


EMPTY: Final = Cell("text", "")


def cell(meta: Meta, name: str, value: Any) -> Cell:
    """Return how a field's value is shown in a list."""
    if name == "docstatus":
        return badge(DOCSTATUS[value])
    kind = _type_of(meta, name)
    if kind == "Check":
        return Cell("check", "Yes" if value else "No")
    if value is None or value == "":
        return EMPTY
    if kind == "Select" or name == "action":
        return badge(str(value))
    return Cell(kind_of(meta, name), shortened(str(value)))


def kind_of(meta: Meta, name: str) -> str:
    """Return the kind of a field's cells: text, time or number."""
    return _KINDS.get(_type_of(meta, name), "text")


def _type_of(meta: Meta, name: str) -> str:
    field = meta.fields.get(name)
    return "Datetime" if name in _TIMES else "" if field is None else field.type


def badge(text: str) -> Cell:
    """Return a state as a badge of its colour."""
    return Cell("badge", text, TONES.get(text, PLAIN))


def shortened(text: str) -> str:
    """Return `text` with its end cut where it is long."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def told(value: Any) -> str:
    """Return any JSON value as a history shows it."""
    if value is None or value == "":
        return "empty"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
