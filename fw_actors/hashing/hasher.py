"""Makes and verifies hashes: bounded, policy-checked, one verification for every try.

Passwords are hashed as they come: no trimming, no normalising.
Source: spec, Authentication 7; interface §2 "Passwords"; pitfalls, "Hashing".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import argon2
import trio

from fw_actors.config import MOST_ARGON2, Argon2, Config
from fw_actors.errors import OverloadedError
from fw_actors.hashing.places import Lane, Places
from fw_actors.rules.password_policy import MAX_RUNES, judge_password
from fw_actors.runtime import Entropy

T = TypeVar("T")

_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32


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
        self._places = Places(places or len(os.sched_getaffinity(0)))
        self._inline = inline
        self._lock = threading.Lock()  # over what follows
        self._withheld = 0  # begun, and then not computed: it was too late
        self._decoy = self._argon2.hash(entropy.bytes(_SALT_BYTES))
        self._live = argon2.extract_parameters(self._decoy)

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
        return self._places.run_here(lambda: self._argon2.hash(_bytes(password)))

    def judge(self, password: str, *, name: str, email: str) -> None:
        """Refuse a password that breaks the policy. Raises: PasswordPolicyError."""
        judge_password(password, minimum=self._minimum, name=name, email=email)

    async def verify(
        self,
        stored: str | None,
        password: str,
        lane: Lane = Lane.SIGN_IN,
        *,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> Verified:
        """Verify a password with exactly one argon2 run, whatever is wrong.

        No hash, a damaged one and an over-long password cost a decoy with the live parameters,
        so that the time tells nothing. `may_begin` is asked right before, on the thread.

        Raises: OverloadedError when too many wait, or it may not begin any more; nothing was
            computed then.
        """

        def work() -> Verified:
            if not may_begin():
                with self._lock:
                    self._withheld += 1
                raise OverloadedError("The try waited for too long. Try again.")
            return self._verify(stored, password)

        return await self._run(lane, work)

    def statistics(self) -> HasherStatistics:
        """Return the counts for `/metrics`."""
        places = self._places
        return HasherStatistics(places.begun - self._withheld, places.running, places.waiting)

    def _verify(self, stored: str | None, password: str) -> Verified:
        asked = _parameters(stored) if len(password) <= MAX_RUNES else None
        try:
            self._argon2.verify(stored if stored and asked else self._decoy, _bytes(password))
        except argon2.exceptions.VerifyMismatchError:
            return Verified(False)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            self._spend_decoy(password)  # a damaged hash fails at once, and that would show
            return Verified(False)
        if asked is None:
            return Verified(False)  # somebody guessed the decoy
        return Verified(True, outdated=asked != self._live)

    def _spend_decoy(self, password: str) -> None:
        try:
            self._argon2.verify(self._decoy, _bytes(password))
        except argon2.exceptions.VerificationError:
            return

    async def _run(self, lane: Lane, work: Callable[[], T]) -> T:
        if not self._inline:
            return await self._places.run(lane, work)
        await trio.lowlevel.checkpoint()
        return self._places.run_here(work)


def _parameters(stored: str | None) -> argon2.Parameters | None:
    """Return what a stored hash asks for; None for one that is none, or that costs too much.

    It may come from a restored or edited store: its cost is bounded, too.
    """
    if not stored:
        return None
    try:
        asked = argon2.extract_parameters(stored)
    except argon2.exceptions.InvalidHashError:
        return None
    bearable = (
        asked.memory_cost <= MOST_ARGON2.memory_kib
        and asked.time_cost <= MOST_ARGON2.time
        and asked.parallelism <= MOST_ARGON2.parallelism
    )
    return asked if bearable else None


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
