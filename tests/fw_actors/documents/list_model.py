"""A model of lists in Python: what filters match, and their order, by the contract (D-30 to D-37).

It reads documents as the API shows them, and knows no SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

import msgspec

Document = Mapping[str, Any]
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ListModel:
    """Answers lists of documents whose fields have these `kinds`; other fields are texts."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        times = dict.fromkeys(("creation", "modified"), "Datetime")
        self._kinds = {**kinds, **times}

    def answer(self, documents: Iterable[Document], query: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer to a valid query that names its `fields`."""
        filters = json.loads(query.get("filters", "[]"))
        found = [each for each in documents if all(self._meets(each, one) for one in filters)]
        self._sort(found, query.get("order_by") or "creation desc")
        start, limit = int(query.get("start", "0")), int(query.get("limit", "20"))
        names = json.loads(query["fields"])
        page = [{name: each[name] for name in names} for each in found[start : start + limit]]
        return {"data": page, "total": len(found)}

    def _sort(self, found: list[Document], order_by: str) -> None:
        terms = [(term.split()[0], term.endswith(" desc")) for term in order_by.split(",")]
        for name, down in reversed([*terms, ("name", terms[-1][1])]):
            found.sort(key=lambda each, name=name: self._place(name, each[name]), reverse=down)  # type: ignore[misc]

    def _place(self, name: str, value: Any) -> tuple[bool, Any]:
        """Return what a field is sorted by: null first."""
        return value is not None, 0 if value is None else self._held(name, value)

    def _meets(self, document: Document, triple: Sequence[Any]) -> bool:
        name, operator, value = triple
        if isinstance(name, list):
            return any(self._meets(document, [each, operator, value]) for each in name)
        stored = document[name]
        if operator == "is null":
            return (stored is None) is (value in (None, True))
        if value is None:
            return (stored is None) is (operator == "=")
        if operator == "not in" and not value:
            return True
        return stored is not None and self._compares(name, stored, operator, value)

    def _compares(self, name: str, stored: Any, operator: str, value: Any) -> bool:
        held = self._held(name, stored)
        if operator == "like":
            return _is_like(held, value)
        if operator in ("in", "not in", "between"):
            values = [self._held(name, each) for each in value]
            if operator == "between":
                return bool(values[0] <= held <= values[1])
            return (held in values) is (operator == "in")
        return _is_met(operator, held, self._held(name, value))

    def _held(self, name: str, value: Any) -> Any:
        """Return a value in a form that is compared as the field is."""
        kind = self._kinds.get(name)
        if kind == "JSON":
            return msgspec.json.encode(value).decode()
        if kind == "Datetime":
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return (moment - _EPOCH) // timedelta(milliseconds=1)
        return value


def _is_met(operator: str, held: Any, value: Any) -> bool:
    results = {
        "=": held == value,
        "!=": held != value,
        "<": held < value,
        "<=": held <= value,
        ">": held > value,
        ">=": held >= value,
    }
    return bool(results[operator])


def _is_like(text: str, pattern: str) -> bool:
    parts, escaped = [], False
    for one in pattern.translate(_LOWER):
        if escaped or one not in "%_\\":
            parts.append(re.escape(one))
            escaped = False
        elif one == "\\":
            escaped = True
        else:
            parts.append(".*" if one == "%" else ".")
    return re.fullmatch("".join(parts), text.translate(_LOWER), re.DOTALL) is not None
