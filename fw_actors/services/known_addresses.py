"""From which addresses an account has signed in: hints for who waits when hashes are scarce.

A row is an account and the HMAC of an address (IPv6 per /64). Nothing is refused or allowed by it:
a try from a known address has a place in the queue for hashes that a flood can't take.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from fw_actors.rules.addresses import counted_address
from fw_actors.services import attempts
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import KNOWN_ADDRESS

MS_PER_DAY: Final = 86_400_000
KNOWN_DAYS: Final = 30
MOST_OF_A_USER: Final = 20

_T: Final = KNOWN_ADDRESS.c
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_SEEN: Final = Statement(sa.select(_T.seen).where(_T.user == _USER, _T.key == _KEY))
_SEEN_AGAIN: Final = Statement(
    sa.update(KNOWN_ADDRESS)
    .where(_T.user == _USER, _T.key == _KEY)
    .values(seen=sa.bindparam("now"))
)
_ADD: Final = Statement(
    sa.insert(KNOWN_ADDRESS).values(user=_USER, key=_KEY, seen=sa.bindparam("now"))
)
_LATEST: Final = (
    sa.select(_T.key).where(_T.user == _USER).order_by(_T.seen.desc(), _T.key).limit(MOST_OF_A_USER)
)
_DROP_OTHERS: Final = Statement(
    sa.delete(KNOWN_ADDRESS).where(_T.user == _USER, _T.key.not_in(_LATEST.scalar_subquery()))
)
_FORGET: Final = Statement(sa.delete(KNOWN_ADDRESS).where(_T.user == _USER))


def address_key(installation_key: bytes, address: str) -> bytes:
    """Return what stands for an address here; no address rests in this table."""
    return attempts.counter_key(installation_key, "known address", counted_address(address))


def last_seen(tx: Tx, user: str, key: bytes) -> int | None:
    """Return when the account signed in from an address last, within a day (ms), or None."""
    seen: int | None = tx.scalar(_SEEN, user=user, key=key)
    return seen


def is_known(seen: int | None, now: int) -> bool:
    """Say whether a sign-in from an address is recent enough; times in ms."""
    return seen is not None and now - seen < KNOWN_DAYS * MS_PER_DAY


def note_sign_in(tx: Tx, user: str, key: bytes, seen: int | None) -> None:
    """Note that the account, which is held, signed in from an address.

    `seen` is what `last_seen` gave: writes once a day. An account has `MOST_OF_A_USER` addresses,
    the latest.
    """
    if seen is not None and 0 <= tx.now - seen < MS_PER_DAY:
        return
    if tx.run(_SEEN_AGAIN, user=user, key=key, now=tx.now):
        return
    tx.run(_ADD, user=user, key=key, now=tx.now)
    tx.run(_DROP_OTHERS, user=user)


def forget_user(tx: Tx, user: str) -> None:
    """Forget all addresses of an account."""
    tx.run(_FORGET, user=user)
