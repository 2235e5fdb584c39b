"""API keys: creation, use, revocation.

Rules: A-260, A-267 to A-273. A key is found by the public id, and the secret's SHA-256
is compared in constant time (A-262).

After 50 wrong keys within 15 minutes an address gets 429; sign-ins are not affected (A-98). A
throttled address cannot use valid keys either (A-99): otherwise the throttle would not slow down
guessing.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import attempts
from fw_actors.access.accounts import disabled_account, lock_account
from fw_actors.access.sessions import ROLES, SEEN_EVERY_MS, Caller, roles_in, with_roles
from fw_actors.documents import rows
from fw_actors.documents.core import APIKey, User
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.tables import table_of
from fw_actors.errors import (
    AuthenticationError,
    ConflictError,
    FwError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    TooManyRequestsError,
    ValidationError,
    session_ended,
)
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules import MAX_KEY_DAYS
from fw_actors.rules.identifiers import (
    API_KEY_BYTES,
    ApiKey,
    counted_address,
    digest,
    is_invisible,
    new_api_key,
    parse_api_key,
    record_id,
)
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, Budget
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Statement, Store, Tx, update_of_times_ahead
from fw_actors.store.schema import API_KEY

DOCTYPE: Final = "API Key"
WRONG_KEY: Final = "This API key is not valid."
MAX_KEYS: Final = 100  # per user, so that the list of keys is bounded

_ID: Final[sa.BindParameter[Any]] = sa.bindparam("id")
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_USERS: Final = table_of(User).table
_KEYS: Final = table_of(APIKey).table
_K: Final = _KEYS.c
_NOT_EXPIRED: Final = sa.or_(_K.expires.is_(None), _K.expires > sa.bindparam("now"))
_INSERT: Final = Statement(
    sa.insert(API_KEY).values(id=_ID, secret_hash=sa.bindparam("secret_hash"))
)
_HASH: Final = Statement(sa.select(API_KEY.c.secret_hash).where(API_KEY.c.id == _ID))
_DELETE_KEY: Final = Statement(sa.delete(API_KEY).where(API_KEY.c.id == _ID))


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """An API key as listed for its owner; times in ms."""

    name: str
    label: str
    created: int
    expires: int | None
    last_used: int | None


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new API key; `key` is shown only once."""

    name: str
    label: str
    expires: int | None
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LiveKey:
    """A currently valid API key, and the current roles of its user."""

    id: str
    user: str
    last_used: int | None
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The number of valid API keys of a site, and of those without expiry."""

    live: int
    without_end: int


_LIVE: Final = Statement(
    sa.select(API_KEY.c.secret_hash, _K.user, _K.last_used, ROLES.c.role)
    .select_from(
        with_roles(
            API_KEY.join(_KEYS, _K.name == API_KEY.c.id).join(_USERS, _USERS.c.name == _K.user)
        )
    )
    .where(API_KEY.c.id == _ID, _USERS.c.enabled == 1, _NOT_EXPIRED)
)
_LISTING: Final = Statement(
    sa.select(_K.name, _K.label, _K.creation, _K.expires, _K.last_used)
    .where(_K.user == _USER)
    .order_by(_K.creation, _K.name)
)
_EXPIRED: Final = Statement(
    sa.select(_K.name)
    .where(_K.user == _USER, _K.expires <= sa.bindparam("now"))
    .order_by(_K.expires, _K.name)
    .limit(1)
)
_NUMBER: Final = Statement(sa.select(sa.func.count()).select_from(_KEYS).where(_K.user == _USER))
_COUNTS: Final = Statement(
    sa.select(
        sa.func.count(),
        sa.func.coalesce(sa.func.sum(sa.case((_K.expires.is_(None), 1), else_=0)), 0),
    )
    .select_from(_KEYS)
    .where(_NOT_EXPIRED)
)
_USED: Final = Statement(
    sa.update(_KEYS).where(_K.name == _ID).values(last_used=sa.bindparam("now"))
)
_NAMES: Final = Statement(sa.select(_K.name).where(_K.user == _USER).order_by(_K.name))


class ApiKeys(Observer):
    """Creates, finds and ends API keys, and observes User documents to end their keys."""

    doctypes = frozenset({DOCTYPE, "User"})

    def __init__(self, entropy: Entropy, audit: AuditLog) -> None:
        self._entropy, self._audit = entropy, audit

    def live(self, tx: Tx, key: ApiKey) -> LiveKey | None:
        """Return the key if valid; None if wrong, expired, ended or of a disabled user."""
        rows = tx.rows(_LIVE, id=key.id, now=tx.now)
        # Compare for unknown ids too, so that timing does not reveal which ids exist.
        stored_hash, user, last_used, _role = rows[0] if rows else (bytes(32), "", None, None)
        if not hmac.compare_digest(stored_hash, digest(key.secret)) or not rows:
            return None
        return LiveKey(key.id, user, last_used, roles_in(rows))

    def require_live(self, tx: Tx, id: str, user: str) -> None:
        """Check that a key has not ended since the request was authenticated, and is still of the
        account that is named `user`. Raises: AuthenticationError.
        """
        row = tx.one(_LIVE, id=id, now=tx.now)
        if row is None or row[1] != user:
            raise AuthenticationError(WRONG_KEY)

    def record_use(self, tx: Tx, id: str) -> None:
        """Record that a key was used now."""
        tx.run(_USED, id=id, now=tx.now)

    def of_user(self, tx: Tx, user: str) -> list[KeyFacts]:
        """Return a user's keys, expired ones included, oldest first."""
        return [KeyFacts(*row) for row in tx.rows(_LISTING, user=user)]

    def make(
        self, fw: Fw, label: str, days: int | None, policy_days: int, owner: str | None = None
    ) -> MadeKey:
        """Create a key for `owner`, by default the handle's user, valid `days` days.

        The validity is at most `policy_days`, unless that is 0. The caller checks that the handle's
        user may create a key for another owner.

        Raises: ValidationError for days out of range or an unusable label; ConflictError if
            the owner has too many keys, or is another user who is disabled; AuthenticationError if
            the handle's own user has just been disabled.
        """
        user = fw.user if owner is None else owner
        if days is not None and not 1 <= days <= MAX_KEY_DAYS:
            raise ValidationError(f"days must be between 1 and {MAX_KEY_DAYS:,}.", field="days")
        if is_invisible(label):
            raise ValidationError("label must not be blank.", field="label")
        # Excludes a concurrent disabling of the user and a concurrent creation of keys.
        lock_account(fw.tx, user)
        if not fw.get_value("User", user, "enabled"):
            if owner is not None:
                raise disabled_account(owner)
            raise session_ended()
        if not self._has_room(fw, user):
            subject = "You have" if owner is None else f"{owner} has"
            raise ConflictError(f"{subject} {MAX_KEYS} API keys; revoke one first.")
        lifetime = min(filter(None, (days, policy_days)), default=None)
        expires = None if lifetime is None else fw.tx.now + lifetime * MS_PER_DAY
        key = new_api_key(self._entropy.bytes(API_KEY_BYTES))
        fw.tx.run(_INSERT, id=key.id, secret_hash=digest(key.secret))
        fw.new_doc(
            DOCTYPE,
            name=key.id,
            user=user,
            label=label,
            expires=None if expires is None else iso(expires),
        ).insert(ignore_permissions=True)
        return MadeKey(key.id, label, expires, key.text)

    def _has_room(self, fw: Fw, user: str) -> bool:
        """Return whether a user may have another key; at the limit, delete one that has expired,
        the first one to expire."""
        if fw.tx.scalar(_NUMBER, user=user) < MAX_KEYS:
            return True
        expired = fw.tx.one(_EXPIRED, user=user, now=fw.tx.now)
        if expired is None:
            return False
        with self._audit.suppressed(fw.tx):  # part of the creation of a key
            _end(fw, expired[0])
        return True

    def revoke(self, fw: Fw, name: str) -> None:
        """End a key of the handle's user. Raises: NotFoundError, also for another user's key."""
        lock_account(fw.tx, fw.user)  # of two concurrent revocations the second finds no key
        if fw.get_value(DOCTYPE, name, "user") != fw.user:
            raise NotFoundError("You have no such API key.")
        _end(fw, name)

    def end_all(self, fw: Fw, user: str) -> list[KeyFacts]:
        """End every key of a user, as part of an operation with its own Audit Event.

        Returns: the keys that were still valid, oldest first.
        """
        # Excludes concurrent creation; of two concurrent calls only one ends each key.
        lock_account(fw.tx, user)
        keys = self.of_user(fw.tx, user)
        with self._audit.suppressed(fw.tx):
            for key in keys:
                _end(fw, key.name)
        return [key for key in keys if key.expires is None or key.expires > fw.tx.now]

    def revoke_all(self, fw: Fw) -> int:
        """End all keys of the handle's user; return the number of valid ones."""
        ended = len(self.end_all(fw, fw.user))
        self._audit.record(fw, Action.REVOKE_KEYS, fw.user, {"keys_ended": ended})
        return ended

    def count(self, tx: Tx) -> KeyCounts:
        """Return the number of valid keys."""
        row = tx.one(_COUNTS, now=tx.now)
        assert row is not None  # an aggregate always returns a row
        return KeyCounts(*row)

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Reject inserts outside the operation; delete secrets and keys with their owners."""
        if doc.doctype == DOCTYPE:
            if event == "on_insert" and fw.tx.one(_HASH, id=doc.name) is None:
                raise PermissionDeniedError(
                    "API keys can only be created by api_keys.createMyAPIKey and fw key create."
                )
            if event == "on_trash":
                fw.tx.run(_DELETE_KEY, id=doc.name)
        elif event == "on_trash" or not doc.__dict__["enabled"]:
            with self._audit.suppressed(fw.tx):  # part of the action on the User
                for (name,) in fw.tx.rows(_NAMES, user=doc.name):
                    _end(fw, name)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Reject a rename: the name is part of the issued key. Raises: ConflictError."""
        if doctype == DOCTYPE:
            raise ConflictError("An API key cannot be renamed: its name is part of the key.")


def _end(fw: Fw, name: str) -> None:
    """Delete a key's document; the deletion is an ordinary event (B-54)."""
    rows.load(fw.documents, fw, DOCTYPE, name).delete(ignore_permissions=True)


_AT: Final[sa.BindParameter[Any]] = sa.bindparam("now", type_=sa.BigInteger())
_CORRECT: Final = Statement(
    update_of_times_ahead(_KEYS, _K.creation, _K.expires.is_not(None)).values(
        creation=_AT, expires=_K.expires - (_K.creation - _AT)
    )
)


def correct_times(tx: Tx, after: int, limit: int) -> int:
    """Correct at most `limit` expiring keys that were created later than `after` (ms); return how
    many.

    They keep their lifetime, from now on (O-163).
    """
    return tx.run(_CORRECT, now=tx.now, ahead=after, limit=limit)


WRONG_KEYS: Final = Budget(50, ADDRESS_WINDOW_MS, locks=False)
_ID_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class _UsedKey:
    caller: Caller
    last_used: int | None
    now: int


class KeyUse:
    """Authenticates requests by API key and throttles wrong keys per address."""

    def __init__(
        self,
        store: Store,
        keys: ApiKeys,
        entropy: Entropy,
        installation_key: bytes,
    ) -> None:
        self._store, self._keys = store, keys
        self._entropy, self._key = entropy, installation_key

    async def caller(self, presented: str, address: str) -> Caller:
        """Return the key's user with the current roles.

        Raises: AuthenticationError, identical for every cause; TooManyRequestsError.
        """
        counter = attempts.counter_key(self._key, "api key address", counted_address(address))
        result = await self._store.read(
            lambda tx: self._find(tx, presented, counter), reserved=True
        )
        if result is None:
            raise await self._store.write(lambda tx: self._count_wrong_key(tx, counter))
        if isinstance(result, FwError):
            raise result
        used = result.last_used  # later than now if the clock was set back
        if used is None or not 0 <= result.now - used < SEEN_EVERY_MS:
            with suppress(OverloadedError):  # recording the use is optional
                await self._store.write(
                    lambda tx: self._keys.record_use(tx, result.caller.api_key or "")
                )
        return result.caller

    def _find(self, tx: Tx, presented: str, counter: bytes) -> _UsedKey | FwError | None:
        wait = attempts.wait_of(tx, counter, WRONG_KEYS)
        if wait is not None:
            return TooManyRequestsError(wait)
        key = parse_api_key(presented)
        live = None if key is None else self._keys.live(tx, key)
        if live is None:
            return None
        return _UsedKey(Caller(live.user, live.roles, api_key=live.id), live.last_used, tx.now)

    def _count_wrong_key(self, tx: Tx, counter: bytes) -> FwError:
        charge = record_id(self._entropy.bytes(_ID_BYTES))
        wait = attempts.charge(tx, charge, counter, WRONG_KEYS)
        if wait is not None:
            return TooManyRequestsError(wait)
        attempts.settle_failure(tx, charge, counter, WRONG_KEYS)
        return AuthenticationError(WRONG_KEY)
