"""Spec, Authentication 7; interface §2, "Passwords"; pitfalls, "Hashing"."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

import argon2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.config import Argon2
from fw_actors.errors import OverloadedError, PasswordPolicyError
from fw_actors.hashing import Hasher, Lane
from fw_actors.runtime import SeededEntropy

CHEAP = Argon2(memory_kib=64, time=1, parallelism=1)


def make(
    parameters: Argon2 = CHEAP, *, places: int = 1, minimum: int = 8, inline: bool = True
) -> Hasher:
    return Hasher(parameters, minimum, SeededEntropy(1), places=places, inline=inline)


async def hashed(hasher: Hasher, password: str) -> str:
    return await hasher.hash(password, name="ada", email="ada@x.test")


async def test_the_right_password_is_verified_and_no_other() -> None:
    hasher = make()
    stored = await hashed(hasher, "correct horse")
    assert (await hasher.verify(stored, "correct horse")).ok
    assert not (await hasher.verify(stored, "correct horsf")).ok


async def test_a_hash_is_argon2id_with_the_parameters_of_the_site() -> None:
    """Interface §2: "argon2id"."""
    stored = await hashed(make(Argon2(96, 3, 1)), "correct horse")
    found = argon2.extract_parameters(stored)
    assert found.type is argon2.Type.ID
    assert (found.memory_cost, found.time_cost, found.parallelism) == (96, 3, 1)


@pytest.mark.parametrize(
    "password", [" outer space ", "nul\x00inside", "e\u0301claire", "\ud800" * 9]
)
async def test_a_password_is_hashed_as_it_came(password: str) -> None:
    """Pitfalls: "Hash the password as received (no normalising, no trimming, no truncation)"."""
    hasher = make()
    stored = await hashed(hasher, password)
    others = {password.strip(" "), password.partition("\x00")[0], "\u00e9claire", "\ud800" * 8}
    assert (await hasher.verify(stored, password)).ok
    for other in sorted(others - {password}):
        assert not (await hasher.verify(stored, other)).ok


@pytest.mark.parametrize(
    ("password", "rule"), [("short", "tooShort"), (" " * 9, "blank"), ("x" * 257, "tooLong")]
)
async def test_the_policy_is_met_where_hashing_happens(password: str, rule: str) -> None:
    """Spec: "Password policy, applied where hashing happens, so all call sites meet it"."""
    hasher = make()
    with pytest.raises(PasswordPolicyError) as asynchronous:
        await hashed(hasher, password)
    with pytest.raises(PasswordPolicyError) as inside:
        hasher.hash_now(password, name="ada", email="ada@x.test")
    assert asynchronous.value.extra == inside.value.extra == {"rule": rule}
    assert hasher.statistics().hashes == 0


async def test_a_hash_made_inside_a_transaction_is_verified_outside() -> None:
    """Interface §4: "one that app code or eval sets, inside it"."""
    hasher = make()
    stored = hasher.hash_now("correct horse", name="ada", email="ada@x.test")
    assert (await hasher.verify(stored, "correct horse")).ok


async def test_a_hash_with_other_parameters_is_outdated() -> None:
    """Interface §2: "rehashed at sign-in when the parameters change"."""
    old = await hashed(make(Argon2(72, 1, 1)), "correct horse")
    hasher = make()
    verified = await hasher.verify(old, "correct horse")
    assert (verified.ok, verified.outdated) == (True, True)
    fresh = await hasher.rehash("correct horse", lane=Lane.SIGN_IN)
    verified = await hasher.verify(fresh, "correct horse")
    assert (verified.ok, verified.outdated) == (True, False)


async def test_a_password_from_before_a_stricter_policy_is_rehashed_all_the_same() -> None:
    assert await make(minimum=100).rehash("short", lane=Lane.SIGN_IN)


DAMAGED = [
    None,  # invited: no hash
    "",
    "not a hash",
    "$argon2id$v=19$m=64,t=1,p=1$",
    "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$!!!!",
    "$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
    "$argon2id$v=19$m=64,t=4294967295,p=1$c29tZXNhbHRzb21l$" + "A" * 43,
    "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$" + "A" * 43,  # nobody's
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
    hasher._argon2 = runs
    return runs


@pytest.mark.parametrize("stored", DAMAGED)
async def test_no_or_a_damaged_hash_is_a_wrong_password_after_exactly_one_run(
    stored: str | None,
) -> None:
    """Pitfalls: "Exactly one argon2 verification for each refused sign-in"."""
    hasher = make()
    runs = counted(hasher)
    assert not (await hasher.verify(stored, "correct horse")).ok
    assert (runs.computed, hasher.statistics().hashes) == (1, 1)


@pytest.mark.parametrize("password", ["", "x" * 257, "x" * 60_000])
async def test_an_empty_or_over_long_password_costs_one_run_too(password: str) -> None:
    """Interface §2: "Cap 256 runes (longer at sign-in: wrong password)"."""
    hasher = make()
    stored = await hashed(hasher, "correct horse")
    runs = counted(hasher)
    assert not (await hasher.verify(stored, password)).ok
    assert runs.computed == 1


async def test_over_long_is_wrong_even_where_the_hash_would_match() -> None:
    hasher = make()
    stored = await hasher.rehash("x" * 257, lane=Lane.SIGN_IN)
    assert not (await hasher.verify(stored, "x" * 257)).ok


class Gate(argon2.PasswordHasher):
    """An argon2 whose threads go on when the test says so."""

    def __init__(self, hasher: Hasher) -> None:
        super().__init__()
        self.entered: list[str] = []
        self.at_once = self.most_at_once = 0
        self._go = threading.Semaphore(0)
        hasher._argon2 = self

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.entered.append(bytes(password).decode() if isinstance(password, bytes) else password)
        self._go.acquire(timeout=10)
        self.at_once -= 1
        return "a hash"

    def open(self, times: int = 1) -> None:
        self._go.release(times)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a thread does; the test's own time limit ends it."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def test_no_more_hashes_run_at_once_than_there_are_places() -> None:
    """Interface §2: "At most one hash per core at a time"."""
    hasher = make(places=2, inline=False)
    gate = Gate(hasher)
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(rehash, hasher, f"{number}", Lane.SIGN_IN)
        await until(lambda: len(gate.entered) == 2)
        await wait_all_tasks_blocked()
        assert (hasher.statistics().running, hasher.statistics().waiting) == (2, 4)
        gate.open(6)
    assert (len(gate.entered), gate.most_at_once) == (6, 2)
    assert (hasher.statistics().running, hasher.statistics().waiting) == (0, 0)


async def rehash(hasher: Hasher, password: str, lane: Lane) -> None:
    await hasher.rehash(password, lane=lane)


WAITING = [(Lane.SIGN_IN, 64), (Lane.RECOVERY, 16)]


@pytest.mark.parametrize(("lane", "places"), WAITING)
async def test_who_finds_the_queue_full_is_refused_at_once(lane: Lane, places: int) -> None:
    """Interface §2: "at most 64 waiting, then 503"; §8: "recovery and passwd: 16, then 503"."""
    hasher = make(inline=False)
    gate = Gate(hasher)
    async with trio.open_nursery() as nursery:
        for number in range(1 + places):
            nursery.start_soon(rehash, hasher, f"{number}", lane)
        await until(lambda: hasher.statistics().waiting == places)
        before = hasher.statistics().hashes
        with pytest.raises(OverloadedError):
            await hasher.rehash("one too many", lane=lane)
        assert hasher.statistics().hashes == before
        gate.open(1 + places)
    assert "one too many" not in gate.entered


async def test_a_flood_of_sign_ins_does_not_starve_recovery() -> None:
    """Pitfalls: "A separate small queue for recovery and `passwd`"."""
    hasher = make(inline=False)
    gate = Gate(hasher)
    async with trio.open_nursery() as nursery:
        for number in range(9):
            nursery.start_soon(rehash, hasher, f"sign-in {number}", Lane.SIGN_IN)
            await wait_all_tasks_blocked()
        nursery.start_soon(rehash, hasher, "recovery", Lane.RECOVERY)
        await wait_all_tasks_blocked()
        gate.open(10)
    assert gate.entered.index("recovery") <= 2


async def test_who_stops_waiting_leaves_no_place_taken() -> None:
    hasher = make(inline=False)
    gate = Gate(hasher)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rehash, hasher, "first", Lane.SIGN_IN)
        await until(lambda: gate.entered == ["first"])
        with trio.move_on_after(0):
            await hasher.rehash("gave up", lane=Lane.SIGN_IN)
        assert hasher.statistics().waiting == 0
        gate.open(2)
    await hasher.rehash("later", lane=Lane.SIGN_IN)
    assert gate.entered == ["first", "later"]


async def test_a_place_given_to_one_who_was_cancelled_in_the_same_step_is_passed_on() -> None:
    hasher = make()
    scope = trio.CancelScope()

    async def fickle() -> None:
        with scope:
            await hasher.rehash("fickle", lane=Lane.SIGN_IN)

    await hasher._take_place(Lane.SIGN_IN)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fickle)
        await wait_all_tasks_blocked()
        scope.cancel()
        hasher._give_place()
    assert (hasher.statistics().running, hasher.statistics().hashes) == (0, 0)


async def test_the_place_is_held_until_the_thread_ends_also_when_the_client_has_gone() -> None:
    """Pitfalls: "the place is held until the thread ends, also when the client has gone"."""
    hasher = make(inline=False)
    gate = Gate(hasher)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rehash, hasher, "first", Lane.SIGN_IN)
        await until(lambda: gate.entered == ["first"])
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert hasher.statistics().running == 1
            gate.open()
    assert hasher.statistics().running == 0


class Broken(argon2.PasswordHasher):
    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        raise MemoryError


async def test_a_defect_inside_a_hash_gives_its_place_back() -> None:
    hasher = make()
    hasher._argon2 = Broken()
    with pytest.raises(MemoryError):
        await hasher.rehash("x", lane=Lane.SIGN_IN)
    assert hasher.statistics().running == 0
