"""Children that come and go while their supervisor runs."""

from __future__ import annotations

import gc
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    AskCycle,
    Message,
    Request,
    Runtime,
    handles,
)
from fw_actors.runtime.testing import LogBook
from supervisors import (
    DynamicSupervisor,
    Restart,
    RestartIntensity,
    Strategy,
    Supervisor,
    SupervisorFailed,
    TooManyChildren,
    actor_child,
    dynamic_child,
    open_supervisor,
    task_child,
)
from supervisors.children import TaskStatus
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Nap,
    SampleActor,
    SlowLifecycle,
    StopSelf,
)
from tests.supervisors.orders import in_many_orders

SLOW = RestartIntensity(restarts=9, backoff=1.0, jitter=0.0)
NONE = RestartIntensity(restarts=0)


def ids(supervisor: Supervisor | DynamicSupervisor) -> list[str]:
    return [node.name for node in supervisor.children]


@in_many_orders
async def test_start_child_returns_its_address_when_it_is_ready(runtime: Runtime) -> None:
    """R-78."""
    diary: list[object] = []
    async with open_supervisor(runtime, "top", [actor_child("a", SampleActor)]) as supervisor:
        ref = await supervisor.start_child(actor_child("b", lambda: SlowLifecycle(diary)))
        assert diary == ["hello"]
        assert ref == runtime.ref("b")
        assert await ref.ask(AddNumber(2)) == 2
        assert ids(supervisor) == ["a", "b"]
        assert ids(supervisor) == [node.name for node in runtime.snapshot().tree[0].children]
    assert diary == ["hello", "bye"]


@in_many_orders
async def test_stop_child_ends_it_in_order_and_frees_its_id(runtime: Runtime) -> None:
    """R-78, R-60."""
    diary: list[object] = []
    async with open_supervisor(runtime, "top", []) as supervisor:
        for _ in range(2):
            ref = await supervisor.start_child(actor_child("b", lambda: SlowLifecycle(diary)))
            ref.tell(DiaryNote(1))
            assert await supervisor.stop_child("b")
            assert ids(supervisor) == []
            with pytest.raises(ActorGone):
                await ref.ask(AddNumber(1))
        assert not await supervisor.stop_child("b")
    assert diary == ["hello", 1, "bye"] * 2


ENDS = [
    (Restart.TEMPORARY, Break(), False),
    (Restart.TEMPORARY, StopSelf(), False),
    (Restart.TRANSIENT, Break(), True),
    (Restart.TRANSIENT, StopSelf(), False),
    (Restart.PERMANENT, Break(), True),
    (Restart.PERMANENT, StopSelf(), True),
]


@pytest.mark.parametrize(("restart", "end", "stays"), ENDS)
@in_many_orders
async def test_child_that_ended_is_restarted_or_leaves(
    runtime: Runtime, restart: Restart, end: Message, stays: bool
) -> None:
    """R-71, R-78."""
    async with open_supervisor(runtime, "top", []) as supervisor:
        ref = await supervisor.start_child(actor_child("b", SampleActor, restart=restart))
        ref.tell(end)
        await trio.sleep(1)
        assert ids(supervisor) == ["b"] * stays
        if stays:
            assert await ref.ask(AddNumber(1)) == 1


@in_many_orders
async def test_child_temporary_may_fail_any_number_of_times(runtime: Runtime) -> None:
    """R-73: a temporary child is not restarted, so its failures do not count."""
    async with open_supervisor(runtime, "top", [], intensity=NONE) as supervisor:
        for _ in range(20):
            ref = await supervisor.start_child(
                actor_child("b", SampleActor, restart=Restart.TEMPORARY)
            )
            with pytest.raises(ActorFailed):
                await ref.ask(Break())
            await wait_all_tasks_blocked()
        assert ids(supervisor) == []


@in_many_orders
async def test_child_that_fails_too_often_escalates(runtime: Runtime) -> None:
    """R-73."""

    async def run() -> None:
        async with open_supervisor(runtime, "top", [], intensity=NONE) as supervisor:
            ref = await supervisor.start_child(actor_child("b", SampleActor))
            ref.tell(Break())
            await trio.sleep_forever()

    with pytest.raises(SupervisorFailed, match="'top' gave up because of 'b'"):
        await run()


@in_many_orders
async def test_children_that_have_ended_leave_nothing(runtime: Runtime, log: LogBook) -> None:
    """R-45."""
    async with open_supervisor(runtime, "top", []) as supervisor:
        for number in range(100):
            spec = actor_child(f"c{number}", SampleActor, restart=Restart.TEMPORARY)
            (await supervisor.start_child(spec)).tell(StopSelf() if number % 2 else Break())
        await wait_all_tasks_blocked()
        assert ids(supervisor) == []
        log.entries.clear()  # tracebacks
        gc.collect()
        statistics = runtime.statistics()
        assert (statistics.single_cells, statistics.deadlines.pending) == (0, 0)


@in_many_orders
async def test_start_child_is_refused_at_the_limit(runtime: Runtime) -> None:
    """R-79: static children do not count, and a child that has ended no longer counts."""
    once = partial(actor_child, make=SampleActor, restart=Restart.TEMPORARY)
    async with open_supervisor(
        runtime, "top", [actor_child("a", SampleActor)], limit=2
    ) as supervisor:
        for id in ("b", "c"):
            await supervisor.start_child(once(id))
        with pytest.raises(TooManyChildren, match="'top' has 2 dynamic children") as caught:
            await supervisor.start_child(once("d"))
        assert (caught.value.supervisor, caught.value.limit) == ("top", 2)
        runtime.ref("b").tell(StopSelf())
        await wait_all_tasks_blocked()
        await supervisor.start_child(once("d"))
        assert ids(supervisor) == ["a", "c", "d"]


@in_many_orders
async def test_start_child_counts_those_that_are_starting(runtime: Runtime) -> None:
    """R-79."""
    refused: list[str] = []

    async def start(id: str) -> None:
        try:
            await supervisor.start_child(actor_child(id, SlowLifecycle))
        except TooManyChildren:
            refused.append(id)

    async with open_supervisor(runtime, "top", [], limit=3) as supervisor:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(start, str(number))
        assert trio.current_time() == 1.0
        assert len(ids(supervisor)) == 3
        assert len(refused) == 2


@in_many_orders
async def test_start_child_refuses_an_id_in_use(runtime: Runtime) -> None:
    async with open_supervisor(runtime, "top", [actor_child("a", SampleActor)]) as supervisor:
        with pytest.raises(ValueError, match="'top' already has a child 'a'"):
            await supervisor.start_child(actor_child("a", SampleActor))
        async with runtime.running("elsewhere", SampleActor) as elsewhere:
            with pytest.raises(ValueError, match="'elsewhere' is already running"):
                await supervisor.start_child(actor_child("elsewhere", SampleActor))
            assert await elsewhere.ask(AddNumber(1)) == 1
        assert ids(supervisor) == ["a"]


@in_many_orders
async def test_start_child_raises_a_failed_start_and_leaves_nothing(
    runtime: Runtime, log: LogBook
) -> None:
    """R-78: it is logged once and does not count."""

    class Unready(SampleActor):
        async def started(self) -> None:
            raise OSError("no disk")

    async def unready(*, task_status: TaskStatus) -> None:
        raise OSError("no disk")

    async with open_supervisor(runtime, "top", [], intensity=NONE) as supervisor:
        for _ in range(3):
            with pytest.raises(ActorFailed, match="'b' failed: OSError: no disk"):
                await supervisor.start_child(actor_child("b", Unready))
            with pytest.raises(OSError, match="no disk"):
                await supervisor.start_child(task_child("t", unready))
        assert ids(supervisor) == []
    assert (len(log.named("actor_failed")), len(log.named("child_failed"))) == (3, 3)


@in_many_orders
async def test_start_child_that_ends_too_early_raises_actor_gone(
    runtime: Runtime,
) -> None:
    """R-78: an actor that is stopped meanwhile, or a task that returns."""

    async def brief(*, task_status: TaskStatus) -> None:
        await trio.lowlevel.checkpoint()

    async def stop() -> None:
        await trio.sleep(0.5)
        runtime.ref("b").stop(trio.current_time())

    async with open_supervisor(runtime, "top", [], intensity=NONE) as supervisor:
        with pytest.raises(ActorGone, match="'t' is not running"):
            await supervisor.start_child(task_child("t", brief))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            with pytest.raises(ActorGone, match="'b' is not running"):
                await supervisor.start_child(actor_child("b", SlowLifecycle))
        assert ids(supervisor) == []


@in_many_orders
async def test_start_child_of_a_slow_task_raises_actor_failed(
    runtime: Runtime,
) -> None:
    """R-77, R-78."""

    async def hanging(*, task_status: TaskStatus) -> None:
        await trio.sleep_forever()

    async with open_supervisor(runtime, "top", [], intensity=NONE) as supervisor:
        with pytest.raises(ActorFailed, match="'t' has not started within 2 s; it waits at"):
            await supervisor.start_child(task_child("t", hanging, start_seconds=2.0))
        assert ids(supervisor) == []


@in_many_orders
async def test_start_child_cancelled_stops_the_child_again(runtime: Runtime) -> None:
    """R-78."""
    diary: list[object] = []
    async with open_supervisor(runtime, "top", []) as supervisor:
        with trio.move_on_after(0.5) as scope:
            await supervisor.start_child(actor_child("b", lambda: SlowLifecycle(diary)))
        assert scope.cancelled_caught
        assert trio.current_time() == 0.5
        await trio.sleep(5)
        assert diary == ["hello", "bye"]
        assert ids(supervisor) == []
        with pytest.raises(ActorGone):
            await runtime.ref("b").ask(AddNumber(1))


@in_many_orders
async def test_stop_child_cancelled_still_stops_the_child(runtime: Runtime) -> None:
    """R-78: and does not make its caller wait."""
    async with open_supervisor(runtime, "top", []) as supervisor:
        ref = await supervisor.start_child(actor_child("b", SampleActor))
        ref.tell(Nap(3.0))
        with trio.move_on_after(1.0):
            await supervisor.stop_child("b")
        assert trio.current_time() == 1.0
        assert ids(supervisor) == ["b"]
        await trio.sleep(3)
        assert ids(supervisor) == []


@in_many_orders
async def test_stop_child_during_a_restart_delay_ends_it(runtime: Runtime) -> None:
    """R-78."""
    async with open_supervisor(runtime, "top", [], intensity=SLOW) as supervisor:
        ref = await supervisor.start_child(actor_child("b", SampleActor))
        for _ in range(2):
            ref.tell(Break())
        await wait_all_tasks_blocked()
        assert await supervisor.stop_child("b")
        await trio.sleep(5)
        assert ids(supervisor) == []
    assert len(runtime.deadlines) == 0


@in_many_orders
async def test_children_dynamic_stop_at_once_before_the_static_ones(runtime: Runtime) -> None:
    """R-75: a thousand connections with a second each do not take a thousand seconds."""
    diary: list[object] = []
    specs = [actor_child("a", lambda: SlowLifecycle(diary))]
    async with open_supervisor(runtime, "top", specs) as supervisor:
        for number in range(20):
            await supervisor.start_child(actor_child(f"c{number}", SampleActor))
            runtime.ref(f"c{number}").tell(Nap(3.0))
        began = trio.current_time()
        await wait_all_tasks_blocked()
    assert trio.current_time() - began == 3.0 + 1.0
    assert diary == ["hello", "bye"]


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE])
@in_many_orders
async def test_children_dynamic_are_restarted_with_their_group(
    runtime: Runtime, strategy: Strategy
) -> None:
    """R-76, R-78: those that are temporary leave."""
    diary: list[object] = []
    async with open_supervisor(
        runtime, "top", [actor_child("a", SampleActor)], strategy=strategy
    ) as supervisor:
        await supervisor.start_child(actor_child("b", lambda: SampleActor(diary)))
        await supervisor.start_child(actor_child("c", SampleActor, restart=Restart.TEMPORARY))
        runtime.ref("b").tell(Nap(1.0))
        runtime.ref("b").tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        runtime.ref("a").tell(Break())
        await trio.sleep(2)
        assert diary == [1]
        assert ids(supervisor) == ["a", "b"]
        assert [node.restarts for node in supervisor.children] == [1, 1]


@pytest.mark.parametrize("at", [0.0, 0.3, 1.0])
@in_many_orders
async def test_start_child_during_a_group_restart_gets_ready(runtime: Runtime, at: float) -> None:
    """R-78."""
    async with open_supervisor(
        runtime,
        "top",
        [actor_child("a", SampleActor)],
        strategy=Strategy.ONE_FOR_ALL,
        intensity=SLOW,
    ) as supervisor:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.start_child, actor_child("b", SlowLifecycle))
            await trio.sleep(at)
            runtime.ref("a").tell(Break())
        await trio.sleep(10)
        assert ids(supervisor) == ["a", "b"]
        assert await runtime.ref("b").ask(AddNumber(1), deadline=5.0) == 1


@in_many_orders
async def test_start_child_during_a_stop_is_refused(runtime: Runtime) -> None:
    """R-78: also one that had begun."""
    gone: list[str] = []

    async def start(id: str) -> None:
        try:
            await supervisor.start_child(actor_child(id, SlowLifecycle))
        except ActorGone:
            gone.append(id)

    async with trio.open_nursery() as nursery:
        async with open_supervisor(runtime, "top", [actor_child("a", SlowLifecycle)]) as supervisor:
            nursery.start_soon(start, "b")
            await trio.sleep(0.5)
        nursery.start_soon(start, "c")
    assert sorted(gone) == ["b", "c"]


class Open(Request[str], frozen=True):
    number: int


class ConnectionListener(Actor):
    """Starts an actor for each connection."""

    def __init__(self, connections: DynamicSupervisor) -> None:
        self.connections = connections

    @handles(Open)
    async def open(self, message: Open) -> str:
        name = f"connection-{message.number}"
        try:
            ref = await self.connections.start_child(
                actor_child(name, SampleActor, restart=Restart.TEMPORARY)
            )
        except TooManyChildren:
            return "busy"
        return ref.name


@in_many_orders
async def test_dynamic_supervisor_is_used_by_an_actor(runtime: Runtime) -> None:
    """R-78."""
    connections = DynamicSupervisor("connections", limit=2)
    with pytest.raises(ActorGone):
        await connections.start_child(actor_child("early", SampleActor))
    specs = [
        dynamic_child(connections),
        actor_child("listener", lambda: ConnectionListener(connections)),
    ]
    async with open_supervisor(runtime, "top", specs):
        listener = runtime.ref("listener")
        answers = [await listener.ask(Open(number), deadline=5.0) for number in range(3)]
        assert answers == ["connection-0", "connection-1", "busy"]
        runtime.ref("connection-0").tell(Break())
        await wait_all_tasks_blocked()
        assert ids(connections) == ["connection-1"]
        assert await connections.stop_child("connection-1")
        tree = [node.name for node in runtime.snapshot().tree[0].walk()]
        assert tree == ["top", "connections", "listener"]
    assert connections.children == ()
    with pytest.raises(ActorGone):
        await connections.stop_child("connection-1")


@in_many_orders
async def test_dynamic_supervisor_restarted_has_no_children(runtime: Runtime) -> None:
    """R-78: the address stays valid."""
    connections = DynamicSupervisor("connections")
    specs = [actor_child("a", SampleActor), dynamic_child(connections)]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        await connections.start_child(actor_child("b", SampleActor))
        runtime.ref("a").tell(Break())
        await trio.sleep(1)
        assert ids(connections) == []
        await connections.start_child(actor_child("b", SampleActor))
        assert await runtime.ref("b").ask(AddNumber(1)) == 1


def test_dynamic_supervisor_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1"):
        DynamicSupervisor("connections", limit=0)


@in_many_orders
async def test_start_child_whose_start_asks_its_starter_is_a_deadlock(runtime: Runtime) -> None:
    """R-44."""
    connections = DynamicSupervisor("connections")

    class Impatient(SampleActor):
        async def started(self) -> None:
            await self.context_of_listener()

        async def context_of_listener(self) -> None:
            with pytest.raises(AskCycle):
                await runtime.ref("listener").ask(Open(9), deadline=5.0)

    class Greeter(ConnectionListener):
        async def open(self, message: Open) -> str:
            return (await self.connections.start_child(actor_child("b", Impatient))).name

    specs = [dynamic_child(connections), actor_child("listener", lambda: Greeter(connections))]
    async with open_supervisor(runtime, "top", specs):
        assert await runtime.ref("listener").ask(Open(1), deadline=50.0) == "b"
    assert trio.current_time() == 0.0
