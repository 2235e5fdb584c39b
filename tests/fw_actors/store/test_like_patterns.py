"""`like` over long texts agrees with the stores' own LIKE."""

from __future__ import annotations

import sqlite3
from itertools import product

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.store import Like, Store
from fw_actors.store.query_limits import MAX_NATIVE_LIKE_BYTES, like_long
from tests.fw_actors.store.conftest import OpenStore

PATTERNS = st.text("ab%_\\é.*", max_size=12).filter(
    lambda pattern: (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 0
)
TEXTS = st.text("ab%_\\é.*\n", max_size=20)
_LITE = sqlite3.connect(":memory:")


def in_time() -> None:
    pass


@given(PATTERNS, TEXTS)
def test_like_long_matches_like_of_sqlite(pattern: str, text: str) -> None:
    (like,) = _LITE.execute("SELECT ? LIKE ? ESCAPE '\\'", (text, pattern)).fetchone()
    assert like_long(in_time, pattern, text) is bool(like)


def words(letters: str, most: int) -> list[str]:
    """All texts of these letters with at most `most` characters."""
    lengths = range(most + 1)
    return ["".join(word) for length in lengths for word in product(letters, repeat=length)]


def test_like_long_matches_each_short_pattern_like_sqlite() -> None:
    """Random patterns rarely have parts that overlap each other or the end of the text."""
    texts = words("ab", 4)
    rows = ",".join(f"({n}, '{text}')" for n, text in enumerate(texts))
    like = f"WITH texts (n, text) AS (VALUES {rows}) SELECT text LIKE ? FROM texts ORDER BY n"
    for pattern in words("ab%_", 5):
        expected = [bool(found) for (found,) in _LITE.execute(like, [pattern])]
        assert [like_long(in_time, pattern, text) for text in texts] == expected, pattern


def test_like_long_returns_null_for_null() -> None:
    assert like_long(in_time, None, "a") is None
    assert like_long(in_time, "a", None) is None


CASES = [  # pattern, text, whether it matches
    ("%needle%", "x" * 5000 + "NEEDLE" + "x" * 5000, True),
    ("%needle%", "x" * 5000 + "needl" + "x" * 5000, False),
    ("x%n__dle%x", "X" * 5000 + "nEEdle" + "x" * 5000, True),
    ("%100\\%", "x" * 5000 + "100%", True),
    ("%100\\%", "x" * 5000 + "1000", False),
    ("%a.c%", "x" * 5000 + "abc", False),
    ("%(a|b)[c]^$+?{2}", "x" * 5000 + "(A|B)[C]^$+?{2}", True),
    ("x%\n%é", "x" * 5000 + "\né", True),
    ("%É", "x" * 5000 + "é", False),  # ASCII letters alone
    ("_" * MAX_NATIVE_LIKE_BYTES, "é" * MAX_NATIVE_LIKE_BYTES, True),
    ("_" * MAX_NATIVE_LIKE_BYTES, "é" * (MAX_NATIVE_LIKE_BYTES + 1), False),
    ("%", "x" * 5000, True),
    ("%" * 1000, "x" * 5000, True),
    ("x" + "%" * 500 + "y" + "%" * 498, "x" * 5000, False),
]


@pytest.mark.parametrize(("pattern", "text", "matches"), CASES)
async def test_like_matches_long_texts_equally_in_both_stores(
    open_store: OpenStore, pattern: str, text: str, matches: bool
) -> None:
    assert await matching(open_store, pattern.lower() if pattern.isascii() else pattern, text) == (
        matches
    )


async def matching(open_store: OpenStore, pattern: str, text: str) -> bool:
    async with open_store(query_seconds=5) as store:
        return await ask(store, pattern, text)


async def ask(store: Store, pattern: str, text: str) -> bool:
    held = sa.cast(sa.literal(text), sa.Text)
    statement = sa.select(sa.case((Like(held, pattern), 1), else_=0))
    return bool(await store.read(lambda tx: tx.scalar(statement)))


NONCHARACTERS = [  # pattern, text, whether it matches
    ("%\uffff%", "a\ufffd", False),
    ("%\ufffe", "a\uffff", False),
    ("\ufffd", "\ufffe", False),
    ("%\uffff_", "A\uffffb", True),
    ("a\\\ufffd", "A\ufffd", True),
    ("_%", "\uffff", True),
]


@pytest.mark.parametrize(("pattern", "text", "matches"), NONCHARACTERS)
async def test_like_distinguishes_noncharacters_in_both_stores(
    open_store: OpenStore, pattern: str, text: str, matches: bool
) -> None:
    """`like` ignores the case of ASCII letters, and nothing else (D-35)."""
    for padding in ("", "x" * MAX_NATIVE_LIKE_BYTES):
        assert await matching(open_store, padding + pattern, padding + text) is matches


def test_like_long_is_interruptible_within_single_text() -> None:
    """A pattern with `_` in the middle costs the most: it examines every character."""
    checks = iter(range(3))

    def require_time() -> None:
        if next(checks, None) is None:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        like_long(require_time, "%" + "a_" * 400 + "b%", "a" * 1_000_000)


def test_like_long_checks_are_bounded_by_text_length() -> None:
    """Cost is counted in time checks: one per 20,000 characters, for any pattern (D-38)."""
    for pattern in ("%" + "a" * 990 + "b%", "%a%" * 300 + "b%", "%" + "a_" * 400 + "b%"):
        checks: list[int] = []
        assert like_long(lambda checks=checks: checks.append(1), pattern, "a" * 100_000) is False  # type: ignore[misc]
        assert len(checks) <= 310
