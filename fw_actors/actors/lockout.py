"""LockoutActor: the sign-in attempts of one identifier, in order, always settled.

What was typed is in none of them, since people type passwords into the name field: a line has the
request id, the outcome, the address, and a part of the key of the identifier's counter, which is
the same for all tries at one name. An account is named once a try has proved to be its owner's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from outcome import Outcome

from fw_actors.access.attempts import shown_key
from fw_actors.access.passwords import PasswordChanges
from fw_actors.access.sign_in import Admitted, Identified, SignIn
from fw_actors.access.types import PasswordChange, PasswordChanged, SignedIn, SignInAttempt
from fw_actors.actors.counters import Counter
from fw_actors.errors import AuthenticationError, FwError, OverloadedError, TooManyRequestsError
from fw_actors.runtime import (
    Actor,
    AskTimeout,
    KeyedPool,
    Log,
    MailboxFull,
    MailboxPolicy,
    Message,
    Overflow,
    PendingReply,
    Request,
    handles,
)

_OUTCOMES: Final[Mapping[type, str]] = {
    SignedIn: "signed_in",
    PasswordChanged: "changed",
    AuthenticationError: "wrong",
    TooManyRequestsError: "throttled",
    OverloadedError: "overloaded",
}


class AttemptLog:
    """Told of each try once, by whoever decides it: also when nobody waits for the answer."""

    def __init__(self, outcomes: Counter, log: Log) -> None:
        """`outcomes` counts sign-ins."""
        self._outcomes, self._log = outcomes, log

    def sign_in(self, answer: SignedIn | FwError, attempt: SignInAttempt, counter: bytes) -> None:
        """Take note of a try to sign in, at the identifier with the key `counter`."""
        fields = {"address": attempt.address, "counter": shown_key(counter)}
        if isinstance(answer, SignedIn):
            fields["user"] = answer.user
        self._sign_in(answer, attempt.request_id, fields)

    def address_refused(self, refusal: FwError, address: str, request_id: str) -> None:
        """Take note of a try to sign in that its address is refused."""
        self._sign_in(refusal, request_id, {"address": address})

    def change(self, answer: PasswordChanged | FwError, change: PasswordChange) -> None:
        """Take note of a try to change the own password."""
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

IN_FLIGHT_SECONDS: Final = 1.0
MAX_VERIFYING: Final = 256  # at once for one identifier; the hasher refuses long before


class AttemptSignIn(Request[SignedIn | FwError], frozen=True):
    """An attempt to sign in; answered with a session or with the refusal."""

    attempt: SignInAttempt
    identified: Identified


class AttemptPasswordChange(Request[PasswordChanged | FwError], frozen=True):
    """An attempt at the current password; answered with the change, or with the refusal."""

    change: PasswordChange
    counter: bytes


class Settled(Message, frozen=True):
    """An attempt was verified and settled; `reply` still has to be answered."""

    reply: PendingReply[Any]
    outcome: Outcome[Any]


class LockChecked(Message, frozen=True):
    """The store was asked how long the identifier is locked: for seconds, or not at all."""

    outcome: Outcome[float | None]


Unchecked = tuple[AttemptSignIn, PendingReply[Any]]


class LockoutActor(Actor):
    """Owns the attempts of one identifier: their order, those in flight, and the known lock.

    The rows of the store decide (A-82): another process may lock or unlock the identifier at any
    time. `_locked_until` only says that a refusal is likely, so that a read is worth it before a
    charge is written; one read answers all attempts that came before it began.
    """

    mailbox = MailboxPolicy(capacity=128, overflow=Overflow.REFUSE, max_work=MAX_VERIFYING + 1)

    def __init__(
        self, key: str, sign_in: SignIn, changes: PasswordChanges, attempts: AttemptLog
    ) -> None:
        """`key`: the identifier's counter, in hexadecimal digits."""
        self._key = bytes.fromhex(key)
        self._sign_in, self._changes, self._attempts = sign_in, changes, attempts
        self._locked_until = 0  # ms
        self._in_flight = 0
        self._unchecked: list[Unchecked] = []
        self._being_checked: list[Unchecked] = []

    @handles(AttemptSignIn)
    async def sign_in(self, message: AttemptSignIn) -> SignedIn | FwError | None:
        """Charge the attempt and verify it, or refuse it by the known lock."""
        if self._locked_until > self.context.clock.now():
            self._unchecked.append((message, self.context.keep_reply()))
            self._check_lock()
            return None
        refusal = await self._begin_sign_in(message)
        if isinstance(refusal, FwError):
            return refusal
        self._verify_sign_in(message, refusal, self.context.keep_reply())
        return None

    @handles(AttemptPasswordChange)
    async def change(self, message: AttemptPasswordChange) -> PasswordChanged | FwError | None:
        """Charge the attempt at the account's name, and verify it."""
        change = message.change
        try:
            admitted = await self._changes.admit(change, message.counter)
        except OverloadedError as overload:
            admitted = overload
        if isinstance(admitted, FwError):
            self._attempts.change(admitted, change)
            return admitted
        self._verify(
            partial(self._changes.verify, change, admitted),
            partial(self._attempts.change, change=change),
            self.context.keep_reply(),
        )
        return None

    @handles(Settled)
    def settled(self, message: Settled) -> None:
        """ReceiverResponse the caller that still waits; a defect fails that one attempt alone."""
        self._in_flight -= 1
        try:
            answer = message.outcome.unwrap()
        except Exception as defect:
            message.reply.fail(defect)
            return
        if isinstance(answer, TooManyRequestsError):
            self._note_lock(answer.retry_after)
        message.reply.answer(answer)

    @handles(LockChecked)
    async def lock_checked(self, message: LockChecked) -> None:
        """Refuse the attempts that waited for this, or begin them where the lock is gone."""
        checked, self._being_checked = self._being_checked, []
        try:
            wait = message.outcome.unwrap()
        except Exception as defect:  # OverloadedError among them
            refused: Exception = defect
        else:
            self._note_lock(wait or 0.0)
            refused = OverloadedError() if wait is None else TooManyRequestsError(wait)
            if wait is None:
                await self._begin_all(checked)
                checked = []
        for attempt, reply in checked:
            self._refuse(attempt, reply, refused)
        self._check_lock()

    def describe(self) -> dict[str, object]:
        """What the console shows; never the identifier."""
        return {"in_flight": self._in_flight, "locked_until": self._locked_until or None}

    def _note_lock(self, seconds: float) -> None:
        """Remember a lock; a second or less is the wait for attempts in flight (A-64), no lock."""
        now = self.context.clock.now()
        self._locked_until = now + round(seconds * 1000) if seconds > IN_FLIGHT_SECONDS else 0

    def _check_lock(self) -> None:
        if self._unchecked and not self._being_checked:
            self._being_checked, self._unchecked = self._unchecked, []
            self.context.work(partial(self._sign_in.lock_wait, self._key), then=LockChecked)

    def _refuse(self, message: AttemptSignIn, reply: PendingReply[Any], refusal: Exception) -> None:
        if isinstance(refusal, FwError):
            self._attempts.sign_in(refusal, message.attempt, self._key)
            reply.answer(refusal)
        else:
            reply.fail(refusal)

    async def _begin_all(self, attempts: Sequence[Unchecked]) -> None:
        for message, reply in attempts:
            begun = await self._begin_sign_in(message)
            if isinstance(begun, FwError):
                reply.answer(begun)
            else:
                self._verify_sign_in(message, begun, reply)

    async def _begin_sign_in(self, message: AttemptSignIn) -> Admitted | FwError:
        """Charge an attempt; a refusal is logged here."""
        refusal: FwError
        try:
            admitted = await self._sign_in.admit(message.attempt, message.identified)
        except OverloadedError as overload:
            refusal = overload
        else:
            if isinstance(admitted, Admitted):
                return admitted
            if not admitted.by_address:
                self._note_lock(admitted.wait)
            refusal = TooManyRequestsError(admitted.wait)
        self._attempts.sign_in(refusal, message.attempt, self._key)
        return refusal

    def _verify_sign_in(
        self, message: AttemptSignIn, admitted: Admitted, reply: PendingReply[Any]
    ) -> None:
        self._verify(
            partial(self._sign_in.verify, message.attempt, admitted),
            lambda answer: self._attempts.sign_in(answer, message.attempt, self._key),
            reply,
        )

    def _verify(
        self,
        verify: Callable[[], Awaitable[R | FwError]],
        report: Callable[[R | FwError], None],
        reply: PendingReply[Any],
    ) -> None:
        """Verify beside the mailbox, so that the next attempt is charged meanwhile.

        The work belongs to this actor: it settles and logs the attempt also when its caller has
        gone (A-54).
        """
        self._in_flight += 1
        self.context.work(
            partial(_settle, verify, report), then=lambda outcome: Settled(reply, outcome)
        )


async def _settle(
    verify: Callable[[], Awaitable[R | FwError]], report: Callable[[R | FwError], None]
) -> R | FwError:
    answer: R | FwError
    try:
        answer = await verify()
    except OverloadedError as refusal:
        answer = refusal  # the charge could not be settled and stays a failure
    report(answer)
    return answer


ATTEMPT_SECONDS: Final = 60.0


class Lockouts:
    """Brings each try to its identifier's actor."""

    def __init__(
        self, pool: KeyedPool, sign_in: SignIn, changes: PasswordChanges, attempts: AttemptLog
    ) -> None:
        """`attempts` logs those that no actor has to decide; the actors log the others."""
        self._pool, self._sign_in, self._changes = pool, sign_in, changes
        self._attempts = attempts

    async def admit_address(self, address: str, request_id: str) -> None:
        """Refuse an address that has used up its tries, without counting one.

        For a request that is refused anyway: a try is told so by its charge.

        Raises: TooManyRequestsError.
        """
        wait = await self._sign_in.address_wait(address)
        if wait is not None:
            refusal = TooManyRequestsError(wait)
            self._attempts.address_refused(refusal, address, request_id)
            raise refusal

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Raises: AuthenticationError, TooManyRequestsError, OverloadedError."""
        identified = self._sign_in.identify(attempt.usr)
        wait = await self._sign_in.known_address_wait(attempt.address)
        refusal: FwError
        if wait is not None:
            refusal = TooManyRequestsError(wait)
        else:
            try:
                return _taken(await self._ask(identified.key, AttemptSignIn(attempt, identified)))
            except MailboxFull:
                refusal = _too_many()
        self._attempts.sign_in(refusal, attempt, identified.key)
        raise refusal

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        """Raises: as `sign_in`, and PasswordPolicyError."""
        counter = self._changes.counter(change.user)
        try:
            return _taken(await self._ask(counter, AttemptPasswordChange(change, counter)))
        except MailboxFull:
            refusal = _too_many()
        self._attempts.change(refusal, change)
        raise refusal

    async def _ask(self, counter: bytes, request: Request[R | FwError]) -> R | FwError:
        """Raises: MailboxFull, when no actor has seen the try; one that is late decides it yet."""
        try:
            return await self._pool[counter.hex()].ask(request, deadline=ATTEMPT_SECONDS)
        except AskTimeout:
            return _too_many()


def _too_many() -> OverloadedError:
    return OverloadedError("Too many sign-ins at once. Try again in a moment.")


def _taken(answer: R | FwError) -> R:
    if isinstance(answer, FwError):
        raise answer
    return answer
