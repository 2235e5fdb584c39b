"""Keeps connections to PostgreSQL: handed out begun, replaced when lost, made at a bounded pace."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

import psycopg

from fw_actors.errors import ConfigurationError, OverloadedError
from fw_actors.store.postgres_connection import PostgresConnection, PostgresSettings
from fw_actors.store.postgres_errors import UNREACHABLE, translate

FIRST_WAIT_SECONDS: Final = 0.05
LONGEST_WAIT_SECONDS: Final = 2.0
_MOST_DOUBLINGS: Final = 16  # past the longest wait; keeps the power finite in a long outage

_log: Final = logging.getLogger(__name__)


class Backoff:
    """How long to leave a server alone that could not be reached. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._again = 0.0

    def remaining(self) -> float:
        """Return the seconds until the next try may be made."""
        with self._lock:
            return self._again - time.monotonic() if self._failures else 0.0

    def failed(self) -> bool:
        """Count a failure; return whether it is the first of its row."""
        with self._lock:
            doublings = min(self._failures, _MOST_DOUBLINGS)
            wait = min(FIRST_WAIT_SECONDS * 2**doublings, LONGEST_WAIT_SECONDS)
            self._failures += 1
            self._again = time.monotonic() + wait
            return self._failures == 1

    def succeeded(self) -> bool:
        """Forget the failures; return whether there were any."""
        with self._lock:
            had, self._failures = self._failures > 0, 0
            return had


class ConnectionPool:
    """Connections for the threads of a store; as many as threads ask at a time.

    The one used last is given first: a short command opens few, and statements stay prepared.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[PostgresConnection] = []
        self._closed = False
        self._backoff = Backoff()

    def begin(self, text: bytes) -> PostgresConnection:
        """Return a connection on which the transaction `text` has begun.

        Nothing has run yet, so a connection that turns out to be lost is replaced at once.

        Raises: OverloadedError when the server can't be reached or refuses us. Between two tries
            it is left alone for up to `LONGEST_WAIT_SECONDS`, and callers are refused at once.
        """
        while (connection := self._take_idle()) is not None:
            try:
                connection.execute(text)
            except psycopg.Error:  # the server was restarted, or has ended the connection
                connection.close()
            else:
                return connection
        connection = self._connect()
        try:
            connection.execute(text)
        except psycopg.Error as error:
            connection.close()
            raise translate(error) from None
        return connection

    def give_back(self, connection: PostgresConnection) -> None:
        """Keep a connection for the next call if no transaction is left on it."""
        with self._lock:
            keep = not self._closed and connection.is_reusable
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def close(self) -> None:
        """Close what is idle, and from now on what is given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> PostgresConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _connect(self) -> PostgresConnection:
        if self._backoff.remaining() > 0:
            raise OverloadedError(UNREACHABLE)
        try:
            connection = PostgresConnection(self._settings)
        except (psycopg.Error, ConfigurationError) as error:
            if self._backoff.failed():
                _log.warning("the database can't be reached: %s", one_line(error))
            raise OverloadedError(UNREACHABLE) from None
        if self._backoff.succeeded():
            _log.warning("the database can be reached again")
        return connection


def one_line(error: BaseException) -> str:
    """Return libpq's message, which has a line for each address that was tried, and after a tab
    its guesses why."""
    return "; ".join(line for line in str(error).splitlines() if line[:1] not in ("", "\t"))
