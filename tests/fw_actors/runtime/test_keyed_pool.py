"""Keyed pools: one actor per key, created and passivated by need.

The module has more than 500 lines because all its tests are about one unit.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from outcome import Value
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorFailed,
    ActorGone,
    AskTimeout,
    DeadLetterReason,
    KeyedPool,
    MailboxFull,
    Runtime,
    handles,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Give,
    Keep,
    Later,
    Nap,
    SampleActor,
    SampleThatRefuses,
    SlowLifecycle,
    StopSelf,
)


async def test_keyed_pool_runs_one_actor_per_key(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    assert await pool["a"].ask(AddNumber(1)) == 1
    assert await pool["b"].ask(AddNumber(5), deadline=1.0) == 5
    assert await pool["a"].ask(AddNumber(1)) == 2
    assert pool["a"] == pool["a"] != pool["b"]
    assert pool["a"].name == "p/a"


async def test_keyed_pool_actor_knows_its_key_and_address(runtime: Runtime) -> None:
    actors: list[SampleActor] = []

    def make(key: str) -> SampleActor:
        actors.append(SampleActor())
        return actors[-1]

    pool = KeyedPool(runtime, "p", make)
    await pool["a"].ask(AddNumber(1))
    assert actors[0].context.key == "a"
    assert actors[0].context.ref == pool["a"]


async def test_keyed_pool_runs_keys_concurrently_and_messages_of_one_key_serially(
    runtime: Runtime,
) -> None:
    running: Counter[str] = Counter()
    totals: list[int] = []

    class CountedNaps(SampleActor):
        async def nap(self, message: Nap) -> int:
            key = self.context.key or ""
            running[key] += 1
            assert running[key] == 1
            totals.append(running.total())
            await trio.sleep(message.seconds)
            running[key] -= 1
            return 1

    pool = KeyedPool(runtime, "p", lambda key: CountedNaps())
    for _ in range(3):
        for key in range(100):
            pool[str(key)].tell(Nap(1.0))
    await trio.sleep(3.5)
    assert max(totals) == 100
    assert runtime.snapshot().tree[0].handled == 300


async def test_keyed_pool_passivates_idle_actors_only(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), idle_seconds=10.0)
    pool["idle"].tell(DiaryNote(1))
    pool["busy"].tell(Nap(15.0))
    pool["work"].tell(Begin(15.0))
    pool["timer"].tell(Later(15.0, 1))
    nursery.start_soon(pool["kept"].ask, Keep())
    await trio.sleep(9.5)
    assert len(pool) == 5
    await trio.sleep(1)
    assert len(pool) == 4
    await trio.sleep(15)
    assert len(pool) == 1
    pool["kept"].tell(Give(1))
    await trio.sleep(9.5)
    assert len(pool) == 1
    await trio.sleep(1)
    assert len(pool) == 0
    assert len(runtime.deadlines) == 0


async def test_keyed_pool_restarts_idle_time_on_use(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), idle_seconds=10.0)
    for n in range(1, 6):
        assert await pool["a"].ask(AddNumber(1)) == n
        await trio.sleep(8)


async def test_keyed_pool_at_capacity_passivates_least_recently_used(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=3)
    for key in "abc":
        await pool[key].ask(AddNumber(1))
    await pool["a"].ask(AddNumber(1))
    await pool["d"].ask(AddNumber(1))
    assert await pool["a"].ask(AddNumber(1)) == 3
    assert await pool["c"].ask(AddNumber(1)) == 2
    assert await pool["b"].ask(AddNumber(1)) == 1
    assert len(pool) == 3


async def test_keyed_pool_at_capacity_with_none_idle_refuses_new_keys(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=2)
    pool["a"].tell(Nap(5.0))
    pool["b"].tell(Begin(5.0))
    await wait_all_tasks_blocked()
    assert not pool["c"].tell(DiaryNote(1))
    with pytest.raises(MailboxFull, match="'p' is full: the limit is 2 actors"):
        await pool["c"].ask(AddNumber(1), deadline=1.0)
    assert pool["a"].tell(DiaryNote(1))
    assert runtime.snapshot().dead_letters[DeadLetterReason.POOL_FULL] == 1
    await trio.sleep(6)
    assert await pool["c"].ask(AddNumber(1)) == 1


async def test_keyed_pool_message_during_stopping_reaches_next_instance(
    runtime: Runtime,
) -> None:
    diary: list[Any] = []
    made: list[str] = []

    def make(key: str) -> SlowLifecycle:
        made.append(key)
        return SlowLifecycle(diary)

    pool = KeyedPool(runtime, "p", make, idle_seconds=10.0)
    pool["a"].tell(DiaryNote(1))
    await trio.sleep(11.5)  # hello until 1, idle until 11, bye until 12
    for n in (2, 3, 4):
        assert pool["a"].tell(DiaryNote(n))
    await trio.sleep(5)
    assert diary == ["hello", 1, "bye", "hello", 2, 3, 4]
    assert made == ["a", "a"]


async def test_keyed_pool_replaces_a_failed_actor_alone(
    runtime: Runtime,
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    await pool["a"].ask(AddNumber(1))
    await pool["b"].ask(AddNumber(1))
    with pytest.raises(ActorFailed, match="'p/a' failed: ValueError: broken"):
        await pool["a"].ask(Break(), deadline=1.0)
    assert await pool["a"].ask(AddNumber(1)) == 1
    assert await pool["b"].ask(AddNumber(1)) == 2


async def test_keyed_pool_keeps_messages_behind_a_failed_one(runtime: Runtime) -> None:
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary))
    for message in (DiaryNote(1), Break(), DiaryNote(2), Break(), Break(), DiaryNote(3)):
        pool["a"].tell(message)
    await trio.sleep(1)  # longer than the delays before the restarts
    assert diary == [1, 2, 3]
    node = runtime.snapshot().tree[0]
    assert (node.failed, node.restarts, node.last_error) == (3, 3, "ValueError: broken")


async def test_keyed_pool_forgets_a_failed_actor_without_messages(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    pool["a"].tell(Break())
    await wait_all_tasks_blocked()
    assert len(pool) == 0


async def test_keyed_pool_refuses_messages_when_make_fails(runtime: Runtime) -> None:
    def make(key: str) -> SampleActor:
        raise LookupError(key)

    pool = KeyedPool(runtime, "p", make)
    assert not pool["a"].tell(DiaryNote(1))
    with pytest.raises(ActorFailed, match="LookupError: a"):
        await pool["a"].ask(AddNumber(1))
    assert len(pool) == 0
    assert runtime.snapshot().dead_letters[DeadLetterReason.FAILED] == 1


async def test_keyed_pool_fails_one_message_when_started_fails(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    class UnstartedInPool(SampleActor):
        async def started(self) -> None:
            raise OSError("no disk")

    pool = KeyedPool(runtime, "p", lambda key: UnstartedInPool())
    pool["a"].tell(DiaryNote(1))
    with pytest.raises(ActorFailed, match="OSError: no disk"):
        await pool["a"].ask(AddNumber(1))
    await wait_all_tasks_blocked()
    assert len(pool) == 0


async def test_keyed_pool_ends_a_self_stopped_actor_when_idle(runtime: Runtime) -> None:
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary))
    pool["a"].tell(StopSelf())
    pool["a"].tell(DiaryNote(1))
    await wait_all_tasks_blocked()
    assert (diary, len(pool)) == ([1], 0)


async def test_keyed_pool_full_mailbox_affects_one_key_only(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleThatRefuses())
    pool["a"].tell(Nap(1.0))
    await wait_all_tasks_blocked()
    assert [pool["a"].tell(DiaryNote(n)) for n in range(3)] == [True, True, False]
    assert pool["b"].tell(DiaryNote(1))


async def test_keyed_pool_close_lets_messages_and_work_finish(runtime: Runtime) -> None:
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: SlowLifecycle(diary))
    pool["a"].tell(Begin(5.0))
    pool["a"].tell(DiaryNote(1))
    pool["a"].tell(Later(1000.0, 1))
    await trio.sleep(2)
    await pool.close(trio.current_time() + 10)
    assert trio.current_time() == 7.0
    assert diary == ["hello", 1, Value(5.0), "bye"]
    assert not pool["a"].tell(DiaryNote(2))
    with pytest.raises(ActorGone, match="'p/b' is not running"):
        await pool["b"].ask(AddNumber(1))
    await pool.close()


async def test_keyed_pool_close_cancels_at_its_deadline(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    gone: list[str] = []

    async def ask(key: str) -> None:
        with pytest.raises(ActorGone):
            await pool[key].ask(Nap(60.0), deadline=90.0)
        gone.append(key)

    for key in "aab":
        nursery.start_soon(ask, key)
    pool["c"].tell(Begin(60.0))
    await wait_all_tasks_blocked()
    await pool.close(trio.current_time() + 2)
    assert (trio.current_time(), len(pool)) == (2.0, 0)
    await wait_all_tasks_blocked()
    assert sorted(gone) == ["a", "a", "b"]
    assert len(runtime.deadlines) == 0


async def test_keyed_pool_reopens_after_close(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    await pool["a"].ask(AddNumber(1))
    await pool.close()
    pool.open()
    assert await pool["a"].ask(AddNumber(1)) == 1


async def test_keyed_pool_inspects_existing_actors_only(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    with pytest.raises(ActorGone):
        await pool["a"].inspect()
    await pool["a"].ask(AddNumber(3))
    assert (await pool["a"].inspect()).described == {"sum": 3}
    pool["a"].tell(Nap(5.0))
    await wait_all_tasks_blocked()
    with pytest.raises(AskTimeout):
        await pool["a"].inspect(deadline=1.0)


class StubbornInPool(SampleActor):
    """Ignores cancellation in its handler, and takes long to stop."""

    async def nap(self, message: Nap) -> int:
        with trio.CancelScope(shield=True):
            await trio.sleep(message.seconds)
        return 0

    async def stopping(self) -> None:
        await trio.sleep(1000)


async def test_keyed_pool_skips_stopping_after_its_deadline(
    runtime: Runtime,
) -> None:
    pool = KeyedPool(runtime, "p", make=lambda key: StubbornInPool())
    pool["a"].tell(Nap(5.0))
    await wait_all_tasks_blocked()
    await pool.close(trio.current_time() + 1.0)
    assert trio.current_time() == 5.0
    assert len(pool) == 0


class Leaving(SampleActor):
    """Takes its time to go."""

    seconds = 0.0

    async def stopping(self) -> None:
        if self.seconds:
            await trio.sleep(self.seconds)
        self.diary.append(self.context.key)


class LeavingSlowly(Leaving):
    seconds = 1.0


@pytest.mark.parametrize("kind", [Leaving, LeavingSlowly])
async def test_keyed_pool_at_capacity_refuses_no_ask_while_an_actor_is_idle(
    runtime: Runtime, kind: type[Leaving]
) -> None:
    """R-52: an actor that still runs its `stopping` does not count."""
    gone: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: kind(gone), capacity=100)
    for number in range(200):
        assert await pool[str(number)].ask(AddNumber(1), deadline=1.0) == 1
    await pool.close(trio.current_time() + 60)
    assert sorted(gone, key=int) == [str(number) for number in range(200)]


async def test_keyed_pool_at_capacity_accepts_tells_with_an_idle_actor(runtime: Runtime) -> None:
    """R-52."""
    gone: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: Leaving(gone), capacity=10)
    for number in range(100):
        assert pool[str(number)].tell(AddNumber(1))
        await wait_all_tasks_blocked()
    await pool.close(trio.current_time() + 60)
    assert len(gone) == 100


async def test_keyed_pool_bounds_the_actors_that_are_leaving(runtime: Runtime) -> None:
    """R-52: memory is bounded also while every `stopping` hangs."""
    pool = KeyedPool(runtime, "p", lambda key: LeavingSlowly([]), capacity=10)
    for number in range(20):
        assert await pool[str(number)].ask(AddNumber(1), deadline=0.5) == 1
    with pytest.raises(MailboxFull):
        await pool["one more"].ask(AddNumber(1), deadline=0.5)
    assert len(pool) == 20
    await trio.sleep(2)
    assert len(pool) == 10
    assert await pool["one more"].ask(AddNumber(1), deadline=0.5) == 1
    await pool.close(trio.current_time() + 60)


async def test_keyed_pool_counts_an_actor_again_that_a_message_called_back(
    runtime: Runtime,
) -> None:
    """R-54: the next instance counts again."""
    pool = KeyedPool(runtime, "p", lambda key: LeavingSlowly([]), capacity=2)
    for key in "abc":
        assert await pool[key].ask(AddNumber(1), deadline=0.5) == 1
    assert await pool["a"].ask(AddNumber(1), deadline=5.0) == 1
    assert len(pool) == 3
    await pool["d"].ask(AddNumber(1), deadline=0.5)
    await trio.sleep(2)
    assert len(pool) == 2
    await pool.close(trio.current_time() + 60)


@pytest.mark.parametrize("kind", [SampleActor, Leaving])
@pytest.mark.parametrize("by_close", [False, True])
async def test_keyed_pool_passivates_in_steps(
    runtime: Runtime, nursery: trio.Nursery, kind: type[SampleActor], by_close: bool
) -> None:
    """R-57: other tasks run between any 128 passivations, of idle actors and at the end."""
    pool = KeyedPool(runtime, "p", lambda key: kind([]), idle_seconds=60.0)
    for number in range(1000):
        pool[str(number)].tell(DiaryNote(1))
    while pool.statistics().active:
        await trio.lowlevel.checkpoint()
    if by_close:
        nursery.start_soon(pool.close)
    else:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(61.0)
    peak, last = 0, 1000
    for _ in range(1000):
        if by_close:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(1e-6)
        idle = pool.statistics().idle
        peak, last = max(peak, last - idle), idle
    assert last == 0
    assert peak <= 2 * 128  # the last step of one pass of trio and the first of the next one
    await pool.close()
    assert len(pool) == 0


class BrokenAtStart(SampleActor):
    async def started(self) -> None:
        raise ValueError("not started")


async def test_keyed_pool_records_a_message_whose_actor_does_not_start(runtime: Runtime) -> None:
    """R-80: a message that no actor handled is a dead letter."""
    pool = KeyedPool(runtime, "p", lambda key: BrokenAtStart())
    assert pool["a"].tell(DiaryNote(1))
    await wait_all_tasks_blocked()
    assert runtime.snapshot().dead_letters[DeadLetterReason.FAILED] == 1
    with pytest.raises(ActorFailed, match="not started"):
        await pool["a"].ask(AddNumber(1), deadline=1.0)
    assert runtime.snapshot().dead_letters[DeadLetterReason.FAILED] == 1


@pytest.mark.parametrize("asks", [False, True])
async def test_keyed_pool_keeps_a_message_that_make_sends_to_the_new_actor(
    runtime: Runtime, asks: bool
) -> None:
    """R-51: it comes first, and the actor is not idle meanwhile."""
    diary: list[Any] = []

    def make(key: str) -> SampleActor:
        assert pool.tell(key, DiaryNote(0))
        return SampleActor(diary)

    pool = KeyedPool(runtime, "p", make)
    if asks:
        assert await pool["a"].ask(AddNumber(1), deadline=1.0) == 1
    else:
        assert pool.tell("a", DiaryNote(1))
        assert pool.statistics().idle == 0
    await wait_all_tasks_blocked()
    assert diary == ([0] if asks else [0, 1])
    await pool.close()


async def test_keyed_pool_handles_a_message_that_make_sends_before_it_fails(
    runtime: Runtime,
) -> None:
    """R-51, R-58: by the next instance; the message for which it was made fails."""
    diary: list[Any] = []
    made = 0

    def make(key: str) -> SampleActor:
        nonlocal made
        made += 1
        if made == 1:
            pool.tell(key, DiaryNote(0))
            raise ValueError("not made")
        return SampleActor(diary)

    pool = KeyedPool(runtime, "p", make)
    assert not pool.tell("a", DiaryNote(1))
    await wait_all_tasks_blocked()
    assert (diary, len(pool)) == ([0], 1)
    await pool.close()


async def test_keyed_pool_actor_that_failed_after_its_stop_is_replaced_by_one_that_stays(
    runtime: Runtime,
) -> None:
    """R-52: the request to stop concerned the failed instance."""

    class Stopping(SampleActor):
        @handles(StopSelf)
        def end(self, message: StopSelf) -> None:
            self.context.stop()
            raise ValueError("broken")

    pool = KeyedPool(runtime, "p", lambda key: Stopping(), idle_seconds=60.0)
    pool.tell("a", StopSelf())
    pool.tell("a", DiaryNote(1))
    await trio.sleep(30)
    assert len(pool) == 1


async def test_keyed_pool_is_not_opened_while_its_instances_end(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-76: the task that waits for their end would wait for ever."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    pool.tell("a", Nap(1.0))
    await wait_all_tasks_blocked()
    nursery.start_soon(pool.end_instances)
    await wait_all_tasks_blocked()
    with pytest.raises(RuntimeError, match="still closing"):
        pool.open()
    await trio.sleep(2)
    pool.open()
    assert await pool["a"].ask(AddNumber(1), deadline=1.0) == 1


async def test_keyed_pool_closed_while_its_instances_end_is_closed_in_time(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-61."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    pool.tell("a", Nap(100.0))
    await wait_all_tasks_blocked()
    nursery.start_soon(pool.end_instances)
    await wait_all_tasks_blocked()
    with trio.fail_after(5):
        await pool.close(trio.current_time() + 1)
    assert (len(pool), trio.current_time()) == (0, 1.0)


async def test_keyed_pool_bounds_actors_that_messages_call_back_while_they_leave(
    runtime: Runtime,
) -> None:
    """R-52: at most twice the capacity, whatever is called back."""
    pool = KeyedPool(runtime, "p", lambda key: LeavingSlowly([]), capacity=2, idle_seconds=0.1)
    peak = 0
    for number in range(50):
        for key in (*range(number % 7), number):
            pool.tell(str(key), DiaryNote(1))
            peak = max(peak, len(pool))
        await trio.sleep(0.15)
    assert peak == 4
    await pool.close()
