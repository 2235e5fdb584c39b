"""The pool of LockoutActors as the rest of the service asks it: one actor an identifier."""

from __future__ import annotations

from typing import Final, TypeVar

from fw_actors.actors.lockout import TryPasswordChange, TrySignIn
from fw_actors.actors.try_log import TryLog
from fw_actors.errors import FwError, OverloadedError, TooManyRequestsError
from fw_actors.runtime import AskTimeout, KeyedPool, MailboxFull, Request
from fw_actors.services.access import PasswordChange, PasswordChanged, SignedIn, SignInAttempt
from fw_actors.services.password_change import PasswordChanges
from fw_actors.services.sign_in import SignIn

R = TypeVar("R")

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
