"""The addresses and devices from which an account has signed in.

A known address is an account and the HMAC of an address (IPv6 per /64). It neither grants nor
denies access: an attempt from a known address gets a slot in the hash queue that a flood cannot
take.

A sign-in from a new device is reported by mail (A-363 to A-366). A device is a kind of browser or
program in a network: the user agent without its versions, and the /24 or /48 of the address. Only
its HMAC is stored, and only after the password was verified.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access.attempts import counter_key
from fw_actors.rules.identifiers import sharing_network
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import KNOWN_ADDRESS, KNOWN_DEVICE

ADDRESS_DAYS: Final = 30
"""An address without a sign-in for this long is not known any more."""
MAX_ADDRESSES: Final = 20
"""The maximum number of addresses kept for an account, the latest ones."""
DEVICE_DAYS: Final = 400
"""A device without a sign-in for this long counts as new again."""
MAX_DEVICES: Final = 50
"""The maximum number of devices kept for an account, the latest ones."""
_VERSION: Final = re.compile(r"[0-9]+(?:[._][0-9]+)*")
_AGENT_CHARACTERS: Final = 400

_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_NOW: Final[sa.BindParameter[Any]] = sa.bindparam("now")


class _Origins:
    """The statements of one table, of addresses or of devices."""

    def __init__(self, table: sa.Table) -> None:
        user, key, seen = table.c.user, table.c.key, table.c.seen
        this = sa.and_(user == _USER, key == _KEY)
        self.all = Statement(sa.select(key, seen).where(user == _USER))
        self.seen = Statement(sa.select(seen).where(this))
        self.add = Statement(sa.insert(table).values(user=_USER, key=_KEY, seen=_NOW))
        self.again = Statement(sa.update(table).where(this).values(seen=_NOW))
        self.drop = Statement(sa.delete(table).where(this))
        self.delete = Statement(sa.delete(table).where(user == _USER))
        unused = sa.select(user, key).where(seen <= sa.bindparam("before")).order_by(seen)
        self.unused = Statement(
            unused.limit(sa.bindparam("limit")).with_for_update(skip_locked=True)
        )

    def delete_unused(self, tx: Tx, days: int, limit: int) -> int:
        """Delete at most `limit` rows that were not seen for `days`; return how many.

        Many users may share a key (an office, a browser in the network of a mobile provider), so
        rows are deleted by both columns.
        """
        rows = tx.rows(self.unused, before=tx.now - days * MS_PER_DAY, limit=limit)
        if rows:
            tx.run_many(self.drop, [{"user": user, "key": key} for user, key in rows])
        return len(rows)


_ADDRESSES: Final = _Origins(KNOWN_ADDRESS)
_DEVICES: Final = _Origins(KNOWN_DEVICE)
_A: Final = KNOWN_ADDRESS.c
_LATEST: Final = (
    sa.select(_A.key).where(_A.user == _USER).order_by(_A.seen.desc(), _A.key).limit(MAX_ADDRESSES)
)
_DROP_OTHERS: Final = Statement(
    sa.delete(KNOWN_ADDRESS).where(_A.user == _USER, _A.key.not_in(_LATEST.scalar_subquery()))
)


def address_seen(tx: Tx, user: str, key: bytes) -> int | None:
    """Return the last sign-in of the account from an address (ms, to the day); `key` is
    `AddressCounters.known`.

    None: there was none within `ADDRESS_DAYS`.
    """
    seen: int | None = tx.scalar(_ADDRESSES.seen, user=user, key=key)
    return None if seen is None or tx.now - seen >= ADDRESS_DAYS * MS_PER_DAY else seen


def record_address(tx: Tx, user: str, key: bytes, seen: int | None) -> None:
    """Record a sign-in of the account, which must be locked, from an address.

    `seen` is the result of `address_seen`: the row is written once a day. An account keeps its
    latest `MAX_ADDRESSES` addresses.
    """
    if seen is not None and 0 <= tx.now - seen < MS_PER_DAY:
        return
    if tx.run(_ADDRESSES.again, user=user, key=key, now=tx.now):
        return
    tx.run(_ADDRESSES.add, user=user, key=key, now=tx.now)
    tx.run(_DROP_OTHERS, user=user)


def device_key(installation_key: bytes, address: str, user_agent: str) -> bytes:
    """Return the HMAC of a device: of its User-Agent without versions, and its network."""
    kind = _VERSION.sub("", user_agent[:_AGENT_CHARACTERS])
    return counter_key(installation_key, "known device", f"{sharing_network(address)}\n{kind}")


def record_device(tx: Tx, user: str, key: bytes) -> bool:
    """Record a sign-in of the account, which must be locked; return whether its device is new.

    The first device of an account is not new: there is no other to compare it with.
    """
    seen_by_key: dict[bytes, int] = {
        bytes(of): seen for of, seen in tx.rows(_DEVICES.all, user=user)
    }
    now = tx.now
    seen = seen_by_key.pop(key, None)
    if seen is None:
        tx.run(_DEVICES.add, user=user, key=key, now=now)
        latest = sorted(seen_by_key, key=lambda each: (seen_by_key[each], each), reverse=True)
        for oldest in latest[MAX_DEVICES - 1 :]:
            tx.run(_DEVICES.drop, user=user, key=oldest)
    elif not 0 <= now - seen < MS_PER_DAY:
        tx.run(_DEVICES.again, user=user, key=key, now=now)
    if seen is None:
        return bool(seen_by_key)
    return now - seen >= DEVICE_DAYS * MS_PER_DAY


def delete_known_origins(tx: Tx, user: str) -> None:
    """Delete all known addresses and devices of an account."""
    tx.run(_ADDRESSES.delete, user=user)
    tx.run(_DEVICES.delete, user=user)


def delete_unused_addresses(tx: Tx, limit: int) -> int:
    """Delete at most `limit` addresses that are not known any more; return how many."""
    return _ADDRESSES.delete_unused(tx, ADDRESS_DAYS, limit)


def delete_unused_devices(tx: Tx, limit: int) -> int:
    """Delete at most `limit` devices that count as new again; return how many."""
    return _DEVICES.delete_unused(tx, DEVICE_DAYS, limit)
