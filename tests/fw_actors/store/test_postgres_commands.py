"""The commands that transactions and notices send to PostgreSQL, and their round trips."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import sqlalchemy as sa
import trio
from sqlalchemy import text as sql

from fw_actors.errors import OverloadedError
from fw_actors.store import Store, Tx
from fw_actors.store.postgres_connection import (
    BEGIN_LAZY,
    BEGIN_WRITE,
    PostgresConnection,
)
from fw_actors.store.statement import POSTGRESQL
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import ADD, NoteRefused, add, create_notes, texts
from tests.postgres_cluster import DATABASE, PostgresCluster


@pytest.fixture
def kind() -> str:
    return POSTGRESQL


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with open_store(busy_seconds=30) as store:  # a slow machine must not look like a lock
        await store.write(create_notes)
        yield store


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
    cluster.end_connections()
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
    cluster.end_connections()
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


async def test_postgres_keeps_idle_connections_if_database_ends_them(
    open_store: OpenStore, cluster: PostgresCluster, postgres_url: str
) -> None:
    """One of them waits for notices of other processes, which would be lost (B-238)."""
    cluster.execute(f"ALTER DATABASE {DATABASE} SET idle_session_timeout = '1s'")
    try:
        async with open_store() as store:
            limit = sql("SELECT current_setting('idle_session_timeout')")
            assert await store.read(lambda tx: tx.scalar(limit)) == "0"
    finally:
        cluster.execute(f"ALTER DATABASE {DATABASE} RESET idle_session_timeout")


async def test_postgres_names_types_of_columns_if_database_quotes_names(
    open_store: OpenStore, cluster: PostgresCluster, postgres_url: str
) -> None:
    """A column that was created for another type of field would not be noticed."""
    cluster.execute(f"ALTER DATABASE {DATABASE} SET quote_all_identifiers = on")
    try:
        async with open_store() as store:
            await store.write(create_notes)
            columns = await store.read(lambda tx: tx.columns("notes"))
            assert columns["text"] == "text"
    finally:
        cluster.execute(f"ALTER DATABASE {DATABASE} RESET quote_all_identifiers")


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
