"""Opens a connection to PostgreSQL, set up the way the store relies on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from fw_actors.errors import ConfigurationError
from fw_actors.store.postgres_values import adapters

OLDEST_SERVER: Final = 14_00_00
PREPARED_STATEMENTS: Final = 512
IDLE_IN_TRANSACTION_SECONDS: Final = 60
CANCEL_SECONDS: Final = 2.0
MS_PER_SECOND: Final = 1000

BEGIN_WRITE: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_LAZY: Final = BEGIN_WRITE + b"; SET LOCAL synchronous_commit TO off"
BEGIN_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Whether anything was written, and the commit, in one round trip.
_COMMIT: Final = b"SELECT pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT"

# Where the server or role says off; whatever waits for standbys too is left as it is.
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)

# libpq's own names. A peer that is gone is noticed within a minute.
_CONNECT: Final = {
    "connect_timeout": 5,
    "application_name": "fw",
    "client_encoding": "UTF8",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


@dataclass(frozen=True)
class PostgresSettings:
    """How connections are made.

    `lock_seconds` is how long a statement waits for a lock of another transaction; `durable`
    whether a commit is on the disk before it returns; `query_seconds` how long a statement may
    take, None: without end.
    """

    conninfo: dict[str, Any]
    lock_seconds: float
    durable: bool = True
    query_seconds: float | None = None


def read_url(url: str) -> dict[str, Any]:
    """Return libpq's parameters from a URL; what it does not say gets our defaults.

    Raises: ConfigurationError; its message holds no part of the URL, which may hold a password.
    """
    try:
        return {**_CONNECT, **conninfo_to_dict(url)}
    except psycopg.Error:
        raise ConfigurationError(
            ["FW_DATABASE is no URL that PostgreSQL takes: postgresql://user@host:port/database."]
        ) from None


class PostgresConnection:
    """A connection and its one cursor. Used by one thread at a time.

    Raises: psycopg.Error when the server can't be reached, or refuses us; ConfigurationError
        when it can't hold our data.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._was_canceled = False
        self.raw = psycopg.connect(
            **settings.conninfo,
            autocommit=True,  # transactions are begun by us alone
            context=adapters(),
            prepare_threshold=5,
        )
        try:
            self.raw.prepared_max = PREPARED_STATEMENTS
            _refuse_unfit(self.raw)
            self.cursor = self.raw.cursor()
            self.cursor.execute(_session(settings))
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
        self.cursor.execute(text, prepare=False)

    def cancel(self) -> None:
        """Cancel the statement that runs. Called in another thread."""
        self._was_canceled = True
        with suppress(psycopg.Error):  # tried again while it runs; the server has its own limit
            self.raw.cancel_safe(timeout=CANCEL_SECONDS)

    @property
    def is_reusable(self) -> bool:
        """Whether a further transaction may begin here: a cancellation could be late and reach
        it."""
        return self.status == TransactionStatus.IDLE and not self._was_canceled

    def wait_for_locks(self, seconds: float) -> None:
        """Set how long a statement waits for a lock of another transaction."""
        self.execute(f"SET lock_timeout = {round(seconds * MS_PER_SECOND)}".encode())

    def commit(self) -> bool:
        """Commit; return whether the transaction had written anything."""
        self.execute(_COMMIT)
        row = self.cursor.fetchone()
        return bool(row and row[0])

    def roll_back(self) -> None:
        """Undo the transaction that is left open, if there is one."""
        if self.status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self.execute(b"ROLLBACK")

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.raw.close()


def _session(settings: PostgresSettings) -> bytes:
    lock_ms = round(settings.lock_seconds * MS_PER_SECOND)
    idle_ms = IDLE_IN_TRANSACTION_SECONDS * MS_PER_SECOND
    query_ms = round((settings.query_seconds or 0) * MS_PER_SECOND)  # 0: without end
    commit = _DURABLE if settings.durable else "SET synchronous_commit = off"
    return "; ".join(
        (
            f"SET lock_timeout = {lock_ms}",
            f"SET statement_timeout = {query_ms}",
            f"SET idle_in_transaction_session_timeout = {idle_ms}",  # a stopped process lets go
            "SET standard_conforming_strings = on",  # `postgres_raw` reads literals this way
            "SET TimeZone = 'UTC'",
            commit,
        )
    ).encode()


def _refuse_unfit(connection: psycopg.Connection[Any]) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ConfigurationError(
            [f"The database has the encoding {encoding}; make one with ENCODING 'UTF8'."]
        )
    if connection.info.server_version < OLDEST_SERVER:
        version = connection.info.parameter_status("server_version")
        raise ConfigurationError(
            [f"PostgreSQL {version} is too old; {OLDEST_SERVER // 10_000} or newer is needed."]
        )
