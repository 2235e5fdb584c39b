"""Runs calls on PostgreSQL, each in a transaction of its own.

No group commit: members of a group would hold each other's row locks until the commit, and one
deadlock would refuse them all. The server gathers commits of concurrent connections by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import outcome
import psycopg
from psycopg.pq import TransactionStatus

from fw_actors.errors import OverloadedError
from fw_actors.store.calls import Call, Counts, Pull
from fw_actors.store.errors import StatementError
from fw_actors.store.postgres_connection import (
    BEGIN_LAZY,
    BEGIN_READ,
    BEGIN_WRITE,
    PostgresConnection,
)
from fw_actors.store.postgres_errors import (
    CAUGHT_OUTSIDE,
    LOST,
    LOST_AT_COMMIT,
    UNREACHABLE,
    translate,
)
from fw_actors.store.postgres_pool import ConnectionPool
from fw_actors.store.postgres_transaction import PostgresTx
from fw_actors.store.query_limits import QueryLimit

_log: Final = logging.getLogger(__name__)


class PostgresEngine:
    """One thread's way to the database, for writes or for reads.

    Args:
        pool: shared by all engines of a store.
        committed: called in this thread after a commit that had written something.
        query_seconds: how long a read, or a search inside a write, may take; None: without end.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        writable: bool,
        committed: Callable[[], None] = lambda: None,
        query_seconds: float | None = None,
    ) -> None:
        self.counts = Counts()
        self.limit = QueryLimit(query_seconds)
        self._pool = pool
        self._writable = writable
        self._committed = committed

    def run(self, pull: Pull) -> list[Call]:
        """Run one call. See `Engine.run`."""
        taken: list[Call] = []
        while (call := pull()) is not None:
            taken.append(call)
            if not call.withdrawn:
                return self._serve(call, taken, pull)
        return taken

    def _serve(self, call: Call, taken: list[Call], pull: Pull) -> list[Call]:
        try:
            connection = self._pool.begin(self._beginning(call))
        except Exception as error:
            self._refuse_waiting(taken, pull, error)
            return taken
        try:
            if call.begin():  # or it was cancelled meanwhile
                self._run(connection, call)
        except BaseException:  # a defect here must not leave the caller waiting for ever
            _log.exception("a transaction failed")
            call.refuse(OverloadedError(LOST))
        finally:
            connection.roll_back()
            self._pool.give_back(connection)
        return taken

    def _beginning(self, call: Call) -> bytes:
        if not self._writable:
            return BEGIN_READ
        return BEGIN_WRITE if call.durable else BEGIN_LAZY

    def look(self) -> bool:
        """See `Engine.look`; `postgres_notices` hears of them."""
        return False

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.close()

    def _run(self, connection: PostgresConnection, call: Call) -> None:
        tx = PostgresTx(connection, call.now, self.limit, writable=self._writable)
        if not self._writable:
            self.limit.begin(connection.cancel, call, tx)
        try:
            call.answer = outcome.Value(call.fn(tx))
        except BaseException as error:
            call.answer = outcome.Error(error)
        finally:
            self.limit.end()
        tx.end()
        if not self._writable:
            self.counts.reads += 1
            with suppress(psycopg.Error):
                connection.execute(b"COMMIT")  # a ROLLBACK makes psycopg forget what is prepared
        elif isinstance(call.answer, outcome.Error):
            self.counts.rolled_back += 1
        elif (refusal := self._commit(connection)) is not None:
            self.counts.refused += 1
            call.refuse(refusal)
        else:
            self.counts.commits += 1
            self.counts.committed += 1
            self.counts.largest_group = 1
        if isinstance(call.answer, outcome.Value):
            call.callbacks = tx.callbacks

    def _commit(self, connection: PostgresConnection) -> Exception | None:
        """Commit what a function did that returned; give the reason when that is impossible."""
        if connection.status == TransactionStatus.INERROR:
            return StatementError(CAUGHT_OUTSIDE)
        if connection.status != TransactionStatus.INTRANS:
            return OverloadedError(LOST)
        try:
            wrote = connection.commit()
        except psycopg.Error as error:
            if connection.status == TransactionStatus.UNKNOWN:
                return OverloadedError(LOST_AT_COMMIT)
            return translate(error)
        if wrote:
            self._committed()
        return None

    def _refuse_waiting(self, taken: list[Call], pull: Pull, error: Exception) -> None:
        """Refuse all who wait: the server would be asked in vain for each of them."""
        message = error.message if isinstance(error, OverloadedError) else UNREACHABLE
        if not isinstance(error, OverloadedError):
            _log.error("a transaction can't begin: %s", error)
        while (call := pull()) is not None:
            taken.append(call)
        for call in taken:
            if call.begin():
                call.refuse(OverloadedError(message))
                self.counts.refused += self._writable
