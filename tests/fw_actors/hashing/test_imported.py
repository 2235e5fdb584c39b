"""Hashes of other systems (C-163, C-164)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import argon2
import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.security import generate_password_hash

from fw_actors.config import Argon2
from fw_actors.hashing import Hasher, UnusableHashError, cost_from, cost_of, usable_hash
from fw_actors.hashing.imported import ImportedCost, ImportedHash, imported_or_none, parse_imported
from fw_actors.runtime import SeededEntropy

WORD = "päss word 1"
BYTES = WORD.encode()
SALT = b"0123456789abcdef"


def django_pbkdf2(digest: str) -> str:
    found = hashlib.pbkdf2_hmac(digest, BYTES, b"seasalt", 10)
    return f"pbkdf2_{digest}$10$seasalt${base64.b64encode(found).decode()}"


def django_scrypt() -> str:
    found = hashlib.scrypt(BYTES, salt=b"seasalt", n=16, r=8, p=2, dklen=64)
    return f"scrypt$16$seasalt$8$2${base64.b64encode(found).decode()}"


def of_bcrypt(prefix: bytes = b"2b", password: bytes = BYTES) -> str:
    return bcrypt.hashpw(password, bcrypt.gensalt(4)).replace(b"$2b$", b"$%s$" % prefix).decode()


PRE_HASHED = hashlib.sha256(BYTES).hexdigest().encode()
HASHES = {
    "bcrypt 2b": of_bcrypt(),
    "bcrypt 2a": of_bcrypt(b"2a"),
    "bcrypt 2y of PHP": of_bcrypt(b"2y"),
    "bcrypt of Django": f"bcrypt${of_bcrypt()}",
    "bcrypt_sha256 of Django": f"bcrypt_sha256${of_bcrypt(password=PRE_HASHED)}",
    "PBKDF2 of Django": django_pbkdf2("sha256"),
    "PBKDF2 of Django, SHA-1": django_pbkdf2("sha1"),
    "PBKDF2 of Werkzeug": generate_password_hash(WORD, "pbkdf2:sha512:10"),
    "scrypt of Werkzeug": generate_password_hash(WORD, "scrypt:1024:8:1"),
    "scrypt of Django": django_scrypt(),
}


@pytest.mark.parametrize("form", HASHES)
def test_imported_hash_fits_its_password_only(form: str) -> None:
    found = parse_imported(HASHES[form])
    assert found.fits(BYTES)
    assert not found.fits(BYTES + b"x")
    assert cost_of(HASHES[form]) == found.cost == cost_from(found.cost.text)


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", b"U*U"),  # Openwall's
        (
            "$pbkdf2-sha256$6400$.6UI/S.nXIk8jcbdHx3Fhg$"
            "98jZicV16ODfEsEZeYPGHU3kbrUrvUEXOPimVSQDD44",
            b"password",
        ),  # passlib's documentation, and the next
        (
            "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$"
            "nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E",
            b"password",
        ),
    ],
)
def test_published_hashes_fit_their_passwords(text: str, password: bytes) -> None:
    assert parse_imported(text).fits(password)


def test_bcrypt_compares_the_first_72_bytes() -> None:
    found = parse_imported(of_bcrypt(password=b"x" * 72))
    assert found.fits(b"x" * 100)


@pytest.mark.parametrize("at", [len("$2b$04$") + 21, -1], ids=["salt", "digest"])
def test_bcrypt_ignores_unused_bits_of_salt_and_digest(at: int) -> None:
    """PHP and old releases of py-bcrypt wrote random ones; the library refuses such a salt."""
    digits = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    text = list(HASHES["bcrypt 2b"])
    text[at] = digits[digits.index(text[at]) + 1]
    found = parse_imported("".join(text))
    assert found.fits(BYTES)
    assert not found.fits(b"wrong")


@given(
    n=st.integers(1, 9).map(lambda bits: 1 << bits),
    r=st.integers(0, 9),
    p=st.integers(0, 17),
    size=st.integers(1, 70),
)
def test_scrypt_hash_that_is_accepted_can_be_verified(n: int, r: int, p: int, size: int) -> None:
    try:
        found = parse_imported(f"scrypt:{n}:{r}:{p}$salt${'ab' * size}")
    except UnusableHashError:
        return
    assert found.fits(BYTES) is False


@pytest.mark.parametrize(("n", "r", "p"), [(16, 8192, 1), (2, 60_000, 16), (2, 100_000, 1)])
def test_scrypt_hash_of_large_blocks_can_be_verified(n: int, r: int, p: int) -> None:
    """OpenSSL counts two more blocks than the N and p of the parameters."""
    assert parse_imported(f"scrypt:{n}:{r}:{p}$salt${'ab' * 32}").fits(BYTES) is False


@pytest.mark.parametrize("password", [b"", b"a\0b", b"\xff", b"x" * 1024])
@pytest.mark.parametrize("form", HASHES)
def test_imported_hash_accepts_any_bytes_as_password(form: str, password: bytes) -> None:
    assert parse_imported(HASHES[form]).fits(password) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5f4dcc3b5aa765d61d8327deb882cf99", "the hash must be argon2"),
        ("$1$salt$hash", "the hash must be argon2"),
        ("$2x$04$" + "." * 53, "the hash must be argon2"),
        ("$2b$04$" + "." * 52, "the hash must be argon2"),
        ("$2b$16$" + "." * 53, "between 4 and 15"),
        ("pbkdf2_md5$10$salt$AAAA", "the hash must be argon2"),
        ("pbkdf2_sha256$99999999$salt$" + "A" * 44, "iterations"),
        ("pbkdf2_sha256$10$salt$AAAA", "at least 16 bytes"),
        ("pbkdf2_sha256$10$salt$AAAAA", "base64"),
        ("scrypt:15:8:1$salt$" + "ab" * 32, "power of two above 1 as N"),
        ("scrypt:1:8:1$salt$" + "ab" * 32, "power of two above 1 as N"),  # a power, too
        ("scrypt:16:8:0$salt$" + "ab" * 32, "between 1 and 16 as p"),
        ("scrypt:16:0:1$salt$" + "ab" * 32, "at least 1 as r"),
        ("pbkdf2_sha256$0$salt$" + "A" * 44, "between 1 and"),
        ("scrypt:16:8:99$salt$" + "ab" * 32, "between 1 and 16 as p"),
        ("scrypt:65536:1:1$salt$" + "ab" * 32, "N of scrypt must be less"),
        ("scrypt:1048576:8:1$salt$" + "ab" * 32, "at most 256 MiB"),
        ("scrypt:2:1048576:16$salt$" + "ab" * 32, "at most 256 MiB"),  # by its blocks
        ("x" * 1001, "at most 1,000"),
        ("$argon2id$v=19$m=9999999,t=1,p=1$c2FsdHNhbHQ$aGFzaA", "argon2"),
        ("$argon2id$broken", "argon2"),
        ("$argon2id$v=19$m=-64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43, "argon2"),
        ("$argon2id$v=19$m=64,t=1,p=9$c29tZXNhbHRzb21l$" + "A" * 43, "argon2"),
        ("$argon2id$v=20$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43, "argon2"),
        ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNh$" + "A" * 43, "argon2"),
        ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 21, "argon2"),
        ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 42 + "B", "argon2"),
        ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21\u00e9$" + "A" * 43, "argon2"),
        ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 1000, "argon2"),
        ("pbkdf2_sha256$10$sa\0lt$" + "A" * 44, "the hash must be argon2"),  # PostgreSQL has no NUL
    ],
)
def test_imported_hash_malformed_or_costly_is_refused_unquoted(text: str, expected: str) -> None:
    with pytest.raises(UnusableHashError, match=expected) as refusal:
        usable_hash(text)
    assert text not in str(refusal.value)
    assert cost_of(text) is None


def test_argon2_hash_is_accepted_in_the_form_of_django() -> None:
    stored = Hasher(Argon2(64, 1, 1), 8, SeededEntropy(1)).hash_now(WORD, name="", email="")
    assert usable_hash(stored) == usable_hash("argon2" + stored) == stored


@pytest.mark.parametrize("kind", argon2.Type)
@pytest.mark.parametrize("version", [0x10, 0x13])
async def test_argon2_hash_of_any_kind_can_be_imported(kind: argon2.Type, version: int) -> None:
    made = argon2.low_level.hash_secret(
        WORD.encode(), b"eightplus", 1, 64, 2, 16, kind, version=version
    ).decode()
    assert usable_hash(made) == made
    assert (await hasher().verify(made, WORD)).ok


def hasher() -> Hasher:
    return Hasher(Argon2(64, 1, 1), 8, SeededEntropy(1), inline=True)


async def test_imported_hash_that_fits_is_outdated() -> None:
    stored = HASHES["PBKDF2 of Django"]
    right = await hasher().verify(stored, WORD)
    assert (right.ok, right.outdated) == (True, True)
    assert not (await hasher().verify(stored, "wrong")).ok
    assert not (await hasher().verify(stored, "x" * 1000)).ok


@pytest.mark.parametrize("form", ["bcrypt 2b", "scrypt of Django", "PBKDF2 of Werkzeug"])
async def test_decoy_costs_one_hash_of_its_scheme(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown account takes as long as an imported one (A-47)."""
    cost = parse_imported(HASHES[form]).cost
    runs: list[str] = []
    modules = {"bcrypt": (bcrypt, "hashpw"), "scrypt": (hashlib, "scrypt")}
    module, name = modules.get(cost.scheme, (hashlib, "pbkdf2_hmac"))
    compute = getattr(module, name)

    def counted(*args: object, **given: object) -> object:
        runs.append(name)
        return compute(*args, **given)

    monkeypatch.setattr(module, name, counted)
    assert not (await hasher().verify(None, WORD, decoy=cost)).ok
    assert runs == [name]


@pytest.mark.parametrize("size", [16, 20, 32, 64, 128])
@pytest.mark.parametrize("digest", ["sha1", "sha256", "sha512"])
def test_pbkdf2_hash_costs_its_iterations_once(
    monkeypatch: pytest.MonkeyPatch, digest: str, size: int
) -> None:
    """PBKDF2 does all iterations for each block: a long digest would cost more than the limit, and
    one of SHA-1 half as much as its decoy (A-47, C-163)."""
    text = hashlib.pbkdf2_hmac(digest, BYTES, b"seasalt", 10, dklen=size).hex()
    stored = parse_imported(f"pbkdf2:{digest}:10$seasalt${text}")
    sizes: list[int] = []
    pbkdf2: Any = hashlib.pbkdf2_hmac

    def measured(*given: Any, dklen: int) -> Any:
        sizes.append(dklen)
        return pbkdf2(*given, dklen=dklen)

    monkeypatch.setattr("hashlib.pbkdf2_hmac", measured)
    assert stored.fits(BYTES)
    assert not stored.fits(BYTES + b"x")
    stored.cost.spend(BYTES)
    assert max(sizes) <= hashlib.new(digest).digest_size


async def test_bcrypt_hash_fits_nothing_if_the_library_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bcrypt", None)
    stored = HASHES["bcrypt 2b"]
    assert not (await hasher().verify(stored, WORD, decoy=ImportedCost("bcrypt", (4,)))).ok
    with pytest.raises(UnusableHashError, match=r"fw-actors\[bcrypt\]"):
        usable_hash(stored)


def test_imported_hash_repr_shows_no_digest() -> None:
    found = imported_or_none(HASHES["scrypt of Django"])
    assert isinstance(found, ImportedHash)
    assert "digest" not in repr(found)
