"""Limits on the cost of a query: its time, its caller's cancellation, and `like` on long texts.

Each thread that runs calls has one `QueryLimit`, which describes the query that may be interrupted
at the moment. One `QueryWatch`, in its own thread, checks the busy limits and interrupts. An
interrupt never reaches the following call: both it and the end of a call hold the limit's lock.

SQLite checks for an interrupt at each jump of its virtual machine, and PostgreSQL at each row, so
the work within one row must be short by itself. LIKE of both databases compares the rest of the
pattern at each position of the text, in one step that cannot be interrupted: a pattern of 990
characters takes three seconds on a text of one megabyte. Therefore texts of more than
`MAX_NATIVE_LIKE_BYTES` are matched in a time that is not proportional to text times pattern: on
SQLite by `like_long`, which searches the pattern's parts one after the other, and on PostgreSQL by
a regular expression, which its engine runs as an automaton and can interrupt. The rules are those
of LIKE: `%` stands for any text, `_` for one character, and a backslash makes the next character
literal. SQLite's LIKE reads U+FFFE and U+FFFF as U+FFFD, so `like_long` also matches patterns with
one of these.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final, Protocol

from sqlalchemy import Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean

from fw_actors.errors import OverloadedError, query_timeout

MAX_PERIOD_SECONDS: Final = 0.25
_PERIODS: Final = 4  # checks within the time limit of a query

_log: Final = logging.getLogger(__name__)


class Abandonable(Protocol):
    """A work item whose caller may be cancelled."""

    abandoned: bool


class Stoppable(Protocol):
    """A transaction that can be stopped from another thread."""

    def stop(self, refusal: Exception) -> None:
        """Refuse every further statement. Called in another thread."""


class QueryLimit:
    """The running query of one thread and its deadline.

    `begin` and `end` are called in that thread, `check` by the watch. `fired` is set when
    the running call was interrupted; functions that run long within one row check it.
    """

    __slots__ = (
        "_busy",
        "_call",
        "_deadline",
        "_interrupt",
        "_lock",
        "_seconds",
        "_transaction",
        "fired",
    )

    def __init__(self, seconds: float | None = None) -> None:
        """`seconds`: the time limit of a call; None: no limit."""
        self.fired = False
        self._seconds = seconds
        self._busy: threading.Event | None = None
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._transaction: Stoppable | None = None
        self._call: Abandonable | None = None
        self._deadline = inf

    def watched_by(self, busy: threading.Event) -> None:
        """Have `begin` set `busy`."""
        self._busy = busy

    def begin(
        self,
        interrupt: Callable[[], None],
        call: Abandonable | None = None,
        transaction: Stoppable | None = None,
    ) -> None:
        """Allow the watch to call `interrupt`: after the time limit, or when `call` is abandoned.

        `transaction`: stopped too, if the limit covers a whole transaction.
        """
        self.fired = False
        self._call, self._transaction = call, transaction
        self._deadline = inf if self._seconds is None else time.monotonic() + self._seconds
        self._interrupt = interrupt
        if self._busy is not None and not self._busy.is_set():
            self._busy.set()

    def end(self) -> None:
        """End the interruptible part; waits for an interrupt in progress."""
        with self._lock:
            self._interrupt = self._call = self._transaction = None
            self.fired = False

    @property
    def is_busy(self) -> bool:
        """Whether a query runs that may be interrupted."""
        return self._interrupt is not None

    def check(self, now: float) -> None:
        """Interrupt a query that exceeded its time or lost its caller; repeated while it runs.

        It is repeated because an interrupt between two statements has no effect.
        """
        call = self._call
        if now < self._deadline and (call is None or not call.abandoned):
            return
        with self._lock:
            if self._interrupt is None or self._call is not call:
                return
            if now < self._deadline and (call is None or not call.abandoned):
                return  # a later search of the same thread
            self.fired = True
            if self._transaction is not None:
                self._transaction.stop(self.refusal())
            self._interrupt()

    def refusal(self) -> OverloadedError:
        """Return the exception for an interrupted query."""
        return query_timeout(self._seconds or 0.0)


class QueryWatch:
    """The thread that checks limits: periodically while a query runs, and at once on request.

    It sleeps while no query runs.
    """

    def __init__(self, limits: Sequence[QueryLimit], seconds: float | None) -> None:
        """`seconds`: the time limit of `limits`."""
        self._limits = limits
        self._period = (
            MAX_PERIOD_SECONDS if seconds is None else min(MAX_PERIOD_SECONDS, seconds / _PERIODS)
        )
        self._busy = threading.Event()
        self._wake_up = threading.Event()
        self._closing = False
        for limit in limits:
            limit.watched_by(self._busy)
        self._thread = threading.Thread(target=self._watch, name="fw-query-watch", daemon=True)
        self._thread.start()

    def check_now(self) -> None:
        """Check at once, because a caller was cancelled."""
        self._wake_up.set()

    def close(self) -> None:
        """End the thread. Called when no query runs any more."""
        self._closing = True
        self._busy.set()
        self._wake_up.set()

    def _watch(self) -> None:
        while True:
            self._busy.wait()
            self._wake_up.wait(self._period)
            if self._closing:
                return
            self._wake_up.clear()
            now = time.monotonic()
            for limit in self._limits:
                try:
                    limit.check(now)
                except Exception:  # the next check tries again
                    _log.exception("a query could not be interrupted")
            self._busy.clear()
            if any(limit.is_busy for limit in self._limits):
                self._busy.set()


MAX_NATIVE_LIKE_BYTES: Final = 1000
"""Bytes; up to this length LIKE is fast enough: four milliseconds for the worst pattern."""

LIKE_LONG: Final = "fw_like_long"
"""The name of `like_long` on an SQLite connection."""

_ALIKE_ON_SQLITE: Final = frozenset("\ufffd\ufffe\uffff")
_PARTS_CACHE_SIZE: Final = 128
_ASCII: Final = 127
_CHARACTERS_AT_ONCE: Final = 20_000  # between two checks of the time limit; a few milliseconds

_Item = str | None  # a character of a pattern; None: any one
RequireTime = Callable[[], None]


class Like(FunctionElement[bool]):
    """Whether a column's text, with ASCII in lower case, matches a pattern in lower case."""

    name = "like_pattern"
    inherit_cache = False  # the SQL depends on the pattern
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], pattern: str) -> None:
        self.is_misread_by_sqlite = not _ALIKE_ON_SQLITE.isdisjoint(pattern)
        super().__init__(
            column,
            bindparam(None, pattern, type_=Text(), unique=True),
            bindparam(None, as_regular_expression(pattern), type_=Text(), unique=True),
        )


def as_regular_expression(pattern: str) -> str:
    """Return the advanced regular expression of PostgreSQL that is equal to a LIKE pattern.

    Adjacent `%` become one `.*`: compiling hundreds of them takes PostgreSQL longer than the time
    limit of a query.
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

    The parts are searched from left to right, each at its first occurrence, which leaves the
    longest rest for the following parts.

    Raises: the errors of `require_time`, which is called every few milliseconds.
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
        # Bit n of a character's mask is set if the part has it at position n.
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
        """Return the end of the first occurrence within text[place:end]; -1 for none."""
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


@lru_cache(_PARTS_CACHE_SIZE)
def _compiled(pattern: str) -> tuple[_Part, ...]:
    first, *rest = _parts(pattern)
    if not rest:
        return (_Part(first),)
    *between, last = rest  # `%%` equals `%`
    return (_Part(first), *(_Part(part) for part in between if part), _Part(last))


def _parts(pattern: str) -> Iterator[list[_Item]]:
    """Yield the items before, between and after the pattern's `%`."""
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
    if like.is_misread_by_sqlite:
        return f"{LIKE_LONG}({pattern}, lower({column}))"
    return (
        f"CASE WHEN length(CAST({column} AS BLOB)) > {MAX_NATIVE_LIKE_BYTES}"
        f" THEN {LIKE_LONG}({pattern}, lower({column}))"
        f" ELSE lower({column}) LIKE {pattern} ESCAPE '\\' END"
    )


@compiles(Like, "postgresql")
def _like_on_postgresql(like: Like, compiler: SQLCompiler, **kw: Any) -> str:
    column, pattern, regular = (compiler.process(each, **kw) for each in like.clauses)
    return (
        f"CASE WHEN octet_length({column}) > {MAX_NATIVE_LIKE_BYTES}"
        f" THEN lower({column}) ~ {regular}"
        f" ELSE lower({column}) LIKE {pattern} ESCAPE '\\' END"
    )
