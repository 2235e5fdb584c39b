"""Sign-in attempts and their budgets per identifier, address and network.

One statement decides an attempt (A-63): it inserts the charge if fewer than `limit` attempts count
and no lock is active. `fw_actors.rules.lockout` defines which attempts count.

An IPv6 client may own 65,536 networks of /64 (a /48), so attempts are also counted per /56 and /48,
with larger budgets; an IPv4 address has one counter. Rules: A-90, A-91, A-92, A-94.
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
    RECOVERY_MAIL_WINDOW_MS,
    WIDER_48,
    WIDER_56,
    Budget,
    Tally,
    is_locked,
    refusal_seconds,
    shared_budget,
    wider,
)
from fw_actors.runtime.clock import MS_PER_MINUTE, MS_PER_SECOND
from fw_actors.store import Statement, Tx, deletion_of_oldest, earlier, update_of_times_ahead
from fw_actors.store.schema import LOGIN_ATTEMPT

IN_FLIGHT: Final = 0
FAILED: Final = 1

IDENTIFIER: Final = "identifier"  # the counter kind of sign-in by canonical form

BUCKET_BYTES: Final = 2  # of a counter's key: 65,536 buckets
MAX_COUNTERS_IN_BUCKET: Final = 64  # counters per bucket: 4 million in all
_KEY_SHOWN: Final = 12
_T: Final = LOGIN_ATTEMPT.c
_ID: Final[sa.BindParameter[Any]] = sa.bindparam("id")
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_NOW: Final[sa.BindParameter[Any]] = sa.bindparam("now")
_SINCE: Final[sa.BindParameter[Any]] = sa.bindparam("since")
_STALE: Final[sa.BindParameter[Any]] = sa.bindparam("stale")


def counter_key(installation_key: bytes, kind: str, identifier: str) -> bytes:
    """Return the key of a counter: HMAC-SHA-256 over kind, a separator and identifier (A-80).

    The plain text is never stored, because users type passwords into the name field.
    """
    text = f"{kind}\x00{identifier}".encode("utf-8", "surrogatepass")
    # Not hmac.digest, which releases the GIL and must then wait for it.
    return hmac.new(installation_key, text, hashlib.sha256).digest()


def shown_key(key: bytes) -> str:
    """Return the prefix of a counter's key that the log and the console show."""
    return key.hex()[:_KEY_SHOWN]


@dataclass(frozen=True, slots=True)
class CounterBucket:
    """The counters whose keys share a prefix (a hash bucket). No counter of a full bucket is
    evicted, because an attacker could evict a victim's; keys without a counter share one.

    Keys are HMACs, so that a caller cannot choose a bucket (A-79).
    """

    first: bytes
    last: bytes

    @classmethod
    def of(cls, key: bytes) -> CounterBucket:
        """Return the bucket of a counter."""
        start, rest = key[:BUCKET_BYTES], len(key) - BUCKET_BYTES
        return cls(start + b"\x00" * rest, start + b"\xff" * rest)

    @property
    def shared(self) -> bytes:
        """The key of the counter that keys without their own counter share; it equals no HMAC in
        practice."""
        return self.first


def _bucket_counters() -> sa.ScalarSelect[int]:
    live = sa.select(_T.key).where(_T.at > _SINCE)
    in_bucket = live.where(_T.key.between(sa.bindparam("first"), sa.bindparam("last")))
    counters = in_bucket.distinct().limit(MAX_COUNTERS_IN_BUCKET).subquery()
    return sa.select(sa.func.count()).select_from(counters).scalar_subquery()


_EXISTS: Final = (
    sa.select(_T.id).where(_T.key == _KEY, sa.or_(_T.at > _SINCE, _T.until > _NOW)).exists()
)
_HAS_ROOM: Final = sa.or_(_EXISTS, _bucket_counters() < MAX_COUNTERS_IN_BUCKET)
"""Whether the counter exists already or its bucket has room for it."""

_FULL: Final = Statement(sa.select(sa.literal_column("1")).where(~_HAS_ROOM))


@dataclass(frozen=True, slots=True)
class NetworkCounters:
    """The counters of the /56 and the /48 around an IPv6 address."""

    key_56: bytes
    key_48: bytes


def _within(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Whether the attempts of a network are below its limit; reads at most `limit` rows."""
    limit: sa.BindParameter[int] = sa.bindparam(f"{name}_limit")
    counted = sa.select(_T.id).where(column == sa.bindparam(name), _T.at > _SINCE).limit(limit)
    return sa.select(sa.func.count()).select_from(counted.subquery()).scalar_subquery() < limit


def _charge(*further: sa.ColumnElement[bool], networks: bool = False) -> Statement:
    counted = (
        sa.select(sa.func.count())
        .select_from(LOGIN_ATTEMPT)
        .where(_T.key == _KEY, _T.at > _SINCE)
        .scalar_subquery()
    )
    locked = sa.select(_T.id).where(_T.key == _KEY, _T.until > _NOW).exists()
    # PostgreSQL cannot infer the types of bare parameters in a SELECT.
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
"""The statement, by whether the networks around an address are counted as well."""

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
    until = sa.bindparam("until", type_=sa.BigInteger)  # typed, because it may be null
    lock = sa.case((failures + 1 >= sa.bindparam("limit"), until))
    return Statement(
        sa.update(LOGIN_ATTEMPT)
        .where(_T.id == _ID, _T.key == _KEY)
        .values(state=FAILED, until=lock)
        .returning(_T.until)
    )


_FAIL: Final = _fail()
_LOCK: Final = Statement(
    sa.update(LOGIN_ATTEMPT)
    .where(_T.key == _KEY, _T.at == sa.bindparam("newest"), _COUNTS_AS_FAILURE)
    .values(until=sa.bindparam("end", type_=sa.BigInteger()))
)
_RELEASE: Final = Statement(sa.delete(LOGIN_ATTEMPT).where(_T.id == _ID))
_CLEAR: Final = Statement(
    sa.delete(LOGIN_ATTEMPT).where(
        sa.or_(
            _T.id.in_([_ID, sa.bindparam("address_id")]),
            sa.and_(_T.key == _KEY, _COUNTS_AS_FAILURE),
        )
    )
)
_UNLOCK: Final = Statement(sa.delete(LOGIN_ATTEMPT).where(_T.key == _KEY, _COUNTS_AS_FAILURE))


def charge(
    tx: Tx, charge_id: str, key: bytes, budget: Budget, networks: NetworkCounters | None = None
) -> float | None:
    """Charge an attempt. Returns None if it is admitted, otherwise the seconds to wait.

    Args:
        charge_id: a new id, by which the charge is settled or released.
        key: the counter.
        budget: the limit of the counter.
        networks: the counters of an IPv6 client's wider networks, for which the same row counts,
            each with its own, larger budget.

    In a full bucket an attempt at a new counter is charged to the shared counter, where it stays
    in flight: that counter does not distinguish failures.
    """
    further = {} if networks is None else _network_parameters(networks, budget)
    bucket, within = CounterBucket.of(key), networks is not None
    params = {"key": key, "now": tx.now, "since": tx.now - budget.window}
    room = {"first": bucket.first, "last": bucket.last}
    tx.limit_pauses()
    # The lock of the widest counter excludes every transaction that counts a narrower one.
    tx.lock((key if networks is None else networks.key_48).hex())
    if tx.run(_CHARGE[within], id=charge_id, limit=budget.limit, **params, **room, **further):
        return None
    counter_budget = budget
    if tx.one(_FULL, **params, **room):
        counter_budget = shared_budget(budget)
        key = params["key"] = bucket.shared
        tx.lock(bucket.shared.hex())
        if tx.run(
            _CHARGE_SHARED[within], id=charge_id, limit=counter_budget.limit, **params, **further
        ):
            return None
    elif budget.locks:
        _lock_reached(tx, key, budget)
    return max(
        refusal_seconds(_read_tally(tx, statement, key, budget), budget, tx.now)
        for statement, key, budget in _counters(key, counter_budget, networks, budget)
    )


def _lock_reached(tx: Tx, key: bytes, budget: Budget) -> None:
    """Store the lock of failures that reach the limit without one, as if the last had started it.

    The limit was lowered since, or a crash has left charges that count as failures. Otherwise an
    attempt would be admitted as soon as enough of them have left the window, earlier than the
    refusal says, and nobody would see that the identifier is locked.
    """
    tally = _read_tally(tx, _TALLY, key, budget)
    is_stored = tally.locked_until is not None and tally.locked_until > tx.now
    if tally.failed >= budget.limit and tally.newest_failure is not None and not is_stored:
        end = min(tally.newest_failure, tx.now) + budget.window
        stale = tx.now - IN_FLIGHT_MS
        tx.run(_LOCK, key=key, newest=tally.newest_failure, end=end, stale=stale)


def _network_parameters(networks: NetworkCounters, budget: Budget) -> dict[str, Any]:
    return {
        "network_56": networks.key_56,
        "network_56_limit": wider(budget, WIDER_56).limit,
        "network_48": networks.key_48,
        "network_48_limit": wider(budget, WIDER_48).limit,
    }


def _counters(
    key: bytes, counter_budget: Budget, networks: NetworkCounters | None, budget: Budget
) -> list[tuple[Statement, bytes, Budget]]:
    """Return the counters of an attempt: the statement that reads each, its key and budget."""
    counters = [(_TALLY, key, counter_budget)]
    if networks is not None:
        counters.append((_TALLY_56, networks.key_56, wider(budget, WIDER_56)))
        counters.append((_TALLY_48, networks.key_48, wider(budget, WIDER_48)))
    return counters


def _read_tally(tx: Tx, statement: Statement, key: bytes, budget: Budget) -> Tally:
    row = tx.one(
        statement, key=key, since=tx.now - budget.window, now=tx.now, stale=tx.now - IN_FLIGHT_MS
    )
    assert row is not None  # an aggregate always returns a row
    return Tally(*row)


def wait_of(
    tx: Tx, key: bytes, budget: Budget, networks: NetworkCounters | None = None
) -> float | None:
    """Return the seconds an attempt must wait, or None if the charge decides.

    Arguments as in `charge`. Reads only: an attempt that is certain to be rejected costs no write.
    Attempts in flight are not counted here.
    """
    waits = []
    for statement, counter, counter_budget in _counters(key, budget, networks, budget):
        tally = _read_tally(tx, statement, counter, counter_budget)
        if is_locked(tally, counter_budget, tx.now):
            waits.append(refusal_seconds(tally, counter_budget, tx.now))
    return max(waits, default=None)


def settle_failure(tx: Tx, charge_id: str, key: bytes, budget: Budget) -> float | None:
    """Settle a charge as a failure. Returns the seconds of the lock that it started, or None."""
    tx.limit_pauses()
    tx.lock(key.hex())  # the later of two concurrent failures must see the earlier
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


def release(tx: Tx, charge_id: str) -> None:
    """Delete the charge of an attempt that was not verified, or that succeeded."""
    tx.run(_RELEASE, id=charge_id)


def clear(tx: Tx, charge_id: str, key: bytes, address_charge: str = "") -> None:
    """Delete a successful attempt's charges and all failures; keep attempts in flight.

    `address_charge` is the attempt's charge to its address, if it has one.
    """
    tx.run(_CLEAR, id=charge_id, address_id=address_charge, key=key, stale=tx.now - IN_FLIGHT_MS)


def unlock(tx: Tx, key: bytes) -> None:
    """Delete the failures of an identifier and the lock that they started; keep attempts in
    flight."""
    tx.lock(key.hex())  # a concurrent failure must not start a lock that this leaves
    tx.run(_UNLOCK, key=key, stale=tx.now - IN_FLIGHT_MS)


def unlock_account(tx: Tx, installation_key: bytes, *, name: str, email: str) -> None:
    """Unlock an account's name and its e-mail (A-76)."""
    for spelling in {canonical(name): None, canonical(email): None}:
        unlock(tx, counter_key(installation_key, IDENTIFIER, spelling))


_LOCK_IS_OVER: Final = sa.or_(_T.until.is_(None), _T.until <= _NOW)
_DELETE_OLD: Final = deletion_of_oldest(LOGIN_ATTEMPT, _T.at, _LOCK_IS_OVER)
_CORRECT: Final = Statement(
    update_of_times_ahead(LOGIN_ATTEMPT, _T.at).values(
        at=sa.bindparam("now", type_=sa.BigInteger()),
        until=earlier(_T.until, sa.bindparam("latest", type_=sa.BigInteger())),
    )
)


def delete_old(tx: Tx, lockout_minutes: int, limit: int) -> int:
    """Delete at most `limit` attempts that no longer count; return how many were deleted.

    An attempt may count for two windows after it was made. One that holds a lock stays until the
    lock ends, which a policy with longer lockouts may have set.
    """
    retention_ms = max(
        2 * lockout_minutes * MS_PER_MINUTE, ADDRESS_WINDOW_MS, RECOVERY_MAIL_WINDOW_MS
    )
    return tx.run(_DELETE_OLD, before=tx.now - retention_ms, now=tx.now, limit=limit)


def correct_times(tx: Tx, after: int, lockout_minutes: int, limit: int) -> int:
    """Correct at most `limit` attempts that were made later than `after` (ms); return how many.

    They count as made now, and a lock ends at the latest when one that starts now would (O-163).
    """
    latest = tx.now + lockout_minutes * MS_PER_MINUTE
    return tx.run(_CORRECT, now=tx.now, ahead=after, latest=latest, limit=limit)


@dataclass(frozen=True, slots=True)
class AddressCounters:
    """The counters to which an attempt from an address is charged."""

    key: bytes
    networks: NetworkCounters | None
    widest: bytes
    """The counter shared by all addresses that one client may own."""
    known: bytes
    """The HMAC by which the address is stored among the known ones of an account (no counter)."""


class AddressBudget:
    """Charges attempts to the counters of their address."""

    def __init__(self, limit: int, installation_key: bytes, purpose: str = "") -> None:
        """`limit` is that of one address. Budgets of another `purpose` have other counters."""
        self._budget = Budget(limit, ADDRESS_WINDOW_MS, locks=False)
        self._key, self._purpose = installation_key, purpose

    def counters(self, address: str) -> AddressCounters:
        """Return the counters of an address."""
        counted = counted_address(address)
        key = counter_key(self._key, f"{self._purpose}address", counted)
        known = counter_key(self._key, "known address", counted)
        around = wider_networks(address)
        if around is None:
            return AddressCounters(key, None, key, known)
        networks = NetworkCounters(
            *(counter_key(self._key, f"{self._purpose}network", network) for network in around)
        )
        return AddressCounters(key, networks, networks.key_48, known)

    def charge(self, tx: Tx, charge_id: str, counters: AddressCounters) -> float | None:
        """Charge an attempt. Returns None if it is admitted, else the seconds to wait."""
        return charge(tx, charge_id, counters.key, self._budget, counters.networks)

    def wait_of(self, tx: Tx, counters: AddressCounters) -> float | None:
        """Return the seconds an attempt must wait, or None. Reads only."""
        return wait_of(tx, counters.key, self._budget, counters.networks)

    def settle_failure(self, tx: Tx, charge_id: str, counters: AddressCounters) -> None:
        """Settle a charge as a failure."""
        settle_failure(tx, charge_id, counters.key, self._budget)


MAX_REFUSED_ADDRESSES: Final = 10_000


class RefusedAddresses(OrderedDict[bytes, None]):
    """A negative cache: the counters of addresses that recently rejected an attempt.

    For these a read precedes the charge: a rejection found by a read costs no write, and writes
    during a flood would delay all users. The stored row decides; a missing entry costs a write, a
    stale entry a read. The least recently used entry is evicted first.
    """

    def __init__(self, max_addresses: int = MAX_REFUSED_ADDRESSES) -> None:
        super().__init__()
        self._max_addresses = max_addresses

    def remember(self, key: bytes) -> None:
        """Record that this counter rejected an attempt."""
        self[key] = None
        self.move_to_end(key)
        if len(self) > self._max_addresses:
            self.popitem(last=False)

    def discard(self, key: bytes) -> None:
        """Remove a counter that admits attempts again."""
        self.pop(key, None)
