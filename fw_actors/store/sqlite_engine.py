"""SQLite's engines: transactions, one writer with group commit, readers with shared snapshots."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import outcome

from fw_actors.errors import OverloadedError, ValidationError
from fw_actors.store.executor import EngineCounts, Pull, WorkItem
from fw_actors.store.sqlite_connection import (
    REFUSALS,
    SqliteConnection,
    is_busy,
    overloaded,
    translate,
)
from fw_actors.store.statement import SQLITE, StatementError
from fw_actors.store.transaction import CursorTx, TableLayout

_COLUMNS: Final = "SELECT name, lower(type) FROM pragma_table_info(?)"
_INDEXES: Final = "SELECT name FROM pragma_index_list(?)"
# Makes an app's statement different from fw's own, whose prepared form has passed the guard.
_RAW_PREFIX: Final = "/* fw.db.sql */ "


class RawGuard:
    """SQLite's authorizer: while `active`, refuses statements with effects beyond the transaction.

    It stays installed, because installing an authorizer makes SQLite prepare every statement again.
    """

    _REFUSED: Final = frozenset(
        {
            sqlite3.SQLITE_TRANSACTION,
            sqlite3.SQLITE_SAVEPOINT,
            sqlite3.SQLITE_ATTACH,
            sqlite3.SQLITE_DETACH,
            sqlite3.SQLITE_PRAGMA,
        }
    )

    def __init__(self) -> None:
        self.active = False

    def __call__(self, action: int, *_details: str | None) -> int:
        if self.active and action in self._REFUSED:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class SqliteTx(CursorTx):
    """A transaction on SQLite. `guard` is the connection's authorizer."""

    dialect = SQLITE
    inserts_in_queries = False
    locks_rows = False
    refusals = REFUSALS

    def __init__(self, connection: SqliteConnection, guard: RawGuard, now: int) -> None:
        # All fields are set here, without a call of the base class, because each request opens
        # several transactions.
        self.now, self.writable, self.callbacks = now, connection.writable, []
        cursor = connection.cursor
        self._execute, self._execute_many = cursor.execute, cursor.executemany
        self._limit, self._depth = connection.limit, 0
        self.connection, self._guard = connection, guard
        self.failure: BaseException | None = None

    def layouts(self, tables: Sequence[str]) -> list[TableLayout]:
        return [
            TableLayout(
                dict(self._fetched(_COLUMNS, (table,))),
                frozenset(name for (name,) in self._fetched(_INDEXES, (table,))),
            )
            for table in tables
        ]

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        guard = self._guard
        guard.active = True
        try:
            cursor = self._execute(_RAW_PREFIX + text, params or {})
            rows = cursor.fetchall()
        except REFUSALS as error:
            refusal = self._refused(error)
            if isinstance(refusal, StatementError):
                reason = str(error).rstrip(".")
                raise ValidationError(f"The database refused the SQL: {reason}.") from error
            raise refusal from error
        finally:
            guard.active = False
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _refuse(self, error: BaseException) -> NoReturn:
        raise self._refused(error) from error

    def _refused(self, error: BaseException) -> Exception:
        if not self.connection.raw.in_transaction:
            # SQLite has ended the transaction; a further statement would commit by itself.
            self.failure = error
            self._execute = self._execute_many = _lost
        if self.connection.limit.fired:
            return self.connection.limit.refusal()
        return translate(error, writable=self.writable)

    def interrupt(self) -> None:
        self.connection.raw.interrupt()

    def _undo_part(self, name: str) -> None:
        if self.connection.raw.in_transaction:
            self._fetched(f"ROLLBACK TO {name}")
            self.connection.rolled_back = True  # at worst the log is synced twice
            self._fetched(f"RELEASE {name}")


def _lost(*_statement: object) -> NoReturn:
    raise OverloadedError("The database has rolled back this transaction; nothing was changed.")


MAX_MEMBERS: Final = 512
MAX_SECONDS: Final = 0.025
TURN_SECONDS: Final = 0.0003  # between two attempts to begin while another process writes

_log: Final = logging.getLogger(__name__)


class _GroupLost(Exception):
    """Raised when the group's transaction is lost: no member may be reported as committed."""


class GroupCommit:
    """The engine of the writer.

    Each member except the first runs in a savepoint, so that only the changes of a member that
    raises are undone. The first needs none: if it raises, there is nothing else to keep, the
    transaction is rolled back, and the next group begins with the waiting items. A durable group
    takes in items that arrive while it runs, up to `MAX_MEMBERS` and `MAX_SECONDS`; another group
    only has the items that waited at its beginning (`ThreadExecutor`).
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self.counts = EngineCounts()
        self._connection, self._guard = connection, RawGuard()
        self._raw, self._execute = connection.raw, connection.cursor.execute
        self._raw.set_authorizer(self._guard)
        self._version = connection.data_version()
        self._changes = 0
        self._waits_for_disk = connection.durable
        self._ahead_of_disk = False

    def run(self, first: WorkItem, pull: Pull, empty: Callable[[], bool]) -> list[WorkItem]:
        """Run one group and make it durable. See `Engine.run`."""
        taken = [first]
        try:
            self._run(taken, pull, empty)
        except BaseException as error:  # a defect here must not leave callers waiting forever
            _log.exception("a group of writes failed")
            self._refuse([item for item in taken if item.begun or item.begin()], error)
        return taken

    def poll(self) -> bool:
        """Return whether another process has committed; commits on this connection do not count."""
        try:
            version = self._connection.data_version()
        except Exception as error:  # also MemoryError, which must not end the thread
            _log.warning("could not look for commits of other processes: %s", error)
            return False
        changed = version != self._version
        self._version = version
        self.counts.external_commits += changed
        return changed

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _run(self, taken: list[WorkItem], pull: Pull, empty: Callable[[], bool]) -> None:
        if self._raw.in_transaction:
            self._roll_back()
        try:
            self._begin(durable=taken[0].durable)
        except sqlite3.Error as error:
            self._refuse_waiting(taken, pull, error)
            return
        members: list[WorkItem] = []
        try:
            still_open = self._run_members(taken, pull, empty, members)
            if still_open:
                self._commit()
        except (_GroupLost, sqlite3.Error) as error:
            self._refuse(members, error.__cause__ if isinstance(error, _GroupLost) else error)
            return
        self._count(members, committed=still_open)

    def _begin(self, *, durable: bool) -> None:
        """Begin a transaction that writes, once no other process has one.

        Unless the group is `durable`, its commit returns before it is on the disk: a power failure
        may undo the last commits, but never one that has a later commit after it.

        SQLite's busy handler checks again after 1, 2, 5, 10 and up to 100 ms, which is long
        compared with a transaction: two delivering processes slept most of the time. IMMEDIATE,
        because a transaction that reads first and writes later could not wait at all.

        Raises: sqlite3.OperationalError, SQLITE_BUSY after the connection's `busy_seconds`.
        """
        if durable is not self._waits_for_disk and self._connection.durable:
            self._raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._waits_for_disk = durable
        deadline = time.monotonic() + self._connection.busy_seconds
        while True:
            try:
                self._execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(TURN_SECONDS)
            else:
                self._changes = self._raw.total_changes
                self._connection.rolled_back = False
                return

    def _run_members(
        self, taken: list[WorkItem], pull: Pull, empty: Callable[[], bool], members: list[WorkItem]
    ) -> bool:
        """Run items until none waits; return whether there is a transaction to commit."""
        deadline = time.monotonic() + MAX_SECONDS
        item: WorkItem | None = taken[0]
        while item is not None:
            if item.claim(False):  # else it was cancelled while it waited
                item.begun = True
                members.append(item)
                if len(members) > 1:
                    self._run_further(item)
                elif not self._succeeds(item):
                    self._execute("ROLLBACK")
                    return False
            full = len(taken) >= MAX_MEMBERS or time.monotonic() > deadline
            item = None if full or empty() else pull()
            if item is not None:
                taken.append(item)
        return True

    def _run_further(self, item: WorkItem) -> None:
        self._execute("SAVEPOINT member")
        if not self._succeeds(item):
            self._execute("ROLLBACK TO member")
            self._connection.rolled_back = True
        self._execute("RELEASE member")

    def _succeeds(self, item: WorkItem) -> bool:
        """Run the function once and keep its result.

        Raises: _GroupLost when SQLite ended the transaction by itself (full disk, I/O error, no
            memory). The work of earlier members is lost then, so they are refused too, and a later
            member would write without a transaction.
        """
        tx = SqliteTx(self._connection, self._guard, item.now)
        try:
            item.answer = outcome.Value(item.fn(tx))
        except BaseException as error:
            item.answer = outcome.Error(error)
        tx.end()
        if not self._raw.in_transaction:
            raise _GroupLost from tx.failure
        if isinstance(item.answer, outcome.Error):
            return False
        item.callbacks = tx.callbacks
        return True

    def _commit(self) -> None:
        """Commit. If the group is durable, all earlier commits are on the disk too.

        Raises: sqlite3.Error, also if the disk failed to take an earlier commit.
        """
        self._execute("COMMIT")
        changed = self._raw.total_changes != self._changes  # includes changes undone since
        if not self._waits_for_disk:
            self._ahead_of_disk |= changed
        elif self._ahead_of_disk:
            if not changed or self._connection.rolled_back:  # SQLite may have synced nothing
                self._wait_for_log()
            self._ahead_of_disk = False

    def _wait_for_log(self) -> None:
        """Sync the write-ahead log to the disk, as a durable commit with writes does."""
        try:
            log = os.open(self._connection.log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(log)
            finally:
                os.close(log)  # SQLite's locks are on other files
        except OSError as error:
            raise sqlite3.OperationalError(f"the log cannot be synced: {error}") from error

    def _refuse_waiting(self, taken: list[WorkItem], pull: Pull, error: sqlite3.Error) -> None:
        """Refuse all waiting items: each has waited for the lock as long as the first."""
        while (item := pull()) is not None:
            taken.append(item)
        self._refuse([item for item in taken if item.begin()], error)

    def _refuse(self, members: list[WorkItem], error: BaseException | None) -> None:
        for item in members:
            item.refuse(overloaded(error))
        self.counts.refused += len(members)
        self._roll_back()

    def _roll_back(self) -> None:
        if self._raw.in_transaction:
            with suppress(Exception):  # repeated before the next group begins
                self._execute("ROLLBACK")

    def _count(self, members: list[WorkItem], *, committed: bool) -> None:
        if not members:
            return
        counts = self.counts
        failed = [item for item in members if isinstance(item.answer, outcome.Error)]
        counts.rolled_back += len(failed)
        counts.committed += len(members) - len(failed)
        counts.commits += committed
        counts.largest_group = max(counts.largest_group, len(members))


MAX_READS: Final = 32
SNAPSHOT_SECONDS: Final = 0.002


class SnapshotReads:
    """The engine of a reader.

    A few waiting reads are served together, because each return to trio's thread costs more than a
    short read; a long read is answered at once. Reads that were requested before the snapshot of
    the first began share it, because each statement, including BEGIN and ROLLBACK, takes the
    interpreter's lock from trio's thread.
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self.counts = EngineCounts()
        self._connection, self._guard = connection, RawGuard()
        connection.raw.set_authorizer(self._guard)
        self._began = 0.0  # when the open snapshot began, by time.monotonic()

    @property
    def is_reading(self) -> bool:
        """Whether a snapshot is open."""
        return self._connection.raw.in_transaction

    def run(self, first: WorkItem, pull: Pull, empty: Callable[[], bool]) -> list[WorkItem]:
        """Run a few waiting reads on shared snapshots. See `Engine.run`."""
        taken: list[WorkItem] = []
        deadline = time.monotonic() + SNAPSHOT_SECONDS
        item: WorkItem | None = first
        try:
            while item is not None:
                taken.append(item)
                if item.claim(False):
                    item.begun = True
                    self._read(item)
                    self.counts.reads += 1
                full = len(taken) >= MAX_READS or time.monotonic() > deadline
                item = None if full or empty() else pull()
        finally:
            with suppress(Exception):  # repeated before the next snapshot
                if self._connection.raw.in_transaction:
                    self._end()
        return taken

    def poll(self) -> bool:
        """Return False: the writer polls."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _read(self, item: WorkItem) -> None:
        try:
            self._begin(item)
        except Exception as error:  # MemoryError is not an sqlite3.Error
            item.refuse(overloaded(error))
            return
        tx = SqliteTx(self._connection, self._guard, item.now)
        limit = self._connection.limit
        limit.begin(self._connection.raw.interrupt, item, tx)
        try:
            item.answer = outcome.Value(item.fn(tx))
            item.callbacks = tx.callbacks
        except BaseException as error:
            item.answer = outcome.Error(error)
        finally:
            tx.end()
            limit.end()

    def _begin(self, item: WorkItem) -> None:
        """Begin a snapshot, unless the open one began after `item` was made."""
        if self._connection.raw.in_transaction:
            if item.made < self._began:
                return
            self._end()
        self._began = time.monotonic()
        self._connection.cursor.execute("BEGIN")  # the snapshot is taken by the first statement

    def _end(self) -> None:
        self._connection.cursor.execute("ROLLBACK")  # nothing was written
