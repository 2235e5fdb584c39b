"""Features of the store on PostgreSQL alone: overlapping writers, a server that restarts.

The module has more than 500 lines because these tests share servers and stores of their own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest
import trio
from sqlalchemy import text as sql

from fw_actors.errors import (
    ConfigurationError,
    OverloadedError,
    ValidationError,
    is_store_refusal,
)
from fw_actors.runtime.clock import SeededEntropy, SystemClock
from fw_actors.store import StatementError, Store, Tx
from fw_actors.store.postgres import open_postgres
from fw_actors.store.statement import POSTGRESQL
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import ADD, NoteRefused, add, create_notes, texts
from tests.postgres_cluster import PostgresCluster, postgres_cluster


@pytest.fixture
def kind() -> str:
    return POSTGRESQL


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with open_store(busy_seconds=30) as store:  # a slow machine must not look like a lock
        await store.write(create_notes)
        yield store


class TransactionBarrier:
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
    meeting = TransactionBarrier()

    def write(tx: Tx, text: str) -> None:
        tx.run(ADD, owner="ada", text=text)
        meeting()  # unreachable if one write waited for the end of the other

    await both(*(partial(store.write, partial(write, text=name)) for name in "ab"))
    assert sorted(await store.read(texts)) == ["a", "b"]


async def test_raw_sql_skips_nested_comment_as_server_does(store: Store) -> None:
    """Comments nest on PostgreSQL: the outer one ended with the inner one."""
    text = "/* outer /* inner */ it's :no */ SELECT 1 AS one"
    assert await store.read(lambda tx: tx.raw(text)) == [{"one": 1}]


async def test_raw_sql_ends_comment_at_carriage_return_as_server_does(store: Store) -> None:
    """D-198: what follows was taken for a part of the comment, and was not checked."""
    text = "SELECT 1 AS one -- :no\r, :two AS two"
    assert await store.read(lambda tx: tx.raw(text, {"two": 2})) == [{"one": 1, "two": 2}]
    with pytest.raises(ValidationError, match="set_config"):
        await store.write(lambda tx: tx.raw("SELECT --\rset_config('lock_timeout', '0', false)"))


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
    """The refusal is a 503 that names the reason, and the write is not repeated (O-11)."""
    await store.write(lambda tx: [tx.run(ADD, owner="ada", text=name) for name in "ab"])
    meeting = TransactionBarrier()

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
    assert refusal.message == (
        "This transaction and another one waited for each other (a deadlock); nothing was changed. "
        "Try again."
    )
    assert is_store_refusal(refusal)


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


async def test_idle_connections_lost_are_replaced_transparently(
    store: Store, cluster: PostgresCluster
) -> None:
    await store.write(add("a"))
    await store.read(texts)
    cluster.end_connections()
    await store.write(add("b"))
    assert await store.read(texts) == ["a", "b"]


async def test_connection_lost_inside_transaction_rolls_back_write(
    store: Store, cluster: PostgresCluster
) -> None:
    ran: list[str] = []

    def write(tx: Tx) -> None:
        ran.append("once")
        tx.run(ADD, owner="ada", text="undone")
        cluster.end_connections()
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


async def test_outage_of_server_is_logged_once(
    own_cluster: PostgresCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """O-24: readers and writers have pools of their own, and meet the same server."""
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    async with open_postgres(own_cluster.url(), **options) as store:
        await store.write(create_notes)
        await store.read(texts)
        await trio.to_thread.run_sync(own_cluster.stop)
        with pytest.raises(OverloadedError):
            await store.read(texts)
        with pytest.raises(OverloadedError):
            await store.write(add("meanwhile"))
        await trio.to_thread.run_sync(own_cluster.start)
        await eventually_written(store, "later")
        assert await store.read(texts) == ["later"]
    lines = [each.getMessage().partition(":")[0] for each in caplog.records]
    assert lines.count("the database cannot be reached") == 1
    assert lines.count("the database can be reached again") == 1


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


async def refusal_to_open(url: str) -> str:
    """The problem for which a store is not opened."""
    with pytest.raises(ConfigurationError) as caught:
        async with open_postgres(url, clock=SystemClock(), entropy=SeededEntropy(1)):
            pass
    (problem,) = caught.value.problems
    return problem


async def test_open_postgres_refuses_account_that_may_not_create_tables(
    cluster: PostgresCluster,
) -> None:
    """Such as that of a database which belongs to another account; the refusal was reported as a
    defect (O-19)."""
    with cluster.owned_database() as url:
        with cluster.administered(url) as owner:
            owner.execute("ALTER SCHEMA public OWNER TO postgres")
            owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # granted by PostgreSQL 14
        problem = await refusal_to_open(url)
    assert re.fullmatch(
        r"The account (\w+) may not create tables in the schema public: make it the owner of the "
        r"database, or run GRANT CREATE ON SCHEMA public TO \1\.",
        problem,
    )


async def test_open_postgres_refuses_search_path_without_schema(cluster: PostgresCluster) -> None:
    """O-19: it was reported as a defect."""
    assert "names no schema that exists" in await refusal_to_open(cluster.url("missing"))


async def test_open_postgres_refuses_pool_in_transaction_mode(
    cluster: PostgresCluster, postgres_url: str
) -> None:
    """Such a pool runs the statements of two connections in one process of the server. Here a
    function says so (O-19)."""
    with psycopg.connect(postgres_url) as owner:
        owner.execute("CREATE FUNCTION pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 7'")
    assert "session mode" in await refusal_to_open(f"{postgres_url},pg_catalog")


async def test_open_postgres_refuses_pool_in_statement_mode(
    cluster: PostgresCluster, postgres_url: str
) -> None:
    """O-19: such a pool breaks off transactions, so the function finds it only outside of one."""
    with psycopg.connect(postgres_url) as owner:
        owner.execute(
            "CREATE FUNCTION pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT CASE "
            "WHEN now() = statement_timestamp() THEN 7 ELSE pg_catalog.pg_backend_pid() END'"
        )
    assert "session mode" in await refusal_to_open(f"{postgres_url},pg_catalog")


async def test_open_postgres_refuses_pool_that_ignores_search_path(
    cluster: PostgresCluster, postgres_url: str
) -> None:
    """PgBouncer does so with `ignore_startup_parameters = options`. Here a view says that the
    search path is the default of the server (O-19)."""
    with psycopg.connect(postgres_url) as owner:
        owner.execute(
            "CREATE VIEW pg_settings AS SELECT 'search_path' AS name, 'default' AS source"
        )
    problem = await refusal_to_open(f"{postgres_url},pg_catalog")
    assert "does not pass on the search path" in problem


@asynccontextmanager
async def impatient(cluster: PostgresCluster) -> AsyncIterator[Store]:
    """A store that notices soon that its server does not answer."""
    url = cluster.url().replace("connect_timeout=60", "connect_timeout=2")
    clock, entropy = SystemClock(), SeededEntropy(1)
    async with open_postgres(url, clock=clock, entropy=entropy, answer_seconds=0.2) as store:
        await store.write(create_notes)
        yield store


async def until_written(store: Store, text: str) -> None:
    """Write a note as soon as the store takes it."""
    with trio.fail_after(30):
        while True:
            try:
                await store.write(add(text))
                break
            except OverloadedError:
                await trio.sleep(0.1)


async def test_write_on_frozen_server_is_refused_and_undone(own_cluster: PostgresCluster) -> None:
    """Nothing was changed, also after the server continues; writes then succeed (O-14)."""
    with ExitStack() as frozen:
        async with impatient(own_cluster) as store:

            def write(tx: Tx) -> None:
                tx.run(ADD, owner="ada", text="lost")
                frozen.enter_context(own_cluster.frozen())
                tx.run(ADD, owner="ada", text="lost too")

            with trio.fail_after(30), pytest.raises(OverloadedError, match="nothing was changed"):
                await store.write(write)
            with trio.fail_after(30), pytest.raises(OverloadedError, match="cannot be reached"):
                await store.write(add("refused"))
            frozen.close()
            await until_written(store, "kept")
            assert await store.read(texts) == ["kept"]


async def test_commit_on_frozen_server_is_reported_as_unknown(
    own_cluster: PostgresCluster,
) -> None:
    """The server may carry it out when it continues (O-14)."""
    with ExitStack() as frozen:
        async with impatient(own_cluster) as store:

            def write(tx: Tx) -> None:
                tx.run(ADD, owner="ada", text="perhaps")
                frozen.enter_context(own_cluster.frozen())

            with trio.fail_after(30), pytest.raises(OverloadedError, match="during the commit"):
                await store.write(write)
            frozen.close()
            await until_written(store, "kept")
            assert set(await store.read(texts)) - {"perhaps"} == {"kept"}


@pytest.mark.parametrize("reserved", [False, True])
async def test_read_on_frozen_server_is_refused(
    own_cluster: PostgresCluster, reserved: bool
) -> None:
    """A reader is free again, and reads when the server continues (O-14)."""
    async with impatient(own_cluster) as store:
        with own_cluster.frozen():
            for _ in range(2):
                with trio.fail_after(30), pytest.raises(OverloadedError):
                    await store.read(texts, reserved=reserved)
        await until_written(store, "kept")
        with trio.fail_after(30):
            while True:
                with suppress(OverloadedError):
                    assert await store.read(texts, reserved=reserved) == ["kept"]
                    return
                await trio.sleep(0.1)


async def test_store_on_frozen_server_closes(own_cluster: PostgresCluster) -> None:
    """A stop does not wait for the server to continue (O-14)."""
    with ExitStack() as frozen, trio.fail_after(30):
        async with impatient(own_cluster) as store:
            await store.write(add("kept"))
            frozen.enter_context(own_cluster.frozen())


async def test_long_statement_causes_few_probes(
    own_cluster: PostgresCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answered is not asked each second: it starts a process each time (O-14)."""
    connect, probes = psycopg.connect, []

    def counted(*args: Any, **options: Any) -> psycopg.Connection[Any]:
        if options.get("target_session_attrs") == "any":
            probes.append(options)
        return connect(*args, **options)

    monkeypatch.setattr(psycopg, "connect", counted)
    clock, entropy = SystemClock(), SeededEntropy(1)
    async with open_postgres(
        own_cluster.url(), clock=clock, entropy=entropy, answer_seconds=1.5
    ) as store:
        await store.write(lambda tx: tx.run(sql("SELECT pg_sleep(6.5)")))
    assert 1 <= len(probes) <= 3


async def test_long_statement_is_not_broken_off(own_cluster: PostgresCluster) -> None:
    """The server answers another connection meanwhile (O-14)."""
    async with impatient(own_cluster) as store:
        await store.write(lambda tx: tx.run(sql("SELECT pg_sleep(1.5)")))
        await store.write(add("kept"))
        assert await store.read(texts) == ["kept"]
