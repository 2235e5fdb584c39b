"""Hashes that run, wait and are refused (A-112, A-113, A-114, A-115)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.errors import OverloadedError
from fw_actors.hashing.hasher import HashQueue, HashSlots


class HashGate:
    """Work whose threads continue when the test opens the gate."""

    def __init__(self, slots: HashSlots) -> None:
        self.slots = slots
        self.entered: list[str] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self._go = threading.Semaphore(0)

    async def run(self, name: str, queue: HashQueue = HashQueue.SIGN_IN) -> str:
        return await self.slots.run(queue, partial(self._work, name))

    def _work(self, name: str) -> str:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.entered.append(name)
        self.wait()
        with self._lock:
            self.at_once -= 1
        return name

    def wait(self) -> None:
        self._go.acquire(timeout=10)

    def open(self, times: int = 1) -> None:
        self._go.release(times)


@pytest.fixture
def gate() -> HashGate:
    return HashGate(HashSlots(1))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a thread does; the test's own time limit ends it."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def test_hash_slots_return_the_result_of_the_work(gate: HashGate) -> None:
    gate.open(3)
    assert [await gate.run(name) for name in "abc"] == ["a", "b", "c"]
    assert (gate.slots.running, gate.slots.waiting, gate.slots.begun) == (0, 0, 3)


async def test_hash_slots_limit_parallel_hashes() -> None:
    """At most one hash per core runs at a time (A-112)."""
    gate = HashGate(HashSlots(2))
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(gate.run, f"{number}")
        await until(lambda: len(gate.entered) == 2)
        await wait_all_tasks_blocked()
        assert (gate.slots.running, gate.slots.waiting) == (2, 4)
        gate.open(6)
    assert (len(gate.entered), gate.most_at_once) == (6, 2)
    assert (gate.slots.running, gate.slots.waiting) == (0, 0)


@pytest.mark.parametrize(("queue", "limit"), [(HashQueue.SIGN_IN, 64), (HashQueue.RECOVERY, 16)])
async def test_hash_slots_refuse_at_once_if_the_queue_is_full(
    gate: HashGate, queue: HashQueue, limit: int
) -> None:
    """At most 64 sign-ins wait, and 16 recoveries and password changes, then 503 (A-113, A-114)."""
    async with trio.open_nursery() as nursery:
        for number in range(1 + limit):
            nursery.start_soon(gate.run, f"{number}", queue)
        await until(lambda: gate.slots.waiting == limit)
        before = gate.slots.begun
        with pytest.raises(OverloadedError):
            await gate.run("one too many", queue)
        assert gate.slots.begun == before
        gate.open(1 + limit)
    assert "one too many" not in gate.entered


async def test_recovery_is_not_starved_by_sign_ins(gate: HashGate) -> None:
    """Recovery and password change have a queue of their own (A-114)."""
    async with trio.open_nursery() as nursery:
        for number in range(9):
            nursery.start_soon(gate.run, f"sign-in {number}")
            await wait_all_tasks_blocked()
        nursery.start_soon(gate.run, "recovery", HashQueue.RECOVERY)
        await wait_all_tasks_blocked()
        gate.open(10)
    assert gate.entered.index("recovery") <= 2


async def test_hash_queue_runs_waiting_work_in_order(gate: HashGate) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(gate.run, f"{number}")
            await wait_all_tasks_blocked()
        gate.open(5)
    assert gate.entered == ["0", "1", "2", "3", "4"]


async def test_cancelled_waiter_is_never_run_and_frees_its_slot(gate: HashGate) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.run, "first")
        await until(lambda: gate.entered == ["first"])
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            await gate.run("gave up")
        assert gate.slots.waiting == 0
        gate.open(2)
    await gate.run("later")
    assert gate.entered == ["first", "later"]


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await wait_all_tasks_blocked()
    scope.cancel()


async def test_work_cancelled_at_the_call_is_not_run(gate: HashGate) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await gate.run("cancelled")
    assert (gate.slots.begun, gate.slots.running) == (0, 0)


async def test_work_begun_at_a_cancellation_is_finished(gate: HashGate) -> None:
    done: list[str] = []

    async def fickle(scope: trio.CancelScope) -> None:
        with scope:
            done.append(await gate.run("fickle"))

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.run, "first")
        await until(lambda: gate.entered == ["first"])
        nursery.start_soon(fickle, scope)
        await wait_all_tasks_blocked()
        gate.open()
        await until(lambda: gate.entered == ["first", "fickle"])
        scope.cancel()
        gate.open()
    assert done == ["fickle"], "the result of what was begun is not thrown away"
    assert gate.slots.running == 0


async def test_hash_slot_is_held_until_the_thread_ends(
    gate: HashGate,
) -> None:
    """The slot is held until the thread ends, also when the client has gone (A-115)."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.run, "first")
        await until(lambda: gate.entered == ["first"])
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert gate.slots.running == 1
            gate.open()
    assert gate.slots.running == 0


async def test_hash_thread_has_a_lower_priority() -> None:
    """A request without a hash stays quick under a flood of sign-ins (A-112)."""
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert await HashSlots(1).run(HashQueue.SIGN_IN, priority) == max(own, 10)
    assert await trio.to_thread.run_sync(priority) == own


async def test_hash_slots_refuse_if_no_thread_can_start(
    gate: HashGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(OverloadedError):
            await gate.run("nowhere")
    assert (gate.slots.running, gate.slots.begun) == (0, 0)
    gate.open()
    assert await gate.run("later") == "later"


async def test_hash_slot_of_failed_work_goes_to_the_next_waiter() -> None:
    slots = HashSlots(1)
    gate = HashGate(slots)

    def broken() -> None:
        gate.wait()
        raise MemoryError

    async def unlucky() -> None:
        with pytest.raises(MemoryError):
            await slots.run(HashQueue.SIGN_IN, broken)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(unlucky)
        await wait_all_tasks_blocked()
        nursery.start_soon(gate.run, "next")
        await wait_all_tasks_blocked()
        gate.open(2)
    assert (gate.entered, slots.running) == (["next"], 0)
