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

from fw_actors.errors import FwError, OverloadedError
from fw_actors.store.calls import Call, Counts, Pull
from fw_actors.store.errors import StatementError
from fw_actors.store.postgres_connection import BEGIN_READ, BEGIN_WRITE, PostgresConnection
from fw_actors.store.postgres_errors import CAUGHT_OUTSIDE, LOST, LOST_AT_COMMIT, translate
from fw_actors.store.postgres_pool import ConnectionPool
from fw_actors.store.postgres_transaction import PostgresTx

_log: Final = logging.getLogger(__name__)


class PostgresEngine:
    """One thread's way to the database, for writes or for reads.

    Args:
        pool: shared by all engines of a store.
        committed: called in this thread after a commit that had written something.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        writable: bool,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self.counts = Counts()
        self._pool = pool
        self._writable = writable
        self._committed = committed

    def run(self, pull: Pull) -> list[Call]:
        """Run one call. See `Engine.run`."""
        call = pull()
        if call is None:
            return []
        try:
            connection = self._pool.begin(BEGIN_WRITE if self._writable else BEGIN_READ)
        except FwError as refusal:
            return self._refuse_waiting(call, pull, refusal)
        try:
            if call.begin():
                self._run(connection, call)
            else:
                connection.execute(b"ROLLBACK")  # cancelled while it waited
        except BaseException as error:  # a defect here must not leave the caller waiting for ever
            if call.begun and call.answer is None:
                _log.exception("a transaction failed")
                call.refuse(OverloadedError(LOST))
            elif not isinstance(error, psycopg.Error):
                raise
        finally:
            self._pool.give_back(connection)
        return [call]

    def look(self) -> bool:
        """See `Engine.look`; `postgres_notices` hears of them."""
        return False

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.close()

    def _run(self, connection: PostgresConnection, call: Call) -> None:
        tx = PostgresTx(connection, call.now, writable=self._writable)
        answer: outcome.Outcome[object]
        try:
            answer = outcome.Value(call.fn(tx))
        except BaseException as error:
            answer = outcome.Error(error)
        tx.end()
        if self._writable:
            self._end_write(connection, call, tx, answer)
        else:
            self._end_read(connection, call, tx, answer)

    def _end_read(
        self,
        connection: PostgresConnection,
        call: Call,
        tx: PostgresTx,
        answer: outcome.Outcome[object],
    ) -> None:
        call.answer, call.callbacks = answer, tx.callbacks
        self.counts.reads += 1
        with suppress(psycopg.Error):
            connection.execute(b"COMMIT")  # a ROLLBACK makes psycopg forget what is prepared

    def _end_write(
        self,
        connection: PostgresConnection,
        call: Call,
        tx: PostgresTx,
        answer: outcome.Outcome[object],
    ) -> None:
        if isinstance(answer, outcome.Error):
            self.counts.rolled_back += 1
            call.answer = answer
            with suppress(psycopg.Error):
                connection.execute(b"ROLLBACK")
            return
        refusal = self._commit(connection)
        if refusal is not None:
            self.counts.refused += 1
            call.refuse(refusal)
            with suppress(psycopg.Error):
                connection.execute(b"ROLLBACK")
            return
        self.counts.commits += 1
        self.counts.committed += 1
        self.counts.largest_group = 1
        call.answer, call.callbacks = answer, tx.callbacks

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

    def _refuse_waiting(self, first: Call, pull: Pull, refusal: FwError) -> list[Call]:
        """Refuse all who wait: the server would be asked in vain for each of them."""
        taken = [first]
        while (call := pull()) is not None:
            taken.append(call)
        for call in taken:
            if call.begin():
                call.refuse(OverloadedError(refusal.message))
                self.counts.refused += self._writable
        return taken
