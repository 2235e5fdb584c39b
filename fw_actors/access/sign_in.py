"""The steps of a sign-in: throttle, look-up, hash, and one transaction that settles the attempt.

One transaction charges both counters before the account is looked up or a password hashed (A-42). A
charge is released only if the attempt succeeds or cannot be verified (A-65).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fw_actors.access import accounts, attempts, known_origins, sessions
from fw_actors.access.accounts import Account, Accounts, lock_account
from fw_actors.access.attempts import AddressBudget, AddressCounters, RefusedAddresses
from fw_actors.access.hash_costs import RecentCosts
from fw_actors.config import AuthPolicy
from fw_actors.errors import AuthenticationError, FwError, OverloadedError, TooManyRequestsError
from fw_actors.hashing import HashCost, Hasher, HashQueue
from fw_actors.mail import NewDevice
from fw_actors.rules.fair_queue import Requester
from fw_actors.rules.identifiers import (
    BEARER_BYTES,
    UnusableIdentifierError,
    bearer,
    canonical,
    digest,
    record_id,
    sharing_network,
)
from fw_actors.rules.lockout import Budget, may_verify
from fw_actors.runtime import Clock, Entropy
from fw_actors.runtime.clock import MS_PER_MINUTE, SECONDS_PER_DAY
from fw_actors.store import Store, Tx

WRONG: Final = "The name or the password is wrong."
_ID_BYTES: Final = 12
_SHOWN_AGENT: Final = 200

NewDeviceNotice = Callable[[Tx, str, NewDevice], None]
"""Queues the mail about a user's sign-in from a new device; used if `auth.newDeviceMail` is on."""


@dataclass(frozen=True)
class SignInAttempt:
    """One sign-in attempt. `address` is complete; the throttle counts IPv6 per /64."""

    usr: str
    pwd: str = field(repr=False)
    address: str
    user_agent: str
    old_sid: str | None = field(repr=False)
    request_id: str


@dataclass(frozen=True)
class SignedIn:
    """A new session. `expires` is in ms since the epoch, `max_age` in seconds."""

    sid: str = field(repr=False)
    user: str
    full_name: str
    expires: int
    max_age: int


@dataclass(frozen=True, slots=True)
class Identified:
    """The counters of an attempt and, if there is one, the canonical form of its identifier."""

    key: bytes
    canonical: str | None
    address: AddressCounters


@dataclass(frozen=True, slots=True)
class Admitted:
    """An attempt that was charged and may be verified.

    `account` is None for an unknown identifier; `decoy` is the cost of the hash to compute if
    there is no usable one. `address_seen` (ms) is the account's last sign-in from this address,
    None if it is not recent.
    """

    identified: Identified
    charge: str
    address_charge: str
    charged_at: int
    account: Account | None
    decoy: HashCost | None
    address_seen: int | None


@dataclass(frozen=True, slots=True)
class Throttled:
    """An attempt that the address's (`by_address`) or the identifier's counter rejected.

    A further attempt may be made after `wait` seconds.
    """

    wait: float
    by_address: bool


@dataclass(frozen=True, slots=True)
class AttemptDependencies:
    """The dependencies of `SignIn` and `PasswordChanges`."""

    store: Store
    hasher: Hasher
    directory: Accounts
    policy: AuthPolicy
    clock: Clock
    entropy: Entropy
    installation_key: bytes
    new_device: NewDeviceNotice | None = None


class CountedAttempts:
    """Attempts at an account: each is charged, looked up, hashed and settled."""

    def __init__(self, dependencies: AttemptDependencies) -> None:
        self._store, self._hasher, self._directory = (
            dependencies.store,
            dependencies.hasher,
            dependencies.directory,
        )
        self._clock, self._entropy, self._key = (
            dependencies.clock,
            dependencies.entropy,
            dependencies.installation_key,
        )
        self._policy = policy = dependencies.policy
        self._budget = Budget(policy.max_login_attempts, policy.lockout_minutes * MS_PER_MINUTE)
        self._costs = RecentCosts()

    def _id(self) -> str:
        return record_id(self._entropy.bytes(_ID_BYTES))


class SignIn(CountedAttempts):
    """The steps of a sign-in, each a transaction or a hash; LockoutActor orders them."""

    def __init__(self, dependencies: AttemptDependencies) -> None:
        super().__init__(dependencies)
        self._addresses = AddressBudget(self._policy.address_attempts, self._key)
        self._refused_addresses = RefusedAddresses()
        self._notify_of_device = dependencies.new_device

    def identify(self, attempt: SignInAttempt) -> Identified:
        """Return the counters of an attempt, also if its identifier has no canonical form."""
        form: str | None
        try:
            form = canonical(attempt.usr)
        except UnusableIdentifierError:
            form = None
            key = attempts.counter_key(self._key, "unusable", digest(attempt.usr).hex())
        else:
            key = attempts.counter_key(self._key, attempts.IDENTIFIER, form)
        return Identified(key, form, self._addresses.counters(attempt.address))

    async def address_wait(self, address: str) -> float | None:
        """Return the seconds an address must wait, or None. Reads only."""
        counters = self._addresses.counters(address)
        return await self._store.read(
            lambda tx: self._addresses.wait_of(tx, counters), reserved=True
        )

    async def cached_refusal_wait(
        self, attempt: SignInAttempt, identified: Identified
    ) -> float | None:
        """Return the seconds that an address must wait according to a read, or None (A-82).

        Reads only for addresses that were rejected recently; the charge decides for others.
        """
        if identified.address.widest not in self._refused_addresses:
            return None
        wait = await self.address_wait(attempt.address)
        if wait is None:
            self._refused_addresses.discard(identified.address.widest)
        return wait

    async def lock_wait(self, key: bytes) -> float | None:
        """Return the seconds for which the identifier with this counter is still locked, or
        None."""
        return await self._store.read(
            lambda tx: attempts.wait_of(tx, key, self._budget), reserved=True
        )

    async def admit(self, identified: Identified) -> Admitted | Throttled:
        """Charge the address and the identifier, then look the account up.

        The charge need not be on disk before the hash: the commit that precedes the response
        makes it durable. A power failure in between loses only an attempt without a response.

        Raises: OverloadedError if the counter cannot be written; no attempt runs without a charge.
        """
        random = self._entropy.bytes(2 * _ID_BYTES)
        charge, address_charge = record_id(random[:_ID_BYTES]), record_id(random[_ID_BYTES:])
        counters = identified.address

        def work(tx: Tx) -> Admitted | Throttled:
            wait = self._addresses.charge(tx, address_charge, counters)
            if wait is not None:
                return Throttled(wait, by_address=True)
            wait = attempts.charge(tx, charge, identified.key, self._budget)
            if wait is not None:
                attempts.release(tx, address_charge)  # only verified attempts count here
                return Throttled(wait, by_address=False)
            form = identified.canonical
            account = self._directory.find(tx, form) if form is not None else None
            # Read for unknown accounts too, so that the work is the same.
            seen = known_origins.address_seen(
                tx, "" if account is None else account.user, identified.address.known
            )
            decoy = self._costs.get(tx).draw(identified.key)
            return Admitted(identified, charge, address_charge, tx.now, account, decoy, seen)

        admitted = await self._store.write(work, durable=False)
        if isinstance(admitted, Throttled) and admitted.by_address:
            self._refused_addresses.remember(counters.widest)
        return admitted

    async def verify(self, attempt: SignInAttempt, admitted: Admitted) -> SignedIn | FwError:
        """Hash once, then settle the charges and create the session in one transaction."""
        account = admitted.account
        is_known = admitted.address_seen is not None
        requester = Requester(sharing_network(attempt.address), is_known)
        stored = account.password_hash if account is not None and account.enabled else None
        try:
            verified = await self._hasher.verify(
                stored,
                attempt.pwd,
                decoy=admitted.decoy,
                requester=requester,
                may_begin=lambda: may_verify(admitted.charged_at, self._clock.now()),
            )
        except OverloadedError as error:
            await self._store.write(lambda tx: self._release(tx, admitted))
            return error
        if account is None or not verified.ok:
            return await self._store.write(lambda tx: self._fail(tx, admitted))
        new_hash = await self._rehash(attempt.pwd, requester) if verified.outdated else None
        sid = bearer(self._entropy.bytes(BEARER_BYTES))
        handle = record_id(self._entropy.bytes(_ID_BYTES))
        return await self._store.write(
            lambda tx: self._succeed(tx, attempt, admitted, account, sid, handle, new_hash)
        )

    async def _rehash(self, password: str, requester: Requester) -> str | None:
        """Rehash with the current parameters, or return None if the hasher is busy."""
        try:
            return await self._hasher.rehash(password, queue=HashQueue.SIGN_IN, requester=requester)
        except OverloadedError:
            return None

    def _fail(self, tx: Tx, admitted: Admitted) -> FwError:
        self._addresses.settle_failure(tx, admitted.address_charge, admitted.identified.address)
        locked = attempts.settle_failure(tx, admitted.charge, admitted.identified.key, self._budget)
        return AuthenticationError(WRONG) if locked is None else TooManyRequestsError(locked)

    def _release(self, tx: Tx, admitted: Admitted) -> None:
        attempts.release(tx, admitted.charge)
        attempts.release(tx, admitted.address_charge)

    def _succeed(
        self,
        tx: Tx,
        attempt: SignInAttempt,
        admitted: Admitted,
        account: Account,
        sid: str,
        handle: str,
        new_hash: str | None,
    ) -> SignedIn | FwError:
        lock_account(tx, account.user, limit_pauses=True)
        current = self._directory.find(tx, admitted.identified.canonical or "")
        if current is None or current.user != account.user or not current.enabled:
            return self._fail(tx, admitted)  # the identifier or the account changed meanwhile
        if current.password_changed != account.password_changed:
            return self._fail(tx, admitted)
        identified = admitted.identified
        known_origins.record_address(
            tx, current.user, identified.address.known, admitted.address_seen
        )
        attempts.clear(tx, admitted.charge, identified.key, admitted.address_charge)
        if self._notify_of_device is not None:
            self._record_device(tx, attempt, current.user, self._notify_of_device)
        if attempt.old_sid is not None:
            sessions.end(tx, attempt.old_sid)
        if new_hash is not None:
            accounts.rehash(tx, current, new_hash)
        days = self._policy.session_days
        expires = sessions.begin(
            tx,
            handle=handle,
            sid=sid,
            user=current.user,
            ip=attempt.address,
            user_agent=attempt.user_agent,
            days=days,
        )
        return SignedIn(sid, current.user, current.full_name, expires, days * SECONDS_PER_DAY)

    def _record_device(
        self, tx: Tx, attempt: SignInAttempt, user: str, notify: NewDeviceNotice
    ) -> None:
        """Record the device, and notify the user of a new one in the same transaction."""
        agent = attempt.user_agent
        key = known_origins.device_key(self._key, attempt.address, agent)
        if known_origins.record_device(tx, user, key):
            notify(tx, user, NewDevice(tx.now, attempt.address, agent[:_SHOWN_AGENT]))
