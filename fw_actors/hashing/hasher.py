"""Hashes and verifies passwords with argon2 in a bounded pool of threads.

Passwords are hashed as they come: no trimming, no normalising.
Rules: A-110, A-111, A-112, A-130, A-44, A-49.

As many run at once as there are places (the cores); a place is held until its thread ends, also
when the caller has gone. The queues get places in turn, so that a flood of sign-ins does not
starve recovery; each is shared fairly by the networks that ask. A thread that has ended one hash
begins the next one by itself: by way of trio's thread a core would stand idle for each wake-up.
Rules: A-112, A-113, A-114, A-115, A-116.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import argon2
import outcome
import trio

from fw_actors.config import Argon2, Config
from fw_actors.errors import OverloadedError
from fw_actors.hashing.common_passwords import common_passwords
from fw_actors.hashing.costs import parameters_of
from fw_actors.rules.fair_queue import FairQueue, QueueFull, Requester
from fw_actors.rules.password_policy import MAX_RUNES, judge_password
from fw_actors.runtime import Entropy

T = TypeVar("T")

_THREAD_NAME: Final = "fw-hasher"
_NICE: Final = 10  # 19 would halve it again, and starve sign-ins beside another busy process


class Lane(Enum):
    """Who waits for a hash; the value is how many may wait before the next is refused."""

    SIGN_IN = 64
    RECOVERY = 16


KEPT_FOR_KNOWN: Final = {Lane.SIGN_IN: 16, Lane.RECOVERY: 0}
"""How many of a queue's places a flood from unknown addresses can't take."""
ANYBODY: Final = Requester("")
"""The requester of work that no request from a network asks for."""


class _Job:
    """A function, and the task that waits for what it returns."""

    __slots__ = ("requester", "task", "token", "work")

    def __init__(self, work: Callable[[], Any], requester: Requester) -> None:
        self.work, self.requester = work, requester
        self.task = trio.lowlevel.current_task()
        self.token = trio.lowlevel.current_trio_token()

    def answer(self, result: outcome.Outcome[Any]) -> None:
        """Wake the task, from any thread."""
        with suppress(trio.RunFinishedError):  # nobody is left to hear it
            self.token.run_sync_soon(trio.lowlevel.reschedule, self.task, result)


class Places:
    """The places and who waits for them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()  # over all that follows
        self._running = 0
        self._begun = 0
        self._waiting: dict[Lane, FairQueue[_Job]] = {
            lane: FairQueue(lane.value, KEPT_FOR_KNOWN[lane]) for lane in Lane
        }
        self._turn = Lane.SIGN_IN

    @property
    def running(self) -> int:
        """How many places are taken."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many wait, in both queues."""
        return sum(map(len, self._waiting.values()))

    @property
    def begun(self) -> int:
        """How many functions were begun since the start."""
        return self._begun

    async def run(self, lane: Lane, work: Callable[[], T], requester: Requester = ANYBODY) -> T:
        """Run `work` in a thread once there is a place, and return its result.

        Cancelled while it waits, it is never begun; once begun it is waited for.

        Raises: OverloadedError when too many wait in this lane, also while it waits and `requester`
            has more than its share of it; what `work` raises.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        job, displaced = _Job(work, requester), None
        with self._lock:
            at_once = self._running < self._count
            if at_once:
                self._running += 1
                self._begun += 1
            else:
                try:
                    displaced = self._waiting[lane].put(job, requester)
                except QueueFull:
                    raise _too_many() from None
        if at_once:
            self._start(job)
        if displaced is not None:
            displaced.answer(outcome.Error(_too_many()))

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            withdrawn = self._withdraw(lane, job)
            return trio.lowlevel.Abort.SUCCEEDED if withdrawn else trio.lowlevel.Abort.FAILED

        result: T = await trio.lowlevel.wait_task_rescheduled(abort)
        return result

    def run_here(self, work: Callable[[], T]) -> T:
        """Run `work` at once on the caller's own thread, which is its own place."""
        with self._lock:
            self._begun += 1
        return work()

    def _start(self, first: _Job) -> None:
        # Not one of trio's own threads: they are lent to others, and a priority can't be raised.
        thread = threading.Thread(target=self._serve, args=(first,), name=_THREAD_NAME, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._running -= 1
                self._begun -= 1
            raise OverloadedError("The system gives no further thread.") from None

    def _serve(self, first: _Job) -> None:
        """The thread: one job after the other, until none waits."""
        _give_way()
        job: _Job | None = first
        while job is not None:
            result = outcome.capture(job.work)
            following = self._next()  # first: whoever is answered finds the place given back
            job.answer(result)
            job = following

    def _next(self) -> _Job | None:
        """Take the other queue's head first, else the same one's, else give the place back."""
        with self._lock:
            other = Lane.RECOVERY if self._turn is Lane.SIGN_IN else Lane.SIGN_IN
            for lane in (other, self._turn):
                job = self._waiting[lane].pop()
                if job is not None:
                    self._turn = lane
                    self._begun += 1
                    return job
            self._running -= 1
            return None

    def _withdraw(self, lane: Lane, job: _Job) -> bool:
        with self._lock:  # False: it was begun or displaced in the same moment
            return self._waiting[lane].remove(job, job.requester)


def _too_many() -> OverloadedError:
    return OverloadedError("Too many sign-ins at once. Try again in a moment.")


def _give_way() -> None:
    """Have this thread leave its core to whatever else in the process wants it, soon.

    Measured: with sign-ins on all cores the p99 of a small request halves.
    """
    with suppress(OSError):  # a container may forbid it, and it is no more than a courtesy
        thread = threading.get_native_id()
        own = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(own, _NICE))


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
        """The same for code that runs in a transaction already (A-295)."""
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
