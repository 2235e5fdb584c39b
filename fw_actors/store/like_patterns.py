"""`like` over long texts, in time that does not grow with text times pattern.

Both stores' LIKE compares the rest of the pattern at each place of the text, within one step that
nothing interrupts: 990 characters against a text of a megabyte take three seconds. So texts of
more than `SHORT` bytes are matched otherwise: on SQLite by a function of ours that looks for the
pattern's parts one after the other, on PostgreSQL by a regular expression, which its engine
carries out as an automaton and which it interrupts. The rules are those of LIKE: `%` stands for
any text, `_` for one character, a backslash takes the next character as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean

SHORT: Final = 1000
"""Bytes; up to here LIKE itself is quick enough: four milliseconds for the worst pattern."""

LIKE_LONG: Final = "fw_like_long"
"""The name of `like_long` on an SQLite connection."""

_PARTS_KEPT: Final = 128
_ASCII: Final = 127
_CHARACTERS_AT_ONCE: Final = 20_000  # between two looks at the time; a few milliseconds

_Item = str | None  # a character of a pattern; None: any one
RequireTime = Callable[[], None]


class Like(FunctionElement[bool]):
    """Whether a column's text, in lower case of ASCII, matches a pattern that is lowered."""

    name = "like_pattern"
    inherit_cache = True
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], pattern: str) -> None:
        super().__init__(
            column,
            bindparam(None, pattern, type_=Text(), unique=True),
            bindparam(None, as_regular_expression(pattern), type_=Text(), unique=True),
        )


def as_regular_expression(pattern: str) -> str:
    """Return an advanced regular expression of PostgreSQL that matches what a LIKE pattern does.

    `%%` is `.*` once: to compile a row of hundreds takes PostgreSQL longer than a query may.
    """
    first, *rest = (
        "".join("." if item is None else _literal(item) for item in part)
        for part in _parts(pattern)
    )
    if not rest:
        return f"^{first}$"
    *between, last = rest
    return f"^{'.*'.join((first, *filter(None, between), last))}$"


def like_long(require_time: RequireTime, pattern: str | None, text: str | None) -> bool | None:
    """Return whether a text matches a LIKE pattern; None where one of them is null.

    Its parts are looked for from left to right, each at the first place where it is: what comes
    after it then has the most room.

    Raises: whatever `require_time` raises, which is called every few milliseconds.
    """
    if pattern is None or text is None:
        return None
    first, *between = _compiled(pattern)
    if not between:
        return len(text) == first.length and first.is_at(text, 0)
    last = between.pop()
    if len(text) < first.length + last.length:
        return False
    end = len(text) - last.length
    if not (first.is_at(text, 0) and last.is_at(text, end)):
        return False
    place = first.length
    for part in between:
        require_time()
        place = part.end_in(text, place, end, require_time)
        if place < 0:
            return False
    return True


class _Part:
    """The part of a pattern between two `%`: characters, and `_` for any character."""

    def __init__(self, items: list[_Item]) -> None:
        self.length = len(items)
        self._literal = "".join(item or "" for item in items)
        self._is_literal = None not in items
        self._items = items
        # Bit n of a character's mask: it may be the part's character number n.
        self._others = sum(1 << n for n, item in enumerate(items) if item is None)
        self._masks: dict[str, int] = {}
        for n, item in enumerate(items):
            if item is not None:
                self._masks[item] = self._masks.get(item, self._others) | 1 << n

    def is_at(self, text: str, place: int) -> bool:
        """Return whether the part matches at a position of the text, which must be long enough."""
        if self._is_literal:
            return text.startswith(self._literal, place)
        there = text[place : place + self.length]
        pairs = zip(there, self._items, strict=True)
        return all(item is None or item == character for character, item in pairs)

    def end_in(self, text: str, place: int, end: int, require_time: RequireTime) -> int:
        """Return where the first occurrence within text[place:end] ends; -1 for none."""
        if self._is_literal:
            found = text.find(self._literal, place, end)
            return found if found < 0 else found + self.length
        seen, last, mask_of = 0, 1 << (self.length - 1), self._masks.get
        for begin in range(place, end, _CHARACTERS_AT_ONCE):
            require_time()
            some = text[begin : min(begin + _CHARACTERS_AT_ONCE, end)]
            for at, character in enumerate(some, begin):
                # Bit n: the last n + 1 characters are the part's first ones (Shift-And).
                seen = (seen << 1 | 1) & mask_of(character, self._others)
                if seen & last:
                    return at + 1
        return -1


@lru_cache(_PARTS_KEPT)
def _compiled(pattern: str) -> tuple[_Part, ...]:
    first, *rest = _parts(pattern)
    if not rest:
        return (_Part(first),)
    *between, last = rest  # `%%` equals `%`
    return (_Part(first), *(_Part(part) for part in between if part), _Part(last))


def _parts(pattern: str) -> Iterator[list[_Item]]:
    """Yield what stands before, between and after the pattern's `%`."""
    part: list[_Item] = []
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            part.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "_":
            part.append(None)
        else:
            yield part
            part = []
    yield part


def _literal(character: str) -> str:
    return character if character.isalnum() or ord(character) > _ASCII else f"\\{character}"


@compiles(Like, "sqlite")
def _like_on_sqlite(like: Like, compiler: SQLCompiler, **kw: Any) -> str:
    column, pattern = (compiler.process(each, **kw) for each in list(like.clauses)[:2])
    return (
        f"CASE WHEN length(CAST({column} AS BLOB)) > {SHORT}"
        f" THEN {LIKE_LONG}({pattern}, lower({column}))"
        f" ELSE lower({column}) LIKE {pattern} ESCAPE '\\' END"
    )


@compiles(Like, "postgresql")
def _like_on_postgresql(like: Like, compiler: SQLCompiler, **kw: Any) -> str:
    column, pattern, regular = (compiler.process(each, **kw) for each in like.clauses)
    return (
        f"CASE WHEN octet_length({column}) > {SHORT}"
        f" THEN lower({column}) ~ {regular}"
        f" ELSE lower({column}) LIKE {pattern} ESCAPE '\\' END"
    )
