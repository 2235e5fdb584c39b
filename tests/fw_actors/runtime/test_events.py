"""The topic of the runtime's own events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    EventKind,
    KeyedPool,
    Listener,
    MailboxFull,
    Request,
    Runtime,
    RuntimeEvent,
    Topic,
    TopicOverflow,
    handles,
)
from supervisors import RestartIntensity, SupervisorFailed, actor_child, open_supervisor, task_child
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Forward,
    Nap,
    SampleActor,
    SampleThatRefuses,
    SlowLifecycle,
)

K = EventKind


@pytest.fixture
def events(runtime: Runtime) -> Iterator[Listener[RuntimeEvent]]:
    with runtime.events.listening() as listener:
        yield listener


def kinds_and_names(events: Listener[RuntimeEvent]) -> list[tuple[EventKind, str]]:
    return [(event.kind, event.name) for event in events.take_all()]


async def test_start_and_stop_are_events(runtime: Runtime, events: Listener[RuntimeEvent]) -> None:
    """R-106."""
    async with runtime.running("a", SlowLifecycle):
        await wait_all_tasks_blocked()
    first, second = events.take_all()
    assert (first.kind, first.name, first.at) == (K.STARTED, "a", 1_700_000_001_000)
    assert (second.kind, second.incarnation) == (K.STOPPED, first.incarnation)


async def test_failure_and_restart_are_events(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    """R-106: a failure has its reason and the type of the message."""
    async with open_supervisor(runtime, "top", [actor_child("a", SampleActor)]):
        runtime.ref("a").tell(Break())
        await wait_all_tasks_blocked()
        kinds = {event.kind: event for event in events.take_all()}
    assert list(kinds) == [K.STARTED, K.FAILED, K.RESTARTED]
    assert kinds[K.FAILED].reason == "ValueError: broken"
    assert kinds[K.FAILED].message_type == "Break"
    assert kinds[K.STARTED].incarnation > kinds[K.FAILED].incarnation


async def test_supervisor_that_gives_up_is_an_event(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    async def fails(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise ValueError("broken")

    with pytest.raises(SupervisorFailed):
        async with open_supervisor(
            runtime,
            "top",
            [task_child("task", fails)],
            intensity=RestartIntensity(restarts=0),
        ):
            await trio.sleep(1)
    assert kinds_and_names(events) == [(K.CHILD_FAILED, "task"), (K.GAVE_UP, "top")]


async def test_keyed_actors_are_passivated_or_stopped(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    """R-106."""
    pool = KeyedPool(
        runtime, "p", lambda key: SlowLifecycle() if key == "c" else SampleActor(), capacity=9
    )
    for key in "abc":
        await pool[key].ask(AddNumber(1), deadline=9.0)
    await trio.sleep(100)
    assert sorted(kinds_and_names(events), key=str) == sorted(
        [(kind, f"p/{key}") for key in "abc" for kind in (K.STARTED, K.PASSIVATED)], key=str
    )
    await pool["a"].ask(AddNumber(1), deadline=9.0)
    await pool.close()
    assert kinds_and_names(events) == [(K.STARTED, "p/a"), (K.STOPPED, "p/a")]


async def test_refusals_and_dead_letters_are_events(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    """R-106."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=1)
    async with runtime.running("a", SampleThatRefuses) as ref:
        ref.suspend()
        for number in range(2):
            ref.tell(DiaryNote(number))
        events.take_all()
        assert not ref.tell(DiaryNote(3))
        with pytest.raises(MailboxFull):
            await ref.send(DiaryNote(4))
        ref.resume()
        pool["k"].tell(Nap(1.0))
        with pytest.raises(MailboxFull):
            await pool["other"].ask(AddNumber(1), deadline=1.0)
        await trio.sleep(2)
    with pytest.raises(ActorGone):
        await ref.send(DiaryNote(5))
    lost = [event for event in events.take_all() if event.kind in (K.REFUSED, K.DEAD_LETTER)]
    assert [(event.kind, event.name, event.message_type) for event in lost] == [
        (K.DEAD_LETTER, "a", "DiaryNote"),
        (K.REFUSED, "a", "DiaryNote"),
        (K.REFUSED, "p/other", "AddNumber"),
        (K.REFUSED, "a", "DiaryNote"),
    ]
    assert lost[0].reason == "the mailbox was full"
    assert lost[2].reason == "'p' is full: the limit is 1 actors."


async def test_stops_that_take_too_long_are_events(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    pool = KeyedPool(runtime, "p", lambda key: SampleActor())
    pool["k"].tell(Nap(100.0))
    async with runtime.running("a", SampleActor) as ref:
        ref.tell(Nap(100.0))
        await wait_all_tasks_blocked()
        events.take_all()
        await pool.close(trio.current_time() + 1.0)
    kinds = [kind for kind, _ in kinds_and_names(events) if kind is not K.SLOW]
    assert kinds == [K.POOL_STOP_FORCED, K.STOPPED, K.STOP_OVERDUE, K.STOP_FORCED, K.STOPPED]


async def test_errors_of_work_and_of_others_are_events(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    class Works(SampleActor):
        @handles(Begin)
        def begin(self, message: Begin) -> None:
            self.context.work(self._work, message.seconds)

    async with runtime.running("a", Works) as ref:
        ref.tell(Begin(-1.0))
        ref.tell(Forward((runtime.ref("absent"),)))
        await wait_all_tasks_blocked()
        found = dict(kinds_and_names(events))
    assert found == {K.STARTED: "a", K.WORK_FAILED: "a", K.REFUSED: "absent", K.PASSED_ON: "a"}


async def test_slow_member_of_a_topic_is_an_event(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    topic: Topic[DiaryNote] = Topic(runtime, "news")
    async with runtime.running("a", SampleActor) as ref:
        topic.subscribe(ref, overflow=TopicOverflow.UNSUBSCRIBE, capacity=1)
        ref.suspend()
        for number in range(2):
            await topic.publish(DiaryNote(number))
        event = events.take_all()[-1]
    assert (event.kind, event.name, event.reason) == (K.UNSUBSCRIBED, "a", "news: too slow")


class Counts(Request[int], frozen=True):
    """Answered with the number of events."""


class Watches(Actor):
    def __init__(self) -> None:
        self.events: list[RuntimeEvent] = []

    @handles(RuntimeEvent)
    def event(self, message: RuntimeEvent) -> None:
        self.events.append(message)
        if message.kind is K.FAILED:
            raise ValueError("the watcher fails, too")

    @handles(Counts)
    def counts(self, message: Counts) -> int:
        return len(self.events)


async def test_actor_gets_the_events_that_it_chose(runtime: Runtime) -> None:
    async with runtime.running("watches", Watches) as ref, runtime.running("a", SampleActor):
        runtime.events.subscribe(ref, accept=lambda event: event.kind is K.STOPPED)
        async with runtime.running("b", SampleActor):
            pass
        assert await ref.ask(Counts(), deadline=1.0) == 1


async def test_event_member_without_a_handler_causes_no_further_events(
    runtime: Runtime, events: Listener[RuntimeEvent]
) -> None:
    """R-107: a dead letter of an event is no event."""
    async with runtime.running("a", SampleActor) as ref:
        runtime.events.subscribe(ref)
        runtime.ref("absent").tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        assert kinds_and_names(events) == [(K.STARTED, "a"), (K.DEAD_LETTER, "absent")]


async def test_runtime_never_waits_for_members_of_events(runtime: Runtime) -> None:
    """R-107."""
    with pytest.raises(ValueError, match="the runtime never waits for a member"):
        runtime.events.listening(overflow=TopicOverflow.WAIT)
    with pytest.raises(ValueError, match="the runtime never waits for a member"):
        runtime.events.subscribe(runtime.ref("a"), overflow=TopicOverflow.WAIT)
    with runtime.events.listening(capacity=3) as events:
        for number in range(10):
            runtime.ref("absent").tell(DiaryNote(number))
        assert (events.missed, len(events.take_all())) == (7, 3)
    assert sum(runtime.snapshot().dead_letters.values()) == 10


async def test_member_that_fails_of_an_event_fails_alone(runtime: Runtime) -> None:
    """Each of its failures is an event, until its supervisor gives up."""
    watching = open_supervisor(
        runtime,
        "top",
        [actor_child("watches", Watches)],
        intensity=RestartIntensity(restarts=1),
    )
    with pytest.raises(SupervisorFailed):  # noqa: PT012
        async with watching:
            runtime.events.subscribe(runtime.ref("watches"))
            pool = KeyedPool(runtime, "p", lambda key: SampleActor())
            with pytest.raises(ActorFailed):
                await pool["k"].ask(Break(), deadline=1.0)
            await trio.sleep(10)
    assert len(runtime.events) == 0
