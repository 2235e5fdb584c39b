"""Sessions: bearer tokens whose hash rests in the store, addressed by an opaque handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.errors import AuthenticationError
from fw_actors.rules.tokens import digest
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import SESSION

SEEN_EVERY_MS: Final = 60_000  # `lastSeen` is written at most once a minute (interface §2)
MS_PER_DAY: Final = 86_400_000
_USER_AGENT_CHARACTERS: Final = 512

_COLUMNS: Final = ("id", "sid_hash", "user", "ip", "user_agent", "created", "last_seen", "expires")
_INSERT: Final = Statement(sa.insert(SESSION).values({n: sa.bindparam(n) for n in _COLUMNS}))
_END: Final = Statement(sa.delete(SESSION).where(SESSION.c.sid_hash == sa.bindparam("sid_hash")))
_SEEN: Final = Statement(
    sa.update(SESSION)
    .where(SESSION.c.id == sa.bindparam("id"))
    .values(last_seen=sa.bindparam("now"))
)


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session that holds at this moment."""

    id: str
    user: str
    last_seen: int


class Sessions:
    """Makes, finds and ends sessions. Expiry and the account's state are read at every use."""

    def __init__(self, registry: Registry) -> None:
        users = registry.tables["User"].table
        self._find = Statement(
            sa.select(SESSION.c.id, SESSION.c.user, SESSION.c.last_seen)
            .select_from(SESSION.join(users, users.c.name == SESSION.c.user))
            .where(SESSION.c.sid_hash == sa.bindparam("sid_hash"))
            .where(SESSION.c.expires > sa.bindparam("now"), users.c.enabled == 1)
        )

    def live(self, tx: Tx, sid: str) -> LiveSession:
        """Return the session of a sid. Raises: AuthenticationError."""
        row = tx.one(self._find, sid_hash=digest(sid), now=tx.now)
        if row is None:
            raise AuthenticationError("Your session has ended. Sign in again.")
        return LiveSession(*row)


def begin(tx: Tx, *, handle: str, sid: str, user: str, ip: str, user_agent: str, days: int) -> int:
    """Make a session; return when it expires, in ms."""
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
    return expires


def end(tx: Tx, sid: str) -> None:
    """End the session of a sid; an unknown one is no error."""
    tx.run(_END, sid_hash=digest(sid))


def seen(tx: Tx, session: str) -> None:
    """Note that a session was used now."""
    tx.run(_SEEN, id=session, now=tx.now)
