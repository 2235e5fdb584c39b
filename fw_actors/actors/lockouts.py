"""The pool of LockoutActors as the rest of the service asks it: one actor an identifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from fw_actors.actors.counters import Counter
from fw_actors.actors.lockout import TryPasswordChange, TrySignIn
from fw_actors.errors import AuthenticationError, FwError, OverloadedError, TooManyRequestsError
from fw_actors.runtime import AskTimeout, KeyedPool, MailboxFull, Request
from fw_actors.services.access import PasswordChange, PasswordChanged, SignedIn, SignInAttempt
from fw_actors.services.password_change import PasswordChanges
from fw_actors.services.sign_in import SignIn

R = TypeVar("R")

TRY_SECONDS: Final = 60.0
_OUTCOMES: Final[Mapping[type, str]] = {
    SignedIn: "signed_in",
    AuthenticationError: "wrong",
    TooManyRequestsError: "throttled",
    OverloadedError: "overloaded",
}


class Lockouts:
    """Brings each try to its identifier's actor."""

    def __init__(
        self, pool: KeyedPool, sign_in: SignIn, changes: PasswordChanges, outcomes: Counter
    ) -> None:
        """`outcomes` counts sign-ins."""
        self._pool, self._sign_in, self._changes = pool, sign_in, changes
        self._outcomes = outcomes

    async def admit_address(self, address: str) -> None:
        """Let an address try. Raises: TooManyRequestsError."""
        self._refuse(await self._sign_in.address_wait(address))

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Raises: AuthenticationError, TooManyRequestsError, OverloadedError."""
        identified = self._sign_in.identify(attempt.usr)
        self._refuse(await self._sign_in.wait(identified))
        answer = await self._ask(identified.key, TrySignIn(attempt, identified))
        self._outcomes.add(_OUTCOMES.get(type(answer), "refused"))
        return _taken(answer)

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        """Raises: as `sign_in`, and PasswordPolicyError."""
        counter = self._changes.counter(change.user)
        return _taken(await self._ask(counter, TryPasswordChange(change, counter)))

    def _refuse(self, wait: float | None) -> None:
        if wait is not None:
            self._outcomes.add("throttled")
            raise TooManyRequestsError(wait)

    async def _ask(self, counter: bytes, request: Request[R | FwError]) -> R | FwError:
        try:
            return await self._pool[counter.hex()].ask(request, deadline=TRY_SECONDS)
        except (MailboxFull, AskTimeout):
            return OverloadedError("Too many sign-ins at once. Try again in a moment.")


def _taken(answer: R | FwError) -> R:
    if isinstance(answer, FwError):
        raise answer
    return answer
