"""Keys whose actors fail repeatedly: delayed, then refused for a time, independently."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorFailed,
    DeadLetterReason,
    FailedTooOften,
    KeyedPool,
    RestartIntensity,
    Runtime,
    SeededEntropy,
)
from fw_actors.runtime.supervision import FailedKey, after_key_failure
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    LogBook,
    Nap,
    SampleActor,
    SampleThatRefuses,
    SampleThatWaits,
)

PLAIN = RestartIntensity(restarts=3, seconds=30.0, backoff=1.0, backoff_cap=4.0, jitter=0.0)
"""Delays of 0, 1 and 2 seconds; the fourth failure is one too many."""


def failures(times: list[float], intensity: RestartIntensity = PLAIN) -> FailedKey:
    key: FailedKey | None = None
    for time in times:
        key = after_key_failure(key, intensity, f"at {time:g}", now=time, entropy=SeededEntropy(1))
    assert key is not None
    return key


def test_key_failure_delays_grow_up_to_the_cap() -> None:
    """R-58."""
    often = RestartIntensity(restarts=99, backoff=1.0, backoff_cap=4.0, jitter=0.0)
    delays = [failures([0.0] * count, often).start_at for count in range(1, 7)]
    assert delays == [0.0, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_key_failure_beyond_the_intensity_is_refused_until_calm() -> None:
    """R-59."""
    key = failures([0.0, 1.0, 2.0, 3.0])
    assert (key.refused, key.start_at, key.failures, key.error) == (True, 63.0, 4, "at 3")


def test_key_failures_that_are_far_apart_do_not_add_up() -> None:
    """R-58, R-59: 30 s for the intensity, 60 s for the delay."""
    assert not failures([0.0, 1.0, 2.0, 31.5]).refused
    assert failures([0.0, 1.0, 62.0]).start_at == 62.0


async def broken(pool: KeyedPool, key: str, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ActorFailed):
            await pool[key].ask(Break(), deadline=60.0)


async def test_key_that_fails_again_handles_its_messages_after_the_delay(
    runtime: Runtime,
) -> None:
    """R-58: also those that arrive during the delay; none is lost."""
    diary: list[object] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary), intensity=PLAIN)
    for message in (
        DiaryNote(1),
        Break(),
        DiaryNote(2),
        Break(),
        DiaryNote(3),
        Break(),
        DiaryNote(4),
    ):
        pool["a"].tell(message)
    await trio.sleep(0.5)
    assert diary == [1, 2]
    assert pool["a"].tell(DiaryNote(5))
    await trio.sleep(1.0)
    assert diary == [1, 2, 3]
    assert await pool["a"].ask(AddNumber(1), deadline=5.0) == 1
    assert (trio.current_time(), diary) == (3.0, [1, 2, 3, 4, 5])


async def test_key_without_messages_is_made_after_the_delay(runtime: Runtime) -> None:
    """R-58: there is no cell while the delay passes unnoticed, and none is made early."""
    made: list[float] = []

    def make(key: str) -> SampleActor:
        made.append(trio.current_time())
        return SampleActor()

    pool = KeyedPool(runtime, "p", make, intensity=PLAIN)
    await broken(pool, "a", 2)
    await wait_all_tasks_blocked()
    assert len(pool) == 0
    assert await pool["a"].ask(AddNumber(1), deadline=5.0) == 1
    assert made == [0.0, 0.0, 1.0]


async def test_key_in_its_delay_keeps_mailbox_deadlines_and_overflow(
    runtime: Runtime,
) -> None:
    """R-58."""
    pool = KeyedPool(runtime, "p", lambda key: SampleThatRefuses(), intensity=PLAIN)
    await broken(pool, "a", 2)
    with trio.move_on_after(0.5) as scope:
        await pool["a"].ask(AddNumber(1))
    assert scope.cancelled_caught
    assert [pool["a"].tell(DiaryNote(number)) for number in range(2)] == [True, False]
    await trio.sleep(1)
    assert await pool["a"].ask(AddNumber(1), deadline=1.0) == 1


async def test_key_that_fails_too_often_is_refused_with_its_reason(runtime: Runtime) -> None:
    """R-59."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), intensity=PLAIN)
    await broken(pool, "a", 4)
    with pytest.raises(FailedTooOften) as caught:
        await pool["a"].ask(AddNumber(1), deadline=1.0)
    assert str(caught.value) == (
        "'p/a' has failed 4 times, the last time with ValueError: broken; it is refused for 60 s."
    )
    assert (caught.value.actor, caught.value.failures, caught.value.seconds) == ("p/a", 4, 60.0)
    assert not pool["a"].tell(DiaryNote(1))
    assert runtime.snapshot().dead_letters[DeadLetterReason.FAILED_TOO_OFTEN] == 1


async def test_key_that_is_refused_settles_what_waits_for_it(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    """R-59: asked and told messages, and senders that wait for room."""
    pool = KeyedPool(
        runtime, "p", lambda key: SampleThatWaits(), intensity=RestartIntensity(restarts=0)
    )
    refused: list[str] = []

    async def ask() -> None:
        with pytest.raises(FailedTooOften) as caught:
            await pool["a"].ask(AddNumber(1))
        refused.append(caught.value.error)

    pool["a"].tell(Nap(1.0))
    pool["a"].tell(Break())
    await wait_all_tasks_blocked()
    pool["a"].tell(DiaryNote(1))
    for _ in range(3):
        nursery.start_soon(ask)
    await trio.sleep(2)
    assert refused == ["ValueError: broken"] * 3
    assert len(pool) == 0
    assert runtime.snapshot().dead_letters[DeadLetterReason.FAILED_TOO_OFTEN] == 1


async def test_key_begins_anew_after_it_was_refused(runtime: Runtime) -> None:
    """R-59: with its whole intensity."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), intensity=PLAIN)
    await broken(pool, "a", 4)
    await trio.sleep(61)
    assert await pool["a"].ask(AddNumber(1), deadline=1.0) == 1
    await broken(pool, "a", 4)
    assert not pool["a"].tell(DiaryNote(1))


async def test_key_that_fails_leaves_other_keys_alone(runtime: Runtime) -> None:
    """R-55, R-58, R-59."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), intensity=PLAIN)
    assert await pool["b"].ask(AddNumber(1), deadline=1.0) == 1
    await broken(pool, "a", 4)
    began = trio.current_time()
    assert await pool["b"].ask(AddNumber(1), deadline=1.0) == 2
    assert await pool["c"].ask(AddNumber(1), deadline=1.0) == 1
    assert trio.current_time() == began


@pytest.mark.parametrize("phase", ["construct", "start"])
async def test_key_that_never_starts_is_refused(runtime: Runtime, phase: str) -> None:
    """R-59: in the constructor or in `started`."""
    tries: list[float] = []

    class UnstartedKey(SampleActor):
        async def started(self) -> None:
            tries.append(trio.current_time())
            raise OSError("no disk")

    def make(key: str) -> SampleActor:
        if phase == "construct":
            tries.append(trio.current_time())
            raise OSError("no disk")
        return UnstartedKey()

    pool = KeyedPool(runtime, "p", make, intensity=PLAIN)
    for _ in range(6):
        with pytest.raises(ActorFailed, match="OSError: no disk"):
            await pool["a"].ask(AddNumber(1), deadline=10.0)
    assert tries == [0.0, 0.0, 1.0, 3.0]


async def test_keys_that_fail_are_forgotten(runtime: Runtime) -> None:
    """R-45, R-59: by their number and by time."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=10)
    for number in range(50):
        await broken(pool, str(number), 1)
    assert pool.statistics().failed == 10
    await trio.sleep(61)
    assert pool.statistics().failed == 0
    assert len(runtime.deadlines) == 0


async def test_pool_closes_without_waiting_for_delays(runtime: Runtime) -> None:
    """R-60: waiting messages are handled at once."""
    diary: list[object] = []
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(diary), intensity=PLAIN)
    for message in (Break(), Break(), DiaryNote(1), Break(), DiaryNote(2)):
        pool["a"].tell(message)
    await wait_all_tasks_blocked()
    assert pool.statistics().parked == 1
    await pool.close(trio.current_time() + 5)
    assert (diary, trio.current_time(), len(pool)) == ([1, 2], 0.0, 0)
    assert len(runtime.deadlines) == 0


async def test_key_that_is_refused_logs_each_failure_once(runtime: Runtime, log: LogBook) -> None:
    """R-81: and no message that was refused."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), intensity=PLAIN)
    for _ in range(100):
        pool["a"].tell(Break())
    await trio.sleep(10)
    assert len(log.named("actor_failed")) == 4
    node = pool.snapshot()
    assert (node.failed, node.restarts, node.alive, node.depth) == (4, 3, 0, 0)


async def test_key_in_its_delay_is_no_instance(runtime: Runtime) -> None:
    """R-80."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), intensity=PLAIN)
    for message in (Break(), Break(), DiaryNote(1), Begin(1.0)):
        pool["a"].tell(message)
    await wait_all_tasks_blocked()
    node = pool.snapshot()
    assert (node.alive, node.running, node.depth) == (0, 0, 2)
    assert not pool["a"].presence().alive
    await pool.close(trio.current_time() + 5)
