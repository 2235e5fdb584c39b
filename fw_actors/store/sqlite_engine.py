"""SQLite's engines: transactions, one writer with group commit, readers with shared snapshots.

The module has more than 500 lines because a transaction and its group decide together when it
begins, what is deferred, and what is undone.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from threading import get_ident
from typing import Any, Final, NamedTuple, NoReturn

import outcome
from sqlalchemy.sql import ClauseElement

from fw_actors.errors import OverloadedError, ValidationError, store_refusal
from fw_actors.store.executor import EngineCounts, Pull, RefusedWrites, WorkItem
from fw_actors.store.sqlite_connection import (
    REFUSALS,
    SqliteConnection,
    has_moved,
    is_busy,
    overloaded,
    refusal_reason,
    translate,
)
from fw_actors.store.statement import SQLITE, Statement, StatementError, Values
from fw_actors.store.transaction import (
    CursorTx,
    TableLayout,
    changed_rows,
    part_name,
    refuse_ended,
)

_COLUMNS: Final = "SELECT name, lower(type) FROM pragma_table_info(?)"
_INDEXES: Final = "SELECT name FROM pragma_index_list(?)"
# By the text of each table, in which a tab or a space precedes the name of a column: to read
# pragma_table_info of each table takes several times as long.
_TABLES_WITH: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table'"
    " AND (instr(sql, char(9) || ?1 || ' ') OR instr(sql, ' ' || ?1 || ' ')) ORDER BY name"
)
# Makes an app's statement different from fw's own, whose prepared form has passed the guard.
_RAW_PREFIX: Final = "/* fw.db.sql */ "
_NOT_IN_SQL: Final = (
    "fw.db.sql does not allow ATTACH, DETACH, PRAGMA, or statements that begin or end transactions "
    "or savepoints."
)


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
    """A transaction on SQLite; a member of a group of them if it writes.

    A member's first statement begins the group's transaction. Until then its deferred statements
    wait, and its savepoints are only positions among them: a member that runs nothing else needs
    the database's lock only for these, together with the other members.
    """

    dialect = SQLITE
    inserts_in_queries = False
    locks_rows = False
    oldest_index_first = False
    refusals = REFUSALS

    def __init__(
        self,
        connection: SqliteConnection,
        guard: RawGuard,
        now: int,
        group: GroupCommit | None = None,
    ) -> None:
        """`guard` is the connection's authorizer; `group` runs it, unless it only reads."""
        # All fields are set here, without a call of the base class, because each request opens
        # several transactions.
        self.now, self.writable, self.callbacks = now, connection.writable, []
        self._limit, self._depth, self._thread = connection.limit, 0, get_ident()
        self.connection, self._guard, self._group = connection, guard, group
        self.failure: BaseException | None = None
        """The error by which SQLite ended the transaction, or that of a deferred statement."""
        self.deferred: list[_DeferredStatements] = []
        self.has_begun = group is None
        self._positions: list[int] = []
        if group is None:
            self.resume()
        else:
            self._execute, self._execute_many = self._begin_and_execute, self._begin_and_run_many

    def resume(self) -> None:
        """Run statements directly: the transaction has begun."""
        cursor = self.connection.cursor
        self._execute, self._execute_many = cursor.execute, cursor.executemany

    def defer(
        self,
        statement: Statement | ClauseElement,
        missed: Callable[[], object],
        then: Sequence[tuple[Statement, dict[str, Any]]] = (),
        /,
        **params: Any,
    ) -> None:
        group = self._group
        if self.has_begun or group is None or group.deferred >= MAX_DEFERRED:
            super().defer(statement, missed, then, **params)
            return
        group.deferred += 1
        text, values = self._bound(statement, params)
        deferred = _DeferredStatements([text], [values], missed)
        for further, its_params in then:
            text, values = self._bound(further, its_params)
            deferred.texts.append(text)
            deferred.values.append(values)
        self.deferred.append(deferred)

    def end(self) -> None:
        self._execute = self._execute_many = refuse_ended
        self.has_begun = True  # so that nothing is deferred any more

    def run_deferred(self) -> None:
        """Run the deferred statements, and set the savepoints that are open among them.

        Raises: the error of one of them, by which the whole transaction fails.
        """
        deferred, self.deferred = self.deferred, []
        positions, self._positions = self._positions, []
        begun = 0
        try:
            for number, each in enumerate(deferred):
                while begun < len(positions) and positions[begun] <= number:
                    super()._begin_part(part_name(begun))
                    begun += 1
                self._run_deferred(each)
            for depth in range(begun, len(positions)):
                super()._begin_part(part_name(depth))
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def _run_deferred(self, deferred: _DeferredStatements) -> None:
        for number, (text, values) in enumerate(zip(*deferred[:2], strict=True)):
            try:
                changed = changed_rows(self._execute(text, values))
            except REFUSALS as error:
                self._refuse(error)
            if number == 0 and not changed:
                deferred.missed()
                return

    def layouts(self, tables: Sequence[str]) -> list[TableLayout]:
        return [
            TableLayout(
                dict(self._fetched(_COLUMNS, (table,))),
                frozenset(name for (name,) in self._fetched(_INDEXES, (table,))),
            )
            for table in tables
        ]

    def tables_with(self, column: str) -> list[str]:
        return [name for (name,) in self._fetched(_TABLES_WITH, (column,))]

    def raw(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        if get_ident() != self._thread:
            self._refuse_thread()
        guard = self._guard
        try:
            if not self.has_begun:  # the guard refuses BEGIN
                self._begin()
            guard.active = True
            cursor = self._execute(_RAW_PREFIX + text, params or {})
            rows = cursor.fetchall()
        except REFUSALS as error:
            refusal = self._refused(error)
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:  # by the guard
                raise ValidationError(_NOT_IN_SQL) from error
            if isinstance(refusal, StatementError):
                reason = str(error).rstrip(".")
                raise ValidationError(f"The database refused the SQL: {reason}.") from error
            raise refusal from error
        finally:
            guard.active = False
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _begin(self) -> None:
        assert self._group is not None
        self.has_begun = True
        self.resume()
        began = time.perf_counter()
        try:
            self._group.enter()
        finally:
            self.waited_seconds = time.perf_counter() - began
        self.run_deferred()

    def _begin_and_execute(self, text: str, values: Any = ()) -> Any:
        self._begin()
        return self._execute(text, values)

    def _begin_and_run_many(self, text: str, values: Any) -> Any:
        self._begin()
        return self._execute_many(text, values)

    def _refuse(self, error: BaseException) -> NoReturn:
        raise self._refused(error) from error

    def _refused(self, error: BaseException) -> Exception:
        if not self.connection.raw.in_transaction:
            # SQLite has ended the transaction; a further statement would commit by itself.
            self.failure = error
            self._execute = self._execute_many = _lost
        if self.connection.limit.fired:
            return self.connection.limit.refusal()
        if self._group is not None:
            self._group.report(error)
        return translate(error, writable=self.writable)

    def interrupt(self) -> None:
        self.connection.raw.interrupt()

    def _begin_part(self, name: str) -> None:
        if self.has_begun:
            super()._begin_part(name)
        else:
            self._positions.append(len(self.deferred))

    def _end_part(self, name: str) -> None:
        if self.has_begun:
            super()._end_part(name)
        else:
            self._positions.pop()

    def _undo_part(self, name: str) -> None:
        if not self.has_begun:
            del self.deferred[self._positions.pop() :]
        elif self.connection.raw.in_transaction:
            self._fetched(f"ROLLBACK TO {name}")
            self.connection.rolled_back = True  # at worst the log is synced twice
            self._fetched(f"RELEASE {name}")


class _DeferredStatements(NamedTuple):
    """Statements that are run later, see `Tx.defer`: the SQL and the values of each."""

    texts: list[str]
    values: list[Values]
    missed: Callable[[], object]


def _lost(*_statement: object) -> NoReturn:
    raise store_refusal(
        "The database has rolled back this transaction; nothing was changed. Try again."
    )


MAX_MEMBERS: Final = 512
MAX_GROUP_SECONDS: Final = 0.025
MAX_DEFERRED: Final = 512
"""The deferred statements of a group, which are in memory; further ones are run at once."""
TURN_SECONDS: Final = 0.0003  # between two attempts to begin while another process writes

_log: Final = logging.getLogger(__name__)


class _GroupLost(Exception):
    """Raised when the group's transaction is lost: no member may be reported as committed."""


class _Returned(NamedTuple):
    """A call of a group that has returned, and its transaction."""

    item: WorkItem
    tx: SqliteTx


class GroupCommit:
    """The engine of the writer.

    Calls that wait are members of one group, which has one transaction. Each member except the
    first that writes runs in a savepoint, so that only the changes of a member that raises are
    undone. The first needs none: if it raises, there is nothing else to keep. The deferred
    statements of members that run nothing else are run together, before another member begins or
    at the commit. A durable group takes in items that arrive while it runs, up to `MAX_MEMBERS` and
    `MAX_GROUP_SECONDS`; another group only has the items that waited at its beginning
    (`ThreadExecutor`).
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self.counts = EngineCounts()
        self._connection, self._guard = connection, RawGuard()
        self._raw, self._execute = connection.raw, connection.cursor.execute
        self._raw.set_authorizer(self._guard)
        self._version = connection.data_version()
        self._changes = 0
        self._is_synchronous = connection.durable
        self._has_unflushed = False
        self._cannot_begin = False
        self._has_moved = False
        self._refused_writes = RefusedWrites()
        self._has_changes = False  # of a member that has returned, in the open transaction
        self._lost_by: BaseException | None = None  # the error that ended the transaction
        self._returned: list[_Returned] = []  # whose deferred statements are not run yet
        self.deferred = 0
        """The number of statements that were deferred in the running group."""

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
        """Return whether another process has committed; commits on this connection do not count.

        From the poll that finds the database's files moved, until they are back, writes are
        refused.
        """
        self._has_moved = self._connection.has_moved()
        if self._has_moved:
            self.report(has_moved())
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

    def enter(self) -> None:
        """Begin the transaction of the running member, after those that have returned.

        Raises: sqlite3.OperationalError, SQLITE_BUSY after the connection's `busy_seconds`.
        """
        self._begin()
        if self._returned:
            self._run_returned()
            self._begin()  # if they failed, the first of them has rolled back
        if self._has_changes:
            self._execute("SAVEPOINT member")

    def _run(self, taken: list[WorkItem], pull: Pull, empty: Callable[[], bool]) -> None:
        self._returned.clear()
        self.deferred = 0
        self._cannot_begin, self._lost_by = False, None
        members: list[WorkItem] = []
        try:
            if self._raw.in_transaction:  # of refused members, if its rollback failed
                self._execute("ROLLBACK")
            self._set_durability(taken[0].durable)
            self._run_members(taken, pull, empty, members)
            committed = self._commit()
        except (_GroupLost, sqlite3.Error) as error:
            cause = error.__cause__ if isinstance(error, _GroupLost) else error
            self._refuse([item for item in taken if item.begun or item.begin()], cause)
            if self._cannot_begin:
                self._refuse_waiting(taken, pull, cause)
            return
        self._count(members, committed=committed)

    def _set_durability(self, durable: bool) -> None:
        """Make the group durable, or not.

        If it is not, its commit returns before it is on the disk: a power failure may undo the last
        commits, but never one that has a later commit after it.
        """
        if durable is not self._is_synchronous and self._connection.durable:
            self._raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_synchronous = durable

    def _begin(self) -> None:
        """Begin a transaction that writes, once no other process has one; unless one is open.

        SQLite's busy handler checks again after 1, 2, 5, 10 and up to 100 ms, which is long
        compared with a transaction: two delivering processes slept most of the time. IMMEDIATE,
        because a transaction that reads first and writes later could not wait at all.

        Raises: sqlite3.OperationalError, SQLITE_BUSY after the connection's `busy_seconds`, or
            SQLITE_READONLY_DBMOVED.
        """
        if self._raw.in_transaction:
            return
        if self._has_moved:
            self._cannot_begin = True
            raise has_moved()
        deadline = time.monotonic() + self._connection.busy_seconds
        while True:
            try:
                self._execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    self._cannot_begin = True
                    raise
                time.sleep(TURN_SECONDS)
            else:
                self._has_changes = self._connection.rolled_back = False
                self._changes = self._raw.total_changes
                return

    def _run_members(
        self, taken: list[WorkItem], pull: Pull, empty: Callable[[], bool], members: list[WorkItem]
    ) -> None:
        """Run items until none waits."""
        deadline = time.monotonic() + MAX_GROUP_SECONDS
        item: WorkItem | None = taken[0]
        while item is not None:
            if item.try_claim():  # else it was cancelled while it waited
                item.begun = True
                members.append(item)
                self._run_member(item)
            full = len(taken) >= MAX_MEMBERS or time.monotonic() > deadline
            item = None if full or empty() else pull()
            if item is not None:
                taken.append(item)

    def _run_member(self, item: WorkItem) -> None:
        """Run the function once and keep its result. Raises: _GroupLost."""
        tx = SqliteTx(self._connection, self._guard, item.now, self)
        try:
            item.answer = outcome.Value(item.fn(tx))
        except BaseException as error:
            item.answer = outcome.Error(error)
        has_begun = tx.has_begun
        tx.end()
        if has_begun:
            self._end_member(item, tx)
        elif isinstance(item.answer, outcome.Value):
            item.callbacks = tx.callbacks
            if tx.deferred:
                self._returned.append(_Returned(item, tx))

    def _end_member(self, item: WorkItem, tx: SqliteTx) -> None:
        """Keep or undo the changes of a member that has begun.

        Raises: _GroupLost when SQLite ended the transaction by itself (full disk, I/O error, no
            memory). The work of earlier members is lost then, so they are refused too, and a later
            member would write without a transaction.
        """
        if not self._raw.in_transaction:
            raise _GroupLost from tx.failure or self._lost_by
        if tx.failure is not None and isinstance(item.answer, outcome.Value):
            item.answer = outcome.Error(tx.failure)  # of a statement that the function deferred
        failed = isinstance(item.answer, outcome.Error)
        item.callbacks = [] if failed else tx.callbacks
        if self._has_changes:
            if failed:
                self._execute("ROLLBACK TO member")
                self._connection.rolled_back = True
            self._execute("RELEASE member")
        elif failed:
            self._execute("ROLLBACK")
        else:
            self._has_changes = True

    def _run_returned(self) -> None:
        """Run the deferred statements of members that have returned.

        Those of all members with the same SQL are run together. If one of them fails or changes no
        row, each member is run by itself. Raises: _GroupLost.
        """
        members, self._returned = self._returned, []
        if len(members) > 1 and self._run_together(members):
            self._has_changes = True
            return
        for item, tx in members:
            self._begin()  # a failed first member has rolled back
            if self._has_changes:
                self._execute("SAVEPOINT member")
            tx.resume()
            with suppress(BaseException):  # it is kept in `tx.failure`
                tx.run_deferred()
            tx.end()
            self._end_member(item, tx)

    def _run_together(self, members: Sequence[_Returned]) -> bool:
        """Run the deferred statements of all members, those with the same SQL in one call.

        Returns False if one of them failed or changed no row, and all are undone.

        Raises: _GroupLost.
        """
        deferred = [each for _item, tx in members for each in tx.deferred]
        self._execute("SAVEPOINT members")
        try:
            done = all(
                self._run_alike(texts, [each.values for each in alike])
                for texts, alike in groupby(deferred, attrgetter("texts"))
            )
        except REFUSALS as error:
            if not self._raw.in_transaction:
                self._lost_by = error
                raise _GroupLost from error
            done = False
        if not done:
            self._execute("ROLLBACK TO members")
            self._connection.rolled_back = True
        self._execute("RELEASE members")
        return done

    def _run_alike(self, texts: Sequence[str], rows: Sequence[Sequence[Values]]) -> bool:
        """Run each statement for all rows; return False if the first one changed too few rows."""
        cursor = self._connection.cursor
        for number, text in enumerate(texts):
            cursor.executemany(text, [values[number] for values in rows])
            if number == 0 and cursor.rowcount < len(rows):
                return False
        return True

    def _commit(self) -> bool:
        """Commit, if a transaction has begun; return whether one has.

        If the group is durable, all earlier commits are on the disk too.

        Raises: sqlite3.Error, also if the disk failed to take an earlier commit; _GroupLost.
        """
        if self._returned:
            self._begin()
            self._run_returned()
        has_begun = self._raw.in_transaction
        if has_begun:
            self._execute("COMMIT")
        # Includes changes that were undone since.
        changed = has_begun and self._raw.total_changes != self._changes
        if not self._is_synchronous:
            self._has_unflushed |= changed
        elif self._has_unflushed:
            if not changed or self._connection.rolled_back:  # SQLite may have synced nothing
                self._sync_log()
            self._has_unflushed = False
        return has_begun

    def _sync_log(self) -> None:
        """Sync the write-ahead log to the disk, as a durable commit with writes does."""
        try:
            log = os.open(self._connection.log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(log)
            finally:
                os.close(log)  # SQLite's locks are on other files
        except OSError as error:
            raise sqlite3.OperationalError(f"the log cannot be synced: {error}") from error

    def _refuse_waiting(
        self, taken: list[WorkItem], pull: Pull, error: BaseException | None
    ) -> None:
        """Refuse all waiting items: each has waited for the lock as long as the first."""
        while (item := pull(to_refuse=True)) is not None:
            taken.append(item)
        self._refuse([item for item in taken if item.begin()], error)

    def _refuse(self, members: list[WorkItem], error: BaseException | None) -> None:
        for item in members:
            item.refuse(overloaded(error))
        self.counts.refused += len(members)
        self.report(error)
        self._roll_back()

    def report(self, error: BaseException | None) -> None:
        """Log the state of file, disk or memory for which a write is refused."""
        if (reason := refusal_reason(error)) is not None:
            self._refused_writes.refused(reason)

    def _roll_back(self) -> None:
        if self._raw.in_transaction:
            with suppress(Exception):  # repeated before the next group begins
                self._execute("ROLLBACK")

    def _count(self, members: list[WorkItem], *, committed: bool) -> None:
        if not members:
            return
        counts = self.counts
        failed = [item.answer.error for item in members if isinstance(item.answer, outcome.Error)]
        refused = sum(isinstance(error, OverloadedError) for error in failed)
        counts.refused += refused
        counts.rolled_back += len(failed) - refused
        counts.committed += len(members) - len(failed)
        counts.commits += committed
        counts.largest_group = max(counts.largest_group, len(members))
        if committed and self._refused_writes.is_open:
            self._refused_writes.accepted()


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
                if item.try_claim():
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
