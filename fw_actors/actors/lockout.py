"""LockoutActor: the sign-in attempts of one identifier, in order, always settled.

The row is the truth and decides; this actor only puts the tries of one identifier in order, and
outlives the request that asked: a client that goes away leaves no charge unsettled.

What was typed is in none of them, since people type passwords into the name field: a line has the
request id, the outcome, the address, and a part of the key of the identifier's counter, which is
the same for all tries at one name. An account is named once a try has proved to be its owner's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from outcome import Outcome

from fw_actors.access.attempts import shown_key
from fw_actors.access.passwords import PasswordChanges
from fw_actors.access.sign_in import Identified, SignIn
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


class TryLog:
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


A = TypeVar("A")
R = TypeVar("R")

MAX_VERIFYING: Final = 256  # at once for one identifier; the hasher refuses long before


class TrySignIn(Request[SignedIn | FwError], frozen=True):
    """One try; answered with a session or with the refusal."""

    attempt: SignInAttempt
    identified: Identified


class TryPasswordChange(Request[PasswordChanged | FwError], frozen=True):
    """A try at the current password; answered with the change, or with the refusal."""

    change: PasswordChange
    counter: bytes


class Verified(Message, frozen=True):
    """A try that was verified and settled, and who waits for it."""

    reply: PendingReply[Any]
    outcome: Outcome[Any]


class LockoutActor(Actor):
    """See the module. One for each identifier, made when it is needed."""

    mailbox = MailboxPolicy(capacity=128, overflow=Overflow.REFUSE, max_work=MAX_VERIFYING)

    def __init__(self, sign_in: SignIn, changes: PasswordChanges, tries: TryLog) -> None:
        self._sign_in, self._changes, self._tries = sign_in, changes, tries

    @handles(TrySignIn)
    async def sign_in(self, message: TrySignIn) -> SignedIn | FwError | None:
        """Charge the try, and verify it."""
        attempt, identified = message.attempt, message.identified
        return await self._guard(
            self._sign_in.admit(attempt, identified),
            partial(self._sign_in.verify, attempt),
            lambda answer: self._tries.sign_in(answer, attempt, identified.key),
        )

    @handles(TryPasswordChange)
    async def change(self, message: TryPasswordChange) -> PasswordChanged | FwError | None:
        """The same for the current password of who is signed in."""
        change = message.change
        return await self._guard(
            self._changes.admit(change, message.counter),
            partial(self._changes.verify, change),
            lambda answer: self._tries.change(answer, change),
        )

    @handles(Verified)
    def verified(self, message: Verified) -> None:
        """Answer whoever still waits; a defect below fails that one try alone."""
        try:
            message.reply.answer(message.outcome.unwrap())
        except Exception as defect:
            message.reply.fail(defect)

    async def _guard(
        self,
        admit: Awaitable[A | FwError],
        verify: Callable[[A], Awaitable[R | FwError]],
        note: Callable[[R | FwError], None],
    ) -> FwError | None:
        """Charge here; verify beside the mailbox, so that the next try is judged at once.

        `note` is told what came of it.
        """
        admitted: A | FwError
        try:
            admitted = await admit
        except OverloadedError as refusal:
            admitted = refusal
        if isinstance(admitted, FwError):
            note(admitted)
            return admitted
        reply: PendingReply[Any] = self.context.keep_reply()
        self.context.work(
            partial(_settled, verify, admitted, note), then=lambda outcome: Verified(reply, outcome)
        )
        return None


async def _settled(
    verify: Callable[[A], Awaitable[R | FwError]], admitted: A, note: Callable[[R | FwError], None]
) -> R | FwError:
    answer: R | FwError
    try:
        answer = await verify(admitted)
    except OverloadedError as refusal:
        answer = refusal  # the charge could not be settled and stays a failure
    note(answer)
    return answer


TRY_SECONDS: Final = 60.0


class Lockouts:
    """Brings each try to its identifier's actor."""

    def __init__(
        self, pool: KeyedPool, sign_in: SignIn, changes: PasswordChanges, tries: TryLog
    ) -> None:
        """`tries` is told of those that no actor has to decide; the actors tell it the others."""
        self._pool, self._sign_in, self._changes = pool, sign_in, changes
        self._tries = tries

    async def admit_address(self, address: str, request_id: str) -> None:
        """Refuse an address that has used up its tries, without counting one.

        For a request that is refused anyway: a try is told so by its charge.

        Raises: TooManyRequestsError.
        """
        wait = await self._sign_in.address_wait(address)
        if wait is not None:
            refusal = TooManyRequestsError(wait)
            self._tries.address_refused(refusal, address, request_id)
            raise refusal

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Raises: AuthenticationError, TooManyRequestsError, OverloadedError."""
        identified = self._sign_in.identify(attempt.usr)
        wait = await self._sign_in.known_wait(attempt.address, identified)
        refusal: FwError
        if wait is not None:
            refusal = TooManyRequestsError(wait)
        else:
            try:
                return _taken(await self._ask(identified.key, TrySignIn(attempt, identified)))
            except MailboxFull:
                refusal = _too_many()
        self._tries.sign_in(refusal, attempt, identified.key)
        raise refusal

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        """Raises: as `sign_in`, and PasswordPolicyError."""
        counter = self._changes.counter(change.user)
        try:
            return _taken(await self._ask(counter, TryPasswordChange(change, counter)))
        except MailboxFull:
            refusal = _too_many()
        self._tries.change(refusal, change)
        raise refusal

    async def _ask(self, counter: bytes, request: Request[R | FwError]) -> R | FwError:
        """Raises: MailboxFull, when no actor has seen the try; one that is late decides it yet."""
        try:
            return await self._pool[counter.hex()].ask(request, deadline=TRY_SECONDS)
        except AskTimeout:
            return _too_many()


def _too_many() -> OverloadedError:
    return OverloadedError("Too many sign-ins at once. Try again in a moment.")


def _taken(answer: R | FwError) -> R:
    if isinstance(answer, FwError):
        raise answer
    return answer
