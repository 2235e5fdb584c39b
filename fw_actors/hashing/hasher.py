"""Makes and verifies hashes: bounded, policy-checked, one verification for every try.

Passwords are hashed as they come: no trimming, no normalising.
Source: spec, Authentication 7; interface §2 "Passwords"; pitfalls, "Hashing".
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import argon2
import trio

from fw_actors.config import Argon2, Config
from fw_actors.errors import OverloadedError
from fw_actors.hashing.common_passwords import common_passwords
from fw_actors.hashing.costs import parameters_of
from fw_actors.hashing.places import ANYBODY, Lane, Places
from fw_actors.rules.fair_queue import Requester
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
        refuse_common: bool = False,
        places: int | None = None,
        inline: bool = False,
    ) -> None:
        """`minimum` and `refuse_common` are the policy's `minPasswordLength` and
        `refuseCommonPasswords`; `inline` hashes on the caller's task, for tests whose clock does
        not see threads."""
        self._argon2 = argon2.PasswordHasher(
            time_cost=parameters.time,
            memory_cost=parameters.memory_kib,
            parallelism=parameters.parallelism,
            hash_len=_HASH_BYTES,
            salt_len=_SALT_BYTES,
        )
        self._minimum, self._refuse_common = minimum, refuse_common
        self._places = Places(places or len(os.sched_getaffinity(0)))
        self._inline = inline
        self._lock = threading.Lock()  # over what follows
        self._withheld = 0  # begun, and then not computed: it was too late
        self._cost = parameters
        self._live = argon2.Parameters(
            type=argon2.Type.ID,
            version=argon2.low_level.ARGON2_VERSION,
            salt_len=_SALT_BYTES,
            hash_len=_HASH_BYTES,
            time_cost=parameters.time,
            memory_cost=parameters.memory_kib,
            parallelism=parameters.parallelism,
        )
        # A digest that was never computed: no password fits it, at any cost.
        self._nobodys = (
            f"{_base64(entropy.bytes(_SALT_BYTES))}${_base64(entropy.bytes(_HASH_BYTES))}"
        )

    @classmethod
    def of(cls, config: Config, entropy: Entropy, *, inline: bool = False) -> Hasher:
        """Return the hasher that a site's configuration asks for."""
        return cls(
            config.deployment.argon2,
            config.auth.min_password_length,
            entropy,
            refuse_common=config.auth.refuse_common_passwords,
            inline=inline,
        )

    async def hash(
        self, password: str, *, name: str, email: str, requester: Requester = ANYBODY
    ) -> str:
        """Judge a new password and return its hash. `requester` is who has a share of the queue.

        Raises: PasswordPolicyError; OverloadedError when too many wait.
        """
        self.judge(password, name=name, email=email)
        return await self._run(
            Lane.RECOVERY, lambda: self._argon2.hash(_bytes(password)), requester
        )

    async def rehash(self, password: str, *, lane: Lane, requester: Requester = ANYBODY) -> str:
        """Hash a password that was just verified with the live parameters; no rule is asked again.

        Raises: OverloadedError when too many wait.
        """
        return await self._run(lane, lambda: self._argon2.hash(_bytes(password)), requester)

    def hash_now(self, password: str, *, name: str, email: str) -> str:
        """The same for code that runs in a transaction already (interface §4, `new_password`)."""
        self.judge(password, name=name, email=email)
        return self._places.run_here(lambda: self._argon2.hash(_bytes(password)))

    def judge(self, password: str, *, name: str, email: str) -> None:
        """Refuse a password that breaks the policy. Raises: PasswordPolicyError."""
        common = common_passwords() if self._refuse_common else frozenset[str]()
        judge_password(password, minimum=self._minimum, name=name, email=email, common=common)

    async def verify(
        self,
        stored: str | None,
        password: str,
        lane: Lane = Lane.SIGN_IN,
        *,
        decoy: Argon2 | None = None,
        requester: Requester = ANYBODY,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> Verified:
        """Verify a password with exactly one argon2 run, whatever is wrong.

        A try at no hash or a damaged one costs `decoy` (None: what a new hash costs); an over-long
        password costs what the stored hash does: so the time tells nothing. `may_begin` is asked
        right before, on the thread. `requester` is who has a share of the queue.

        Raises: OverloadedError when too many wait, or it may not begin any more; nothing was
            computed then.
        """

        def work() -> Verified:
            if not may_begin():
                with self._lock:
                    self._withheld += 1
                raise OverloadedError("The try waited for too long. Try again.")
            return self._verify(stored, password, decoy or self._cost)

        return await self._run(lane, work, requester)

    def statistics(self) -> HasherStatistics:
        """Return the counts for `/metrics`."""
        places = self._places
        return HasherStatistics(places.begun - self._withheld, places.running, places.waiting)

    def _verify(self, stored: str | None, password: str, decoy: Argon2) -> Verified:
        asked = parameters_of(stored)
        if stored is None or asked is None:
            return self._refuse(decoy, password)
        if len(password) > MAX_RUNES:
            own = Argon2(asked.memory_cost, asked.time_cost, asked.parallelism)
            return self._refuse(own, password)
        try:
            self._argon2.verify(stored, _bytes(password))
        except argon2.exceptions.VerifyMismatchError:
            return Verified(False)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            # A damaged hash fails at once, and that would show.
            return self._refuse(decoy, password)
        return Verified(True, outdated=asked != self._live)

    def _refuse(self, cost: Argon2, password: str) -> Verified:
        """Spend one run of this cost on a hash that nothing fits."""
        with suppress(argon2.exceptions.VerificationError):
            self._argon2.verify(
                f"$argon2id$v={self._live.version}$m={cost.memory_kib},t={cost.time},"
                f"p={cost.parallelism}${self._nobodys}",
                _bytes(password),
            )
        return Verified(False)

    async def _run(self, lane: Lane, work: Callable[[], T], requester: Requester) -> T:
        if not self._inline:
            return await self._places.run(lane, work, requester)
        await trio.lowlevel.checkpoint()
        return self._places.run_here(work)


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


def _base64(data: bytes) -> str:
    """Return base64 as it stands in a hash: without padding."""
    return base64.b64encode(data).decode().rstrip("=")
