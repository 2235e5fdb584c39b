"""LockoutActor: the sign-in attempts of one identifier, in order, always settled.

Log lines never contain typed identifiers, since users type passwords into the name field. A line
has the request id, the outcome, the address, and a prefix of the counter's key, which is the same
for all attempts at one identifier. It names the account only after a successful attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from outcome import Outcome

from fw_actors.access.attempts import shown_key
from fw_actors.access.passwords import PasswordChange, PasswordChanged, PasswordChanges
from fw_actors.access.sign_in import Admitted, Identified, SignedIn, SignIn, SignInAttempt
from fw_actors.actors.metrics import Counter
from fw_actors.errors import AuthenticationError, FwError, OverloadedError, TooManyRequestsError
from fw_actors.rules.lockout import BUSY_RETRY_SECONDS
from fw_actors.runtime import (
    Actor,
    Log,
    MailboxPolicy,
    Message,
    Overflow,
    PendingReply,
    Request,
    handles,
)
from fw_actors.runtime.clock import MS_PER_SECOND

_OUTCOMES: Final[Mapping[type, str]] = {
    SignedIn: "signed_in",
    PasswordChanged: "changed",
    AuthenticationError: "wrong",
    TooManyRequestsError: "throttled",
    OverloadedError: "overloaded",
}


class AttemptLog:
    """Logs and counts each attempt once, also if its caller has gone."""

    def __init__(self, outcomes: Counter, log: Log) -> None:
        """`outcomes` counts sign-ins."""
        self._outcomes, self._log = outcomes, log

    def sign_in(self, answer: SignedIn | FwError, attempt: SignInAttempt, counter: str) -> None:
        """Record a sign-in attempt at the identifier whose counter is shown as `counter`."""
        fields = {"address": attempt.address, "counter": counter}
        if isinstance(answer, SignedIn):
            fields["user"] = answer.user
        self._sign_in(answer, attempt.request_id, fields)

    def address_refused(self, error: FwError, address: str, request_id: str) -> None:
        """Record a sign-in attempt that the address's limit rejected."""
        self._sign_in(error, request_id, {"address": address})

    def change(self, answer: PasswordChanged | FwError, change: PasswordChange) -> None:
        """Record an attempt to change one's own password."""
        self._log.info(
            "password_change.ended",
            request_id=change.request_id,
            outcome=_outcome(answer),
            user=change.user,
        )

    def _sign_in(self, answer: object, request_id: str, fields: Mapping[str, str]) -> None:
        outcome = _outcome(answer)
        self._outcomes.add(outcome)
        self._log.info("sign_in.ended", request_id=request_id, outcome=outcome, **fields)


def _outcome(answer: object) -> str:
    return _OUTCOMES.get(type(answer), "refused")


R = TypeVar("R")

MIN_MAILBOX_ATTEMPTS: Final = 128
"""The capacity of an identifier's mailbox, unless the limit of attempts is higher."""
MIN_CONCURRENT_ATTEMPTS: Final = 256
"""The attempts of an identifier in progress, unless the limit is higher; the hasher rejects long
before."""


def lockout_mailbox(limit: int) -> MailboxPolicy:
    """Return the mailbox of a LockoutActor under `limit`, the policy's `maxLoginAttempts`.

    An attempt that finds it full has at least `limit` others before it: its answer is 429 (A-68).
    """
    return MailboxPolicy(
        capacity=max(MIN_MAILBOX_ATTEMPTS, limit),
        overflow=Overflow.REFUSE,
        max_work=max(MIN_CONCURRENT_ATTEMPTS, limit) + 1,  # and one check of the lock
    )


class AttemptSignIn(Request[SignedIn | FwError], frozen=True):
    """An attempt to sign in; answered with a session or an error."""

    attempt: SignInAttempt
    identified: Identified


class AttemptPasswordChange(Request[PasswordChanged | FwError], frozen=True):
    """An attempt at the current password; answered with the change or an error."""

    change: PasswordChange
    counter: bytes


class LockStarted(Message, frozen=True):
    """The identifier is locked for `seconds`."""

    seconds: float


class LockChecked(Message, frozen=True):
    """The result of the store's check: the remaining seconds of the lock, or None."""

    outcome: Outcome[float | None]


Unchecked = tuple[AttemptSignIn, PendingReply[Any]]


class LockoutActor(Actor):
    """Owns the attempts of one identifier: their order, those in flight, and the known lock.

    The rows of the store decide (A-82): another process may lock or unlock the identifier at any
    time. `_locked_until` only indicates that a rejection is likely, which justifies a read before a
    charge is written; one read answers all attempts that arrived before it began.

    Its pool gives it the mailbox of `lockout_mailbox`.
    """

    mailbox = lockout_mailbox(0)

    def __init__(
        self, key: str, sign_in: SignIn, changes: PasswordChanges, attempts: AttemptLog
    ) -> None:
        """`key` is the identifier's counter in hexadecimal digits."""
        self._key = bytes.fromhex(key)
        self._shown = shown_key(self._key)
        self._sign_in, self._changes, self._attempts = sign_in, changes, attempts
        self._locked_until = 0  # ms
        self._unchecked: list[Unchecked] = []  # bounded by `web.maxRequests`
        self._being_checked: list[Unchecked] = []

    @handles(AttemptSignIn)
    async def sign_in(self, message: AttemptSignIn) -> SignedIn | FwError | PendingReply[Any]:
        """Charge and verify the attempt, or reject it because of the known lock."""
        if self._locked_until and self._locked_until > self.context.clock.now():
            reply: PendingReply[Any] = self.context.keep_reply()
            self._unchecked.append((message, reply))
            self._check_lock()
            return reply
        admitted = await self._begin_sign_in(message)
        if isinstance(admitted, FwError):
            return admitted
        reply = self.context.keep_reply()
        self._verify_sign_in(message, admitted, reply)
        return reply

    @handles(AttemptPasswordChange)
    async def change(
        self, message: AttemptPasswordChange
    ) -> PasswordChanged | FwError | PendingReply[Any]:
        """Charge the attempt to the account's name, and verify it."""
        change = message.change
        try:
            admitted = await self._changes.admit(change, message.counter)
        except OverloadedError as overload:
            admitted = overload
        if isinstance(admitted, FwError):
            self._attempts.change(admitted, change)
            return admitted
        reply: PendingReply[Any] = self.context.keep_reply()
        self.context.work(
            self._settle,
            partial(self._changes.verify, change, admitted),
            partial(self._attempts.change, change=change),
            reply,
        )
        return reply

    @handles(LockStarted)
    def lock_started(self, message: LockStarted) -> None:
        """Remember the lock."""
        self._record_lock(message.seconds)

    @handles(LockChecked)
    async def lock_checked(self, message: LockChecked) -> None:
        """Reject the attempts that waited for the check, or begin them if the lock has ended."""
        checked, self._being_checked = self._being_checked, []
        try:
            wait = message.outcome.unwrap()
        except Exception as defect:  # includes OverloadedError
            error: Exception = defect
        else:
            self._record_lock(wait or 0.0)
            if wait is None:
                await self._begin_all(checked)
                self._check_lock()
                return
            error = TooManyRequestsError(wait)
        for attempt, reply in checked:
            self._refuse(attempt, reply, error)
        self._check_lock()

    def describe(self) -> dict[str, object]:
        """Return the console's facts, never the identifier."""
        in_flight = self.context.works
        if self._being_checked:
            in_flight -= 1  # the check of the lock
        return {"in_flight": in_flight, "locked_until": self._locked_until or None}

    def _record_lock(self, seconds: float) -> None:
        """Remember a lock; a wait for attempts in flight (A-64) is not a lock."""
        now = self.context.clock.now()
        self._locked_until = (
            now + round(seconds * MS_PER_SECOND) if seconds > BUSY_RETRY_SECONDS else 0
        )

    def _check_lock(self) -> None:
        if self._unchecked and not self._being_checked:
            self._being_checked, self._unchecked = self._unchecked, []
            self.context.work(partial(self._sign_in.lock_wait, self._key), then=LockChecked)

    def _refuse(self, message: AttemptSignIn, reply: PendingReply[Any], error: Exception) -> None:
        if isinstance(error, FwError):
            self._attempts.sign_in(error, message.attempt, self._shown)
            reply.answer(error)
        else:
            reply.fail(error)

    async def _begin_all(self, attempts: Sequence[Unchecked]) -> None:
        for message, reply in attempts:
            admitted = await self._begin_sign_in(message)
            if isinstance(admitted, FwError):
                reply.answer(admitted)
            else:
                self._verify_sign_in(message, admitted, reply)

    async def _begin_sign_in(self, message: AttemptSignIn) -> Admitted | FwError:
        """Charge an attempt; log it if it is rejected."""
        error: FwError
        try:
            admitted = await self._sign_in.admit(message.identified)
        except OverloadedError as overload:
            error = overload
        else:
            if isinstance(admitted, Admitted):
                return admitted
            if not admitted.by_address:
                self._record_lock(admitted.wait)
            error = TooManyRequestsError(admitted.wait)
        self._attempts.sign_in(error, message.attempt, self._shown)
        return error

    def _verify_sign_in(
        self, message: AttemptSignIn, admitted: Admitted, reply: PendingReply[Any]
    ) -> None:
        self.context.work(
            self._settle,
            partial(self._sign_in.verify, message.attempt, admitted),
            partial(self._attempts.sign_in, attempt=message.attempt, counter=self._shown),
            reply,
        )

    async def _settle(
        self,
        verify: Callable[[], Awaitable[R | FwError]],
        report: Callable[[R | FwError], None],
        reply: PendingReply[Any],
    ) -> None:
        """Verify an attempt, report it, and answer the caller that still waits.

        Runs as work of this actor, so that the next attempt can be charged meanwhile, and the
        attempt is settled and logged even if its caller has gone (A-54). It does not access the
        actor's state: a lock is reported by a message, which arrives before the caller's next
        attempt. A defect fails only this attempt.
        """
        answer: R | FwError
        try:
            try:
                answer = await verify()
            except OverloadedError as error:
                answer = error  # the charge could not be settled and counts as a failure
            report(answer)
        except Exception as defect:
            reply.fail(defect)
            return
        if isinstance(answer, TooManyRequestsError):
            self.context.ref.tell(LockStarted(answer.retry_after))
        reply.answer(answer)
