"""Sign-in attempts and their budgets: by identifier, by address, by network.

One statement decides a try (A-63): it inserts the charge where fewer than `limit` count and
no lock holds. What counts is said by `fw_actors.rules.lockout`.

An IPv6 client may have 65,536 networks of /64 to itself (a /48), so tries from all of one /56 and
/48 are counted together as well, with wider budgets; an IPv4 address is counted alone.
Rules: A-90, A-91, A-92, A-94.

A row is an account and the HMAC of an address (IPv6 per /64). Nothing is refused or allowed by it:
a try from a known address has a place in the queue for hashes that a flood can't take.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.rules.identifiers import canonical, counted_address, wider_networks
from fw_actors.rules.lockout import (
    ADDRESS_WINDOW_MS,
    IN_FLIGHT_MS,
    MOST_IN_REGION,
    WIDER_48,
    WIDER_56,
    Budget,
    Region,
    Tally,
    is_closed,
    refusal_seconds,
    shared_budget,
    wider,
)
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_SECOND
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import KNOWN_ADDRESS, LOGIN_ATTEMPT

IN_FLIGHT: Final = 0
FAILED: Final = 1

IDENTIFIER: Final = "identifier"  # the kind of counter that sign-in has for a canonical form

_KEY_SHOWN: Final = 12
_T: Final = LOGIN_ATTEMPT.c
_ID: Final[sa.BindParameter[Any]] = sa.bindparam("id")
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_NOW: Final[sa.BindParameter[Any]] = sa.bindparam("now")
_SINCE: Final[sa.BindParameter[Any]] = sa.bindparam("since")
_STALE: Final[sa.BindParameter[Any]] = sa.bindparam("stale")


def counter_key(installation_key: bytes, kind: str, identifier: str) -> bytes:
    """Return the key of a counter: people type passwords into the name field, so no text rests.

    HMAC-SHA-256 over kind, a separator and the identifier (A-80).
    """
    text = f"{kind}\x00{identifier}".encode("utf-8", "surrogatepass")
    # Not hmac.digest, which gives up the interpreter's lock, and has to wait for it again.
    return hmac.new(installation_key, text, hashlib.sha256).digest()


def shown_key(key: bytes) -> str:
    """Return what log and console show of a counter: enough to tell it from others."""
    return key.hex()[:_KEY_SHOWN]


def _region_counters() -> sa.ScalarSelect[int]:
    live = sa.select(_T.key).where(_T.at > _SINCE)
    in_region = live.where(_T.key.between(sa.bindparam("first"), sa.bindparam("last")))
    counters = in_region.distinct().limit(MOST_IN_REGION).subquery()
    return sa.select(sa.func.count()).select_from(counters).scalar_subquery()


_IS_THERE: Final = (
    sa.select(_T.id).where(_T.key == _KEY, sa.or_(_T.at > _SINCE, _T.until > _NOW)).exists()
)
_HAS_ROOM: Final = sa.or_(_IS_THERE, _region_counters() < MOST_IN_REGION)
"""Whether a counter is there already, or its region has room for it."""

_FULL: Final = Statement(sa.select(sa.literal_column("1")).where(~_HAS_ROOM))


@dataclass(frozen=True, slots=True)
class Networks:
    """The counters of the /56 and the /48 around an IPv6 address."""

    key_56: bytes
    key_48: bytes


def _within(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Whether the tries of a network are below its limit; no more of them are read than that."""
    limit: sa.BindParameter[int] = sa.bindparam(f"{name}_limit")
    tries = sa.select(_T.id).where(column == sa.bindparam(name), _T.at > _SINCE).limit(limit)
    return sa.select(sa.func.count()).select_from(tries.subquery()).scalar_subquery() < limit


def _charge(*further: sa.ColumnElement[bool], networks: bool = False) -> Statement:
    counted = (
        sa.select(sa.func.count())
        .select_from(LOGIN_ATTEMPT)
        .where(_T.key == _KEY, _T.at > _SINCE)
        .scalar_subquery()
    )
    locked = sa.select(_T.id).where(_T.key == _KEY, _T.until > _NOW).exists()
    # The types let PostgreSQL know what a bare parameter of a SELECT is.
    values: dict[str, sa.ColumnElement[Any]] = {
        "id": sa.cast(_ID, sa.Text),
        "key": sa.cast(_KEY, sa.LargeBinary),
        "at": sa.cast(_NOW, sa.BigInteger),
        "state": sa.cast(sa.literal(IN_FLIGHT), sa.SmallInteger),
    }
    if networks:
        values |= {n: sa.cast(sa.bindparam(n), sa.LargeBinary) for n in _NETWORKS}
        further += tuple(_within(_T[name], name) for name in _NETWORKS)
    charge = sa.select(*values.values()).where(counted < sa.bindparam("limit"), ~locked, *further)
    return Statement(sa.insert(LOGIN_ATTEMPT).from_select(list(values), charge))


_NETWORKS: Final = ("network_56", "network_48")
_CHARGE: Final = {within: _charge(_HAS_ROOM, networks=within) for within in (False, True)}
_CHARGE_SHARED: Final = {within: _charge(networks=within) for within in (False, True)}
"""Whether the networks around an address are counted as well: the statement."""

_COUNTS_AS_FAILURE: Final = sa.or_(_T.state == FAILED, _T.at <= _STALE)


def _tally(column: sa.ColumnElement[Any]) -> Statement:
    return Statement(
        sa.select(
            sa.func.coalesce(sa.func.sum(sa.case((_COUNTS_AS_FAILURE, 1), else_=0)), 0),
            sa.func.min(_T.at),
            sa.func.max(sa.case((_COUNTS_AS_FAILURE, _T.at))),
            sa.func.max(_T.until),
        ).where(column == _KEY, sa.or_(_T.at > _SINCE, _T.until > _NOW))
    )


_TALLY: Final = _tally(_T.key)
_TALLY_56: Final = _tally(_T.network_56)
_TALLY_48: Final = _tally(_T.network_48)


def _fail() -> Statement:
    other = LOGIN_ATTEMPT.alias("other")
    failures = (
        sa.select(sa.func.count())
        .select_from(other)
        .where(other.c.key == _KEY, other.c.at > _SINCE, other.c.id != _ID)
        .where(sa.or_(other.c.state == FAILED, other.c.at <= _STALE))
        .scalar_subquery()
    )
    until = sa.bindparam("until", type_=sa.BigInteger)  # where it is null its type still counts
    lock = sa.case((failures + 1 >= sa.bindparam("limit"), until))
    return Statement(
        sa.update(LOGIN_ATTEMPT)
        .where(_T.id == _ID, _T.key == _KEY)
        .values(state=FAILED, until=lock)
        .returning(_T.until)
    )


_FAIL: Final = _fail()
_TAKE_BACK: Final = Statement(sa.delete(LOGIN_ATTEMPT).where(_T.id == _ID))
_CLEAR: Final = Statement(
    sa.delete(LOGIN_ATTEMPT).where(
        sa.or_(_T.id == _ID, sa.and_(_T.key == _KEY, _COUNTS_AS_FAILURE))
    )
)
_UNLOCK: Final = Statement(sa.delete(LOGIN_ATTEMPT).where(_T.key == _KEY))


def charge(
    tx: Tx, charge_id: str, key: bytes, budget: Budget, networks: Networks | None = None
) -> float | None:
    """Charge a try. Returns None when it is admitted, else the seconds to wait.

    With `networks` the one row counts for them as well, each with a wider budget of its own; what
    takes the charge back or keeps it does so for all of them.

    In a full region a try at a counter that is not there yet is charged to the shared one, where
    it stays in flight: which failed and which not makes no difference there.
    """
    # The widest counter's lock keeps out whoever would count any of the others.
    tx.lock((key if networks is None else networks.key_48).hex())
    region, within = Region.of(key), networks is not None
    asked = {"key": key, "now": tx.now, "since": tx.now - budget.window}
    room = {"first": region.first, "last": region.last}
    further = _asked_of(networks, budget)
    if tx.run(_CHARGE[within], id=charge_id, limit=budget.limit, **asked, **room, **further):
        return None
    own = budget
    if tx.one(_FULL, **asked, **room):
        own = shared_budget(budget)
        key = asked["key"] = region.shared
        tx.lock(region.shared.hex())
        if tx.run(_CHARGE_SHARED[within], id=charge_id, limit=own.limit, **asked, **further):
            return None
    return max(
        refusal_seconds(_read_tally(tx, statement, key, budget), budget, tx.now)
        for statement, key, budget in _counters(key, own, networks, budget)
    )


def _asked_of(networks: Networks | None, budget: Budget) -> dict[str, Any]:
    if networks is None:
        return {}
    return {
        "network_56": networks.key_56,
        "network_56_limit": wider(budget, WIDER_56).limit,
        "network_48": networks.key_48,
        "network_48_limit": wider(budget, WIDER_48).limit,
    }


def _counters(
    key: bytes, own: Budget, networks: Networks | None, budget: Budget
) -> list[tuple[Statement, bytes, Budget]]:
    """Return what a try is counted by: the statement that reads a counter, its key and budget."""
    counters = [(_TALLY, key, own)]
    if networks is not None:
        counters.append((_TALLY_56, networks.key_56, wider(budget, WIDER_56)))
        counters.append((_TALLY_48, networks.key_48, wider(budget, WIDER_48)))
    return counters


def _read_tally(tx: Tx, statement: Statement, key: bytes, budget: Budget) -> Tally:
    row = tx.one(
        statement,
        key=key,
        since=tx.now - budget.window,
        now=tx.now,
        stale=tx.now - IN_FLIGHT_MS,
    )
    assert row is not None  # an aggregate gives a row
    return Tally(*row)


def wait_of(tx: Tx, key: bytes, budget: Budget, networks: Networks | None = None) -> float | None:
    """Return the seconds that a try would have to wait, or None where a charge decides.

    Reads only: what is closed for certain is refused without a write. Tries in flight don't
    count here.
    """
    waits = []
    for statement, counter, its_budget in _counters(key, budget, networks, budget):
        tally = _read_tally(tx, statement, counter, its_budget)
        if is_closed(tally, its_budget, tx.now):
            waits.append(refusal_seconds(tally, its_budget, tx.now))
    return max(waits, default=None)


def settle_failure(tx: Tx, charge_id: str, key: bytes, budget: Budget) -> float | None:
    """Keep a charge as a failure. Returns the seconds of the lock that it began, or None."""
    tx.lock(key.hex())  # of two that fail at once the later one has to see the other
    until = tx.now + budget.window if budget.locks else None
    lock = tx.scalar(
        _FAIL,
        id=charge_id,
        key=key,
        since=tx.now - budget.window,
        stale=tx.now - IN_FLIGHT_MS,
        limit=budget.limit,
        until=until,
    )
    return None if lock is None else (lock - tx.now) / MS_PER_SECOND


def take_back(tx: Tx, charge_id: str) -> None:
    """Undo a charge: it was no verified try, or it succeeded."""
    tx.run(_TAKE_BACK, id=charge_id)


def clear(tx: Tx, charge_id: str, key: bytes) -> None:
    """A success: its own charge and the failures go; tries in flight stay charged."""
    tx.run(_CLEAR, id=charge_id, key=key, stale=tx.now - IN_FLIGHT_MS)


def unlock(tx: Tx, key: bytes) -> None:
    """Forget all of an identifier's tries."""
    tx.run(_UNLOCK, key=key)


def unlock_account(tx: Tx, installation_key: bytes, *, name: str, email: str) -> None:
    """Forget the tries at both spellings of an account, its name and its e-mail (A-76)."""
    for spelling in {canonical(name): None, canonical(email): None}:
        unlock(tx, counter_key(installation_key, IDENTIFIER, spelling))


@dataclass(frozen=True, slots=True)
class AddressCounters:
    """The counters that a try from an address is charged to."""

    key: bytes
    networks: Networks | None

    @property
    def widest(self) -> bytes:
        """The counter that all tries from one client are charged to, however many addresses it
        has."""
        return self.key if self.networks is None else self.networks.key_48


class AddressBudget:
    """Charges tries to addresses."""

    def __init__(self, limit: int, installation_key: bytes) -> None:
        """`limit` is the policy's `addressAttempts`."""
        self._budget = Budget(limit, ADDRESS_WINDOW_MS, locks=False)
        self._key = installation_key

    def counters(self, address: str) -> AddressCounters:
        """Return the counters of an address."""
        networks = wider_networks(address)
        return AddressCounters(
            self._counter("address", counted_address(address)),
            None
            if networks is None
            else Networks(*(self._counter("network", network) for network in networks)),
        )

    def charge(self, tx: Tx, charge_id: str, counters: AddressCounters) -> float | None:
        """Charge a try. Returns None when it is admitted, else the seconds to wait."""
        return charge(tx, charge_id, counters.key, self._budget, counters.networks)

    def wait_of(self, tx: Tx, counters: AddressCounters) -> float | None:
        """Return the seconds that a try would have to wait, or None. Reads only."""
        return wait_of(tx, counters.key, self._budget, counters.networks)

    def keep(self, tx: Tx, charge_id: str, counters: AddressCounters) -> None:
        """Keep a charge as a failure."""
        settle_failure(tx, charge_id, counters.key, self._budget)

    def _counter(self, kind: str, name: str) -> bytes:
        return counter_key(self._key, kind, name)


KNOWN_DAYS: Final = 30
MOST_OF_A_USER: Final = 20

_A: Final = KNOWN_ADDRESS.c
_USER: Final[sa.BindParameter[Any]] = sa.bindparam("user")
_SEEN: Final = Statement(sa.select(_A.seen).where(_A.user == _USER, _A.key == _KEY))
_SEEN_AGAIN: Final = Statement(
    sa.update(KNOWN_ADDRESS)
    .where(_A.user == _USER, _A.key == _KEY)
    .values(seen=sa.bindparam("now"))
)
_ADD: Final = Statement(
    sa.insert(KNOWN_ADDRESS).values(user=_USER, key=_KEY, seen=sa.bindparam("now"))
)
_LATEST: Final = (
    sa.select(_A.key).where(_A.user == _USER).order_by(_A.seen.desc(), _A.key).limit(MOST_OF_A_USER)
)
_DROP_OTHERS: Final = Statement(
    sa.delete(KNOWN_ADDRESS).where(_A.user == _USER, _A.key.not_in(_LATEST.scalar_subquery()))
)
_FORGET: Final = Statement(sa.delete(KNOWN_ADDRESS).where(_A.user == _USER))


def address_key(installation_key: bytes, address: str) -> bytes:
    """Return what stands for an address here; no address rests in this table."""
    return counter_key(installation_key, "known address", counted_address(address))


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


MOST_REFUSED_ADDRESSES: Final = 10_000


class RefusedAddresses:
    """A negative cache: counters of addresses that refused an attempt lately.

    An attempt from one of them is worth a read first: a refusal that a read finds costs no write,
    which a flood would make everybody wait for. The row decides; an entry too few costs a write,
    one too many a read. The least recently refused is dropped first.
    """

    def __init__(self, most: int = MOST_REFUSED_ADDRESSES) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def remember(self, key: bytes) -> None:
        """Note that this counter refused an attempt."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)

    def forget(self, key: bytes) -> None:
        """Note that this counter was found open."""
        self._keys.pop(key, None)
