"""One identifier's sign-ins: charged in order, verified beside the mailbox, always settled.

The row is the truth and decides; this actor only puts the tries of one identifier in order, and
outlives the request that asked: a client that goes away leaves no charge unsettled.
"""

from __future__ import annotations

from typing import Final

from outcome import Outcome

from fw_actors.errors import FwError, OverloadedError
from fw_actors.runtime import Actor, MailboxPolicy, Message, Overflow, Reply, Request, handles
from fw_actors.services.access import SignedIn, SignInAttempt
from fw_actors.services.sign_in import Admitted, Identified, SignIn

MAX_VERIFYING: Final = 256  # at once for one identifier; the hasher refuses long before

Answer = SignedIn | FwError


class TrySignIn(Request[Answer], frozen=True):
    """One try; answered with a session or with the refusal."""

    attempt: SignInAttempt
    identified: Identified


class Verified(Message, frozen=True):
    """A try that was verified and settled, and who waits for it."""

    reply: Reply[Answer]
    outcome: Outcome[Answer]


class LockoutActor(Actor):
    """See the module. One for each identifier, made when it is needed."""

    mailbox = MailboxPolicy(capacity=128, overflow=Overflow.REFUSE, max_work=MAX_VERIFYING)

    def __init__(self, sign_in: SignIn) -> None:
        self._sign_in = sign_in

    @handles(TrySignIn)
    async def sign_in(self, message: TrySignIn) -> Answer | None:
        """Charge the try; verify it beside the mailbox, so that the next one is judged at once."""
        try:
            admitted = await self._sign_in.admit(message.attempt, message.identified)
        except OverloadedError as refusal:
            return refusal
        if isinstance(admitted, FwError):
            return admitted
        reply: Reply[Answer] = self.context.keep_reply()
        self.context.work(
            self._verify, message.attempt, admitted, then=lambda outcome: Verified(reply, outcome)
        )
        return None

    @handles(Verified)
    def verified(self, message: Verified) -> None:
        """Answer whoever still waits; a defect below fails that one try alone."""
        try:
            message.reply.answer(message.outcome.unwrap())
        except Exception as defect:
            message.reply.fail(defect)

    async def _verify(self, attempt: SignInAttempt, admitted: Admitted) -> Answer:
        try:
            return await self._sign_in.verify(attempt, admitted)
        except OverloadedError as refusal:
            return refusal  # the charge could not be settled and stays a failure
