"""Features of the store on PostgreSQL alone: overlapping writers, a server that restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
import trio
from sqlalchemy import text as sql

from fw_actors.errors import ConfigurationError, OverloadedError
from fw_actors.runtime.clock import SeededEntropy, SystemClock
from fw_actors.store import StatementError, Store, Tx
from fw_actors.store.postgres import open_postgres
from fw_actors.store.postgres_connection import (
    BEGIN_LAZY,
    BEGIN_WRITE,
    PostgresConnection,
)
from fw_actors.store.statement import POSTGRESQL
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import ADD, NoteRefused, add, create_notes, texts
from tests.postgres_cluster import DATABASE, PostgresCluster, postgres_cluster


@pytest.fixture
def kind() -> str:
    return POSTGRESQL


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with open_store(busy_seconds=30) as store:  # a slow machine must not look like a lock
        await store.write(create_notes)
        yield store


class MeetingPoint:
    """Two transactions continue only when both have reached this point."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)

    def __call__(self) -> None:
        self._barrier.wait(timeout=30)


async def both(*calls: Callable[[], Any]) -> list[object]:
    """Run two calls concurrently; return the result or exception of each."""
    found: list[object] = [None, None]

    async def one(index: int) -> None:
        try:
            found[index] = await calls[index]()
        except Exception as error:
            found[index] = error

    async with trio.open_nursery() as nursery:
        for index in range(2):
            nursery.start_soon(one, index)
    return found


async def test_postgres_writes_run_concurrently(store: Store) -> None:
    meeting = MeetingPoint()

    def write(tx: Tx, text: str) -> None:
        tx.run(ADD, owner="ada", text=text)
        meeting()  # unreachable if one write waited for the end of the other

    await both(*(partial(store.write, partial(write, text=name)) for name in "ab"))
    assert sorted(await store.read(texts)) == ["a", "b"]


async def test_transaction_lock_serialises_writes(store: Store) -> None:
    """Architecture, The store: `tx.lock(name)` first where a rule spans several rows."""

    def at_most_one(tx: Tx) -> str:
        tx.lock("the only note")
        if texts(tx):
            raise NoteRefused
        tx.run(ADD, owner="ada", text="only")
        return "made"

    found = await both(*[partial(store.write, at_most_one)] * 2)
    assert sorted(map(str, found)) == ["", "made"]
    assert await store.read(texts) == ["only"]


async def test_deadlock_refuses_one_write_and_commits_other(store: Store) -> None:
    """Architecture, The store: a deadlock is a 503."""
    await store.write(lambda tx: [tx.run(ADD, owner="ada", text=name) for name in "ab"])
    meeting = MeetingPoint()

    def write(tx: Tx, first: str, second: str) -> str:
        change = "UPDATE notes SET owner = :owner WHERE text = :text"
        tx.raw(change, {"owner": first, "text": first})
        meeting()
        tx.raw(change, {"owner": first, "text": second})
        return "done"

    found = await both(
        partial(store.write, partial(write, first="a", second="b")),
        partial(store.write, partial(write, first="b", second="a")),
    )
    assert "done" in found
    (refusal,) = [each for each in found if each != "done"]
    assert isinstance(refusal, OverloadedError)
    assert "conflicted" in refusal.message


async def test_locked_table_refuses_writes_and_allows_reads(
    open_store: OpenStore, postgres_url: str
) -> None:
    async with open_store(busy_seconds=0.1) as store:
        await store.write(create_notes)
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE notes IN SHARE ROW EXCLUSIVE MODE")
            with pytest.raises(OverloadedError, match="locked"):
                await store.write(add("a"))
            assert await store.read(texts) == []
        await store.write(add("b"))
        assert await store.read(texts) == ["b"]


async def test_refused_writes_are_counted_and_reported_once(
    open_store: OpenStore, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-26, O-120: the alert FwWritesRefused reads the counter, and the log has the reason."""
    async with open_store(busy_seconds=0.1) as store:
        await store.write(create_notes)
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE notes IN SHARE ROW EXCLUSIVE MODE")
            for _ in range(2):
                with pytest.raises(OverloadedError, match="locked"):
                    await store.write(add("a"))
        statistics = store.statistics()
    assert (statistics.refused, statistics.rolled_back) == (2, 0)
    assert [entry.getMessage() for entry in caplog.records] == [
        "the database refuses writes: The database is locked by another transaction. Try again in "
        "a moment."
    ]


async def test_full_disk_refuses_write_and_store_recovers(store: Store) -> None:
    """A function raises the server's own error for a full disk."""
    fill = (
        "CREATE FUNCTION fill() RETURNS int LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    )
    await store.write(lambda tx: tx.run(sql(fill)))

    def write(tx: Tx) -> None:
        tx.run(ADD, owner="ada", text="undone")
        tx.run(sql("SELECT fill()"))

    with pytest.raises(OverloadedError, match="disk is full"):
        await store.write(write)
    await store.write(add("later"))
    assert await store.read(texts) == ["later"]


async def test_write_is_refused_for_error_caught_outside_savepoint(
    store: Store,
) -> None:
    def careless(tx: Tx) -> None:
        with pytest.raises(StatementError):
            tx.rows(sql("SELECT nothing FROM nowhere"))

    with pytest.raises(StatementError, match="savepoint"):
        await store.write(careless)


def end_connections(cluster: PostgresCluster, *, but: int = 0) -> None:
    """End all connections of stores, as a restarted server or a firewall would."""
    cluster.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        f"WHERE application_name = 'fw' AND pid <> {but}"
    )


async def test_idle_connections_lost_are_replaced_transparently(
    store: Store, cluster: PostgresCluster
) -> None:
    await store.write(add("a"))
    await store.read(texts)
    end_connections(cluster)
    await store.write(add("b"))
    assert await store.read(texts) == ["a", "b"]


async def test_connection_lost_inside_transaction_rolls_back_write(
    store: Store, cluster: PostgresCluster
) -> None:
    ran: list[str] = []

    def write(tx: Tx) -> None:
        ran.append("once")
        tx.run(ADD, owner="ada", text="undone")
        end_connections(cluster)
        with pytest.raises(OverloadedError):
            tx.run(ADD, owner="ada", text="lost")
        tx.run(ADD, owner="ada", text="never in a transaction of its own")

    with pytest.raises(OverloadedError, match="lost"):
        await store.write(write)
    assert ran == ["once"]
    await store.write(add("later"))
    assert await store.read(texts) == ["later"]


@pytest.fixture
def own_cluster() -> Iterator[PostgresCluster]:
    """A server without other data, which recovers from a crash quickly."""
    with postgres_cluster() as cluster:
        yield cluster


class GrowingList:
    """The texts added so far, and a way to wait for more."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._grown = trio.Event()

    def add(self, text: str) -> None:
        self.all.append(text)
        self._grown.set()
        self._grown = trio.Event()

    async def more_by(self, count: int) -> None:
        enough = len(self.all) + count
        while len(self.all) < enough:
            await self._grown.wait()


@pytest.mark.timeout(300)  # it makes, crashes and starts a server, also on a slow machine
async def test_server_restart_under_load_loses_no_confirmed_write(
    own_cluster: PostgresCluster,
) -> None:
    """Every write is confirmed and stored, or refused with 503; the store recovers by itself."""
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    async with open_postgres(own_cluster.url(), **options) as store:
        await store.write(create_notes)
        await crash_under_load(store, own_cluster)


async def crash_under_load(store: Store, cluster: PostgresCluster) -> None:
    confirmed, refused = GrowingList(), GrowingList()
    over = trio.Event()

    async def writer(name: str) -> None:
        number = 0
        while not over.is_set():
            number += 1
            text = f"{name} {number}"
            try:
                await store.write(add(text))
            except OverloadedError as refusal:
                refused.add(refusal.message)
                await trio.sleep(0.01)
            else:
                confirmed.add(text)

    async with trio.open_nursery() as nursery:
        for name in "abcdefgh":
            nursery.start_soon(writer, name)
        await confirmed.more_by(50)
        await trio.to_thread.run_sync(cluster.stop, "immediate")
        await refused.more_by(1)
        await trio.to_thread.run_sync(cluster.start)
        await confirmed.more_by(50)
        over.set()
    stored = set(await store.read(texts))
    assert set(confirmed.all) <= stored
    assert all("database" in message for message in refused.all), refused.all


async def test_standby_refuses_writes_until_it_is_promoted(own_cluster: PostgresCluster) -> None:
    """O-24, O-14: a server that restarts as a read-only copy is unavailable until then."""
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    async with open_postgres(own_cluster.url(), **options) as store:
        await store.write(create_notes)
        await trio.to_thread.run_sync(own_cluster.restart_as_standby)
        with pytest.raises(OverloadedError, match="cannot be reached"):
            await store.write(add("meanwhile"))
        own_cluster.promote()
        await eventually_written(store, "later")
        assert await store.read(texts) == ["later"]


async def test_standby_behind_an_open_connection_refuses_writes(
    own_cluster: PostgresCluster,
) -> None:
    """O-24: also if a pooler has kept the connection, or FW_DATABASE allows any server."""
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    any_server = own_cluster.url() + "&target_session_attrs=any"
    async with open_postgres(any_server, **options) as store:
        await store.write(create_notes)
        await trio.to_thread.run_sync(own_cluster.restart_as_standby)
        for durable in (True, False):
            with pytest.raises(OverloadedError, match="read-only copy"):
                await store.write(add("meanwhile"), durable=durable)
        with pytest.raises(OverloadedError, match="read-only copy"):
            await store.write(lambda tx: tx.defer(ADD, print, owner="ada", text="meanwhile"))
        own_cluster.promote()
        await eventually_written(store, "later")
        assert await store.read(texts) == ["later"]


async def test_open_postgres_reports_a_standby(own_cluster: PostgresCluster) -> None:
    """O-24: the error names the state of the server."""
    own_cluster.restart_as_standby()
    with pytest.raises(ConfigurationError, match="hot standby mode"):
        async with open_postgres(own_cluster.url(), clock=SystemClock(), entropy=SeededEntropy(1)):
            pass


async def eventually_written(store: Store, text: str) -> None:
    """Write until the server takes it: it becomes a primary, and connections are tried rarely."""
    with trio.fail_after(60):
        while True:
            with suppress(OverloadedError):
                await store.write(add(text))
                return
            await trio.sleep(0.05)


async def test_open_postgres_reports_unreachable_server_without_password() -> None:
    url = "postgresql://fw:a-secret@127.0.0.1:1/fw"
    with pytest.raises(ConfigurationError, match="cannot be opened") as caught:
        async with open_postgres(url, clock=SystemClock(), entropy=SeededEntropy(1)):
            pass
    (problem,) = caught.value.problems
    assert problem.endswith("Connection refused.")  # without the hints that libpq appends
    assert "a-secret" not in problem


async def test_open_postgres_refuses_database_not_in_utf8(cluster: PostgresCluster) -> None:
    make = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    cluster.execute(make)
    url = cluster.url(database="latin")
    try:
        with pytest.raises(ConfigurationError, match="UTF8"):
            async with open_postgres(url, clock=SystemClock(), entropy=SeededEntropy(1)):
                pass
    finally:
        cluster.execute("DROP DATABASE latin")


async def test_write_disables_synchronous_commit_unless_durable(
    store: Store,
) -> None:
    """`Store.write`; the next transaction on the same connection waits again."""

    def setting(tx: Tx) -> object:
        return tx.scalar(sql("SELECT current_setting('synchronous_commit')"))

    for durable in (True, False, True):
        assert (await store.write(setting, durable=durable) == "off") is not durable


@pytest.fixture
def commands(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The transaction commands sent from here on, one item per round trip."""
    sent: list[bytes] = []
    execute = PostgresConnection.execute

    def recorded(connection: PostgresConnection, text: bytes) -> None:
        if not text.startswith((b"LISTEN", b"NOTIFY")):
            sent.append(text)
        execute(connection, text)

    monkeypatch.setattr(PostgresConnection, "execute", recorded)
    return sent


async def test_commit_notice_is_sent_outside_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NOTIFY inside a transaction makes all commits wait for each other."""
    committed, notified = set[PostgresConnection](), set[PostgresConnection]()
    execute, noticed = PostgresConnection.execute, threading.Event()

    def recorded(connection: PostgresConnection, text: bytes) -> None:
        execute(connection, text)
        if b"COMMIT" in text:
            committed.add(connection)
        if b"NOTIFY" in text:
            notified.add(connection)
            noticed.set()

    monkeypatch.setattr(PostgresConnection, "execute", recorded)
    await store.write(add("a"))
    assert await trio.to_thread.run_sync(noticed.wait, 10)
    assert committed
    assert not committed & notified


async def test_transaction_commands_share_round_trips(store: Store, commands: list[bytes]) -> None:
    def work(tx: Tx) -> None:
        for text in "ab":
            with tx.savepoint():
                tx.run(ADD, owner="ada", text=text)

    await store.write(work)
    begin, between, commit = commands
    assert begin == BEGIN_WRITE + b"; SAVEPOINT part_0"
    assert between == b"RELEASE part_0; SAVEPOINT part_0"
    assert commit.endswith(b"COMMIT")
    assert await store.read(texts) == ["a", "b"]


async def test_transaction_without_statements_sends_no_command(
    store: Store, commands: list[bytes]
) -> None:
    def work(tx: Tx) -> str:
        with suppress(NoteRefused), tx.savepoint():
            raise NoteRefused
        with tx.savepoint(), tx.savepoint():
            return "done"

    assert await store.write(work) == "done"
    assert await store.read(lambda tx: tx.now) > 0
    assert commands == []


async def test_failed_savepoint_is_undone_in_single_round_trip(
    store: Store, commands: list[bytes]
) -> None:
    def work(tx: Tx) -> None:
        with suppress(NoteRefused), tx.savepoint():
            with tx.savepoint():
                tx.run(ADD, owner="ada", text="a")
            raise NoteRefused
        tx.run(ADD, owner="ada", text="b")

    await store.write(work)
    assert b"ROLLBACK TO part_0; RELEASE part_0" in commands
    assert not any(b"RELEASE part_1" in each for each in commands)
    assert await store.read(texts) == ["b"]


def never() -> None:
    raise AssertionError("an insert missed its row")


async def test_deferred_statement_alone_sends_no_transaction_commands(
    store: Store, commands: list[bytes]
) -> None:
    def work(tx: Tx) -> None:
        with tx.savepoint():
            tx.defer(ADD, never, owner="ada", text="a")

    before = store.statistics().committed
    await store.write(work)
    assert commands == []
    assert store.statistics().committed == before + 1
    assert await store.read(texts) == ["a"]


async def test_deferred_statement_not_durable_begins_lazily(
    store: Store, commands: list[bytes]
) -> None:
    await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"), durable=False)
    assert commands[0] == BEGIN_LAZY


async def test_deferred_statement_commit_notifies_other_stores(
    open_store: OpenStore,
) -> None:
    async with open_store() as ours, open_store() as theirs:
        heard = [trio.Event(), trio.Event()]
        theirs.on_external_commit(lambda: next(x for x in heard if not x.is_set()).set())
        with trio.fail_after(30):
            await ours.write(create_notes)
            await heard[0].wait()
            await ours.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"))
            await heard[1].wait()


async def test_deferred_statement_runs_once_on_lost_idle_connection(
    store: Store, cluster: PostgresCluster
) -> None:
    await store.write(add("a"))
    end_connections(cluster)
    await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="b"))
    assert await store.read(texts) == ["a", "b"]


async def test_deferred_statement_reports_unknown_outcome_on_lost_connection(
    store: Store, cluster: PostgresCluster
) -> None:
    """The statement commits by itself, so the outcome is unknown."""
    locked, ended = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        tx.run(sql("LOCK TABLE notes"))
        locked.set()
        ended.wait(30)

    async def meet(nursery: trio.Nursery) -> None:
        await trio.to_thread.run_sync(locked.wait)
        nursery.start_soon(trio.to_thread.run_sync, end_waiting_backend)
        with pytest.raises(OverloadedError, match="Read again"):
            await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"))
        ended.set()

    def end_waiting_backend() -> None:
        end = (
            b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            b"WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO notes%'"
        )
        while not cluster.owner.execute(end).fetchall():
            time.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write, hold)
        await meet(nursery)
    assert await store.read(texts) == []


async def test_reserved_read_sees_committed_rows_without_transaction(
    store: Store, commands: list[bytes], cluster: PostgresCluster
) -> None:
    assert await store.read(texts, reserved=True) == []
    await store.write(add("a"))
    commands.clear()
    assert await store.read(lambda tx: texts(tx) + texts(tx), reserved=True) == ["a", "a"]
    assert commands == []
    end_connections(cluster)
    assert await store.read(texts, reserved=True) == ["a"]


async def test_standalone_statements_override_session_defaults_of_database(
    open_store: OpenStore, cluster: PostgresCluster, postgres_url: str
) -> None:
    """The database of a site may have its own default settings."""
    cluster.execute(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
    cluster.execute(f"ALTER DATABASE {DATABASE} SET default_transaction_isolation = serializable")
    try:
        async with open_store() as store:
            await store.write(create_notes)
            await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"))
            isolation = sql("SELECT current_setting('transaction_isolation')")
            level = await store.read(lambda tx: tx.scalar(isolation), reserved=True)
            assert (level, await store.read(texts)) == ("read committed", ["a"])
    finally:
        for setting in ("default_transaction_read_only", "default_transaction_isolation"):
            cluster.execute(
                "SET default_transaction_read_only = off; "
                f"ALTER DATABASE {DATABASE} RESET {setting}"
            )


async def test_postgres_returns_all_digits_of_floats_if_database_rounds_them(
    open_store: OpenStore, cluster: PostgresCluster, postgres_url: str
) -> None:
    """A number reads as it was stored, as on SQLite (O-10)."""
    number = 0.1 + 0.2
    stored = sa.cast(sa.literal(number), sa.Double)
    cluster.execute(f"ALTER DATABASE {DATABASE} SET extra_float_digits = 0")
    try:
        async with open_store() as store:
            assert await store.read(lambda tx: tx.scalar(sa.select(stored))) == number
    finally:
        cluster.execute(f"ALTER DATABASE {DATABASE} RESET extra_float_digits")
