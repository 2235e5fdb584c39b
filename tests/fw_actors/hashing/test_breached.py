"""Passwords of a local file of breached ones are refused (A-360 to A-362)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import trio

from fw_actors.config import Argon2
from fw_actors.errors import ConfigurationError, OverloadedError, PasswordPolicyError
from fw_actors.hashing import Hasher
from fw_actors.hashing.breached import BreachedPasswords
from fw_actors.runtime import SeededEntropy
from tests.site_kit import make_config

LISTED = [f"password {number}" for number in range(500)]


def digest(password: str) -> str:
    return hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()


def written(folder: Path, shape: str = "{hash}:{count}\r\n", passwords: list[str] = LISTED) -> Path:
    """Write a file as the downloader does; counts have different lengths."""
    path = folder / "pwned.txt"
    hashes = sorted(map(digest, passwords))
    lines = (shape.format(hash=h, count=7 ** (n % 9), short=h[:16]) for n, h in enumerate(hashes))
    path.write_bytes("".join(lines).encode())
    return path


@pytest.mark.parametrize(
    "shape",
    ["{hash}:{count}\r\n", "{hash}:{count}\n", "{hash}\n", "{short}\n", "{short}:{count}\r\n"],
)
def test_breached_passwords_find_listed_passwords_only(tmp_path: Path, shape: str) -> None:
    """The first and the last too (A-360)."""
    breached = BreachedPasswords(written(tmp_path, shape))
    assert all(map(breached.lists, LISTED))
    assert not any(breached.lists(f"another {number}") for number in range(500))


def test_breached_file_may_be_lower_case_without_a_last_newline(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().rstrip().lower())
    assert all(map(BreachedPasswords(path).lists, LISTED))


def test_breached_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert all(map(BreachedPasswords(path).lists, LISTED))


def test_breached_file_may_have_one_line(tmp_path: Path) -> None:
    breached = BreachedPasswords(written(tmp_path, passwords=["only"]))
    assert (breached.lists("only"), breached.lists("other")) == (True, False)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        (b"", "is empty"),
        (b"password1\npassword2\n", "has no hash at byte"),
        (b"x" * 5000, "has no hash at byte"),
        (b"".join(digest(p).encode() + b":1\n" for p in LISTED), "is not ordered by hash"),
    ],
)
def test_breached_file_malformed_is_refused_at_the_start(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    """The error says what to do (A-361)."""
    path = tmp_path / "pwned.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as refusal:
        BreachedPasswords(path)
    [problem] = refusal.value.problems
    assert problem.startswith(f"auth.breachedPasswords: {path} {complaint}")
    assert "haveibeenpwned-downloader" in problem


def test_breached_search_that_meets_an_invalid_line_is_overload(tmp_path: Path) -> None:
    """The start checks 65 lines, and the search those that it reads (A-361)."""
    path = written(tmp_path, "{hash}\n")
    listed = sorted(LISTED, key=digest)[3]
    path.write_bytes(path.read_bytes().replace(digest(listed).encode(), b"?" * 40))
    with pytest.raises(OverloadedError, match="cannot be read now"):
        BreachedPasswords(path).refuse(listed)


def test_breached_password_is_refused_by_the_hasher(tmp_path: Path) -> None:
    """Both hash methods refuse it."""
    breached = BreachedPasswords(written(tmp_path))
    hasher = Hasher(Argon2(64, 1, 1), 8, SeededEntropy(1), breached=breached, inline=True)

    async def hash_it(password: str) -> str:
        return await hasher.hash(password, name="n", email="e@x.test")

    with pytest.raises(PasswordPolicyError, match="lists of stolen passwords") as refusal:
        trio.run(hash_it, LISTED[0])
    assert refusal.value.extra["rule"] == "breached"
    with pytest.raises(PasswordPolicyError):  # as in a transaction
        hasher.hash_now(LISTED[0], name="n", email="e@x.test")
    assert trio.run(hash_it, "nobody has this")


def test_breached_file_is_found_beside_the_policy(tmp_path: Path) -> None:
    written(tmp_path)
    config = make_config(tmp_path, breached_passwords="pwned.txt")
    hasher = Hasher.of(config, SeededEntropy(1), inline=True)
    with pytest.raises(PasswordPolicyError):
        hasher.hash_now(LISTED[3], name="n", email="e@x.test")
