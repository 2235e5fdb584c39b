"""Architecture, The store: transactions that wait together share one commit.

The module has more than 500 lines because all its tests are about one unit.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import outcome
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, delete, update
from sqlalchemy import text as sql

from fw_actors.errors import OverloadedError, is_store_refusal
from fw_actors.store import Statement, Tx, UniqueViolation, sqlite_engine
from fw_actors.store.executor import QUIET_SECONDS, WorkItem
from fw_actors.store.sqlite_connection import SqliteConnection
from fw_actors.store.sqlite_engine import TURN_SECONDS, GroupCommit, SqliteTx
from tests.fw_actors.store.notes import (
    ADD,
    NOTES,
    NoteRefused,
    add,
    add_then_refuse,
    create_notes,
    texts,
)

Fn = Callable[[Tx], Any]


def run_group(engine: GroupCommit, waiting: list[WorkItem]) -> None:
    def pull(*, to_refuse: bool = False) -> WorkItem | None:
        return waiting.pop(0) if waiting else None

    engine.run(waiting.pop(0), pull, lambda: not waiting)


def run(engine: GroupCommit, *functions: Fn) -> list[Any]:
    """Run groups until the queue is empty; return each function's result or exception."""
    items = [WorkItem(function, 0) for function in functions]
    waiting = list(items)
    while waiting:
        run_group(engine, waiting)
    answers = [item.answer for item in items]
    return [a.error if isinstance(a, outcome.Error) else a and a.unwrap() for a in answers]


class FailingCursor:
    """A cursor whose next statements of some kinds fail, as on a defective disk."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self.failures: Counter[str] = Counter()

    def execute(self, text: str, *values: Any) -> sqlite3.Cursor:
        if self.failures[text]:
            self.failures[text] -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._cursor.execute(text, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@pytest.fixture(autouse=True)
def _notes(engine: GroupCommit) -> None:
    run(engine, create_notes)


def stored(path: Path) -> list[str]:
    """Return the rows that another connection sees, which are the committed ones."""
    other = sqlite3.connect(path)
    found = [text for (text,) in other.execute("SELECT text FROM notes ORDER BY id")]
    other.close()
    return found


def test_group_commit_shares_commit_of_waiting_writes(engine: GroupCommit, path: Path) -> None:
    before = engine.counts.commits
    assert run(engine, add("a"), add("b"), add("c")) == [1, 1, 1]
    assert engine.counts.commits == before + 1
    assert engine.counts.largest_group == 3
    assert stored(path) == ["a", "b", "c"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_group_commit_undoes_failed_function_alone(
    engine: GroupCommit, path: Path, place: int
) -> None:
    functions: list[Fn] = [add("a"), add("b")]
    functions.insert(place, add_then_refuse)
    answers = run(engine, *functions)
    assert isinstance(answers.pop(place), NoteRefused)
    assert answers == [1, 1]
    assert stored(path) == ["a", "b"]
    assert engine.counts.rolled_back == 1


def test_group_commit_runs_functions_once(engine: GroupCommit) -> None:
    seen: list[str] = []

    def note(name: str, fn: Fn) -> Fn:
        def noted(tx: Tx) -> Any:
            seen.append(name)
            return fn(tx)

        return noted

    run(engine, note("a", add_then_refuse), note("b", add("b")), note("c", add_then_refuse))
    assert seen == ["a", "b", "c"]


def defer(text: str, *, then: str | None = None) -> Fn:
    """A transaction that only defers the insertion of a note, or of two."""
    further = [(ADD, {"owner": "ada", "text": then})] if then else []

    def deferring(tx: Tx) -> None:
        tx.defer(ADD, never, further, owner="ada", text=text)

    return deferring


def never() -> None:
    """Stand for the statements that replace a deferred one without a row."""
    raise AssertionError("an insertion changed no row")


def test_deferred_statements_of_a_group_are_run_in_order(engine: GroupCommit, path: Path) -> None:
    before = engine.counts.commits
    assert run(engine, defer("a", then="b"), add("c"), defer("d"), defer("e"), texts) == [
        None, 1, None, None, ["a", "b", "c", "d", "e"]
    ]  # fmt: skip
    assert engine.counts.commits == before + 1
    assert stored(path) == ["a", "b", "c", "d", "e"]


def test_function_that_only_defers_does_not_lock_database(engine: GroupCommit, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, timeout=0)

    def defer_while_another_process_writes(tx: Tx) -> None:
        with tx.savepoint():
            defer("a")(tx)
        other.execute("INSERT INTO notes (owner, text) VALUES ('bob', 'b')")

    assert run(engine, defer_while_another_process_writes, defer("c")) == [None, None]
    other.close()
    assert stored(path) == ["b", "a", "c"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_failed_deferred_statement_undoes_its_function_alone(
    engine: GroupCommit, path: Path, place: int
) -> None:
    functions: list[Fn] = [defer("a"), defer("b")]
    functions.insert(place, lambda tx: [defer(text)(tx) for text in ("c", "kept")])
    run(engine, add("kept"))
    answers = run(engine, *functions)
    assert isinstance(answers.pop(place), UniqueViolation)
    assert answers == [None, None]
    assert stored(path) == ["kept", "a", "b"]


def test_caught_error_of_deferred_statement_fails_its_function(
    engine: GroupCommit, path: Path
) -> None:
    def stubborn(tx: Tx) -> list[str]:
        defer("kept")(tx)
        defer("lost")(tx)
        with suppress(UniqueViolation):
            tx.run(ADD, owner="ada", text="c")
        return texts(tx)

    run(engine, add("kept"))
    failed, done = run(engine, stubborn, add("d"))
    assert (type(failed), done) == (UniqueViolation, 1)
    assert stored(path) == ["kept", "d"]


def test_further_statements_are_not_deferred_beyond_the_limit(
    engine: GroupCommit, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_engine, "MAX_DEFERRED", 4)
    waiting: list[int] = []

    def deferring(tx: Tx) -> None:
        for text in "abcdef":
            defer(text)(tx)
            waiting.append(len(cast("SqliteTx", tx).deferred))

    run(engine, deferring, defer("g"))
    assert waiting == [1, 2, 3, 4, 0, 0]
    assert "".join(stored(path)) == "abcdefg"


def test_deferred_statements_are_refused_on_locked_database(
    engine: GroupCommit, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers = run(engine, defer("a"), defer("b"))
    other.close()
    assert [type(answer) for answer in answers] == [OverloadedError] * 2
    assert stored(path) == []


def test_failed_first_function_leaves_lazy_write_to_be_synced(
    engine: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Store.write`: a power failure undoes no write that precedes a durable one."""
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    run_group(engine, [WorkItem(add("lazy"), 0, durable=False)])
    failed, done = run(engine, add_then_refuse, lambda tx: "nothing")
    assert (type(failed), done, len(syncs)) == (NoteRefused, "nothing", 1)


class Program(NamedTuple):
    """Steps of a transaction, for the comparison of a group with its members one by one."""

    steps: Sequence[tuple[str, int] | Program]
    refuses: bool

    def __call__(self, tx: Tx) -> list[str]:
        for step in self.steps:
            if isinstance(step, Program):
                with suppress(NoteRefused, UniqueViolation), tx.savepoint():
                    step(tx)
            else:
                self.run(tx, *step)
        if self.refuses:
            raise NoteRefused
        return []

    def run(self, tx: Tx, kind: str, number: int) -> None:
        note = {"owner": "ada", "text": str(number)}
        if kind == "run":
            tx.run(ADD, **note)
        elif kind == "defer":
            tx.defer(ADD, never, **note)
        elif kind == "defer two":
            tx.defer(ADD, never, [(ADD, {"owner": "bob", "text": str(number)})], **note)
        else:
            tx.defer(RENAME, partial(tx.run, ADD, **note), old=str(number), new=f"{number}!")


RENAME: Final = Statement(
    update(NOTES)
    .where(NOTES.c.owner == "ada", NOTES.c.text == bindparam("old"))
    .values(text=bindparam("new"))
)
STEPS: Final = st.tuples(
    st.sampled_from(["run", "defer", "defer", "defer two", "rename"]), st.integers(0, 6)
)
PROGRAMS: Final = st.recursive(
    st.builds(Program, st.lists(STEPS, max_size=3), st.just(False)),
    lambda parts: st.builds(Program, st.lists(STEPS | parts, max_size=4), st.booleans()),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(PROGRAMS, min_size=1, max_size=6))
def test_group_commits_what_its_functions_commit_one_by_one(
    engine: GroupCommit, path: Path, programs: Sequence[Fn]
) -> None:
    """With errors, savepoints and deferred statements in any order. Only the rows' order differs:
    the second statement of a deferred pair may come after the first ones of other pairs."""
    results = []
    for groups in ([[each] for each in programs], [programs]):
        run(engine, lambda tx: tx.run(delete(NOTES)))
        answers = [answer for group in groups for answer in run(engine, *group)]
        shown = [type(each) if isinstance(each, Exception) else each for each in answers]
        results.append((shown, sorted(stored(path))))
    assert results[0] == results[1]


def test_group_commit_refuses_write_to_full_database(
    engine: GroupCommit, connection: SqliteConnection, path: Path
) -> None:
    run(engine, add("kept"))
    pages = connection.raw.execute("PRAGMA page_count").fetchone()[0]
    connection.raw.execute(f"PRAGMA max_page_count={pages + 2}")
    answers = run(engine, add("a"), add("x" * 1_000_000), add("b"))
    full = answers[1]
    assert isinstance(full, OverloadedError)
    assert "full" in full.message
    confirmed = [text for text, answer in zip(["a", "b"], answers[::2], strict=True) if answer == 1]
    assert stored(path) == ["kept", *confirmed], "exactly the confirmed writes are stored"
    connection.raw.execute("PRAGMA max_page_count=1000000")
    assert run(engine, add("later")) == [1]
    assert stored(path)[-1] == "later"


@pytest.mark.parametrize("file", ["fw.db", "fw.db-wal"])
def test_group_commit_refuses_writes_while_its_files_are_moved(
    engine: GroupCommit, path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-25: SQLite writes on into a file without a name, which ends with the process."""
    run(engine, add("kept"))
    engine.poll()
    moved = path.with_name(file).rename(path.with_name("moved"))
    engine.poll()
    run(engine, add("lost"))
    (refusal,) = run(engine, add("lost"))
    assert isinstance(refusal, OverloadedError)
    assert "moved or replaced" in refusal.message
    assert [entry.getMessage() for entry in caplog.records] == [
        f"the database refuses writes: {refusal.message}"
    ]
    moved.rename(path.with_name(file))
    engine.poll()
    assert run(engine, add("later")) == [1]
    assert stored(path) == ["kept", "later"]


def test_group_commit_refuses_writes_to_a_replaced_database(
    engine: GroupCommit, path: Path
) -> None:
    """O-25: a backup that was put in place belongs to the next start."""
    run(engine, add("kept"))
    backup = path.with_name("backup.db")
    shutil.copy(path, backup)
    backup.rename(path)
    engine.poll()
    (refusal,) = run(engine, add("lost"))
    assert isinstance(refusal, OverloadedError)


def test_group_commit_counts_and_reports_single_refused_writes(
    engine: GroupCommit,
    connection: SqliteConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O-26, O-120: a nearly full disk refuses long writes and takes short ones."""
    now = [1000.0]
    monkeypatch.setattr("fw_actors.store.executor.time.monotonic", lambda: now[0])
    pages = connection.raw.execute("PRAGMA page_count").fetchone()[0]
    connection.raw.execute(f"PRAGMA max_page_count={pages + 2}")
    for text in "ab":
        refusal, taken = run(engine, add("x" * 1_000_000), add(text))
        assert (type(refusal), taken) == (OverloadedError, 1)
    assert (engine.counts.refused, engine.counts.rolled_back) == (2, 0)
    connection.raw.execute("PRAGMA max_page_count=1000000")
    run(engine, add("c"))
    now[0] += QUIET_SECONDS
    run(engine, add("d"))
    run(engine, add("e"))
    assert engine.counts.refused == 2
    assert [entry.getMessage() for entry in caplog.records] == [
        "the database refuses writes: The database or its disk is full; nothing was changed.",
        "the database takes writes again",
    ]


@pytest.mark.parametrize("durable", [True, False])
def test_group_commit_never_commits_refused_write_whose_rollback_fails(
    connection: SqliteConnection, path: Path, durable: bool
) -> None:
    """Otherwise a write that was answered 503 would be committed with the next group."""
    failing = FailingCursor(connection.cursor)
    connection.cursor = cast(sqlite3.Cursor, failing)
    engine = GroupCommit(connection)
    failing.failures.update(COMMIT=1, ROLLBACK=2)
    assert isinstance(run(engine, add("refused"))[0], OverloadedError)
    waiting = [(second := WorkItem(add("also refused"), 0, durable=durable))]
    run_group(engine, waiting)
    assert second.answer is not None, "its caller waits for ever"
    with pytest.raises(OverloadedError):
        second.answer.unwrap()
    assert run(engine, add("accepted")) == [1]
    assert stored(path) == ["accepted"]


def _sqlite_ends_the_transaction(tx: Tx) -> None:
    """Simulate a full disk or an I/O error: SQLite rolls the whole transaction back."""
    tx.run(sql("INSERT OR ROLLBACK INTO notes (id, owner, text) SELECT 1, 'x', 'x'"))


def test_group_commit_refuses_whole_group_on_lost_transaction(
    engine: GroupCommit, path: Path
) -> None:
    run(engine, add("kept"))
    ran: list[str] = []

    def late(tx: Tx) -> None:
        ran.append("late")

    items = [
        WorkItem(fn, 0) for fn in (add("a"), add_then_refuse, _sqlite_ends_the_transaction, late)
    ]
    run_group(engine, list(items))
    errors = [item.answer.error for item in items[:3] if isinstance(item.answer, outcome.Error)]
    assert [type(error) for error in errors] == [OverloadedError] * 3
    assert len({id(error) for error in errors}) == 3, "each caller gets its own exception"
    assert ran == []
    assert stored(path) == ["kept"]


def test_lost_transaction_refuses_further_statements_of_function(
    engine: GroupCommit, path: Path
) -> None:
    """Otherwise SQLite would run later statements in autocommit. They are refusals of the store,
    which are no attempts of a job of an app (D-210)."""
    refused: list[Exception] = []

    def stubborn(tx: Tx) -> None:
        for attempt in (_sqlite_ends_the_transaction, add("b"), add_then_refuse):
            try:
                attempt(tx)
            except Exception as error:
                refused.append(error)

    run(engine, add("kept"))
    (answer,) = run(engine, stubborn)
    assert isinstance(answer, OverloadedError)
    assert isinstance(refused[0], UniqueViolation)
    assert [is_store_refusal(error) for error in refused] == [False, True, True]
    assert stored(path) == ["kept"]


def test_group_commit_refuses_waiting_writes_on_locked_database(
    engine: GroupCommit, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers = run(engine, add("a"), add("b"))
    assert [type(answer) for answer in answers] == [OverloadedError] * 2
    assert "locked" in answers[0].message
    other.execute("COMMIT")
    other.close()
    assert run(engine, add("c")) == [1]
    assert stored(path) == ["c"]


def test_group_commit_polls_locked_database_at_short_intervals(
    connection: SqliteConnection,
    engine: GroupCommit,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SQLite's own busy handler sleeps ever longer, so two delivering processes mostly slept."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sleeps: list[float] = []

    def turn(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 20:
            other.execute("COMMIT")

    monkeypatch.setattr("fw_actors.store.sqlite_engine.time.sleep", turn)
    connection.busy_seconds = 600
    assert run(engine, add("a")) == [1]
    assert sleeps == [TURN_SECONDS] * 20
    other.close()


def test_sqlite_tx_states_its_wait_for_the_lock(
    connection: SqliteConnection,
    engine: GroupCommit,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not the time of the user who writes (H-143)."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sleep = time.sleep

    def turn(seconds: float) -> None:
        sleep(0.05)
        other.execute("COMMIT")

    def waited(tx: Tx) -> tuple[float, float]:
        before = tx.waited_seconds
        add("a")(tx)
        return before, tx.waited_seconds

    monkeypatch.setattr("fw_actors.store.sqlite_engine.time.sleep", turn)
    connection.busy_seconds = 600
    ((before, after),) = run(engine, waited)
    assert before == 0
    assert after >= 0.05
    other.close()


def test_partly_read_returning_clause_allows_commit(engine: GroupCommit, path: Path) -> None:
    def insert_two(tx: Tx) -> Any:
        many = "INSERT INTO notes (owner, text) VALUES ('ada', 'a'), ('ada', 'b') RETURNING id"
        return tx.one(sql(many))

    assert run(engine, insert_two) == [(1,)]
    assert stored(path) == ["a", "b"]


def test_group_commit_undoes_exiting_function_and_reports_exit(
    engine: GroupCommit, path: Path
) -> None:
    def leave(tx: Tx) -> None:
        tx.run(ADD, owner="ada", text="undone")
        raise SystemExit

    answers = run(engine, add("a"), leave, add("b"))
    assert isinstance(answers[1], SystemExit)
    assert stored(path) == ["a", "b"]


def test_write_transaction_excludes_writers_since_first_read(
    engine: GroupCommit, path: Path
) -> None:
    """Every write begins IMMEDIATE (O-11)."""
    other = sqlite3.connect(path, timeout=0)

    def read_then_write(tx: Tx) -> int:
        before = len(texts(tx))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO notes (owner, text) VALUES ('bob', 'between')")
        return before + tx.run(ADD, owner="ada", text="a")

    assert run(engine, read_then_write) == [1]
    other.close()
    assert stored(path) == ["a"]
