"""One identifier's tries: charged in order, verified beside the mailbox, always settled.

The row is the truth and decides; this actor only puts the tries of one identifier in order, and
outlives the request that asked: a client that goes away leaves no charge unsettled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from outcome import Outcome

from fw_actors.actors.try_log import TryLog
from fw_actors.errors import FwError, OverloadedError
from fw_actors.runtime import Actor, MailboxPolicy, Message, Overflow, Reply, Request, handles
from fw_actors.services.access import PasswordChange, PasswordChanged, SignedIn, SignInAttempt
from fw_actors.services.password_change import PasswordChanges
from fw_actors.services.sign_in import Identified, SignIn

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

    reply: Reply[Any]
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
        reply: Reply[Any] = self.context.keep_reply()
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
