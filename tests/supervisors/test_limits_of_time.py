"""A start that takes too long is a failure, and a stop that takes too long is logged."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    ActorFailed,
    KeyedPool,
    Runtime,
    SeededEntropy,
    TrioClock,
    open_runtime,
)
from fw_actors.runtime.testing import LogBook
from supervisors import (
    ChildSpec,
    RestartIntensity,
    SupervisorFailed,
    actor_child,
    open_supervisor,
    supervisor_child,
    task_child,
)
from supervisors.children import TaskStatus
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Nap,
    SampleActor,
)
from tests.supervisors.orders import in_many_orders

QUICK = RestartIntensity(restarts=3, seconds=30.0, backoff=1.0, jitter=0.0)
HERE = __file__


class Hanging(SampleActor):
    """Never starts."""

    async def started(self) -> None:
        await trio.sleep_forever()


class StubbornStart(SampleActor):
    """Never starts in time, and does not let itself be cancelled."""

    async def started(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)


class IgnoresCancellation(SampleActor):
    """A nap is not to be disturbed."""

    async def nap(self, message: Nap) -> int:
        with trio.CancelScope(shield=True):
            await trio.sleep(message.seconds)
        return 1


class Swallower(SampleActor):
    """Takes a cancellation for the end of its nap."""

    async def nap(self, message: Nap) -> int:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(message.seconds)
        return 1


async def hanging(*, task_status: TaskStatus) -> None:
    await trio.sleep_forever()


BELOW = [task_child("b", hanging, start_seconds=9.0)]
HANGING: list[tuple[ChildSpec, str]] = [
    (actor_child("a", Hanging, start_seconds=3.0), "actor_failed"),
    (task_child("a", hanging, start_seconds=3.0), "child_failed"),
    (supervisor_child("a", BELOW, start_seconds=3.0), "child_failed"),
]


@pytest.mark.parametrize(("spec", "event"), HANGING, ids=["actor", "task", "supervisor"])
@in_many_orders
async def test_start_that_takes_too_long_is_a_failure(
    runtime: Runtime, log: LogBook, spec: ChildSpec, event: str
) -> None:
    """R-77."""
    with pytest.raises(SupervisorFailed, match="has not started within 3 s"):
        async with open_supervisor(runtime, "top", [spec]):
            raise AssertionError("started")
    assert trio.current_time() == 3.0
    (entry,) = log.named(event)
    assert "'a' has not started" in str(entry["error"])
    assert log.named("stop_overdue") == []


@pytest.mark.parametrize(("spec", "event"), HANGING[:2], ids=["actor", "task"])
@in_many_orders
async def test_start_beyond_its_limit_logs_where_it_waits(
    runtime: Runtime, log: LogBook, spec: ChildSpec, event: str
) -> None:
    """R-77."""
    with pytest.raises(SupervisorFailed):
        async with open_supervisor(runtime, "top", [spec]):
            raise AssertionError("started")
    (entry,) = log.named(event)
    assert f"it waits at {HERE}:" in str(entry["error"])


@in_many_orders
async def test_start_limit_ends_with_the_start(runtime: Runtime) -> None:
    """R-77: the limit ends with the start."""
    async with open_supervisor(runtime, "top", [actor_child("a", SampleActor, start_seconds=3.0)]):
        assert await runtime.ref("a").ask(Nap(30.0)) == 1


@in_many_orders
async def test_restart_that_takes_too_long_counts_and_keeps_the_mailbox(runtime: Runtime) -> None:
    """R-77, R-12."""
    diary: list[object] = []
    makes = [SampleActor, Hanging, SampleActor]
    specs = [actor_child("a", lambda: makes.pop(0)(diary), start_seconds=3.0)]
    async with open_supervisor(runtime, "top", specs, intensity=QUICK):
        runtime.ref("a").tell(Break())
        runtime.ref("a").tell(DiaryNote(1))
        await trio.sleep(2)
        node = runtime.snapshot().tree[0].children[0]
        assert (node.failed, node.state) == (1, "starting")
        assert await runtime.ref("a").ask(AddNumber(1)) == 1
        node = runtime.snapshot().tree[0].children[0]
        assert (node.failed, node.restarts) == (2, 2)
        assert trio.current_time() == 3.0 + 1.0
    assert diary == [1]


@in_many_orders
async def test_start_that_ignores_its_cancellation_is_logged(
    runtime: Runtime, log: LogBook
) -> None:
    """R-77, R-63: then it is a failure, although it got ready."""
    spec = actor_child("a", StubbornStart, start_seconds=3.0, shutdown_seconds=2.0)
    with pytest.raises(SupervisorFailed, match="has not started within 3 s"):
        async with open_supervisor(runtime, "top", [spec]):
            raise AssertionError("started")
    assert trio.current_time() == 10.0
    (entry,) = log.named("stop_overdue")
    assert entry["child"] == "a"
    assert str(entry["at"]).startswith(HERE)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_start_limit_must_be_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match="start_seconds must be greater than 0"):
        actor_child("a", SampleActor, start_seconds=seconds)


@pytest.mark.parametrize("kind", [IgnoresCancellation, Swallower, SampleActor])
@in_many_orders
async def test_late_stop_of_a_single_actor_logs_its_location(
    runtime: Runtime, log: LogBook, kind: type[SampleActor]
) -> None:
    """R-63."""
    async with runtime.running("a", kind, shutdown_seconds=1.0) as ref:
        ref.tell(Nap(3.0))
        await wait_all_tasks_blocked()
    (entry,) = log.named("stop_overdue")
    assert entry["child"] == "a"
    file, _, line = str(entry["at"]).rpartition(":")
    assert "await trio.sleep" in linecache.getline(file, int(line))


@in_many_orders
async def test_late_stop_of_a_supervised_actor_is_logged_once(
    runtime: Runtime, log: LogBook
) -> None:
    """R-63."""
    specs = [actor_child("a", IgnoresCancellation, shutdown_seconds=1.0)]
    async with open_supervisor(runtime, "top", [supervisor_child("inner", specs)]):
        runtime.ref("a").tell(Nap(3.0))
        await wait_all_tasks_blocked()
    assert [entry["child"] for entry in log.named("stop_overdue")] == ["a"]


@in_many_orders
async def test_late_stop_of_a_task_logs_its_location(runtime: Runtime, log: LogBook) -> None:
    """R-63."""

    async def deaf(*, task_status: TaskStatus) -> None:
        task_status.started()
        with trio.CancelScope(shield=True):
            await trio.sleep(7)

    specs = [task_child("a", deaf, shutdown_seconds=1.0)]
    async with open_supervisor(runtime, "top", specs):
        await wait_all_tasks_blocked()
    (entry,) = log.named("stop_overdue")
    assert entry["child"] == "a"
    assert str(entry["at"]).startswith(HERE)
    assert trio.current_time() == 7.0


@in_many_orders
async def test_stop_in_time_is_not_logged(runtime: Runtime, log: LogBook) -> None:
    """R-63."""
    async with runtime.running("a", SampleActor, shutdown_seconds=2.0) as ref:
        ref.tell(Nap(1.0))
    assert log.named("stop_overdue") == []
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_slow_start_of_a_keyed_actor_is_a_failure(runtime: Runtime, log: LogBook) -> None:
    """R-77: its asker learns where the start was, and the key is held back as after any failure."""
    pool = KeyedPool(runtime, "p", lambda key: Hanging(), start_seconds=3.0)
    line = linecache.getline(HERE, 48)
    assert "sleep_forever" in line
    with pytest.raises(ActorFailed, match=f"not started within 3 s; it waits at {HERE}:48"):
        await pool["k"].ask(AddNumber(1), deadline=60.0)
    assert trio.current_time() == 3.0
    assert [entry["phase"] for entry in log.named("actor_failed")] == ["start"]
    await pool.close()


@in_many_orders
async def test_slow_start_without_a_supervisor_is_a_failure(
    runtime: Runtime,
) -> None:
    """R-77."""
    with pytest.raises(ActorFailed, match=f"not started within 60 s; it waits at {HERE}:48"):
        async with runtime.running("a", Hanging):
            pytest.fail("it cannot have started")
    assert trio.current_time() == 60.0


@in_many_orders
async def test_passivation_that_takes_too_long_is_cancelled_and_logged(
    runtime: Runtime, log: LogBook
) -> None:
    """R-63: and the key's messages are handled by the next instance."""

    class Lingering(SampleActor):
        async def stopping(self) -> None:
            await trio.sleep_forever()

    pool = KeyedPool(runtime, "p", lambda key: Lingering(), idle_seconds=1.0, shutdown_seconds=3.0)
    assert await pool["k"].ask(AddNumber(1), deadline=1.0) == 1
    await trio.sleep(2)
    assert await pool["k"].ask(AddNumber(1), deadline=10.0) == 1
    assert trio.current_time() == 4.0
    overdue = log.named("stop_overdue")
    assert [entry["child"] for entry in overdue] == ["p/k"]
    assert str(overdue[0]["at"]).startswith(HERE)
    await pool.close(trio.current_time())


@pytest.mark.parametrize("limit", ["start_seconds", "shutdown_seconds"])
def test_limits_of_time_of_a_pool_must_be_positive(limit: str) -> None:
    """R-141."""

    async def make() -> None:
        clock, entropy = TrioClock(0), SeededEntropy(1)
        async with open_runtime(clock=clock, entropy=entropy) as runtime:
            limits: dict[str, Any] = {limit: 0.0}
            KeyedPool(runtime, "p", lambda key: SampleActor(), **limits)

    with pytest.raises(ValueError, match="must be above 0"):
        trio.run(make)
