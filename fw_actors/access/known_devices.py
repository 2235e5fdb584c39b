"""Devices from which an account has signed in, so that a new one is told by mail (A-363 to A-366).

A device is a kind of browser or program in a network: the user agent without its versions, and the
/24 or /48 of the address. Only their HMAC is stored. Called after the password was right.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.access.attempts import counter_key
from fw_actors.rules.identifiers import sharing_network
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import KNOWN_DEVICE

DEVICE_DAYS: Final = 400
"""A device without a sign-in for so long is new again."""
MAX_DEVICES: Final = 50
"""The devices that are kept of an account, the latest ones."""
_VERSION: Final = re.compile(r"[0-9]+(?:[._][0-9]+)*")
_AGENT_CHARACTERS: Final = 400

_D: Final = KNOWN_DEVICE.c
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_ALL: Final = Statement(sa.select(_D.key, _D.seen).where(_D.user == _USER))
_AGAIN: Final = Statement(
    sa.update(KNOWN_DEVICE).where(_D.user == _USER, _D.key == _KEY).values(seen=sa.bindparam("now"))
)
_ADD: Final = Statement(
    sa.insert(KNOWN_DEVICE).values(user=_USER, key=_KEY, seen=sa.bindparam("now"))
)
_DROP: Final = Statement(sa.delete(KNOWN_DEVICE).where(_D.user == _USER, _D.key == _KEY))
_FORGET: Final = Statement(sa.delete(KNOWN_DEVICE).where(_D.user == _USER))


def device_key(installation_key: bytes, address: str, user_agent: str) -> bytes:
    """Return the HMAC that stands for a device; an update of a browser leaves it the same one."""
    kind = _VERSION.sub("", user_agent[:_AGENT_CHARACTERS])
    return counter_key(installation_key, "known device", f"{sharing_network(address)}\n{kind}")


def note_device(tx: Tx, user: str, key: bytes) -> bool:
    """Record a sign-in of the account, which must be locked; return whether its device is new.

    The first device of an account is not: there is nothing to tell it from.
    """
    known: dict[bytes, int] = {bytes(of): seen for of, seen in tx.rows(_ALL, user=user)}
    now = tx.now
    seen = known.pop(key, None)
    if seen is None:
        tx.run(_ADD, user=user, key=key, now=now)
        latest = sorted(known, key=lambda each: (known[each], each), reverse=True)
        for oldest in latest[MAX_DEVICES - 1 :]:
            tx.run(_DROP, user=user, key=oldest)
    elif not 0 <= now - seen < MS_PER_DAY:
        tx.run(_AGAIN, user=user, key=key, now=now)
    if seen is None:
        return bool(known)
    return now - seen >= DEVICE_DAYS * MS_PER_DAY


def forget_devices(tx: Tx, user: str) -> None:
    """Delete all known devices of an account."""
    tx.run(_FORGET, user=user)
