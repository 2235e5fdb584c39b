"""PostgreSQL connections: their pool, the conversion of values, and the translation of errors.

No module above the store's engines handles psycopg's errors. Their messages quote whole rows
(DETAIL), including secrets, so none is passed on or kept as a cause: only the primary message and
the names of table, column and constraint are used.

The module has more than 500 lines because it contains all that is specific to psycopg.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import psycopg
from psycopg import postgres
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.none import NoneDumper
from psycopg.types.numeric import FloatDumper, FloatLoader, Int8Dumper, IntLoader
from psycopg.types.string import (
    ByteaLoader,
    BytesBinaryDumper,
    StrDumper,
    StrDumperUnknown,
    TextLoader,
)

from fw_actors.errors import ConfigurationError, store_refusal
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.store.statement import ConstraintViolation, StatementError, UniqueViolation

# All errors of executing a statement; the last two come from values that cannot be sent.
REFUSALS: Final = (psycopg.Error, UnicodeError, OverflowError)

READ_ONLY_COPY: Final = "The database cannot be written: it is a read-only copy."
CONNECTION_LOST: Final = "The connection to the database was lost; nothing was changed."
LOST_AT_COMMIT: Final = (
    "The connection to the database was lost during the commit. Read again to see whether it "
    "was done."
)
UNREACHABLE: Final = "The database cannot be reached. Try again in a moment."
CAUGHT_OUTSIDE: Final = (
    "A statement failed and the error was caught without a savepoint around it; PostgreSQL has "
    "aborted the transaction and nothing was changed."
)

# By SQLSTATE, or its class (the first two characters): the message for the caller.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_OVERLOADED: Final = MappingProxyType(
    {
        "08": CONNECTION_LOST,
        "40": "Another transaction conflicted; nothing was changed. Try again.",
        "40P01": "This transaction and another one waited for each other (a deadlock); nothing was "
        "changed. Try again.",
        "55P03": "The database is locked by another transaction. Try again in a moment.",
        "53": "The database has no resources left; nothing was changed.",
        "53100": "The database's disk is full; nothing was changed.",
        "53200": "There is not enough memory for the database.",
        "53300": "The database accepts no more connections. Try again in a moment.",
        "57": "The database ended the statement. Try again in a moment.",
        "57P01": "The database is shutting down. Try again in a moment.",
        "57P02": "The database is recovering from a crash. Try again in a moment.",
        "57P03": "The database is starting or shutting down. Try again in a moment.",
        "25P03": "The transaction was idle for too long and the database ended it.",
        "25006": READ_ONLY_COPY,
        "58": "The disk under the database failed to read or write.",
    }
)
_PASSING: Final = ("08", "25", "40")
CANCELLED: Final = "57014"
"""A query that was cancelled, by us or by `statement_timeout`."""
_READ_ONLY: Final = "25006"
_ABORTED: Final = "25P02"
_UNIQUE: Final = "23505"
_INTEGRITY: Final = "23"
_RULES: Final = MappingProxyType({"23502": "NOT NULL", "23503": "FOREIGN KEY", "23514": "CHECK"})
# `Key (owner, "fullName")=(…) already exists.`: the parentheses stay in every language.
_KEY: Final = re.compile(r"\((?P<columns>(?:\"(?:[^\"]|\"\")+\"|[^\"()])+)\)=\(")
_COLUMN: Final = re.compile(r'"((?:[^"]|"")+)"|([^",\s]+)')


def translate(error: BaseException, *, writable: bool = True) -> Exception:
    """Return the exception for a statement that failed with `error` (see `Tx`).

    Args:
        writable: False in a read, where a refused write is a defect of fw and not the server's
            state.
    """
    state = getattr(error, "sqlstate", None)
    if state is None:
        return _without_state(error)
    assert isinstance(error, psycopg.Error)
    if state == _UNIQUE:
        return _unique_violation(error.diag)
    if state[:2] == _INTEGRITY:
        return _constraint_violation(state, error.diag)
    if state == _READ_ONLY and not writable:
        return StatementError("This transaction can only read.")
    if state == _ABORTED:
        return StatementError(CAUGHT_OUTSIDE)
    sentence = _sentence(state)
    return store_refusal(sentence) if sentence is not None else StatementError(_refused(error))


def _sentence(state: str) -> str | None:
    return _OVERLOADED.get(state) or _OVERLOADED.get(state[:2])


def refusal_reason(error: BaseException) -> str | None:
    """Return the state of the server for which it refuses writes, if an error reports one.

    A conflict of two transactions, a lost connection and a cancelled statement are none: they end
    with the error.
    """
    state = getattr(error, "sqlstate", None)
    if state is None or state == CANCELLED or (state[:2] in _PASSING and state != _READ_ONLY):
        return None
    return _sentence(state)


def _without_state(error: BaseException) -> Exception:
    """Translate errors that libpq or psycopg raise themselves: a lost connection, a value that
    cannot be sent.
    """
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return store_refusal(CONNECTION_LOST)
    return StatementError(f"A statement cannot be sent: {type(error).__name__}: {error}")


def _refused(error: psycopg.Error) -> str:
    return f"The database refused a statement: {error.diag.message_primary}"


def _constraint_violation(state: str, diag: psycopg.errors.Diagnostic) -> ConstraintViolation:
    rule = _RULES.get(state, "Integrity")
    where = ".".join(filter(None, (diag.table_name, diag.column_name or diag.constraint_name)))
    return ConstraintViolation(f"{rule} constraint failed: {where}.")


def _unique_violation(diag: psycopg.errors.Diagnostic) -> UniqueViolation:
    found = _KEY.search(diag.message_detail or "")
    if found is None:  # an index over an expression, or rows without permission
        return UniqueViolation(diag.table_name or "", (diag.constraint_name or "",))
    columns = (
        quoted.replace('""', '"') or plain for quoted, plain in _COLUMN.findall(found["columns"])
    )
    return UniqueViolation(diag.table_name or "", tuple(columns))


_OID: Final = {info.name: info.oid for info in postgres.types}
_ANY_OTHER: Final = 0
"""The key of the loader for all other types, which returns PostgreSQL's text."""


class _TruthDumper(Dumper):
    """Sends True and False as 1 and 0: no column of the store is boolean."""

    oid = _OID["int8"]

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _TruthLoader(Loader):
    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"t")


class _NumericLoader(Loader):
    """Loads `numeric`, the type of sums of integers, as int if the value is whole."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


def adapters() -> AdaptersMap:
    """Return the value adapters of one connection; types without an adapter cannot be sent.

    Integers are always sent as int8, because each size would need its own prepared statement. Text
    is sent without a type, so that PostgreSQL infers it from the context.
    """
    found = AdaptersMap(types=postgres.types)
    send: Any = found.register_dumper
    for kind, dumper in (
        (str, StrDumper), (str, StrDumperUnknown), (bytes, BytesBinaryDumper), (int, Int8Dumper),
        (bool, _TruthDumper), (float, FloatDumper), (type(None), NoneDumper),
    ):  # fmt: skip
        send(kind, dumper)
    receive = partial(_receive, found)
    receive(TextLoader, _ANY_OTHER)
    receive(IntLoader, *(_OID[name] for name in ("int2", "int4", "int8", "oid")))
    receive(FloatLoader, *(_OID[name] for name in ("float4", "float8")))
    receive(_NumericLoader, _OID["numeric"])
    receive(_TruthLoader, _OID["bool"])
    receive(ByteaLoader, _OID["bytea"])
    return found


def _receive(found: AdaptersMap, loader: type[Loader], *oids: int) -> None:
    for oid in oids:
        found.register_loader(oid, loader)


MIN_SERVER_VERSION: Final = 14_00_00
PREPARED_STATEMENTS: Final = 512
IDLE_IN_TRANSACTION_SECONDS: Final = 60
PAUSE_SECONDS: Final = 10
"""The time after which the server ends a transaction with `limit_pauses` that sends nothing."""
CANCEL_SECONDS: Final = 2.0

BEGIN_WRITE: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_LAZY: Final = BEGIN_WRITE + b"; SET LOCAL synchronous_commit TO off"
LIMIT_PAUSES: Final = b"SET LOCAL idle_in_transaction_session_timeout TO '%ds'" % PAUSE_SECONDS
BEGIN_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Whether anything was written, and the commit, in one round trip.
_COMMIT: Final = b"SELECT pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT"

# Only `off` is overridden; settings that also wait for standbys are kept.
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)

# libpq's parameter names. A lost peer is noticed within a minute. Of several hosts, the one that
# takes writes is used; a standby counts as unreachable until it is promoted.
_CONNECT: Final = {
    "target_session_attrs": "primary",
    "connect_timeout": 5,
    "application_name": "fw",
    "client_encoding": "UTF8",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class _ServerAddress(NamedTuple):
    """The address of a server: host, as named and as resolved, and port."""

    host: str
    hostaddr: str
    port: int


ANSWER_SECONDS: Final = 10.0
"""The time for which a statement waits before it is checked that the server answers at all."""
_PROBE_SECONDS: Final = 5
_WATCH_SECONDS: Final = 1.0


class ServerWatch:
    """The thread that ends statements to which a server gives no answer any more.

    A frozen server, or a network that drops packets, ends no connection. A long statement is no
    sign of it: when one has waited for `ANSWER_SECONDS`, the watch opens a connection to the same
    server. If that is not answered either, it breaks off the connections that wait there, so that
    their threads get the error of a lost connection, and has the pools close their idle ones. A
    server that answered is asked again after `ANSWER_SECONDS`, because each connection costs it a
    process, and its log a line. A transaction that had not begun its commit is rolled back by the
    server when that continues.
    """

    def __init__(self, conninfo: Mapping[str, Any], answer_seconds: float) -> None:
        """`conninfo`: libpq's parameters; `answer_seconds`: as `ANSWER_SECONDS`."""
        self._conninfo, self._answer_seconds = conninfo, answer_seconds
        self._period = min(_WATCH_SECONDS, answer_seconds)
        self._lock = threading.Lock()
        self._connections: WeakSet[PostgresConnection] = WeakSet()
        self._on_silence: list[Callable[[], None]] = []
        self._closing = threading.Event()
        self._answered: dict[_ServerAddress, float] = {}
        """The time.monotonic() of the last probe that each server answered."""
        threading.Thread(target=self._watch, name="fw-server-watch", daemon=True).start()

    def add(self, connection: PostgresConnection) -> None:
        """Watch a connection until it is closed."""
        with self._lock:
            self._connections.add(connection)

    def on_silence(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the thread of the watch when a server does not answer."""
        self._on_silence.append(callback)

    def close(self) -> None:
        """End the thread, after a check in progress."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(self._period):
            try:
                self._check(time.monotonic() - self._answer_seconds)
            except Exception:  # the next check tries again
                _log.exception("a server could not be checked")

    def _check(self, latest: float) -> None:
        """Check the servers to which a statement was sent before `latest`."""
        with self._lock:
            waiting = [(each, each.waiting_since) for each in self._connections]
        late = [(each, since, each.address) for each, since in waiting if since <= latest]
        for address in {address for _, _, address in late}:
            if self._answered.get(address, -inf) > latest:
                continue
            if self._answers(address):
                self._answered[address] = time.monotonic()
                continue
            ended = [each.break_off(since) for each, since, at in late if at == address]
            _log.warning(
                "the database does not answer; statements that were broken off: %d", sum(ended)
            )
            for callback in self._on_silence:
                callback()

    def _answers(self, address: _ServerAddress) -> bool:
        """Return whether a server answers a connection within some seconds, also by a refusal."""
        parameters = {
            **self._conninfo,
            **{name: value for name, value in address._asdict().items() if value},
            "target_session_attrs": "any",
            "connect_timeout": max(2, min(_PROBE_SECONDS, ceil(self._answer_seconds))),  # libpq: 2
        }
        try:
            psycopg.connect(**parameters).close()
        except psycopg.errors.ConnectionTimeout:
            return False
        except psycopg.Error:
            return True
        return True


@dataclass(frozen=True)
class PostgresSettings:
    """The settings that all connections of a store share.

    `lock_seconds` is the time that a statement waits for a lock of another transaction; `durable`:
    whether a commit is on the disk before it returns; `query_seconds` is the time limit of a
    statement, None for no limit; `read_only`: whether statements outside a transaction are refused
    if they write; `watch` ends statements without an answer, None: they wait.
    """

    conninfo: dict[str, Any]
    lock_seconds: float
    durable: bool = True
    query_seconds: float | None = None
    read_only: bool = False
    watch: ServerWatch | None = None


def read_url(url: str) -> dict[str, Any]:
    """Return libpq's parameters from a URL; absent ones get the defaults above.

    Raises: ConfigurationError; its message contains no part of the URL, because of passwords.
    """
    try:
        return {**_CONNECT, **conninfo_to_dict(url)}
    except psycopg.Error:
        raise ConfigurationError(
            [
                "FW_DATABASE must be a URL that PostgreSQL accepts: postgresql://user@host:port/database."
            ]
        ) from None


class PostgresConnection:
    """A connection and its one cursor. Used by one thread at a time.

    Raises: psycopg.Error when the server cannot be reached or refuses the connection;
        ConfigurationError when its version or encoding is unsuitable.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._was_cancelled = False
        self._closing = threading.Lock()
        self.waiting_since = inf
        """The time.monotonic() of a statement that the server has not answered; inf without one."""
        self.raw = psycopg.connect(
            **settings.conninfo,
            autocommit=True,  # transactions begin only by explicit commands
            context=adapters(),
            prepare_threshold=5,
        )
        try:
            self.raw.prepared_max = PREPARED_STATEMENTS
            _refuse_unfit(self.raw)
            self.cursor = self.raw.cursor()
            info = self.raw.info
            self.address = _ServerAddress(info.host, info.hostaddr, info.port)
            if settings.watch is not None:
                settings.watch.add(self)
            self._execute(_session(settings))
        except BaseException:
            self.raw.close()
            raise

    @property
    def status(self) -> int:
        """A psycopg.pq.TransactionStatus: IDLE, INTRANS, INERROR (a statement failed), UNKNOWN
        (the connection is lost)."""
        return self.raw.pgconn.transaction_status

    def execute(self, text: bytes) -> None:
        """Run a statement that takes no values."""
        self._execute(text, prepare=False)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, including one in which a statement has failed."""
        return self.status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def execute_within(
        self, text: str | bytes, values: tuple[Any, ...] | Mapping[str, Any] = ()
    ) -> psycopg.Cursor[Any]:
        """Run a statement of the open transaction; return the cursor.

        Raises: OverloadedError when there is none: the statement would commit by itself.
        """
        if not self.is_open:
            raise store_refusal(CONNECTION_LOST)
        return self._execute(text.encode() if isinstance(text, str) else text, values)

    def execute_alone(
        self, text: str | bytes, values: tuple[Any, ...] | Mapping[str, Any] = ()
    ) -> psycopg.Cursor[Any]:
        """Run a statement outside a transaction, which commits by itself; return the cursor."""
        return self._execute(text.encode() if isinstance(text, str) else text, values)

    def execute_command_within(self, text: bytes) -> None:
        """Run commands of the open transaction that take no values."""
        if not self.is_open:
            raise store_refusal(CONNECTION_LOST)
        self.execute(text)

    def execute_many_within(self, text: str, values: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement of the open transaction once for each of `values`."""
        if not self.is_open:
            raise store_refusal(CONNECTION_LOST)
        self.waiting_since = time.monotonic()
        try:
            self.cursor.executemany(text.encode(), values)
        finally:
            self.waiting_since = inf

    def _execute(
        self,
        text: bytes,
        values: tuple[Any, ...] | Mapping[str, Any] | None = None,
        *,
        prepare: bool | None = None,
    ) -> psycopg.Cursor[Any]:
        self.waiting_since = time.monotonic()
        try:
            return self.cursor.execute(text, values, prepare=prepare)
        finally:
            self.waiting_since = inf

    def break_off(self, since: float) -> bool:
        """End the connection under a statement that was sent at `since`; return whether it still
        waited. The statement fails as on a lost connection. Called in another thread."""
        with self._closing:  # else its descriptor might be that of another connection by now
            if self.waiting_since != since or self.raw.closed:
                return False
            try:
                with socket.socket(fileno=os.dup(self.raw.fileno())) as shared:
                    shared.shutdown(socket.SHUT_RDWR)
            except (OSError, psycopg.Error):  # it has just ended
                return False
        return True

    def cancel(self) -> None:
        """Cancel the running statement. Called in another thread."""
        self._was_cancelled = True
        with suppress(psycopg.Error):  # repeated while it runs; the server also has a limit
            self.raw.cancel_safe(timeout=CANCEL_SECONDS)

    @property
    def is_ready(self) -> bool:
        """Whether the server waits for a statement and has not ended the connection."""
        try:
            for _ in range(2):  # its last words, then the end
                self.raw.pgconn.consume_input()
        except psycopg.Error:
            return False
        return self.status == TransactionStatus.IDLE

    @property
    def is_reusable(self) -> bool:
        """Whether a further transaction may begin here. After a cancellation it may not: a late one
        could reach that transaction."""
        return self.status == TransactionStatus.IDLE and not self._was_cancelled

    def commit(self) -> bool:
        """Commit; return whether the transaction had written anything."""
        self.execute(_COMMIT)
        row = self.cursor.fetchone()
        return bool(row and row[0])

    def roll_back(self) -> None:
        """Roll back the open transaction, if there is one."""
        if self.status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self.execute(b"ROLLBACK")

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        with self._closing:
            self.raw.close()


def _session(settings: PostgresSettings) -> bytes:
    lock_ms = round(settings.lock_seconds * MS_PER_SECOND)
    idle_ms = IDLE_IN_TRANSACTION_SECONDS * MS_PER_SECOND
    query_ms = round((settings.query_seconds or 0) * MS_PER_SECOND)  # 0: no limit
    commit = _DURABLE if settings.durable else "SET synchronous_commit = off"
    return "; ".join(
        (
            f"SET lock_timeout = {lock_ms}",
            f"SET statement_timeout = {query_ms}",
            f"SET idle_in_transaction_session_timeout = {idle_ms}",  # ends a stopped process
            "SET idle_session_timeout = 0",  # a service without work must hear notices
            "SET standard_conforming_strings = on",  # `postgres_engine` reads literals this way
            "SET quote_all_identifiers = off",  # else the names of types are quoted
            "SET extra_float_digits = 1",  # else a database may round numbers
            "SET TimeZone = 'UTC'",
            commit,
            # Of statements that are a transaction of their own.
            "SET default_transaction_isolation = 'read committed'",
            f"SET default_transaction_read_only = {'on' if settings.read_only else 'off'}",
        )
    ).encode()


def _refuse_unfit(connection: psycopg.Connection[Any]) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ConfigurationError(
            [f"The database has the encoding {encoding}; make one with ENCODING 'UTF8'."]
        )
    if connection.info.server_version < MIN_SERVER_VERSION:
        version = connection.info.parameter_status("server_version")
        raise ConfigurationError(
            [f"PostgreSQL {version} is too old; {MIN_SERVER_VERSION // 10_000} or newer is needed."]
        )


FIRST_WAIT_SECONDS: Final = 0.05
MAX_WAIT_SECONDS: Final = 2.0
_MAX_DOUBLINGS: Final = 16  # beyond the longest wait; keeps the power finite in a long outage

_log: Final = logging.getLogger(__name__)


class ReconnectBackoff:
    """The backoff between attempts to reach a server. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._again = 0.0
        self._reasons: set[str] = set()

    def remaining(self) -> float:
        """Return the seconds until the next attempt is allowed."""
        with self._lock:
            return self._again - time.monotonic() if self._failures else 0.0

    def failed(self, reason: str = "") -> bool:
        """Count a failure; return whether it is the first of its reason since the last success."""
        with self._lock:
            doublings = min(self._failures, _MAX_DOUBLINGS)
            wait = min(FIRST_WAIT_SECONDS * 2**doublings, MAX_WAIT_SECONDS)
            self._failures += 1
            self._again = time.monotonic() + wait
            is_new = reason not in self._reasons
            self._reasons.add(reason)
            return is_new

    def succeeded(self) -> bool:
        """Forget the failures; return whether there were any."""
        with self._lock:
            had, self._failures = self._failures > 0, 0
            self._reasons.clear()
            return had


class ConnectionPool:
    """The connections of a store's threads; at most one for each thread.

    The connection used last is given first: a short command opens few, and its statements stay
    prepared.
    """

    def __init__(self, settings: PostgresSettings, backoff: ReconnectBackoff | None = None) -> None:
        """`backoff` is shared by pools of one server, so that its outage is logged once."""
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[PostgresConnection] = []
        self._closed = False
        self.backoff = backoff or ReconnectBackoff()
        if settings.watch is not None:
            settings.watch.on_silence(self.close_idle)

    def take(self) -> PostgresConnection:
        """Return an idle connection, or a new one if none is idle.

        Raises: OverloadedError when the server cannot be reached or refuses the connection. Between
            two attempts there is a backoff of up to `MAX_WAIT_SECONDS`, during which callers are
            refused at once.
        """
        return self._take_idle() or self._connect()

    def begin(
        self, connection: PostgresConnection, first: Callable[[PostgresConnection], object]
    ) -> PostgresConnection:
        """Run `first` on a connection that was taken; return the connection.

        `first` changes nothing: it begins a transaction, or reads. So a connection that turns out
        to be lost is replaced at once.

        Raises: OverloadedError, as `take`; psycopg.Error, as `first`. The connection is closed
            then.
        """
        taken: PostgresConnection | None = connection
        while taken is not None:
            try:
                first(taken)
            except psycopg.Error:
                is_lost = taken.status == TransactionStatus.UNKNOWN
                taken.close()
                if not is_lost:
                    raise
                taken = self._take_idle()  # the server was restarted, or has ended the connection
            else:
                return taken
        new = self._connect()
        try:
            first(new)
        except psycopg.Error:
            new.close()
            raise
        return new

    def release(self, connection: PostgresConnection) -> None:
        """Keep a connection for the next call if no transaction is left on it."""
        with self._lock:
            keep = not self._closed and connection.is_reusable
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def close(self) -> None:
        """Close idle connections, and from now on also returned ones."""
        with self._lock:
            self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that no thread uses. Called in any thread."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> PostgresConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _connect(self) -> PostgresConnection:
        if self.backoff.remaining() > 0:
            raise store_refusal(UNREACHABLE)
        try:
            connection = PostgresConnection(self._settings)
        except (psycopg.Error, ConfigurationError) as error:
            reason = one_line(error)
            if self.backoff.failed(reason):
                _log.warning("the database cannot be reached: %s", reason)
            raise store_refusal(UNREACHABLE) from None
        if self.backoff.succeeded():
            _log.warning("the database can be reached again")
        return connection


def one_line(error: BaseException) -> str:
    """Return libpq's message, which has a line for each attempted address, as one line without the
    hints, which begin with a tab."""
    return "; ".join(line for line in str(error).splitlines() if line[:1] not in ("", "\t"))
