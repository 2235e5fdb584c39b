"""Sessions and callers. A session is a bearer token, stored as a hash and addressed by an opaque
handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.core import HasRole, User
from fw_actors.documents.tables import table_of
from fw_actors.errors import NotFoundError, session_ended
from fw_actors.rules.identifiers import digest
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Row, Statement, Tx, deletion_of_oldest, earlier, update_of_times_ahead
from fw_actors.store.schema import SESSION

SEEN_EVERY_MS: Final = 60_000  # `lastSeen` is written at most once a minute
MAX_SESSIONS_PER_USER: Final = 500
"""Beyond this number a new session ends expired ones, or the least recently used one."""
_USER_AGENT_CHARACTERS: Final = 512

_COLUMNS: Final = ("id", "sid_hash", "user", "ip", "user_agent", "created", "last_seen", "expires")
_INSERT: Final = Statement(sa.insert(SESSION).values({n: sa.bindparam(n) for n in _COLUMNS}))
_END: Final = Statement(sa.delete(SESSION).where(SESSION.c.sid_hash == sa.bindparam("sid_hash")))
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_HANDLE: Final[sa.BindParameter[Any]] = sa.bindparam("id")
_USED_SINCE: Final[sa.BindParameter[Any]] = sa.bindparam("used_since")
_OF_USER: Final = Statement(
    sa.select(
        *(SESSION.c[n] for n in ("id", "ip", "user_agent", "created", "last_seen", "expires"))
    )
    .where(SESSION.c.user == _USER, SESSION.c.expires > sa.bindparam("now"))
    .where(SESSION.c.last_seen > _USED_SINCE)
    .order_by(SESSION.c.last_seen.desc(), SESSION.c.id)
    .limit(MAX_SESSIONS_PER_USER)
)
_COUNT: Final = Statement(
    sa.select(sa.func.count()).select_from(SESSION).where(SESSION.c.user == _USER)
)
_LEAST_USED: Final = (
    sa.select(SESSION.c.id)
    .where(SESSION.c.user == _USER, SESSION.c.id != _HANDLE)
    .order_by(SESSION.c.expires > sa.bindparam("now"), SESSION.c.last_seen, SESSION.c.id)
    .limit(sa.bindparam("excess"))
)
_END_LEAST_USED: Final = Statement(
    sa.delete(SESSION).where(SESSION.c.id.in_(_LEAST_USED.scalar_subquery()))
)
_REVOKE: Final = Statement(
    sa.delete(SESSION).where(
        SESSION.c.id == _HANDLE,
        SESSION.c.user == _USER,
        SESSION.c.expires > sa.bindparam("now"),
        SESSION.c.last_seen > _USED_SINCE,
    )
)
_USERS: Final = table_of(User).table
ROLES: Final = table_of(HasRole).table


def with_roles(of_users: sa.Join) -> sa.Join:
    """Return a join with the User table extended by `ROLES`: a row for each role of the user, and
    one with null if there is none.

    Each request is authenticated, so that a second statement for the roles would be a further round
    trip of each.
    """
    of_user = sa.and_(ROLES.c.parent == _USERS.c.name, ROLES.c.parenttype == "User")
    return of_users.outerjoin(ROLES, of_user)


_FIND: Final = Statement(
    sa.select(SESSION.c.id, SESSION.c.user, SESSION.c.last_seen, ROLES.c.role)
    .select_from(with_roles(SESSION.join(_USERS, _USERS.c.name == SESSION.c.user)))
    .where(SESSION.c.sid_hash == sa.bindparam("sid_hash"))
    .where(SESSION.c.expires > sa.bindparam("now"), _USERS.c.enabled == 1)
    .where(SESSION.c.last_seen > _USED_SINCE)
)
_IS_LIVE: Final = Statement(
    sa.select(SESSION.c.id).where(
        SESSION.c.id == _HANDLE, SESSION.c.user == _USER, SESSION.c.expires > sa.bindparam("now")
    )
)
_END_LIVE: Final = Statement(
    sa.delete(SESSION)
    .where(SESSION.c.user == _USER, SESSION.c.id != _HANDLE)
    .returning(SESSION.c.expires, SESSION.c.last_seen)
)
_SEEN: Final = Statement(
    sa.update(SESSION)
    .where(SESSION.c.id == sa.bindparam("id"))
    .values(last_seen=sa.bindparam("now"))
)


@dataclass(frozen=True)
class Caller:
    """The authenticated user of a request, by session or API key, with the current roles.

    `session` and `api_key` are public handles, never the secrets themselves.
    """

    user: str
    roles: frozenset[str]
    session: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A currently valid session, and the current roles of its user."""

    id: str
    user: str
    last_seen: int
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session as listed for its user, by its handle; times in ms."""

    id: str
    ip: str
    user_agent: str
    created: int
    last_seen: int
    expires: int


class Sessions:
    """Finds sessions; checks expiry, idle time and the account's state at every use."""

    def __init__(self, idle_days: int) -> None:
        """`idle_days` is the policy's `sessionIdleDays`."""
        self._idle_days = idle_days

    def live(self, tx: Tx, sid: str) -> LiveSession:
        """Return the valid session of a sid. Raises: AuthenticationError."""
        since = used_since(tx.now, self._idle_days)
        rows = tx.rows(_FIND, sid_hash=digest(sid), now=tx.now, used_since=since)
        if not rows:
            raise session_ended()
        session, user, last_seen, _role = rows[0]
        return LiveSession(session, user, last_seen, roles_in(rows))


def roles_in(rows: Sequence[Row]) -> frozenset[str]:
    """Return the roles in the last column of the rows of a query `with_roles`."""
    return frozenset(row[-1] for row in rows if row[-1] is not None)


def used_since(now: int, idle_days: int) -> int:
    """Return the time (ms) since which a session must have been used to be valid at `now`.

    With 0 days sessions have no idle timeout.
    """
    return now - idle_days * MS_PER_DAY if idle_days else -1


def begin(tx: Tx, *, handle: str, sid: str, user: str, ip: str, user_agent: str, days: int) -> int:
    """Create a session for a locked account; return its expiry in ms.

    If the account has more than `MAX_SESSIONS_PER_USER`, expired ones and then the least recently
    used end.

    Args:
        handle: the public name of the session.
        sid: the secret, of which only the hash is stored.
        user: the account.
        ip: the client's address.
        user_agent: the client's User-Agent, which is cut.
        days: the lifetime.
    """
    expires = tx.now + days * MS_PER_DAY
    tx.run(
        _INSERT,
        id=handle,
        sid_hash=digest(sid),
        user=user,
        ip=ip,
        user_agent=user_agent[:_USER_AGENT_CHARACTERS],
        created=tx.now,
        last_seen=tx.now,
        expires=expires,
    )
    excess = tx.scalar(_COUNT, user=user) - MAX_SESSIONS_PER_USER
    if excess > 0:
        tx.run(_END_LEAST_USED, user=user, id=handle, now=tx.now, excess=excess)
    return expires


def end(tx: Tx, sid: str) -> None:
    """End the session of a sid; an unknown sid is not an error."""
    tx.run(_END, sid_hash=digest(sid))


def record_use(tx: Tx, session: str) -> None:
    """Record that a session was used now."""
    tx.run(_SEEN, id=session, now=tx.now)


def require_live(tx: Tx, session: str, user: str) -> None:
    """Check that a session has not ended since the request was authenticated, and is still of the
    account that is named `user`: it may have been renamed, and another account may have its name.

    Required before creating anything that outlives the session; the account must be locked.
    Raises: AuthenticationError.
    """
    if tx.one(_IS_LIVE, id=session, user=user, now=tx.now) is None:
        raise session_ended()


def of_user(tx: Tx, user: str, idle_days: int) -> list[SessionFacts]:
    """Return a user's live sessions, most recently used first."""
    since = used_since(tx.now, idle_days)
    rows = tx.rows(_OF_USER, user=user, now=tx.now, used_since=since)
    return [SessionFacts(*row) for row in rows]


def revoke(tx: Tx, user: str, handle: str, idle_days: int) -> None:
    """End a session of a user by its handle.

    Raises: NotFoundError for an unknown handle, with the same text for another user's session.
    """
    since = used_since(tx.now, idle_days)
    if not tx.run(_REVOKE, id=handle, user=user, now=tx.now, used_since=since):
        raise NotFoundError("There is no such session.")


def end_all(tx: Tx, user: str, except_session: str | None = None, *, idle_days: int) -> int:
    """End a user's sessions, except the one with the handle `except_session`.

    Returns: the number of live ones; `idle_days` only affects this number.
    """
    since = used_since(tx.now, idle_days)
    ended = tx.rows(_END_LIVE, user=user, id=except_session or "")
    return sum(expires > tx.now and last_seen > since for expires, last_seen in ended)


_DELETE_EXPIRED: Final = deletion_of_oldest(SESSION, SESSION.c.expires)
_AT: Final[sa.BindParameter[Any]] = sa.bindparam("now", type_=sa.BigInteger())
_CORRECT: Final = Statement(
    update_of_times_ahead(
        SESSION,
        SESSION.c.created,
        # By the index: only sessions that last longer than any that begins now.
        SESSION.c.expires > sa.bindparam("latest", type_=sa.BigInteger()),
    ).values(
        created=_AT,
        last_seen=earlier(SESSION.c.last_seen, _AT),
        expires=SESSION.c.expires - (SESSION.c.created - _AT),
    )
)


def delete_expired(tx: Tx, limit: int) -> int:
    """Delete at most `limit` expired sessions, the oldest first; return how many were deleted."""
    return tx.run(_DELETE_EXPIRED, before=tx.now, limit=limit)


_CORRECT_USE: Final = Statement(
    update_of_times_ahead(SESSION, SESSION.c.last_seen).values(last_seen=_AT)
)


def correct_times(tx: Tx, after: int, session_days: int, idle_days: int, limit: int) -> int:
    """Correct at most `limit` sessions that began later than `after` (ms), and with `idle_days` as
    many that were used later; return how many.

    They keep their duration, from now on (O-163). No index has the times of use, so that all
    sessions are read; without an idle timeout these times decide nothing.
    """
    latest = tx.now + session_days * MS_PER_DAY
    count = tx.run(_CORRECT, now=tx.now, ahead=after, latest=latest, limit=limit)
    if idle_days:
        count += tx.run(_CORRECT_USE, now=tx.now, ahead=after, limit=limit)
    return count
