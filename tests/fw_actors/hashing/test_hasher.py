"""The one gate to argon2 (A-110, A-111, A-130, A-49)."""

from __future__ import annotations

from typing import Literal

import argon2
import pytest

from fw_actors.config import Argon2
from fw_actors.errors import PasswordPolicyError
from fw_actors.hashing import Hasher, HashQueue
from fw_actors.runtime import SeededEntropy

CHEAP = Argon2(memory_kib=64, time=1, parallelism=1)


def make(
    parameters: Argon2 = CHEAP, *, slots: int = 1, minimum: int = 8, inline: bool = True
) -> Hasher:
    return Hasher(parameters, minimum, SeededEntropy(1), slots=slots, inline=inline)


async def hashed(hasher: Hasher, password: str) -> str:
    return await hasher.hash(password, name="ada", email="ada@x.test")


async def test_verify_accepts_the_right_password_only() -> None:
    hasher = make()
    stored = await hashed(hasher, "correct horse")
    assert (await hasher.verify(stored, "correct horse")).ok
    assert not (await hasher.verify(stored, "correct horsf")).ok


async def test_hash_is_argon2id_with_the_parameters_of_the_site() -> None:
    """Passwords are hashed with argon2id and the site's parameters (A-110)."""
    stored = await hashed(make(Argon2(96, 3, 1)), "correct horse")
    found = argon2.extract_parameters(stored)
    assert found.type is argon2.Type.ID
    assert (found.memory_cost, found.time_cost, found.parallelism) == (96, 3, 1)


@pytest.mark.parametrize(
    "password", [" outer space ", "nul\x00inside", "e\u0301claire", "\ud800" * 9]
)
async def test_password_is_hashed_as_received(password: str) -> None:
    """A password is hashed as received: not normalised, trimmed or truncated (A-111)."""
    hasher = make()
    stored = await hashed(hasher, password)
    others = {password.strip(" "), password.partition("\x00")[0], "\u00e9claire", "\ud800" * 8}
    assert (await hasher.verify(stored, password)).ok
    for other in sorted(others - {password}):
        assert not (await hasher.verify(stored, other)).ok


@pytest.mark.parametrize(
    ("password", "rule"), [("short", "tooShort"), (" " * 9, "blank"), ("x" * 257, "tooLong")]
)
async def test_hasher_applies_the_password_policy(password: str, rule: str) -> None:
    """The policy is applied where hashing happens, so that all call sites obey it (A-130)."""
    hasher = make()
    with pytest.raises(PasswordPolicyError) as asynchronous:
        await hashed(hasher, password)
    with pytest.raises(PasswordPolicyError) as inside:
        hasher.hash_now(password, name="ada", email="ada@x.test")
    assert asynchronous.value.extra == inside.value.extra == {"rule": rule}
    assert hasher.statistics().hashes == 0


async def test_hash_now_makes_a_hash_that_verifies() -> None:
    """A `new_password` that app code or eval sets is hashed inside the transaction (A-295)."""
    hasher = make()
    stored = hasher.hash_now("correct horse", name="ada", email="ada@x.test")
    assert (await hasher.verify(stored, "correct horse")).ok


async def test_hash_with_other_parameters_is_outdated() -> None:
    """A hash is made anew at sign-in when the parameters have changed (A-50)."""
    old = await hashed(make(Argon2(72, 1, 1)), "correct horse")
    hasher = make()
    verified = await hasher.verify(old, "correct horse")
    assert (verified.ok, verified.outdated) == (True, True)
    fresh = await hasher.rehash("correct horse", queue=HashQueue.SIGN_IN)
    verified = await hasher.verify(fresh, "correct horse")
    assert (verified.ok, verified.outdated) == (True, False)


async def test_rehash_ignores_the_password_policy() -> None:
    assert await make(minimum=100).rehash("short", queue=HashQueue.SIGN_IN)


DAMAGED = [
    None,  # invited: no hash
    "",
    "not a hash",
    "$argon2id$v=19$m=64,t=1,p=1$",
    "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$!!!!",
    "$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
    "$argon2id$v=19$m=64,t=4294967295,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
    "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43,  # nobody's
    "$argon2id$v=19$m=-64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
    "$argon2id$v=19$m=64,t=1,p=9$c29tZXNhbHRzb21l$" + "A" * 43,  # 8 KiB for each lane
    "$argon2id$v=20$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
    "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHR$" + "A" * 43,  # a bit beyond the last byte
    "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21\u00e9$" + "A" * 43,
    "$argon2id$v=19$m=64,t=\u0661,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
]


class CountedRuns(argon2.PasswordHasher):
    """An argon2 that counts how often it really computes."""

    computed = 0

    def verify(self, stored: str | bytes, password: str | bytes) -> Literal[True]:
        try:
            found = super().verify(stored, password)
        except argon2.exceptions.VerifyMismatchError:
            self.computed += 1
            raise
        self.computed += 1
        return found


def counted(hasher: Hasher) -> CountedRuns:
    runs = CountedRuns(time_cost=1, memory_cost=64, parallelism=1)
    hasher.argon2_hasher = runs
    return runs


@pytest.mark.parametrize("stored", DAMAGED)
async def test_missing_or_damaged_hash_costs_one_run_and_fails(
    stored: str | None,
) -> None:
    """A refused sign-in costs exactly one argon2 verification (A-44)."""
    hasher = make()
    runs = counted(hasher)
    assert not (await hasher.verify(stored, "correct horse")).ok
    assert (runs.computed, hasher.statistics().hashes) == (1, 1)


@pytest.mark.parametrize("password", ["", "x" * 257, "x" * 60_000])
async def test_empty_or_over_long_password_costs_one_run(password: str) -> None:
    """An over-long password is a wrong one (A-139), and costs a verification (A-48)."""
    hasher = make()
    stored = await hashed(hasher, "correct horse")
    runs = counted(hasher)
    assert not (await hasher.verify(stored, password)).ok
    assert runs.computed == 1


async def test_over_long_password_is_wrong_despite_a_matching_hash() -> None:
    hasher = make()
    stored = await hasher.rehash("x" * 257, queue=HashQueue.SIGN_IN)
    assert not (await hasher.verify(stored, "x" * 257)).ok


class BrokenArgon2(argon2.PasswordHasher):
    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        raise MemoryError


async def test_failed_hash_releases_its_slot() -> None:
    hasher = make()
    hasher.argon2_hasher = BrokenArgon2()
    with pytest.raises(MemoryError):
        await hasher.rehash("x", queue=HashQueue.SIGN_IN)
    assert hasher.statistics().running == 0
