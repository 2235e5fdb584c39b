"""Single-use links: creation, validation, redemption, revocation. Only SHA-256s are stored.

Rules: A-180, A-181, A-192, A-193. Every read checks expiry (A-183); events that end a link are
listed in A-194.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access.accounts import email_of, lock_account
from fw_actors.config import AuthPolicy
from fw_actors.documents.core import User
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.tables import table_of
from fw_actors.errors import InvalidTokenError
from fw_actors.rules.identifiers import BEARER_BYTES, bearer, digest
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MINUTES_PER_HOUR, MS_PER_MINUTE
from fw_actors.store import Statement, Tx, deletion_of_oldest, update_of_times_ahead
from fw_actors.store.schema import TOKEN


class LinkKind(StrEnum):
    """The purpose of a single-use link; also the template of the message that carries it."""

    RECOVERY = "recovery"
    INVITATION = "invitation"


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The details of a valid link token: its kind, its user and its expiry (ms)."""

    kind: LinkKind
    user: str
    full_name: str
    email: str
    expires: int


PAGES: Final = MappingProxyType(
    {LinkKind.RECOVERY: "reset-password", LinkKind.INVITATION: "accept-invite"}
)

_BEFORE_TOKEN: Final = "#token="


@dataclass(frozen=True, slots=True)
class MintedLink:
    """A new link. `expires` is in ms since the epoch."""

    url: str = field(repr=False)
    expires: int


_T: Final = TOKEN.c
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_KIND: Final[sa.BindParameter[Any]] = sa.bindparam("kind")
_GOOD: Final = sa.and_(
    _T.hash == sa.bindparam("hash"), _T.spent.is_(None), _T.expires > sa.bindparam("now")
)
_COLUMNS: Final = ("hash", "kind", "user", "created", "expires")
_INSERT: Final = Statement(sa.insert(TOKEN).values({n: sa.bindparam(n) for n in _COLUMNS}))
_END_OLDER: Final = Statement(sa.delete(TOKEN).where(_T.user == _USER, _T.kind == _KIND))
_END: Final = Statement(sa.delete(TOKEN).where(_T.user == _USER))
_REVOKE: Final = Statement(sa.delete(TOKEN).where(_T.hash == sa.bindparam("hash")))
_SPEND: Final = Statement(
    sa.update(TOKEN)
    .where(_GOOD, _T.kind == _KIND)
    .values(spent=sa.bindparam("now"))
    .returning(_T.user)
)


_USERS: Final = table_of(User).table
_U: Final = _USERS.c
_FACTS: Final = Statement(
    sa.select(_T.kind, _T.user, _U.fullName, _U.email, _T.expires)
    .select_from(TOKEN.join(_USERS, _U.name == _T.user))
    .where(_GOOD, _U.enabled == 1)
)


class Links:
    """Creates the links of one site and validates their tokens."""

    def __init__(self, policy: AuthPolicy, entropy: Entropy, base_url: str) -> None:
        """`base_url` is the public URL or the bound address, never taken from a request."""
        self._entropy, self._base_url = entropy, base_url
        self._minutes = {
            LinkKind.RECOVERY: policy.reset_minutes,
            LinkKind.INVITATION: policy.invite_hours * MINUTES_PER_HOUR,
        }

    def minutes(self, kind: LinkKind) -> int:
        """Return the lifetime of links of this kind, in minutes."""
        return self._minutes[kind]

    def expiry(self, kind: LinkKind, now: int) -> int:
        """Return the expiry of a link that is created at `now`; both in ms."""
        return now + self._minutes[kind] * MS_PER_MINUTE

    def mint(self, tx: Tx, kind: LinkKind, user: str) -> MintedLink:
        """Create a link; older links of the same user and kind end."""
        token = bearer(self._entropy.bytes(BEARER_BYTES))
        expires = self.expiry(kind, tx.now)
        lock_account(tx, user)
        tx.run(_END_OLDER, user=user, kind=kind.value)
        tx.run(
            _INSERT, hash=digest(token), kind=kind.value, user=user, created=tx.now, expires=expires
        )
        return MintedLink(f"{self._base_url}/{PAGES[kind]}{_BEFORE_TOKEN}{token}", expires)

    def facts(self, tx: Tx, token: str) -> LinkFacts:
        """Return the details of a valid token without spending it.

        Raises: InvalidTokenError, identical for unknown, spent and expired tokens and for
            tokens of a disabled or deleted user.
        """
        row = tx.one(_FACTS, hash=digest(token), now=tx.now)
        if row is None:
            raise InvalidTokenError
        return LinkFacts(LinkKind(row[0]), row[1], row[2] or "", row[3], row[4])


def spend(tx: Tx, kind: LinkKind, token: str) -> str:
    """Spend a token and return its user; one statement, so that only one of two submissions
    succeeds.

    Raises: InvalidTokenError, also for a token of the other kind.
    """
    user: str | None = tx.scalar(_SPEND, hash=digest(token), kind=kind.value, now=tx.now)
    if user is None:
        raise InvalidTokenError
    return user


def revoke(tx: Tx, url: str) -> None:
    """End the link with this URL; a later one of its user stays."""
    tx.run(_REVOKE, hash=digest(url.partition(_BEFORE_TOKEN)[2]))


def end(tx: Tx, user: str) -> None:
    """End every open link of a user."""
    tx.run(_END, user=user)


_DELETE_EXPIRED: Final = deletion_of_oldest(TOKEN, _T.expires)
_AT: Final[sa.BindParameter[Any]] = sa.bindparam("now", type_=sa.BigInteger())
_CORRECT: Final = Statement(
    update_of_times_ahead(
        TOKEN, _T.created, _T.expires > sa.bindparam("ahead", type_=sa.BigInteger())
    ).values(created=_AT, expires=_T.expires - (_T.created - _AT))
)


def delete_expired(tx: Tx, limit: int) -> int:
    """Delete at most `limit` expired links, the oldest first; return how many were deleted."""
    return tx.run(_DELETE_EXPIRED, before=tx.now, limit=limit)


def correct_times(tx: Tx, after: int, limit: int) -> int:
    """Correct at most `limit` links that were created later than `after` (ms); return how many.

    They keep their duration, from now on (O-163).
    """
    return tx.run(_CORRECT, now=tx.now, ahead=after, limit=limit)


class LinkRules(Observer):
    """Ends the open links of a User that is disabled, deleted, or given another e-mail address."""

    doctypes = frozenset({"User"})

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called before the row is written, while the old address can still be compared."""
        values = doc.__dict__
        stays = event != "on_trash" and values["enabled"]
        if not stays or email_of(fw.tx, str(doc.name)) != values["email"]:
            end(fw.tx, str(doc.name))
