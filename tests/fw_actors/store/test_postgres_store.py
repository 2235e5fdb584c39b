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
from tests.fw_actors.store.notes import ADD, Refused, add, create_notes, texts
from tests.postgres_cluster import DATABASE, PostgresCluster, postgres_cluster


@pytest.fixture
def kind() -> str:
    return POSTGRESQL


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with open_store(busy_seconds=30) as store:  # a slow machine is no lock
        await store.write(create_notes)
        yield store


class Meeting:
    """Two transactions that go on only once both have come so far."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)

    def __call__(self) -> None:
        self._barrier.wait(timeout=30)


async def both(*calls: Callable[[], Any]) -> list[object]:
    """Run two calls at once; give what each returned or raised."""
    found: list[object] = [None, None]

    async def one(place: int) -> None:
        try:
            found[place] = await calls[place]()
        except Exception as error:
            found[place] = error

    async with trio.open_nursery() as nursery:
        for place in range(2):
            nursery.start_soon(one, place)
    return found


async def test_writes_overlap(store: Store) -> None:
    meeting = Meeting()

    def write(tx: Tx, text: str) -> None:
        tx.run(ADD, owner="ada", text=text)
        meeting()  # neither gets here alone if one waits for the other's end

    await both(*(partial(store.write, partial(write, text=name)) for name in "ab"))
    assert sorted(await store.read(texts)) == ["a", "b"]


async def test_a_lock_makes_them_wait_for_each_other(store: Store) -> None:
    """Architecture, The store: `tx.lock(name)` first where a rule spans several rows."""

    def at_most_one(tx: Tx) -> str:
        tx.lock("the only note")
        if texts(tx):
            raise Refused
        tx.run(ADD, owner="ada", text="only")
        return "made"

    found = await both(*[partial(store.write, at_most_one)] * 2)
    assert sorted(map(str, found)) == ["", "made"]
    assert await store.read(texts) == ["only"]


async def test_a_deadlock_is_503_for_one_and_the_other_goes_on(store: Store) -> None:
    """Architecture, The store: a deadlock is a 503."""
    await store.write(lambda tx: [tx.run(ADD, owner="ada", text=name) for name in "ab"])
    meeting = Meeting()

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


async def test_a_locked_table_gives_503_reads_go_on_and_the_store_recovers(
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


async def test_a_full_disk_gives_503_changes_nothing_and_the_store_recovers(store: Store) -> None:
    """The server's own error for it, raised by a function, since no test fills a disk."""
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


async def test_a_caught_error_outside_a_savepoint_is_refused_and_told_how_to_mend_it(
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


async def test_connections_that_were_lost_while_idle_are_replaced_unseen(
    store: Store, cluster: PostgresCluster
) -> None:
    await store.write(add("a"))
    await store.read(texts)
    end_connections(cluster)
    await store.write(add("b"))
    assert await store.read(texts) == ["a", "b"]


async def test_a_connection_lost_inside_a_transaction_is_503_and_nothing_was_changed(
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
    """A server that nothing else has written to: it recovers from a crash in no time."""
    with postgres_cluster() as cluster:
        yield cluster


class Growing:
    """The notices received so far, and a way to wait for more."""

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


@pytest.mark.timeout(300)  # it makes, crashes and starts a server, on whatever machine
async def test_a_server_that_restarts_under_load_gives_503_and_loses_nothing(
    own_cluster: PostgresCluster,
) -> None:
    """Every write is told ok and stored, or told 503; the store recovers by itself."""
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    async with open_postgres(own_cluster.url(), **options) as store:
        await store.write(create_notes)
        await crash_under_load(store, own_cluster)


async def crash_under_load(store: Store, cluster: PostgresCluster) -> None:
    told_ok, refused = Growing(), Growing()
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
                told_ok.add(text)

    async with trio.open_nursery() as nursery:
        for name in "abcdefgh":
            nursery.start_soon(writer, name)
        await told_ok.more_by(50)
        await trio.to_thread.run_sync(cluster.stop, "immediate")
        await refused.more_by(1)
        await trio.to_thread.run_sync(cluster.start)
        await told_ok.more_by(50)
        over.set()
    stored = set(await store.read(texts))
    assert set(told_ok.all) <= stored
    assert all("database" in message for message in refused.all), refused.all


async def test_no_server_is_said_plainly_and_without_the_password() -> None:
    url = "postgresql://fw:a-secret@127.0.0.1:1/fw"
    with pytest.raises(ConfigurationError, match="can't be opened") as caught:
        async with open_postgres(url, clock=SystemClock(), entropy=SeededEntropy(1)):
            pass
    (problem,) = caught.value.problems
    assert problem.endswith("Connection refused.")  # and no guesses of libpq's after it
    assert "a-secret" not in problem


async def test_a_database_of_another_encoding_is_refused(cluster: PostgresCluster) -> None:
    make = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    cluster.execute(make)
    url = cluster.url(database="latin")
    try:
        with pytest.raises(ConfigurationError, match="UTF8"):
            async with open_postgres(url, clock=SystemClock(), entropy=SeededEntropy(1)):
                pass
    finally:
        cluster.execute("DROP DATABASE latin")


async def test_only_a_write_that_need_not_be_durable_does_not_wait_for_the_disk(
    store: Store,
) -> None:
    """`Store.write`; the next transaction on the same connection waits again."""

    def setting(tx: Tx) -> object:
        return tx.scalar(sql("SELECT current_setting('synchronous_commit')"))

    for durable in (True, False, True):
        assert (await store.write(setting, durable=durable) == "off") is not durable


@pytest.fixture
def commands(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The commands about transactions that are sent from here on, an item for each round trip."""
    sent: list[bytes] = []
    execute = PostgresConnection.execute

    def recorded(connection: PostgresConnection, text: bytes) -> None:
        if not text.startswith((b"LISTEN", b"NOTIFY")):
            sent.append(text)
        execute(connection, text)

    monkeypatch.setattr(PostgresConnection, "execute", recorded)
    return sent


async def test_commands_without_an_answer_share_round_trips(
    store: Store, commands: list[bytes]
) -> None:
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


async def test_a_transaction_without_statements_sends_nothing(
    store: Store, commands: list[bytes]
) -> None:
    def work(tx: Tx) -> str:
        with suppress(Refused), tx.savepoint():
            raise Refused
        with tx.savepoint(), tx.savepoint():
            return "done"

    assert await store.write(work) == "done"
    assert await store.read(lambda tx: tx.now) > 0
    assert commands == []


async def test_a_part_that_failed_is_undone_in_one_round_trip(
    store: Store, commands: list[bytes]
) -> None:
    def work(tx: Tx) -> None:
        with suppress(Refused), tx.savepoint():
            with tx.savepoint():
                tx.run(ADD, owner="ada", text="a")
            raise Refused
        tx.run(ADD, owner="ada", text="b")

    await store.write(work)
    assert b"ROLLBACK TO part_0; RELEASE part_0" in commands
    assert not any(b"RELEASE part_1" in each for each in commands)
    assert await store.read(texts) == ["b"]


def never() -> None:
    raise AssertionError("an insert missed its row")


async def test_a_deferred_statement_that_is_alone_takes_one_round_trip(
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


async def test_a_deferred_statement_that_need_not_be_durable_is_lazy(
    store: Store, commands: list[bytes]
) -> None:
    await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"), durable=False)
    assert commands[0] == BEGIN_LAZY


async def test_a_commit_by_a_deferred_statement_is_told_to_other_processes(
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


async def test_a_deferred_statement_on_a_connection_lost_while_idle_runs_once(
    store: Store, cluster: PostgresCluster
) -> None:
    await store.write(add("a"))
    end_connections(cluster)
    await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="b"))
    assert await store.read(texts) == ["a", "b"]


async def test_a_connection_lost_during_a_deferred_statement_leaves_the_outcome_open(
    store: Store, cluster: PostgresCluster
) -> None:
    """The statement commits by itself, so nobody can tell whether it has."""
    locked, ended = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        tx.run(sql("LOCK TABLE notes"))
        locked.set()
        ended.wait(30)

    async def meet(nursery: trio.Nursery) -> None:
        await trio.to_thread.run_sync(locked.wait)
        nursery.start_soon(trio.to_thread.run_sync, end_the_waiting_one)
        with pytest.raises(OverloadedError, match="Read again"):
            await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"))
        ended.set()

    def end_the_waiting_one() -> None:
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


async def test_a_reserved_read_is_no_transaction_and_reads_committed_rows(
    store: Store, commands: list[bytes], cluster: PostgresCluster
) -> None:
    assert await store.read(texts, reserved=True) == []
    await store.write(add("a"))
    commands.clear()
    assert await store.read(lambda tx: texts(tx) + texts(tx), reserved=True) == ["a", "a"]
    assert commands == []
    end_connections(cluster)
    assert await store.read(texts, reserved=True) == ["a"]


async def test_statements_alone_follow_our_settings_and_not_the_databases(
    open_store: OpenStore, cluster: PostgresCluster, postgres_url: str
) -> None:
    """A site may be given a database with settings of its own."""
    cluster.execute(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
    cluster.execute(f"ALTER DATABASE {DATABASE} SET default_transaction_isolation = serializable")
    try:
        async with open_store() as store:
            await store.write(create_notes)
            await store.write(lambda tx: tx.defer(ADD, never, owner="ada", text="a"))
            isolation = sql("SELECT current_setting('transaction_isolation')")
            told = await store.read(lambda tx: tx.scalar(isolation), reserved=True)
            assert (told, await store.read(texts)) == ("read committed", ["a"])
    finally:
        for setting in ("default_transaction_read_only", "default_transaction_isolation"):
            cluster.execute(
                "SET default_transaction_read_only = off; "
                f"ALTER DATABASE {DATABASE} RESET {setting}"
            )
