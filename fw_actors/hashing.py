"""The one gate to argon2: bounded, policy-checked, one verification for every try.

Passwords are hashed as they come: no trimming, no normalising. As many hashes run at once as
there are places (the cores); a place is held until its thread ends, also when the caller has
gone. Two queues wait for places in turn, so that a flood of sign-ins does not starve recovery.
Source: spec, Authentication 7; interface §2 "Passwords"; pitfalls, "Hashing".
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

import argon2
import trio

from fw_actors.config import MOST_ARGON2, Argon2, Config
from fw_actors.errors import OverloadedError
from fw_actors.rules.password_policy import MAX_RUNES, judge_password
from fw_actors.runtime import Entropy

T = TypeVar("T")

_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32


INLINE_PLACES: Final = 2  # the same on every machine, so that a run can be repeated


class Lane(Enum):
    """Who waits for a hash; the value is how many may wait before the next is refused."""

    SIGN_IN = 64
    RECOVERY = 16


@dataclass(frozen=True, slots=True)
class HasherStatistics:
    """Counts since the start, and what waits now."""

    hashes: int  # verifications and new hashes, decoys too
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification; `outdated` asks for a new hash with the live parameters."""

    ok: bool
    outdated: bool = False


class PreparedPassword(str):
    """A new password whose hash was made before the transaction that sets it."""

    __slots__ = ("hash",)
    hash: str

    def __new__(cls, password: str, password_hash: str) -> PreparedPassword:
        made = super().__new__(cls, password)
        made.hash = password_hash
        return made


class Hasher:
    """Makes and verifies password hashes in a bounded number of threads."""

    def __init__(
        self,
        parameters: Argon2,
        minimum: int,
        entropy: Entropy,
        *,
        places: int | None = None,
        inline: bool = False,
    ) -> None:
        """`minimum` is the policy's `minPasswordLength`; `inline` hashes on the caller's task,
        for tests whose clock does not see threads."""
        self._argon2 = argon2.PasswordHasher(
            time_cost=parameters.time,
            memory_cost=parameters.memory_kib,
            parallelism=parameters.parallelism,
            hash_len=_HASH_BYTES,
            salt_len=_SALT_BYTES,
        )
        self._minimum = minimum
        self._places = places or (INLINE_PLACES if inline else len(os.sched_getaffinity(0)))
        self._limiter = trio.CapacityLimiter(self._places)
        self._inline = inline
        self._running = 0
        self._hashes = 0
        self._waiting: dict[Lane, deque[trio.Event]] = {lane: deque() for lane in Lane}
        self._turn = Lane.SIGN_IN
        self._decoy = self._argon2.hash(entropy.bytes(_SALT_BYTES))

    @classmethod
    def of(cls, config: Config, entropy: Entropy, *, inline: bool = False) -> Hasher:
        """Return the hasher that a site's configuration asks for."""
        minimum = config.auth.min_password_length
        return cls(config.deployment.argon2, minimum, entropy, inline=inline)

    async def hash(
        self, password: str, *, name: str, email: str, lane: Lane = Lane.RECOVERY
    ) -> str:
        """Judge a new password and return its hash.

        Raises: PasswordPolicyError; OverloadedError when too many wait.
        """
        self.judge(password, name=name, email=email)
        return await self._run(lane, lambda: self._argon2.hash(_bytes(password)))

    async def rehash(self, password: str, *, lane: Lane) -> str:
        """Hash a password that was just verified with the live parameters; no rule is asked again.

        Raises: OverloadedError when too many wait.
        """
        return await self._run(lane, lambda: self._argon2.hash(_bytes(password)))

    def hash_now(self, password: str, *, name: str, email: str) -> str:
        """The same for code that runs in a transaction already (interface §4, `new_password`)."""
        self.judge(password, name=name, email=email)
        self._hashes += 1
        return self._argon2.hash(_bytes(password))

    def judge(self, password: str, *, name: str, email: str) -> None:
        """Refuse a password that breaks the policy. Raises: PasswordPolicyError."""
        judge_password(password, minimum=self._minimum, name=name, email=email)

    async def verify(
        self, stored: str | None, password: str, lane: Lane = Lane.SIGN_IN
    ) -> Verified:
        """Verify a password with exactly one argon2 run, whatever is wrong.

        No hash, a damaged one and an over-long password cost a decoy with the live parameters,
        so that the time tells nothing.

        Raises: OverloadedError when too many wait; nothing was computed then.
        """
        return await self._run(lane, lambda: self._verify(stored, password))

    def statistics(self) -> HasherStatistics:
        """Return the counts for `/metrics`."""
        waiting = sum(map(len, self._waiting.values()))
        return HasherStatistics(self._hashes, self._running, waiting)

    def _verify(self, stored: str | None, password: str) -> Verified:
        usable = stored is not None and len(password) <= MAX_RUNES and self._bearable(stored)
        try:
            self._argon2.verify(stored if usable and stored else self._decoy, _bytes(password))
        except argon2.exceptions.VerifyMismatchError:
            return Verified(False)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            self._spend_decoy(password)  # a damaged hash fails at once, and that would show
            return Verified(False)
        if not usable or stored is None:
            return Verified(False)  # somebody guessed the decoy
        return Verified(True, self._argon2.check_needs_rehash(stored))

    def _spend_decoy(self, password: str) -> None:
        try:
            self._argon2.verify(self._decoy, _bytes(password))
        except argon2.exceptions.VerificationError:
            return

    @staticmethod
    def _bearable(stored: str) -> bool:
        """A hash may come from a restored or edited store: its cost is bounded, too."""
        try:
            asked = argon2.extract_parameters(stored)
        except argon2.exceptions.InvalidHashError:
            return False
        return (
            asked.memory_cost <= MOST_ARGON2.memory_kib
            and asked.time_cost <= MOST_ARGON2.time
            and asked.parallelism <= MOST_ARGON2.parallelism
        )

    async def _run(self, lane: Lane, work: Callable[[], T]) -> T:
        await self._take_place(lane)
        try:
            self._hashes += 1
            if self._inline:
                await trio.lowlevel.checkpoint()
                return work()
            # Not abandoned on cancel: the place is taken for as long as the core is.
            return await trio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._give_place()

    async def _take_place(self, lane: Lane) -> None:
        if self._running < self._places:
            self._running += 1
            return
        queue = self._waiting[lane]
        if len(queue) >= lane.value:
            raise OverloadedError("Too many sign-ins at once. Try again in a moment.")
        turn = trio.Event()
        queue.append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            if turn.is_set():  # the place was given in the same step
                self._give_place()
            else:
                queue.remove(turn)
            raise

    def _give_place(self) -> None:
        """Hand the place to the other queue's head first, else to the same one's, else free it."""
        other = Lane.RECOVERY if self._turn is Lane.SIGN_IN else Lane.SIGN_IN
        for lane in (other, self._turn):
            if self._waiting[lane]:
                self._turn = lane
                self._waiting[lane].popleft().set()
                return
        self._running -= 1


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
