"""Random requests to the document API, as JSON texts: values that stores may treat differently.

All texts are JSON, so that numbers, duplicate keys and escapes are sent as they are written here.
The DocTypes are those of `apps/alike.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

STANDARD: Final = ("name", "owner", "creation", "modified", "modified_by", "docstatus", "idx")
KINDS: Final[Mapping[str, str]] = {
    "data": "Data", "short": "Data", "text": "Text", "code": "Data", "tag": "Data",
    "number": "Int", "ratio_key": "Float", "day_key": "Date", "count": "Int", "small": "Int",
    "ratio": "Float", "done": "Check", "day": "Date", "moment": "Datetime", "kind": "Select",
    "peer": "Link", "extra": "JSON", "cost": "Float", "locked": "Data",
}  # fmt: skip
"""The fields that can be listed, with their types."""
SECRETS: Final = ("pin", "token")
TEXTUAL: Final = ("name", "data", "short", "text", "code", "tag", "peer", "kind", "extra")
UNIQUE: Final = ("code", "tag", "number", "ratio_key", "short", "count")
OPERATORS: Final = (
    "=", "!=", "<", "<=", ">", ">=", "in", "not in", "between", "like", "like", "is null",
)  # fmt: skip

CHARACTERS: Final = (
    *"aAbzZ019 ~%_\\'\"-.[{", "ß", "ẞ", "SS", "İ", "\u0131", "I", "i", "ς", "\u03c3", "Σ", "é",
    "e\u0301", "Å", "\u212b", "A\u030a", "א", "\u202e", "\u200f", "\u200b", "\ufeff", "\uffff",
    "\ufffe", "\ufffd", "😀", "\U0010ffff", "\u2028", "\u00a0", "ﬁ", "ǅ", "\u0345",
    "\ue000", "\ud7ff",
)  # fmt: skip
REFUSED: Final = ("\0", "\ud800", "\udfff", "\x85", "\x1b", "\x7f")
_ALIKE: Final = ("\ufffd\ufffe\uffff", "ßẞsS", "İ\u0131iI", "ς\u03c3Σ", "éÉe", "åÅ\u212b", "aA")
_SIMILAR: Final = {one: group for group in _ALIKE for one in group}
_LENGTHS: Final = (11, 12, 13, 140, 141, 333, 334, 650, 651, 1000, 1001)
_TEXTS: Final = ("", "null", "1", "1.0", "01", "true", "[1]", "2026-01-01")
_WHOLE: Final = ("0", "1", "-1", "2", "5", "-5", "10", "2147483648", "9007199254740992")
_FLOATING: Final = (
    "0", "1", "-0.0", "0.1", "0.30000000000000004", "1e308", "-1e308", "5e-324", "1e-400", "1e22",
    "9007199254740993.0", "1.7976931348623157e308", "123456789.123456789", "2.5",
)  # fmt: skip
_DAYS: Final = ("0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29", "2026-01-31")
_HOURS: Final = (
    "", "T00:00:00Z", "T00:00:00.0005Z", "T23:59:59.9999999Z", "T12:00:00+14:00", " 08:00",
    "T00:00:00-23:59", "T08:00:00.123456+05:30",
)  # fmt: skip
_SELECTED: Final = ("a", "A", "ß", "SS", "ς", "\u03c3", "é", "e\u0301", " ", "1", "")
_VALUES: Final = ("null", "true", "0", "1.0", "-0.0", "1e308", "1E5", '""', "[]", "{}", "0.1")
_WRONG: Final = (
    "[]", "{}", "5", "1.5", "true", '"x"', "1e400", "NaN", "9007199254740993", '{"a":1,"a":2}',
    "9" * 400, '"2023-02-29"', '"0000-01-01"', '"\uff12026-01-01"', '"T24"', "[" * 33 + "]" * 33,
)  # fmt: skip


class RandomRequests:
    """Makes names, bodies and lists. `live` holds values of stored documents, by field."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.live: dict[str, list[Any]] = {}
        self.peers: list[str] = []

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    def text(self, limit: int = 3) -> str:
        """Return a text, rarely one that no field takes."""
        draw = self.random
        if self.chance(0.1):
            return draw.choice(_TEXTS)
        if self.chance(0.05):
            return str(draw.choice(CHARACTERS)) * draw.choice(_LENGTHS)
        characters = draw.choice(_ALIKE) if self.chance(0.3) else CHARACTERS
        text = "".join(draw.choices(characters, k=draw.randint(1, limit)))
        return text + draw.choice(REFUSED) if self.chance(0.02) else text

    def quoted(self, text: str) -> str:
        """Return a text as JSON, with or without escapes."""
        half = any("\ud800" <= character <= "\udfff" for character in text)
        return json.dumps(text, ensure_ascii=half or self.chance(0.3))

    def value(self, field: str) -> str:
        """Return a value for a field of Thing, rarely one of a wrong type or range."""
        if self.chance(0.05):
            return "null"
        if self.chance(0.04):
            return self.random.choice(_WRONG)
        if field in UNIQUE and self.chance(0.8):
            number = self.random.randint(0, 5)
            return self.quoted("abcßẞe"[number]) if KINDS[field] == "Data" else str(number)
        return self._of_kind("Vault" if field in SECRETS else KINDS[field])

    def _of_kind(self, kind: str) -> str:
        draw = self.random
        makers: Mapping[str, Callable[[], str]] = {
            "Int": lambda: draw.choice(_WHOLE),
            "Float": lambda: draw.choice(_FLOATING),
            "Check": lambda: draw.choice(("0", "1", "true", "false")),
            "Date": lambda: self.quoted(draw.choice(_DAYS)),
            "Datetime": lambda: self.quoted(draw.choice(_DAYS) + draw.choice(_HOURS)),
            "Select": lambda: self.quoted(draw.choice(_SELECTED)),
            "Link": lambda: self.quoted(draw.choice([*self.peers, self.text(1)])),
            "Text": lambda: self.quoted(self.text() + draw.choice(("", "\n", "\t", "x" * 1000))),
            "Vault": lambda: draw.choice(('""', '{"configured": true}', self.quoted(self.text()))),
            "JSON": lambda: self.tree(3),
        }
        return makers[kind]() if kind in makers else self.quoted(self.text())

    def tree(self, depth: int) -> str:
        """Return any JSON value, nested at most so deep."""
        draw = self.random
        if not depth or self.chance(0.4):
            return draw.choice((*_VALUES, self.quoted(self.text())))
        inner = [self.tree(depth - 1) for _ in range(draw.randint(0, 3))]
        if self.chance(0.5):
            return f"[{','.join(inner)}]"
        return f"{{{','.join(f'{self.quoted(self.text(2))}:{each}' for each in inner)}}}"

    def body(self, rows: Sequence[str]) -> dict[str, str]:
        """Return fields of Thing; `rows`: the names of its stored rows."""
        draw = self.random
        names = draw.sample((*KINDS, *SECRETS), draw.choice((0, 1, 2, 3, 5)))
        names += draw.sample(UNIQUE, 3) if self.chance(0.3) else ()
        body = {name: self.value(name) for name in names if name != "locked" or self.chance(0.1)}
        if self.chance(0.3):
            kept = [f'"name":{self.quoted(row)},' for row in draw.sample(rows, len(rows) // 2)]
            lines = [self.row(begin) for begin in (*kept, *[""] * draw.randint(0, 3))]
            draw.shuffle(lines)
            body["lines"] = f"[{','.join(lines)}]"
        if self.chance(0.02):
            body[draw.choice(("nope", "docstatus", "owner", "idx", "doctype"))] = self.tree(1)
        return body

    def row(self, begin: str) -> str:
        """Return a row of Thing."""
        makers: Mapping[str, Callable[[], str]] = {
            "serial": lambda: self.quoted(self.random.choice("abcdeß")),
            "mark": lambda: str(self.random.randint(0, 9)),
            "ratio": lambda: self.value("ratio"),
            "extra": lambda: self.value("extra"),
            "peer": lambda: self.value("peer"),
            "note": lambda: self.value("text"),
        }
        parts = [f'"{name}":{make()}' for name, make in makers.items() if self.chance(0.25)]
        return f'{{{begin}"item":{self.quoted(self.text())}{"".join("," + p for p in parts)}}}'

    def field(self) -> str:
        """Return the name of a field to list, rarely one that cannot be listed."""
        if self.chance(0.02):
            return self.random.choice(("lines", "pin", "nope", ""))
        return self.random.choice((*STANDARD, *KINDS, *KINDS))

    def condition(self) -> str:
        """Return a filter."""
        draw = self.random
        field, operator = self.field(), draw.choice(OPERATORS)
        if operator == "like" and self.chance(0.9):
            field = draw.choice(TEXTUAL)
        fields = [field, self.field()] if self.chance(0.1) else field
        if operator == "is null":
            value = draw.choice(("true", "false", "null", "5"))
        elif operator == "like":
            value = self.quoted(self.pattern(field))
        elif operator in ("in", "not in"):
            value = f"[{','.join(self.operand(field) for _ in range(draw.randint(0, 4)))}]"
        elif operator == "between":
            value = f"[{self.operand(field)},{self.operand(field)}]"
        else:
            value = self.operand(field)
        return f"[{json.dumps(fields)},{json.dumps(operator)},{value}]"

    def operand(self, field: str) -> str:
        """Return a value to compare a field with: often one that is stored."""
        if self.live.get(field) and self.chance(0.7):
            return json.dumps(self.random.choice(self.live[field]))
        return self.value(field) if field in KINDS else self.quoted(self.text())

    def pattern(self, field: str) -> str:
        """Return a pattern for `like`: often a part of a stored text, with similar characters."""
        draw = self.random
        stored = [text for text in self.live.get(field, ()) if isinstance(text, str) and text]
        text = draw.choice(stored)[-900:] if stored and self.chance(0.8) else self.text()
        text = text[draw.randrange(len(text)) :] if text and self.chance(0.5) else text
        if self.chance(0.5):
            text = "".join(draw.choice(_SIMILAR.get(one, one)) for one in text)
        if self.chance(0.3):
            text = "".join("_" if self.chance(0.3) else one for one in text)
        text = text.replace("\\", "\\\\") if self.chance(0.9) else text
        return f"{draw.choice(('', '%'))}{text}{draw.choice(('', '%'))}"

    def listing(self) -> dict[str, str]:
        """Return the query of a list."""
        draw = self.random
        fields = ["name", *draw.sample((*STANDARD, *KINDS), 3)]
        terms = [self.field() + draw.choice(("", " asc", " desc")) for _ in range(2)]
        query = {
            "filters": f"[{','.join(self.condition() for _ in range(draw.choice((0, 1, 1, 2))))}]",
            "fields": json.dumps(fields),
            "order_by": ",".join(terms[: draw.randint(1, 2)]),
            "limit": draw.choice(("1", "3", "500")),
            "start": draw.choice(("0", "1", "5")),
        }
        return {key: text for key, text in query.items() if key == "fields" or self.chance(0.8)}
