"""Watches: one Down for each incarnation that ends, of single and keyed actors."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorRef,
    Down,
    KeyedPool,
    Message,
    Ref,
    Runtime,
    Up,
    handles,
)
from supervisors import RestartIntensity, actor_child, open_supervisor
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Fell,
    Nap,
    SampleActor,
    StopSelf,
    WatchOver,
)


class Rose(Message, frozen=True):
    up: Up


class Watcher(Actor):
    """Watches a ref, again and again by itself or with `repeat`, and keeps a diary."""

    def __init__(
        self, ref: Ref, diary: list[Down | Up], *, repeat: bool, ups: bool = False
    ) -> None:
        self._ref, self._diary, self._repeat, self._ups = ref, diary, repeat, ups

    async def started(self) -> None:
        self._watch()

    def _watch(self) -> None:
        up = Rose if self._ups else None
        self.context.watch(self._ref, then=Fell, up=up, repeat=self._repeat)

    @handles(Fell)
    def fell(self, message: Fell) -> None:
        self._diary.append(message.down)
        if not self._repeat:
            self._watch()

    @handles(Rose)
    def rose(self, message: Rose) -> None:
        self._diary.append(message.up)

    @handles(Nap)
    async def nap(self, message: Nap) -> int:
        await trio.sleep(message.seconds)
        return 1


INTENSITY = RestartIntensity(restarts=100, backoff=1.0, backoff_cap=1.0, jitter=0.0)


@pytest.mark.parametrize("repeat", [True, False])
async def test_watch_tells_each_end_of_a_restarted_actor_once(
    runtime: Runtime, repeat: bool
) -> None:
    """R-37: a handler of Down may watch again, also during the delay before a restart."""
    diary: list[Any] = []
    ref = runtime.ref("other")
    async with (
        open_supervisor(runtime, "tree", [actor_child("other", SampleActor)], intensity=INTENSITY),
        runtime.running("watcher", lambda: Watcher(ref, diary, repeat=repeat)),
    ):
        for _ in range(5):
            ref.tell(Break())
            await trio.sleep(2)
        assert [(down.name, down.error) for down in diary] == [("other", "ValueError: broken")] * 5
        incarnations = [down.incarnation for down in diary]
        assert incarnations == sorted(set(incarnations))


async def test_watch_on_an_absent_actor_tells_it_once(runtime: Runtime) -> None:
    """R-37: the clock of a test can go on although a handler watches again at once."""
    diary: list[Any] = []
    ref = runtime.ref("nobody")
    async with runtime.running("watcher", lambda: Watcher(ref, diary, repeat=False)):
        await trio.sleep(3600)
        assert diary == [Down("nobody", None)]
        async with runtime.running("nobody", SampleActor):
            await trio.sleep(1)
        await trio.sleep(1)
        assert [down.name for down in diary] == ["nobody"] * 2
        assert diary[1].incarnation > 0


async def test_watch_tells_an_end_that_came_before_it(runtime: Runtime) -> None:
    """R-37: also the second end, if the watch for it comes too late."""
    diary: list[Any] = []
    async with runtime.running("watcher", lambda: SampleActor(diary)) as watcher:
        ref = runtime.ref("other")
        for _ in range(2):
            async with runtime.running("other", SampleActor):
                pass
            watcher.tell(WatchOver(ref))
            await wait_all_tasks_blocked()
        assert len({down.incarnation for down in diary}) == 2


async def test_watch_reports_end_and_failure(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("watcher", lambda: SampleActor(diary)) as watcher:
        async with runtime.running("other", SampleActor) as other:
            watcher.tell(WatchOver(other))
            await wait_all_tasks_blocked()
            other.tell(StopSelf())
            await wait_all_tasks_blocked()
        with pytest.raises(ActorFailed):
            await watched_failure(runtime, watcher, other)
        await wait_all_tasks_blocked()
    assert [down.error for down in diary] == [None, "ValueError: broken"]


async def watched_failure(runtime: Runtime, watcher: ActorRef, other: ActorRef) -> None:
    async with runtime.running("other", SampleActor):
        watcher.tell(WatchOver(other))
        await watcher.ask(AddNumber(1))
        other.tell(Break())
        await trio.sleep_forever()


async def test_watch_repeated_loses_no_end_while_its_owner_is_busy(runtime: Runtime) -> None:
    """R-37."""
    diary: list[Any] = []
    ref = runtime.ref("other")
    make = lambda: Watcher(ref, diary, repeat=True, ups=True)  # noqa: E731
    async with (
        runtime.running("other", SampleActor),
        runtime.running("watcher", make) as watcher,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(watcher.ask, Nap(10.0))
        await wait_all_tasks_blocked()
        ref.tell(StopSelf())
        await wait_all_tasks_blocked()
        for _ in range(3):
            async with runtime.running("other", SampleActor):
                pass
        assert diary == []
    kinds = [type(event) for event in diary]
    assert kinds == [Down, Up, Down, Up, Down, Up, Down]
    assert diary[1].incarnation == diary[2].incarnation


async def test_watch_repeated_keeps_the_newest_events_of_a_busy_owner(runtime: Runtime) -> None:
    """R-37."""
    diary: list[Any] = []
    make = lambda: Watcher(runtime.ref("other"), diary, repeat=True, ups=True)  # noqa: E731
    async with runtime.running("watcher", make) as watcher:
        watcher.tell(Nap(10.0))
        await wait_all_tasks_blocked()
        diary.clear()  # without the end of the actor that was absent
        for _ in range(40):
            async with runtime.running("other", SampleActor):
                pass
        await trio.sleep(11)
    assert [type(event) for event in diary] == [Up, Down] * 32
    numbers = [event.incarnation for event in diary[1::2]]
    assert numbers == sorted(set(numbers))


async def test_watch_tells_the_starts_of_a_restarted_actor(runtime: Runtime) -> None:
    """R-37."""
    diary: list[Any] = []
    ref = runtime.ref("other")
    make = lambda: Watcher(ref, diary, repeat=True, ups=True)  # noqa: E731
    async with (
        open_supervisor(runtime, "tree", [actor_child("other", SampleActor)], intensity=INTENSITY),
        runtime.running("watcher", make),
    ):
        ref.tell(Break())
        await trio.sleep(2)
        assert [type(event) for event in diary] == [Down, Up]
        assert diary[1].incarnation > diary[0].incarnation


@pytest.mark.parametrize("repeat", [True, False])
async def test_watch_of_a_keyed_actor_tells_each_end(runtime: Runtime, repeat: bool) -> None:
    """R-37: failure and passivation are ends; the watch creates no actor."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), idle_seconds=10.0)
    diary: list[Any] = []
    make = lambda: Watcher(pool["k"], diary, repeat=repeat)  # noqa: E731
    async with runtime.running("watcher", make):
        await trio.sleep(60)
        assert diary == [Down("p/k", None)]
        assert len(pool) == 0
        for _ in range(2):
            pool["k"].tell(Break())
            await trio.sleep(1)
            await pool["k"].ask(AddNumber(1))
            await trio.sleep(60)
        errors = [down.error for down in diary[1:]]
        assert errors == ["ValueError: broken", None] * 2
    assert pool.statistics().watched == 0
    await pool.close()


async def test_watch_of_a_keyed_actor_tells_its_start(runtime: Runtime) -> None:
    """R-37."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), idle_seconds=10.0)
    diary: list[Any] = []
    make = lambda: Watcher(pool["k"], diary, repeat=True, ups=True)  # noqa: E731
    async with runtime.running("watcher", make):
        await trio.sleep(1)
        await pool["k"].ask(AddNumber(1))
        await trio.sleep(60)
        assert [type(event) for event in diary] == [Down, Up, Down]
        assert diary[1].incarnation == diary[2].incarnation
    await pool.close()


async def test_watch_cancelled_tells_nothing(runtime: Runtime) -> None:
    diary: list[Any] = []
    async with runtime.running("watcher", lambda: SampleActor(diary)) as watcher:
        actor = watcher.cell.actor
        assert actor is not None
        async with runtime.running("other", SampleActor) as other:
            for repeat in (True, False):
                actor.context.watch(other, then=Fell, repeat=repeat).cancel()
            late = actor.context.watch(other, then=lambda down: DiaryNote(1))
            watcher.suspend()
        late.cancel()
        late.cancel()
        watcher.resume()
        await wait_all_tasks_blocked()
        assert diary == []
        assert (await watcher.inspect()).timers == 0
