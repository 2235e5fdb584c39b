"""The store as used by trio tasks: order, bounds, cancellation, snapshots, closing."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from fw_actors.errors import OverloadedError
from fw_actors.runtime.clock import SeededEntropy, TrioClock
from fw_actors.store import Store, Tx, installation_key
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import (
    NoteRefused,
    add,
    add_then_refuse,
    answers_of_callers,
    create_notes,
    texts,
)
from tests.fw_actors.store.store_kit import TransactionGate


async def test_store_read_sees_preceding_write(store: Store) -> None:
    for name in "abc":
        await store.write(add(name))
        assert (await store.read(texts))[-1] == name


async def test_store_raises_error_of_function_and_rolls_back(store: Store) -> None:
    with pytest.raises(NoteRefused):
        await store.write(add_then_refuse)
    with pytest.raises(NoteRefused):
        await store.read(refuse_read)
    assert await store.read(texts) == []


def refuse_read(tx: Tx) -> None:
    raise NoteRefused


async def test_store_writes_run_in_call_order(ordered: Store) -> None:
    gate = TransactionGate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ordered.write, gate)
        await gate.entered()
        for name in "abcde":
            nursery.start_soon(ordered.write, add(name))
            await trio.testing.wait_all_tasks_blocked()
        gate.open()
    assert await ordered.read(texts) == list("abcde")


async def test_concurrent_callers_get_own_answers(threaded: Store) -> None:
    answers = await answers_of_callers(threaded, 100)
    assert answers == {number: number for number in range(100)}
    assert threaded.statistics().waiting_writes == 0


async def test_store_runs_function_once_and_undoes_failures_alone(
    threaded: Store,
) -> None:
    """Architecture, The store: no `fn` is ever run twice (O-12)."""
    ran: list[str] = []

    async def caller(name: str, fails: bool) -> None:
        def fn(tx: Tx) -> None:
            ran.append(name)
            add(name)(tx)
            if fails:
                raise NoteRefused

        with suppress(NoteRefused):
            await threaded.write(fn)

    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(caller, str(number), number % 3 == 0)
    assert sorted(ran) == sorted(map(str, range(60)))
    kept = {str(number) for number in range(60) if number % 3}
    assert set(await threaded.read(texts)) == kept


async def test_write_cancelled_while_waiting_changes_nothing(
    ordered: Store,
) -> None:
    gate = TransactionGate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ordered.write, gate)
        await gate.entered()
        async with trio.open_nursery() as inner:
            inner.start_soon(ordered.write, add("withdrawn"))
            await trio.testing.wait_all_tasks_blocked()
            inner.cancel_scope.cancel()
        gate.open()
    assert await ordered.read(texts) == []
    assert ordered.statistics().skipped == 1


async def test_write_cancelled_while_running_commits_and_returns(
    threaded: Store,
) -> None:
    gate = TransactionGate()
    answers: list[str] = []

    async def caller() -> None:
        answers.append(await threaded.write(gate))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await gate.entered()
        nursery.cancel_scope.cancel()
        gate.open()
    assert answers == ["held"]


async def test_full_write_queue_refuses_immediately(open_store: OpenStore) -> None:
    """O-15."""
    gate = TransactionGate()
    async with open_store(max_waiting_writes=1) as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.write, gate)
        await gate.entered()
        with pytest.raises(OverloadedError):
            await store.write(lambda tx: None)
        gate.open()


async def test_full_read_queue_refuses_immediately(open_store: OpenStore) -> None:
    gate = TransactionGate()
    async with (
        open_store(max_waiting_reads=1, reader_threads=1) as store,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(store.read, gate)
        await gate.entered()
        with pytest.raises(OverloadedError):
            await store.read(lambda tx: None)
        gate.open()


async def test_write_cancelled_at_any_moment_is_atomic(
    ordered: Store,
) -> None:
    """Every call is either committed and answered, or withdrawn."""
    answered: set[str] = set()
    entropy = SeededEntropy(3)

    async def caller(name: str, patience: int) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, name)
                for _ in range(patience):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

    async def write(name: str) -> None:
        await ordered.write(add(name))
        answered.add(name)

    async with trio.open_nursery() as nursery:
        for number in range(500):
            nursery.start_soon(caller, str(number), int(entropy.uniform(0, 300)))
    await ordered.write(lambda tx: None)  # comes after all that were withdrawn
    statistics = ordered.statistics()
    assert set(await ordered.read(texts)) == answered
    assert statistics.skipped == 500 - len(answered)
    assert (statistics.waiting_writes, statistics.waiting_reads) == (0, 0)


async def test_store_read_sees_single_snapshot_despite_commits(threaded: Store) -> None:
    gate = TransactionGate()

    def read_twice(tx: Tx) -> tuple[list[str], list[str]]:
        before = texts(tx)
        gate(tx)
        return before, texts(tx)

    answers: list[tuple[list[str], list[str]]] = []

    async def reader() -> None:
        answers.append(await threaded.read(read_twice))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await gate.entered()
        await threaded.write(add("a"))
        gate.open()
    assert answers == [([], [])]
    assert await threaded.read(texts) == ["a"]


async def test_closing_store_finishes_waiting_and_refuses_new_writes(open_store: OpenStore) -> None:
    gate = TransactionGate()
    answers: list[int] = []

    async def caller() -> None:
        answers.append(await store.write(add("a")))

    async with trio.open_nursery() as nursery:
        async with open_store() as store:
            await store.write(create_notes)
            nursery.start_soon(store.write, gate)
            await gate.entered()
            nursery.start_soon(caller)
            await trio.testing.wait_all_tasks_blocked()
            gate.open()
        with pytest.raises(OverloadedError, match="closing"):
            await store.write(lambda tx: None)
    assert answers == [1]


async def test_store_threads_end_with_store(open_store: OpenStore) -> None:
    async with open_store(reader_threads=3) as store:
        await store.read(lambda tx: None)
    for thread in threading.enumerate():
        if thread.name.startswith(("fw-writer", "fw-reader", "fw-notices")):
            await trio.to_thread.run_sync(thread.join, 10)
            assert not thread.is_alive()


async def test_inline_store_follows_given_clock_and_cancellation(
    open_store: OpenStore, autojump_clock: MockClock
) -> None:
    clock = TrioClock(1_000_000)
    async with open_store(clock=clock, inline=True) as store:
        assert await store.write(lambda tx: tx.now) == 1_000_000
        await trio.sleep(3600)
        assert await store.read(lambda tx: tx.now) == 4_600_000
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.write(create_notes)
        assert await store.read(lambda tx: tx.columns("notes")) == {}


async def test_installation_key_is_created_once(open_store: OpenStore) -> None:
    keys = []
    for seed in (1, 2):
        async with open_store(entropy=SeededEntropy(seed)) as store:
            keys.append(await store.read(installation_key))
    assert keys[0] == keys[1]
    assert len(keys[0]) == 32


async def test_non_durable_write_is_visible_and_undone_on_error(
    store: Store,
) -> None:
    await store.write(add("lazy"), durable=False)
    with pytest.raises(NoteRefused):
        await store.write(add_then_refuse, durable=False)
    await store.write(add("durable"))
    assert await store.read(texts) == ["lazy", "durable"]


async def test_store_writes_keep_order_independent_of_durability(ordered: Store) -> None:
    gate = TransactionGate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ordered.write, gate)
        await gate.entered()
        for name in "abcdef":
            write = partial(ordered.write, durable=name in "bef")
            nursery.start_soon(write, add(name))
            await trio.testing.wait_all_tasks_blocked()
        gate.open()
    assert await ordered.read(texts) == list("abcdef")
