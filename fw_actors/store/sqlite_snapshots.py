"""Runs reads against snapshots that hold all that was committed before each was asked for."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import outcome

from fw_actors.store.calls import Call, Counts, Pull
from fw_actors.store.sqlite_connection import SqliteConnection
from fw_actors.store.sqlite_errors import overloaded
from fw_actors.store.sqlite_transaction import SqliteTx

MAX_READS: Final = 32
MAX_SECONDS: Final = 0.002


class SnapshotReads:
    """The engine of a reader.

    A few reads that wait are served together, because each way back to trio's thread costs
    more than a short read; a long one is answered at once. Those that were asked for before the
    snapshot of the first began share it: each statement, BEGIN and ROLLBACK too, takes the
    interpreter's lock from trio's thread.
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self.counts = Counts()
        self._connection = connection
        self._began = 0.0  # when the snapshot at hand began, by time.monotonic()

    def run(self, pull: Pull) -> list[Call]:
        """See `Engine.run`."""
        taken: list[Call] = []
        deadline = time.monotonic() + MAX_SECONDS
        try:
            while len(taken) < MAX_READS and (call := pull()) is not None:
                taken.append(call)
                if call.begin():
                    self._read(call)
                    self.counts.reads += 1
                if time.monotonic() > deadline:
                    break
        finally:
            with suppress(Exception):  # tried again before the next snapshot
                self._end()
        return taken

    def look(self) -> bool:
        """See `Engine.look`; the writer does it."""
        return False

    def close(self) -> None:
        """See `Engine.close`."""
        self._connection.close()

    def _read(self, call: Call) -> None:
        try:
            self._begin(call)
        except Exception as error:  # MemoryError is no sqlite3.Error
            call.refuse(overloaded(error))
            return
        tx = SqliteTx(self._connection, call.now)
        limit = self._connection.limit
        limit.begin(self._connection.raw.interrupt, call, tx)
        try:
            call.answer = outcome.Value(call.fn(tx))
            call.callbacks = tx.callbacks
        except BaseException as error:
            call.answer = outcome.Error(error)
        finally:
            limit.end()
        tx.end()

    def _begin(self, call: Call) -> None:
        """Begin a snapshot, unless the one at hand began after `call` was made."""
        if self._connection.in_transaction:
            if call.made < self._began:
                return
            self._end()
        self._began = time.monotonic()
        self._connection.execute("BEGIN")  # the snapshot is that of the first statement

    def _end(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")  # nothing was written
