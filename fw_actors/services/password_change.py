"""Changing the own password: the current one is a try like a sign-in, counted like one.

Source: interface §2, profile.changeMyPassword: a wrong `current` counts as a failed sign-in for
the account name; §8: it shares that name's budget and answers 429 while it is locked. So a stolen
session guesses no further than the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fw_actors.config import Argon2, AuthPolicy
from fw_actors.errors import (
    AuthenticationError,
    FwError,
    OverloadedError,
    PasswordPolicyError,
    TooManyRequestsError,
)
from fw_actors.hashing import Hasher, Lane
from fw_actors.rules.fair_queue import Requester
from fw_actors.rules.identifiers import canonical
from fw_actors.rules.lockout import Budget, may_verify
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Clock, Entropy
from fw_actors.services import attempts
from fw_actors.services.access import PasswordChange, PasswordChanged
from fw_actors.services.account_hold import hold
from fw_actors.services.accounts import Account, Accounts
from fw_actors.services.hash_costs import RecentCosts
from fw_actors.services.passwords import Passwords
from fw_actors.store import Store, Tx

WRONG: Final = "The current password is wrong."
_ID_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class AdmittedChange:
    """A try that was charged and may be verified."""

    key: bytes
    charge: str
    charged_at: int
    account: Account
    decoy: Argon2 | None


class PasswordChanges:
    """The use case. Each step is a transaction or a hash; the LockoutActor puts them in order."""

    def __init__(
        self,
        store: Store,
        hasher: Hasher,
        directory: Accounts,
        passwords: Passwords,
        policy: AuthPolicy,
        clock: Clock,
        entropy: Entropy,
        installation_key: bytes,
    ) -> None:
        self._store, self._hasher, self._directory = store, hasher, directory
        self._clock = clock
        self._passwords, self._entropy, self._key = passwords, entropy, installation_key
        self._budget = Budget(policy.max_login_attempts, policy.lockout_minutes * 60_000)
        self._costs = RecentCosts()

    def counter(self, user: str) -> bytes:
        """Return the counter of an account's name, the one that sign-ins by it have."""
        return attempts.counter_key(self._key, attempts.IDENTIFIER, canonical(user))

    async def admit(self, change: PasswordChange, key: bytes) -> AdmittedChange | FwError:
        """Charge the account's name. Raises: OverloadedError when that can't be written."""
        charge = record_id(self._entropy.bytes(_ID_BYTES))

        def work(tx: Tx) -> AdmittedChange | FwError:
            wait = attempts.charge(tx, charge, key, self._budget)
            if wait is not None:
                return TooManyRequestsError(wait)
            account = self._directory.find(tx, canonical(change.user))
            if account is None or not account.enabled:
                attempts.take_back(tx, charge)
                return AuthenticationError()
            return AdmittedChange(key, charge, tx.now, account, self._costs.get(tx).draw(key))

        return await self._store.write(work)

    async def verify(
        self, change: PasswordChange, admitted: AdmittedChange
    ) -> PasswordChanged | FwError:
        """Verify the current password, judge and hash the new one, settle and set it."""
        stored = admitted.account.password_hash
        try:
            verified = await self._hasher.verify(
                stored,
                change.current,
                Lane.RECOVERY,
                decoy=admitted.decoy,
                requester=_requester(change),
                may_begin=lambda: may_verify(admitted.charged_at, self._clock.now()),
            )
            if not verified.ok:
                return await self._store.write(lambda tx: self._fail(tx, admitted))
            new = await self._hash(change, admitted)
        except OverloadedError as refusal:
            await self._store.write(lambda tx: attempts.take_back(tx, admitted.charge))
            return refusal
        return await self._store.write(lambda tx: self._succeed(tx, change, admitted, new))

    async def _hash(self, change: PasswordChange, admitted: AdmittedChange) -> str | FwError:
        user = admitted.account.user
        email = await self._store.read(lambda tx: self._passwords.email(tx, user), reserved=True)
        try:
            return await self._hasher.hash(
                change.password, name=user, email=email, requester=_requester(change)
            )
        except PasswordPolicyError as refusal:
            return refusal

    def _fail(self, tx: Tx, admitted: AdmittedChange) -> FwError:
        locked = attempts.settle_failure(tx, admitted.charge, admitted.key, self._budget)
        return AuthenticationError(WRONG) if locked is None else TooManyRequestsError(locked)

    def _succeed(
        self, tx: Tx, change: PasswordChange, admitted: AdmittedChange, new: str | FwError
    ) -> PasswordChanged | FwError:
        account = admitted.account
        hold(tx, account.user)
        now = self._directory.find(tx, canonical(change.user))
        if now is None or not now.enabled or now.password_changed != account.password_changed:
            return self._fail(tx, admitted)  # it changed while the hash ran
        attempts.clear(tx, admitted.charge, admitted.key)
        if isinstance(new, FwError):
            return new
        ended = self._passwords.change(
            tx, account.user, new, spare=change.session, request_id=change.request_id
        )
        return PasswordChanged(ended)


def _requester(change: PasswordChange) -> Requester:
    """An account has one share of a full queue, from wherever its sessions are."""
    return Requester(f"account {change.user}")
