"""Supervisors: start, restart, escalation, stop.

The module has more than 500 lines because all its tests are about one unit and share its tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import ActorGone, AskCycle, AskTimeout, DeadLetterReason, KeyedPool, Runtime
from fw_actors.runtime.testing import LogBook
from supervisors import (
    ChildSpec,
    Restart,
    RestartIntensity,
    Strategy,
    SupervisorFailed,
    actor_child,
    open_supervisor,
    pool_child,
    supervisor_child,
    task_child,
)
from supervisors.children import TaskFunction, TaskStatus
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Nap,
    SampleActor,
    SampleThatWaits,
    SlowLifecycle,
    StopSelf,
)
from tests.supervisors.orders import in_many_orders

NO_JITTER = RestartIntensity(restarts=3, seconds=30.0, backoff=1.0, jitter=0.0)
Diary = list[Any]


def task(diary: Diary, name: str, *, starts: float = 1.0, ends: float = 1.0) -> TaskFunction:
    """Return a task that writes into the diary when it is ready and when it ends."""

    async def run(*, task_status: TaskStatus) -> None:
        await trio.sleep(starts)
        diary.append(f"{name} up")
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(ends)
            diary.append(f"{name} down")

    return run


def failing_after(seconds: float) -> TaskFunction:
    async def run(*, task_status: TaskStatus) -> None:
        task_status.started()
        await trio.sleep(seconds)
        raise OSError("no disk")

    return run


async def unstartable(*, task_status: TaskStatus) -> None:
    raise OSError("no disk")


@in_many_orders
async def test_supervisor_starts_in_order_and_stops_in_reverse(runtime: Runtime) -> None:
    """R-70."""
    diary: Diary = []
    specs = [task_child(name, task(diary, name)) for name in "abc"]
    async with open_supervisor(runtime, "top", specs):
        diary.append("open")
        assert trio.current_time() == 3.0
    assert diary == ["a up", "b up", "c up", "open", "c down", "b down", "a down"]
    assert runtime.snapshot().tree == ()


@in_many_orders
async def test_supervisor_undoes_a_failed_start_in_reverse(runtime: Runtime) -> None:
    diary: Diary = []
    specs = [
        task_child("a", task(diary, "a")),
        task_child("b", task(diary, "b")),
        task_child("bad", unstartable),
        task_child("c", task(diary, "c")),
    ]
    with pytest.raises(SupervisorFailed, match="'top' gave up because of 'bad': OSError: no disk"):
        async with open_supervisor(runtime, "top", specs):
            diary.append("open")
    assert diary == ["a up", "b up", "b down", "a down"]


@in_many_orders
async def test_child_that_ends_before_started_has_failed(runtime: Runtime) -> None:
    async def silent(*, task_status: TaskStatus) -> None:
        await trio.sleep(1)

    with pytest.raises(SupervisorFailed, match="before it reported that it had started"):
        async with open_supervisor(runtime, "top", [task_child("a", silent)]):
            pass


@in_many_orders
async def test_restart_keeps_address_and_mailbox(runtime: Runtime, log: LogBook) -> None:
    """O-39."""
    diary: Diary = []
    specs = [actor_child("a", lambda: SampleActor(diary))]
    async with open_supervisor(runtime, "top", specs):
        ref = runtime.ref("a")
        for message in (DiaryNote(1), Break(), DiaryNote(2)):
            ref.tell(message)
        assert await ref.ask(AddNumber(1)) == 1
        node = runtime.snapshot().tree[0].children[0]
    assert diary == [1, 2]
    assert (node.name, node.failed, node.restarts) == ("a", 1, 1)
    assert len(log.named("actor_failed")) == 1
    assert log.named("child_failed") == []


@in_many_orders
async def test_restart_delay_keeps_the_mailbox_open(
    runtime: Runtime,
) -> None:
    diary: Diary = []
    specs = [actor_child("a", lambda: SampleActor(diary))]
    async with open_supervisor(runtime, "top", specs, intensity=NO_JITTER):
        ref = runtime.ref("a")
        ref.tell(Break())
        ref.tell(Break())
        await wait_all_tasks_blocked()
        assert runtime.snapshot().tree[0].children[0].state == "waiting"
        assert ref.tell(DiaryNote(1))
        start = trio.current_time()
        assert await ref.ask(AddNumber(1), deadline=5.0) == 1
        assert trio.current_time() - start == 1.0
    assert diary == [1]


@in_many_orders
async def test_escalation_stops_the_children_in_order(
    runtime: Runtime,
) -> None:
    diary: Diary = []
    specs = [
        task_child("a", task(diary, "a")),
        task_child("bad", failing_after(0.5)),
        task_child("c", task(diary, "c")),
    ]
    with pytest.raises(SupervisorFailed, match="'top' gave up because of 'bad': OSError: no disk"):
        async with open_supervisor(runtime, "top", specs, intensity=NO_JITTER):
            await trio.sleep_forever()
    assert diary == ["a up", "c up", "c down", "a down"]
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_restart_counts_start_failures(runtime: Runtime) -> None:
    runs = 0

    async def run(*, task_status: TaskStatus) -> None:
        nonlocal runs
        runs += 1
        if runs > 1:
            raise OSError("no disk")
        task_status.started()
        await trio.sleep(1)
        raise OSError("no disk")

    with pytest.raises(SupervisorFailed):
        async with open_supervisor(runtime, "top", [task_child("a", run)], intensity=NO_JITTER):
            await trio.sleep_forever()
    assert runs == 4
    assert trio.current_time() == 1 + 0 + 1 + 2


@in_many_orders
async def test_child_transient_may_end_and_temporary_may_fail(runtime: Runtime) -> None:
    """R-74."""
    specs = [
        actor_child("done", SampleActor, restart=Restart.TRANSIENT),
        actor_child("gone", SampleActor, restart=Restart.TEMPORARY),
    ]
    async with open_supervisor(runtime, "top", specs):
        runtime.ref("done").tell(StopSelf())
        runtime.ref("gone").tell(Break())
        await wait_all_tasks_blocked()
        for name in ("done", "gone"):
            with pytest.raises(ActorGone):
                await runtime.ref(name).ask(AddNumber(1))
        runtime.ref("done").tell(DiaryNote(1))
    assert runtime.snapshot().dead_letters[DeadLetterReason.GONE] == 1


@in_many_orders
async def test_child_significant_ends_the_block_normally(
    runtime: Runtime,
) -> None:
    diary: Diary = []
    specs = [
        task_child("a", task(diary, "a")),
        actor_child("main", SampleActor, restart=Restart.TRANSIENT, significant=True),
    ]
    async with open_supervisor(runtime, "top", specs):
        runtime.ref("main").tell(StopSelf())
        await trio.sleep(1000)
    assert diary == ["a up", "a down"]
    assert trio.current_time() == 2.0


RESTARTED: list[tuple[Strategy, list[str]]] = [
    (Strategy.ONE_FOR_ONE, []),
    (Strategy.REST_FOR_ONE, ["c down", "c up"]),
    (Strategy.ONE_FOR_ALL, ["c down", "a down", "a up", "c up"]),
]


@pytest.mark.parametrize(("strategy", "seen"), RESTARTED)
@in_many_orders
async def test_restart_follows_the_strategy_in_order(
    runtime: Runtime, strategy: Strategy, seen: Sequence[str]
) -> None:
    diary: Diary = []
    specs = [
        task_child("a", task(diary, "a")),
        actor_child("b", SampleActor),
        task_child("c", task(diary, "c")),
    ]
    async with open_supervisor(runtime, "top", specs, strategy=strategy):
        diary.clear()
        runtime.ref("b").tell(Break())
        await trio.sleep(10)
        assert diary == seen
        assert await runtime.ref("b").ask(AddNumber(1)) == 1


@in_many_orders
async def test_supervisor_cancelled_stops_in_order(runtime: Runtime) -> None:
    diary: Diary = []
    specs = [
        task_child("a", task(diary, "a")),
        actor_child("b", lambda: SlowLifecycle(diary)),
        task_child("c", task(diary, "c")),
    ]
    with trio.move_on_after(10) as scope:
        async with open_supervisor(runtime, "top", specs):
            runtime.ref("b").tell(Nap(9.5))
            runtime.ref("b").tell(DiaryNote(1))
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert diary == ["a up", "hello", "c up", "c down", 1, "bye", "a down"]


@in_many_orders
async def test_supervisor_raises_the_error_of_its_block_unwrapped(
    runtime: Runtime,
) -> None:
    diary: Diary = []
    with pytest.raises(KeyError, match="mine"):
        async with open_supervisor(runtime, "top", [task_child("a", task(diary, "a"))]):
            raise KeyError("mine")
    assert diary == ["a up", "a down"]


@in_many_orders
async def test_supervisor_cancelled_during_start_stops_what_began(runtime: Runtime) -> None:
    diary: Diary = []
    specs = [task_child(name, task(diary, name)) for name in "abc"]
    with trio.move_on_after(1.5):
        async with open_supervisor(runtime, "top", specs):
            diary.append("open")
    assert diary == ["a up", "a down"]


@in_many_orders
async def test_restart_delay_cut_by_a_stop_settles_the_mailbox(
    runtime: Runtime,
) -> None:
    async with open_supervisor(
        runtime, "top", [actor_child("a", SampleActor)], intensity=NO_JITTER
    ):
        ref = runtime.ref("a")
        for message in (Break(), Break(), DiaryNote(1)):
            ref.tell(message)
        await wait_all_tasks_blocked()
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_child_task_is_cancelled_after_shutdown_seconds(
    runtime: Runtime,
) -> None:
    diary: Diary = []
    requested = trio.Event()

    async def graceful(*, task_status: TaskStatus) -> None:
        task_status.started()
        await requested.wait()
        await trio.sleep(2)
        diary.append("graceful")

    async def deaf(*, task_status: TaskStatus) -> None:
        task_status.started()
        await trio.sleep(1000)
        diary.append("never")

    specs = [
        task_child("graceful", graceful, stop=requested.set),
        task_child("deaf", deaf, stop=lambda: diary.append("asked"), shutdown_seconds=3.0),
    ]
    async with open_supervisor(runtime, "top", specs):
        pass
    assert diary == ["asked", "graceful"]
    assert trio.current_time() == 5.0


@in_many_orders
async def test_supervisor_stop_has_one_deadline(runtime: Runtime) -> None:
    def slow(id: str) -> ChildSpec:
        return actor_child(id, SampleActor, shutdown_seconds=60.0)

    specs = [
        slow("a"),
        supervisor_child("inner", [slow("b"), slow("c")], shutdown_seconds=60.0),
        slow("d"),
    ]
    async with open_supervisor(runtime, "top", specs, stop_seconds=10.0):
        for name in "abcd":
            runtime.ref(name).tell(Nap(1000.0))
        await wait_all_tasks_blocked()
    assert trio.current_time() == 10.0


@in_many_orders
async def test_escalation_is_a_failure_for_the_parent(runtime: Runtime) -> None:
    diary: Diary = []
    inner = [task_child("x", task(diary, "x")), actor_child("bad", SampleActor)]
    specs = [
        task_child("a", task(diary, "a")),
        supervisor_child("inner", inner, intensity=RestartIntensity(restarts=0)),
    ]
    async with open_supervisor(runtime, "top", specs, intensity=NO_JITTER):
        await trio.sleep(1)
        runtime.ref("bad").tell(Break())
        await trio.sleep(5)
        assert await runtime.ref("bad").ask(AddNumber(1)) == 1
        tree = runtime.snapshot().tree[0]
        names = [(node.name, node.kind, node.state) for node in tree.walk()]
    assert diary == ["a up", "x up", "x down", "x up", "x down", "a down"]
    assert names == [
        ("top", "supervisor", "running"),
        ("a", "task", "running"),
        ("inner", "supervisor", "running"),
        ("x", "task", "running"),
        ("bad", "actor", "running"),
    ]
    assert tree.restarts == 1


@in_many_orders
async def test_child_pool_is_closed_in_order(runtime: Runtime) -> None:
    diary: Diary = []
    pool = KeyedPool(runtime, "pool", lambda key: SlowLifecycle(diary))
    specs = [task_child("a", task(diary, "a")), pool_child("pool", pool)]
    async with open_supervisor(runtime, "top", specs):
        pool["k"].tell(DiaryNote(1))
        await trio.sleep(2)
        pool["k"].tell(Nap(2.0))
        assert [node.name for node in runtime.snapshot().tree[0].children] == ["a", "pool"]
    assert diary == ["a up", "hello", 1, "bye", "a down"]
    assert runtime.snapshot().tree == ()


@in_many_orders
async def test_supervisor_stop_from_its_own_child_is_a_deadlock(
    runtime: Runtime,
) -> None:
    cycles: list[tuple[str, ...]] = []

    class StopsItsSupervisor(SampleActor):
        async def add(self, message: AddNumber) -> int:
            try:
                await supervisor.stop(trio.current_time() + 5.0)
            except AskCycle as cycle:
                cycles.append(cycle.cycle)
            return 1

    inner = supervisor_child("inner", [actor_child("rebel", StopsItsSupervisor)])
    async with open_supervisor(
        runtime, "top", [actor_child("a", SampleActor), inner]
    ) as supervisor:
        assert await runtime.ref("rebel").ask(AddNumber(1), deadline=1.0) == 1
        assert await runtime.ref("a").ask(AddNumber(1), deadline=1.0) == 1
    assert cycles == [("rebel", "rebel")]


@in_many_orders
async def test_restart_delay_keeps_mailbox_limit_and_deadlines(
    runtime: Runtime,
) -> None:
    slow = RestartIntensity(restarts=9, backoff=10.0, backoff_cap=10.0, jitter=0.0)
    async with open_supervisor(runtime, "top", [actor_child("a", SampleThatWaits)], intensity=slow):
        ref = runtime.ref("a")
        for _ in range(2):
            ref.tell(Break())
        await wait_all_tasks_blocked()
        assert runtime.snapshot().tree[0].children[0].state == "waiting"
        start = trio.current_time()
        with pytest.raises(AskTimeout):
            await ref.ask(AddNumber(1), deadline=4.0)
        assert trio.current_time() - start == 4.0
        assert ref.tell(DiaryNote(1))
        assert not ref.tell(DiaryNote(2))  # the withdrawn request still takes its room
    assert runtime.snapshot().dead_letters[DeadLetterReason.FULL] == 1


@in_many_orders
async def test_supervisor_rejects_duplicate_ids(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="must have different ids"):
        async with open_supervisor(
            runtime, "top", [actor_child("a", SampleActor), actor_child("a", SampleActor)]
        ):
            pass


@in_many_orders
async def test_child_task_failure_is_one_log_line(runtime: Runtime, log: LogBook) -> None:
    specs = [task_child("bad", failing_after(1.0), restart=Restart.TEMPORARY)]
    async with open_supervisor(runtime, "top", specs):
        await trio.sleep(2)
    (entry,) = log.named("child_failed")
    assert (entry["child"], entry["error"]) == ("bad", "OSError: no disk")


@in_many_orders
async def test_restart_of_a_group_covers_a_simultaneous_end(
    runtime: Runtime,
) -> None:
    """Both end at once: the restart of the group covers the second end, whichever it is."""
    specs = [
        actor_child("a", SampleActor),
        actor_child("t", SampleActor, restart=Restart.TRANSIENT),
    ]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        runtime.ref("a").tell(Break())
        runtime.ref("t").tell(StopSelf())
        await wait_all_tasks_blocked()
        assert await runtime.ref("t").ask(AddNumber(1)) == 1
        assert runtime.snapshot().tree[0].children[1].state == "running"


@pytest.mark.parametrize("strategy", [Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL])
@in_many_orders
async def test_restart_delay_keeps_the_order_of_siblings(
    runtime: Runtime, log: LogBook, strategy: Strategy
) -> None:
    """Siblings are restarted in their order, including those that failed during the delay."""
    diary: Diary = []
    fail = {"a": trio.Event(), "b": trio.Event()}

    def until(name: str) -> TaskFunction:
        async def run(*, task_status: TaskStatus) -> None:
            diary.append(f"{name} up")
            task_status.started()
            await fail[name].wait()
            fail[name] = trio.Event()
            raise OSError(f"{name} failed")

        return run

    specs = [task_child(name, until(name)) for name in "ab"]
    async with open_supervisor(runtime, "top", specs, strategy=strategy, intensity=NO_JITTER):
        fail["a"].set()  # the first restart comes at once, the second after a wait
        await trio.sleep(5)
        diary.clear()
        fail["a"].set()
        fail["b"].set()
        await trio.sleep(5)
        assert diary[-2:] == ["a up", "b up"]
    errors = [entry["error"] for entry in log.named("child_failed")]
    assert errors.count("OSError: a failed") == 2
    assert errors.count("OSError: b failed") == 1


@in_many_orders
async def test_child_task_failure_during_stop_is_one_log_line(
    runtime: Runtime, log: LogBook
) -> None:
    requested = trio.Event()

    async def run(*, task_status: TaskStatus) -> None:
        task_status.started()
        await requested.wait()
        raise OSError("no disk")

    async with open_supervisor(runtime, "top", [task_child("bad", run, stop=requested.set)]):
        pass
    (entry,) = log.named("child_failed")
    assert (entry["child"], entry["error"]) == ("bad", "OSError: no disk")


@in_many_orders
async def test_child_stop_failure_is_logged_once_without_restart(
    runtime: Runtime, log: LogBook
) -> None:
    """The child is stopped with its sibling, and again with the tree before it was restarted."""
    fail, requested = trio.Event(), trio.Event()

    async def fails(*, task_status: TaskStatus) -> None:
        nonlocal fail
        task_status.started()
        await fail.wait()
        fail = trio.Event()
        raise OSError("no disk")

    async def stops_badly(*, task_status: TaskStatus) -> None:
        nonlocal requested
        task_status.started()
        await requested.wait()
        requested = trio.Event()
        raise OSError("no disk")

    def stop() -> None:
        requested.set()

    specs = [task_child("first", fails), task_child("bad", stops_badly, stop=stop)]
    async with open_supervisor(
        runtime, "top", specs, strategy=Strategy.REST_FOR_ONE, intensity=NO_JITTER
    ):
        for _ in range(2):  # the first restart comes at once, the second after a wait
            fail.set()
            await trio.sleep(0.5)
    logged = [entry["child"] for entry in log.named("child_failed")]
    assert logged == ["first", "bad", "first", "bad"]


@in_many_orders
async def test_supervisor_cancelled_before_start_starts_nothing(
    runtime: Runtime,
) -> None:
    diary: Diary = []
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_supervisor(
            runtime, "top", [actor_child("a", lambda: SlowLifecycle(diary))]
        ):
            diary.append("open")
    assert (diary, trio.current_time()) == ([], 0.0)


async def give_up_while_cancelled(runtime: Runtime, scope: trio.CancelScope) -> None:
    children = [actor_child("slow", SlowLifecycle), actor_child("a", SampleActor)]
    async with open_supervisor(runtime, "top", children, intensity=RestartIntensity(restarts=0)):
        runtime.ref("a").tell(Break())
        await wait_all_tasks_blocked()
        scope.cancel()
        await trio.sleep(9)


@in_many_orders
async def test_supervisor_that_gives_up_while_its_block_is_cancelled_reports_it(
    runtime: Runtime,
) -> None:
    """R-73, R-84: as one error, not in a group with the cancellation."""
    with trio.CancelScope() as scope, pytest.raises(SupervisorFailed, match="'a'"):
        await give_up_while_cancelled(runtime, scope)
