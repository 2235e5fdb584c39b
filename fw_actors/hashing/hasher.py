"""Hashes and verifies passwords with argon2 in a bounded pool of threads.

Passwords are hashed as typed, without trimming or normalisation.
Rules: A-110, A-111, A-112, A-130, A-44, A-49.

There are as many slots as cores, divided among the processes of the service. A slot is occupied
until its thread has finished, even if the caller was cancelled. The queues alternate, so that a
flood of sign-ins does not starve recovery; each queue is shared fairly by the networks of its
requesters. A thread that has finished a hash takes the next job itself, because a core would be
idle while trio's thread is woken.
Rules: A-112, A-113, A-114, A-115, A-116.

The module has more than 500 lines because each hash waits for a slot, runs in its thread, and is
counted; a reader who follows a hash needs all three.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any, Final, TypeVar

import argon2
import outcome
import trio

from fw_actors.config import MAX_ARGON2, Argon2, Config, ProcessPlace
from fw_actors.errors import OverloadedError
from fw_actors.hashing.breached import BreachedPasswords
from fw_actors.hashing.imported import (
    ImportedCost,
    ImportedHash,
    UnusableHashError,
    imported_or_none,
    parse_imported,
)
from fw_actors.rules.fair_queue import FairQueue, QueueFull, Requester
from fw_actors.rules.password_policy import MAX_RUNES, validate_password
from fw_actors.runtime import Entropy

T = TypeVar("T")

_ALONE: Final = ProcessPlace()
_THREAD_NAME: Final = "fw-hasher"
_NICE: Final = 10  # 19 would halve it again, and starve sign-ins beside another busy process


_COMMON_PASSWORDS: Final = "common_passwords.txt"  # its origin: common_passwords.NOTICE beside it
_COMMENT: Final = "#"


@cache
def common_passwords() -> frozenset[str]:
    """Return the 10,000 most common passwords of 8 and more characters, casefolded.

    They are read on first use and kept: about a megabyte.
    """
    text = resources.files(__package__).joinpath(_COMMON_PASSWORDS).read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith(_COMMENT))


_NUMBER: Final = "[1-9][0-9]{0,9}"
_ARGON2: Final = re.compile(
    rf"\$argon2(?:id|i|d)(?:\$v=(?:16|19))?\$m={_NUMBER},t={_NUMBER},p={_NUMBER}"
    r"\$([A-Za-z0-9+/]{11,500})\$([A-Za-z0-9+/]{22,500})"  # 8 and 16 bytes
)
_LANE_KIB: Final = 8  # argon2 refuses less memory for each lane


def parameters_of(stored: str | None) -> argon2.Parameters | None:
    """Return the parameters of a stored hash; None if it is invalid or too expensive.

    It may come from a restored or edited store: its cost is bounded, too. The library, which checks
    few parts of a hash here, refuses no hash with these parameters when it verifies a password.
    """
    form = _ARGON2.fullmatch(stored) if stored else None
    if stored is None or form is None or not all(map(_is_base64, form.groups())):
        return None
    params = argon2.extract_parameters(stored)
    within_limits = (
        params.memory_cost <= MAX_ARGON2.memory_kib
        and params.time_cost <= MAX_ARGON2.time
        and params.parallelism <= MAX_ARGON2.parallelism
        and params.memory_cost >= _LANE_KIB * params.parallelism
    )
    return params if within_limits else None


def _is_base64(text: str) -> bool:
    """Whether a text is base64 without padding whose unused bits are zero."""
    if len(text) % 4 == 1:
        return False
    return _base64(base64.b64decode(text + "=" * (-len(text) % 4))) == text


HashCost = Argon2 | ImportedCost
"""The cost of a stored hash: of argon2, or of the system that an account was imported from."""


def cost_of(stored: str | None) -> HashCost | None:
    """Return the cost of a stored hash; None for one that cannot be verified."""
    params = parameters_of(stored)
    if params is not None:
        return Argon2(params.memory_cost, params.time_cost, params.parallelism)
    imported = imported_or_none(stored) if stored else None
    return None if imported is None else imported.cost


def usable_hash(text: str) -> str:
    """Return the hash of an account to import, as it is stored. Raises: UnusableHashError."""
    plain = text.removeprefix("argon2") if text.startswith("argon2$argon2") else text  # Django's
    if not plain.startswith("$argon2"):
        if parse_imported(plain).cost.scheme.startswith("bcrypt"):
            try:
                import bcrypt as _bcrypt  # noqa: F401
            except ModuleNotFoundError:
                raise UnusableHashError(
                    "bcrypt needs its library: pip install 'fw-actors[bcrypt]'"
                ) from None
    elif parameters_of(plain) is None:
        raise UnusableHashError("the argon2 hash is damaged, or costs more than is allowed")
    return plain


class HashQueue(Enum):
    """A queue for hashes; the value is its capacity, above which calls are refused."""

    SIGN_IN = 64
    RECOVERY = 16


RESERVED_FOR_KNOWN: Final = {HashQueue.SIGN_IN: 16, HashQueue.RECOVERY: 0}
"""The entries of a queue that are reserved for requesters from known addresses."""
ANONYMOUS: Final = Requester("")
"""The requester of work that no network request asked for."""


class HashJob:
    """A function, and the task that waits for its result."""

    __slots__ = ("requester", "task", "token", "work")

    def __init__(self, work: Callable[[], Any], requester: Requester) -> None:
        self.work, self.requester = work, requester
        self.task = trio.lowlevel.current_task()
        self.token = trio.lowlevel.current_trio_token()

    def answer(self, result: outcome.Outcome[Any]) -> None:
        """Wake the task, from any thread."""
        with suppress(trio.RunFinishedError):  # trio has ended
            self.token.run_sync_soon(trio.lowlevel.reschedule, self.task, result)


class HashSlots:
    """A bounded number of hashing threads, and the queues for them."""

    def __init__(self, count: int, place: ProcessPlace = _ALONE) -> None:
        """`count` is the number of slots; `place` determines this process's part of the queues."""
        self._count = count
        self._lock = threading.Lock()  # guards the following fields
        self._running = 0
        self._begun = 0
        self._waiting: dict[HashQueue, FairQueue[HashJob]] = {
            queue: FairQueue(place.share(queue.value), RESERVED_FOR_KNOWN[queue] // place.count)
            for queue in HashQueue
        }
        self._last_served = HashQueue.SIGN_IN

    @property
    def running(self) -> int:
        """The number of occupied slots."""
        return self._running

    @property
    def waiting(self) -> int:
        """The number of calls that wait, in both queues."""
        return sum(map(len, self._waiting.values()))

    @property
    def begun(self) -> int:
        """The number of functions begun since the start."""
        return self._begun

    async def run(
        self, queue: HashQueue, work: Callable[[], T], requester: Requester = ANONYMOUS
    ) -> T:
        """Run `work` in a thread once a slot is free, and return its result.

        A call that is cancelled while it waits for a slot does not begin; later it waits for the
        result of `work`.

        Raises: OverloadedError if the queue is full, or becomes full while `requester` has more
            than its share of it; the errors of `work`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        job, displaced = HashJob(work, requester), None
        with self._lock:
            at_once = self._running < self._count
            if at_once:
                self._running += 1
                self._begun += 1
            else:
                try:
                    displaced = self._waiting[queue].put(job, requester)
                except QueueFull:
                    raise too_many() from None
        if at_once:
            self.start(job)
        if displaced is not None:
            displaced.answer(outcome.Error(too_many()))

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            withdrawn = self._withdraw(queue, job)
            return trio.lowlevel.Abort.SUCCEEDED if withdrawn else trio.lowlevel.Abort.FAILED

        result: T = await trio.lowlevel.wait_task_rescheduled(abort)
        return result

    def run_here(self, work: Callable[[], T]) -> T:
        """Run `work` at once on the caller's thread, without a slot."""
        with self._lock:
            self._begun += 1
        return work()

    def start(self, first: HashJob) -> None:
        """Start a thread for the slot that was just occupied; it runs `first`, then queued jobs."""
        # Not one of trio's threads, which are reused: a lowered priority cannot be raised again.
        thread = threading.Thread(target=self._serve, args=(first,), name=_THREAD_NAME, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._running -= 1
                self._begun -= 1
            raise OverloadedError("The system cannot start another thread.") from None

    def _serve(self, first: HashJob) -> None:
        """Run jobs until none waits: the body of a thread."""
        _lower_priority()
        job: HashJob | None = first
        while job is not None:
            result = outcome.capture(job.work)
            # Taken before the answer, so that the slot is free when the caller resumes.
            following = self.next_job()
            job.answer(result)
            job = following

    def next_job(self) -> HashJob | None:
        """Return the next job, of the other queue if it has one; without a job free the slot."""
        with self._lock:
            other = (
                HashQueue.RECOVERY if self._last_served is HashQueue.SIGN_IN else HashQueue.SIGN_IN
            )
            for queue in (other, self._last_served):
                waiting = self._waiting[queue]
                job = waiting.pop() if waiting.length else None
                if job is not None:
                    self._last_served = queue
                    self._begun += 1
                    return job
            self._running -= 1
            return None

    def _withdraw(self, queue: HashQueue, job: HashJob) -> bool:
        with self._lock:  # False: it has begun, or was displaced
            return self._waiting[queue].remove(job, job.requester)


class InlineSlots(HashSlots):
    """Runs each hash on the caller's task, for tests whose clock does not see threads."""

    async def run(
        self, queue: HashQueue, work: Callable[[], T], requester: Requester = ANONYMOUS
    ) -> T:
        """Run `work` after a checkpoint, without a thread or a queue."""
        await trio.lowlevel.checkpoint()
        return self.run_here(work)


def too_many() -> OverloadedError:
    """Return the error for a password beyond the capacity of a queue."""
    return OverloadedError("Too many passwords are being checked. Try again in a moment.")


def _lower_priority() -> None:
    """Lower the priority of this thread below that of the rest of the process.

    Measured: with sign-ins on all cores the p99 of a small request halves.
    """
    with suppress(OSError):  # a container may forbid it; it is optional
        thread = threading.get_native_id()
        own = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(own, _NICE))


_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class HasherStatistics:
    """Counters since the start, and the numbers of running and waiting hashes."""

    hashes: int  # verifications and new hashes, decoys too
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PasswordCheck:
    """The result of a verification; `outdated`: the hash needs the live parameters."""

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
        breached: BreachedPasswords | None = None,
        slots: int | None = None,
        place: ProcessPlace | None = None,
        inline: bool = False,
    ) -> None:
        """Args:
        parameters: the cost of new hashes (FW_ARGON2).
        minimum, refuse_common: the policy's `minPasswordLength` and `refuseCommonPasswords`.
        entropy: creates the decoy.
        breached: the file of the policy's `breachedPasswords`.
        slots: the number of threads; None: the process's part of the cores.
        place: the place of the process in its service; determines its part of the limits.
        inline: hash on the caller's task, for tests whose clock does not see threads.
        """
        self.argon2_hasher = argon2.PasswordHasher(
            time_cost=parameters.time,
            memory_cost=parameters.memory_kib,
            parallelism=parameters.parallelism,
            hash_len=_HASH_BYTES,
            salt_len=_SALT_BYTES,
        )
        self._minimum, self._refuse_common, self._breached = minimum, refuse_common, breached
        place = place or _ALONE
        count = slots or place.share(len(os.sched_getaffinity(0)))
        self.slots = InlineSlots(count, place) if inline else HashSlots(count, place)
        self._lock = threading.Lock()  # guards the next fields
        self._withheld = 0  # jobs that began, but were too late to be computed
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
        # A random digest, which matches no password at any cost.
        self._decoy_parts = (
            f"{_base64(entropy.bytes(_SALT_BYTES))}${_base64(entropy.bytes(_HASH_BYTES))}"
        )

    @classmethod
    def of(cls, config: Config, entropy: Entropy, *, inline: bool = False) -> Hasher:
        """Return the hasher for a site's configuration.

        Raises: ConfigurationError for an unusable file of breached passwords.
        """
        breached = config.auth.breached_passwords
        return cls(
            config.deployment.argon2,
            config.auth.min_password_length,
            entropy,
            refuse_common=config.auth.refuse_common_passwords,
            breached=None if breached is None else BreachedPasswords(config.folder / breached),
            place=config.place,
            inline=inline,
        )

    async def hash(
        self, password: str, *, name: str, email: str, requester: Requester = ANONYMOUS
    ) -> str:
        """Validate a new password and return its hash; `requester` shares the queue with others.

        Raises: PasswordPolicyError; OverloadedError when too many wait.
        """
        self.validate(password, name=name, email=email)
        return await self.slots.run(HashQueue.RECOVERY, lambda: self._new_hash(password), requester)

    async def rehash(
        self, password: str, *, queue: HashQueue, requester: Requester = ANONYMOUS
    ) -> str:
        """Hash a password that was just verified, with the live parameters, without validation.

        Raises: OverloadedError when too many wait.
        """
        return await self.slots.run(
            queue, lambda: self.argon2_hasher.hash(_bytes(password)), requester
        )

    def hash_now(self, password: str, *, name: str, email: str) -> str:
        """Like `hash`, for code that already runs in a transaction (A-295)."""
        self.validate(password, name=name, email=email)
        return self.slots.run_here(lambda: self._new_hash(password))

    def _new_hash(self, password: str) -> str:
        """Hash a new password on this thread, which may wait for the disk."""
        if self._breached is not None:
            self._breached.refuse(password)
        return self.argon2_hasher.hash(_bytes(password))

    def validate(self, password: str, *, name: str, email: str) -> None:
        """Refuse a password that breaks the policy; breached passwords are checked by `hash`.

        Raises: PasswordPolicyError.
        """
        common = common_passwords() if self._refuse_common else frozenset[str]()
        validate_password(password, minimum=self._minimum, name=name, email=email, common=common)

    async def verify(
        self,
        stored: str | None,
        password: str,
        queue: HashQueue = HashQueue.SIGN_IN,
        *,
        decoy: HashCost | None = None,
        requester: Requester = ANONYMOUS,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> PasswordCheck:
        """Verify a password with exactly one hash, in every case.

        The time must not reveal whether the account exists, or has a usable hash.

        Args:
            stored: the stored hash; None or a damaged one is replaced by a decoy.
            password: as typed; one that is too long is refused at the cost of the stored hash.
            queue: the queue that waits for a slot.
            decoy: the cost of a decoy; None: that of a new hash.
            requester: shares the queue with others.
            may_begin: called in the thread immediately before the hash.

        Raises: OverloadedError if the queue is full or `may_begin` returns False; nothing was
            computed then.
        """

        def work() -> PasswordCheck:
            if not may_begin():
                with self._lock:
                    self._withheld += 1
                raise OverloadedError("The attempt waited too long. Try again.")
            return self._verify(stored, password, decoy or self._cost)

        return await self.slots.run(queue, work, requester)

    def statistics(self) -> HasherStatistics:
        """Return the counts for `/metrics`."""
        slots = self.slots
        return HasherStatistics(slots.begun - self._withheld, slots.running, slots.waiting)

    def _verify(self, stored: str | None, password: str, decoy: HashCost) -> PasswordCheck:
        params = parameters_of(stored)
        imported = imported_or_none(stored) if stored and params is None else None
        if imported is not None:
            return self._verify_imported(imported, password, decoy)
        if stored is None or params is None:
            return self._refuse(decoy, password)
        if len(password) > MAX_RUNES:
            own = Argon2(params.memory_cost, params.time_cost, params.parallelism)
            return self._refuse(own, password)
        try:
            self.argon2_hasher.verify(stored, _bytes(password))
        except argon2.exceptions.VerifyMismatchError:
            return PasswordCheck(False)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            # A damaged hash fails at once, which the response time would reveal.
            return self._refuse(decoy, password)
        return PasswordCheck(True, outdated=params != self._live)

    def _verify_imported(
        self, stored: ImportedHash, password: str, decoy: HashCost
    ) -> PasswordCheck:
        """Verify by the scheme of another system; a matching hash is outdated."""
        if len(password) > MAX_RUNES:
            return self._refuse(stored.cost, password)
        try:
            fits = stored.fits(_bytes(password))
        except (ModuleNotFoundError, ValueError):  # the extra was uninstalled after the import, or
            return self._refuse(decoy, password)  # its library refuses the parameters
        return PasswordCheck(fits, outdated=fits)

    def _refuse(self, cost: HashCost, password: str) -> PasswordCheck:
        """Compute one hash of this cost, and return a failure."""
        if isinstance(cost, ImportedCost):
            with suppress(ModuleNotFoundError, ValueError):
                cost.spend(_bytes(password))
                return PasswordCheck(False)
            cost = self._cost
        with suppress(argon2.exceptions.VerificationError):
            self.argon2_hasher.verify(
                f"$argon2id$v={self._live.version}$m={cost.memory_kib},t={cost.time},"
                f"p={cost.parallelism}${self._decoy_parts}",
                _bytes(password),
            )
        return PasswordCheck(False)


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


def _base64(data: bytes) -> str:
    """Return base64 without padding, as in an argon2 hash."""
    return base64.b64encode(data).decode().rstrip("=")
