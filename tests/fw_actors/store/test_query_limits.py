"""A query ends at its timeout and with its caller, and the connection stays usable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
import sqlalchemy as sa
import trio
import trio.testing

from fw_actors.errors import QUERY_TIMEOUT, OverloadedError
from fw_actors.store import Like, Store, Tx
from fw_actors.store.query_limits import QueryLimit
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import add, create_notes, texts
from tests.fw_actors.store.store_kit import TransactionGate

ENDLESS = sa.text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT (i + 1) % 1000 FROM n)"
    " SELECT count(*) FROM n"
)
SECONDS = 0.2


def search(tx: Tx) -> object:
    return tx.scalar(ENDLESS)


def searching(tx: Tx) -> object:
    with tx.searching():
        return tx.scalar(ENDLESS)


async def timed_out(store: Store, fn: Callable[[Tx], object], *, writes: bool = False) -> None:
    with pytest.raises(OverloadedError) as refused:
        await (store.write(fn) if writes else store.read(fn))
    assert refused.value.extra == {"reason": QUERY_TIMEOUT}
    assert refused.value.message == ("The query took longer than 0.2 seconds; narrow its filters.")
    assert refused.value.headers == {"Retry-After": "1"}


async def test_read_times_out_and_next_read_succeeds(open_store: OpenStore) -> None:
    async with open_store(query_seconds=SECONDS, reader_threads=1) as store:
        await store.write(create_notes)
        for _ in range(3):
            await timed_out(store, search)
            assert await store.read(texts) == []


async def test_timed_out_read_runs_no_further_statement(open_store: OpenStore) -> None:
    async with open_store(query_seconds=SECONDS) as store:
        await store.write(create_notes)
        ran: list[object] = []

        def goes_on(tx: Tx) -> None:
            with pytest.raises(OverloadedError):
                tx.scalar(ENDLESS)
            ran.append(texts(tx))

        await timed_out(store, goes_on)
        assert ran == []


async def test_read_timeout_covers_sequence_of_short_statements(open_store: OpenStore) -> None:
    async with open_store(query_seconds=SECONDS) as store:
        await store.write(create_notes)

        def without_end(tx: Tx) -> None:
            while True:
                texts(tx)

        await timed_out(store, without_end)


async def test_search_timeout_inside_write_undoes_savepoint_only(open_store: OpenStore) -> None:
    async with open_store(query_seconds=SECONDS) as store:
        await store.write(create_notes)

        def caught(tx: Tx) -> None:
            add("before")(tx)
            with pytest.raises(OverloadedError), tx.savepoint():
                searching(tx)
            add("after")(tx)

        await store.write(caught)
        await timed_out(store, searching, writes=True)
        await store.write(add("next"))
        assert await store.read(texts) == ["before", "after", "next"]


async def test_write_without_search_has_no_timeout(open_store: OpenStore) -> None:
    """A migration may take long, and depends on no user's filter."""
    async with open_store(query_seconds=0.1) as store:
        await store.write(create_notes)

        def long(tx: Tx) -> None:
            add("first")(tx)
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                texts(tx)

        await store.write(long)
        assert await store.read(texts) == ["first"]


async def test_read_of_cancelled_caller_is_interrupted(open_store: OpenStore) -> None:
    """With one reader and no time limit, nothing else would free the reader."""
    async with open_store(reader_threads=1) as store:
        await store.write(create_notes)
        for _ in range(3):
            begun = threading.Event()

            def work(tx: Tx, begun: threading.Event = begun) -> object:
                begun.set()
                return search(tx)

            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.read, work)
                    await trio.to_thread.run_sync(begun.wait, 10)
                    scope.cancel()
            assert scope.cancelled_caught
            assert await store.read(texts) == []


async def test_completed_read_is_returned_to_cancelled_caller(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        gate, answers = TransactionGate(), []

        async def caller(scope: trio.CancelScope) -> None:
            with scope:
                answers.append(await store.read(gate))

        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            nursery.start_soon(caller, scope)
            await gate.entered()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            gate.open()
        assert answers == ["held"]


async def test_cancelled_waiting_reads_leave_queue_and_never_run(
    open_store: OpenStore,
) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(reader_threads=1, max_waiting_reads=3))
        await store.write(create_notes)
        gate, ran = TransactionGate(), []
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(store.read, gate)
        await gate.entered()
        for number in range(20):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as inner:
                    inner.start_soon(store.read, lambda tx, number=number: ran.append(number))
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
        assert store.statistics().waiting_reads == 1
        nursery.start_soon(store.read, lambda tx: ran.append("kept"))
        await trio.testing.wait_all_tasks_blocked()
        gate.open()
        await store.read(texts)
        assert ran == ["kept"]
        assert store.statistics().skipped == 20


async def test_reserved_read_is_answered_while_readers_are_busy(
    open_store: OpenStore,
) -> None:
    async with open_store(reader_threads=2) as store:
        await store.write(create_notes)
        inside, over = threading.Semaphore(0), threading.Event()

        def hold(tx: Tx) -> None:
            inside.release()
            assert over.wait(30)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(store.read, hold)
            for _ in range(2):
                await trio.to_thread.run_sync(inside.acquire)
            assert await store.read(texts, reserved=True) == []
            assert not inside.acquire(blocking=False)
            over.set()


async def test_waiting_read_is_refused_at_query_timeout(
    open_store: OpenStore,
) -> None:
    """After that time a queue of searches is empty, whatever its length."""
    async with open_store(query_seconds=SECONDS, reader_threads=1) as store:
        refused: list[str] = []

        async def caller() -> None:
            with pytest.raises(OverloadedError) as error:
                await store.read(search)
            refused.append(error.value.message)

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(caller)
        assert len(refused) == 40
        ran = [message for message in refused if message.startswith("The query took longer")]
        assert 1 <= len(ran) <= 3
        assert set(refused) - set(ran) == {
            "The database is busy with other queries. Try again later."
        }


async def test_like_with_worst_pattern_times_out(open_store: OpenStore) -> None:
    """A long text is interrupted too; the database's own LIKE would take seconds."""
    async with open_store(query_seconds=SECONDS) as store:
        held = sa.cast(sa.literal("a" * 1_000_000), sa.Text)
        some = sa.text("(SELECT 1 AS n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) AS few")
        worst = "%a" + "_" * 900 + "b%"
        rows = sa.select(sa.func.count()).select_from(some)
        statement = rows.where(*(Like(held + str(n), worst) for n in range(20)))

        def many(tx: Tx) -> None:
            while True:
                tx.scalar(statement)

        await timed_out(store, many)


class InterruptCounter:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class AbandonableCall:
    """A call whose caller may have gone."""

    abandoned = False


def test_query_limit_interrupt_never_reaches_next_call() -> None:
    """This holds for a cancelled caller and for a timeout."""
    limit, first, second = QueryLimit(5.0), InterruptCounter(), InterruptCounter()
    gone = AbandonableCall()
    limit.begin(first, gone)
    gone.abandoned = True
    limit.check(time.monotonic())
    assert (first.count, limit.fired) == (1, True)
    limit.end()
    limit.check(time.monotonic() + 6)
    limit.begin(second, AbandonableCall())
    limit.check(time.monotonic())
    assert (first.count, second.count, limit.fired) == (1, 0, False)
    limit.check(time.monotonic() + 6)
    assert second.count == 1


def test_query_limit_end_waits_for_running_interrupt() -> None:
    limit, inside, go_on = QueryLimit(5.0), threading.Event(), threading.Event()

    def interrupt() -> None:
        inside.set()
        assert go_on.wait(10)

    limit.begin(interrupt)
    watch = threading.Thread(target=limit.check, args=(time.monotonic() + 6,))
    watch.start()
    assert inside.wait(10)
    ending = threading.Thread(target=limit.end)
    ending.start()
    ending.join(0.05)
    assert ending.is_alive()
    go_on.set()
    ending.join(10)
    assert not ending.is_alive()
    watch.join()
