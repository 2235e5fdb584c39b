"""API keys: creation, use, revocation.

Rules: A-260, A-267 to A-273. A key is found by the public id, and the secret's SHA-256
is compared in constant time (A-262).

50 wrong keys from an address in 15 minutes, then 429; sign-ins are unaffected (A-98). While an
address is shut out its right keys are refused as well (A-99): a throttle that lets the
right one through would not slow down who guesses.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access import attempts
from fw_actors.access.account_lock import hold
from fw_actors.access.accounts import Accounts
from fw_actors.access.sessions import SEEN_EVERY_MS
from fw_actors.access.types import Caller
from fw_actors.documents import rows
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.registry import Registry
from fw_actors.documents.special_fields import iso
from fw_actors.errors import (
    AuthenticationError,
    ConflictError,
    FwError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    TooManyRequestsError,
    ValidationError,
)
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.identifiers import counted_address
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, Budget
from fw_actors.rules.tokens import (
    API_KEY_BYTES,
    ApiKey,
    digest,
    new_api_key,
    parse_api_key,
    record_id,
)
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Statement, Store, Tx
from fw_actors.store.schema import API_KEY

DOCTYPE: Final = "API Key"
LONGEST_DAYS: Final = 3650
MOST_KEYS: Final = 100  # a user has at once, so that the list of them has an end

_ID: Final[sa.BindParameter[Any]] = sa.bindparam("id")
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_INSERT: Final = Statement(
    sa.insert(API_KEY).values(id=_ID, secret_hash=sa.bindparam("secret_hash"))
)
_HASH: Final = Statement(sa.select(API_KEY.c.secret_hash).where(API_KEY.c.id == _ID))
_FORGET: Final = Statement(sa.delete(API_KEY).where(API_KEY.c.id == _ID))


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key as its owner sees it in a list; times in ms."""

    name: str
    label: str
    created: int
    expires: int | None
    last_used: int | None


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key that was just made; `key` is shown this once."""

    name: str
    label: str
    expires: int | None
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LiveKey:
    """A key that holds at this moment."""

    id: str
    user: str
    last_used: int | None


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """How many keys of a site work, and how many of them have no end."""

    live: int
    without_end: int


class ApiKeys(Observer):
    """The statements over keys, and the rules that tie them to their users (an observer)."""

    doctypes = frozenset({DOCTYPE, "User"})

    def __init__(self, registry: Registry, entropy: Entropy, audit: AuditLog) -> None:
        self._entropy, self._audit = entropy, audit
        keys = registry.tables[DOCTYPE].table
        users = registry.tables["User"].table
        k = keys.c
        self._live = Statement(
            sa.select(API_KEY.c.secret_hash, k.user, k.last_used)
            .select_from(
                API_KEY.join(keys, k.name == API_KEY.c.id).join(users, users.c.name == k.user)
            )
            .where(API_KEY.c.id == _ID, users.c.enabled == 1)
            .where(sa.or_(k.expires.is_(None), k.expires > sa.bindparam("now")))
        )
        self._list = Statement(
            sa.select(k.name, k.label, k.creation, k.expires, k.last_used)
            .where(k.user == _USER)
            .order_by(k.creation, k.name)
        )
        self._count = Statement(sa.select(sa.func.count()).select_from(keys).where(k.user == _USER))
        self._counts = Statement(
            sa.select(
                sa.func.count(),
                sa.func.coalesce(sa.func.sum(sa.case((k.expires.is_(None), 1), else_=0)), 0),
            )
            .select_from(keys)
            .where(sa.or_(k.expires.is_(None), k.expires > sa.bindparam("now")))
        )
        self._used = Statement(
            sa.update(keys).where(k.name == _ID).values(last_used=sa.bindparam("now"))
        )
        self._names = Statement(sa.select(k.name).where(k.user == _USER).order_by(k.name))

    def live(self, tx: Tx, key: ApiKey) -> LiveKey | None:
        """Return whose key it is; None for a wrong, expired or ended one, or a disabled user's."""
        row = tx.one(self._live, id=key.id, now=tx.now)
        # An unknown id is compared as well, so that the time does not tell one that is there.
        known: bytes = bytes(32) if row is None else row[0]
        fits = hmac.compare_digest(known, digest(key.secret))
        return LiveKey(key.id, row[1], row[2]) if row is not None and fits else None

    def used(self, tx: Tx, id: str) -> None:
        """Note that a key was used now."""
        tx.run(self._used, id=id, now=tx.now)

    def of_user(self, tx: Tx, user: str) -> list[KeyFacts]:
        """Return a user's keys, oldest first, those that have expired too."""
        return [KeyFacts(*row) for row in tx.rows(self._list, user=user)]

    def make(self, fw: Fw, label: str, days: int | None, policy_days: int) -> MadeKey:
        """Make a key of the handle's user, which lives `days`, at most `policy_days` unless 0.

        Raises: ValidationError for days out of range or an unusable label; ConflictError when
            the user has too many; AuthenticationError when it was disabled just now.
        """
        if days is not None and not 1 <= days <= LONGEST_DAYS:
            raise ValidationError(f"days is 1 to {LONGEST_DAYS}.", field="days")
        if not label.strip():
            raise ValidationError("label is missing: it tells one key from another.", field="label")
        hold(fw.tx, fw.user)  # nobody disables it meanwhile, and nobody else makes a key of it
        if not fw.get_value("User", fw.user, "enabled"):
            raise AuthenticationError("Your session has ended. Sign in again.")
        if fw.tx.scalar(self._count, user=fw.user) >= MOST_KEYS:
            raise ConflictError(f"You have {MOST_KEYS} API keys; revoke one first.")
        lifetime = min(filter(None, (days, policy_days)), default=None)
        expires = None if lifetime is None else fw.tx.now + lifetime * MS_PER_DAY
        key = new_api_key(self._entropy.bytes(API_KEY_BYTES))
        fw.tx.run(_INSERT, id=key.id, secret_hash=digest(key.secret))
        fw.new_doc(
            DOCTYPE,
            name=key.id,
            user=fw.user,
            label=label,
            expires=None if expires is None else iso(expires),
        ).insert(ignore_permissions=True)
        return MadeKey(key.id, label, expires, key.text)

    def revoke(self, fw: Fw, name: str) -> None:
        """End a key of the handle's user. Raises: NotFoundError, for another's as well."""
        hold(fw.tx, fw.user)  # who revokes it twice at once finds none the second time
        if fw.get_value(DOCTYPE, name, "user") != fw.user:
            raise NotFoundError("You have no such API key.")
        _end(fw, name)

    def end_all(self, fw: Fw, user: str) -> list[KeyFacts]:
        """End every key of a user as a part of an act that has its own Audit Event.

        Returns: those that still worked, oldest first.
        """
        hold(fw.tx, user)  # none is made beside it, and of two at once each key is ended by one
        found = self.of_user(fw.tx, user)
        with self._audit.suppressed(fw.tx):
            for key in found:
                _end(fw, key.name)
        return [key for key in found if key.expires is None or key.expires > fw.tx.now]

    def revoke_all(self, fw: Fw) -> int:
        """End all of the handle's user's keys; return how many still worked."""
        ended = len(self.end_all(fw, fw.user))
        self._audit.record(fw, Action.REVOKE_KEYS, fw.user, {"keys_ended": ended})
        return ended

    def count(self, tx: Tx) -> KeyCounts:
        """Return how many keys work at this moment."""
        row = tx.one(self._counts, now=tx.now)
        assert row is not None  # an aggregate gives a row
        return KeyCounts(*row)

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """A key comes from its operation alone; it goes with its document, and with its user."""
        if doc.doctype == DOCTYPE:
            if event == "on_insert" and fw.tx.one(_HASH, id=doc.name) is None:
                raise PermissionDeniedError("API keys are made by api_keys.createMyAPIKey alone.")
            if event == "on_trash":
                fw.tx.run(_FORGET, id=doc.name)
        elif event == "on_trash" or not doc.__dict__["enabled"]:
            with self._audit.suppressed(fw.tx):  # a part of what is done to the User
                for (name,) in fw.tx.rows(self._names, user=doc.name):
                    _end(fw, name)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """The name is a part of the key that its owner has. Raises: ConflictError."""
        if doctype == DOCTYPE:
            raise ConflictError("An API key keeps its name, which is a part of the key.")


def _end(fw: Fw, name: str) -> None:
    """Delete a key's document, which is an event as any other (B-54)."""
    rows.load(fw.documents, fw, DOCTYPE, name).delete(ignore_permissions=True)


WRONG_KEYS: Final = Budget(50, ADDRESS_WINDOW_MS, locks=False)
_ID_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class _Found:
    caller: Caller
    last_used: int | None
    now: int


class KeyUse:
    """The use case."""

    def __init__(
        self,
        store: Store,
        keys: ApiKeys,
        accounts: Accounts,
        entropy: Entropy,
        installation_key: bytes,
    ) -> None:
        self._store, self._keys, self._accounts = store, keys, accounts
        self._entropy, self._key = entropy, installation_key

    async def caller(self, presented: str, address: str) -> Caller:
        """Return whose key it is, with the roles of now.

        Raises: AuthenticationError, the same for every cause; TooManyRequestsError.
        """
        counter = attempts.counter_key(self._key, "api key address", counted_address(address))
        found = await self._store.read(lambda tx: self._look(tx, presented, counter), reserved=True)
        if found is None:
            raise await self._store.write(lambda tx: self._count(tx, counter))
        if isinstance(found, FwError):
            raise found
        if found.last_used is None or found.now - found.last_used >= SEEN_EVERY_MS:
            with suppress(OverloadedError):  # a request is not refused for a note's sake
                await self._store.write(lambda tx: self._keys.used(tx, found.caller.api_key or ""))
        return found.caller

    def _look(self, tx: Tx, presented: str, counter: bytes) -> _Found | FwError | None:
        wait = attempts.wait_of(tx, counter, WRONG_KEYS)
        if wait is not None:
            return TooManyRequestsError(wait)
        key = parse_api_key(presented)
        live = None if key is None else self._keys.live(tx, key)
        if live is None:
            return None
        roles = frozenset(self._accounts.roles(tx, live.user))
        return _Found(Caller(live.user, roles, api_key=live.id), live.last_used, tx.now)

    def _count(self, tx: Tx, counter: bytes) -> FwError:
        charge = record_id(self._entropy.bytes(_ID_BYTES))
        wait = attempts.charge(tx, charge, counter, WRONG_KEYS)
        if wait is not None:
            return TooManyRequestsError(wait)
        attempts.settle_failure(tx, charge, counter, WRONG_KEYS)
        return AuthenticationError("This API key is not valid.")
