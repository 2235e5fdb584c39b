"""A tree under random messages, failures, stops and cancellations always ends cleanly."""

from __future__ import annotations

import random
from contextlib import suppress

import trio

from fw_actors.runtime import (
    ActorError,
    KeyedPool,
    MailboxPolicy,
    Overflow,
    Ref,
    Runtime,
    Topic,
    TopicOverflow,
    WorkerPool,
)
from supervisors import (
    ChildSpec,
    DynamicSupervisor,
    Restart,
    RestartIntensity,
    Strategy,
    Supervisor,
    SupervisorFailed,
    actor_child,
    dynamic_child,
    open_supervisor,
    pool_child,
    supervisor_child,
    worker_pool_child,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Keep,
    Later,
    Nap,
    SampleActor,
    SampleThatWaits,
    SlowLifecycle,
    StopSelf,
)
from tests.supervisors.orders import in_many_orders

CALLERS = 20
STOP_SECONDS = 8.0
CREW_MAILBOXES = [MailboxPolicy(capacity=4, overflow=overflow) for overflow in Overflow]


class RandomCallers:
    """Callers that ask and send at random."""

    def __init__(self, runtime: Runtime, seed: int) -> None:
        self.runtime = runtime
        self.rng = random.Random(seed)
        self.pool = KeyedPool(runtime, "pool", self._make, capacity=40, idle_seconds=2.0)
        self.guests = DynamicSupervisor("guests", limit=8)
        self.crew = WorkerPool(
            runtime, "crew", SampleActor, size=3, mailbox=self.rng.choice(CREW_MAILBOXES)
        )
        self.topic: Topic[DiaryNote] = Topic(runtime, "topic")
        self.top: Supervisor | None = None

    def tree(self) -> list[ChildSpec]:
        inner = supervisor_child(
            "inner",
            [actor_child("b", SlowLifecycle), actor_child("c", SampleActor)],
            strategy=self.rng.choice(list(Strategy)),
            intensity=RestartIntensity(restarts=2),
        )
        return [
            actor_child("a", SampleActor),
            actor_child("w", SampleThatWaits, restart=Restart.TRANSIENT),
            inner,
            pool_child("pool", self.pool),
            dynamic_child(self.guests, intensity=RestartIntensity(restarts=10)),
            worker_pool_child(self.crew, intensity=RestartIntensity(restarts=10)),
        ]

    async def rage(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CALLERS):
                nursery.start_soon(self._call)

    def _make(self, key: str) -> SampleActor:
        return SlowLifecycle() if int(key) % 3 == 0 else SampleActor()

    async def _call(self) -> None:
        rng = self.rng
        while True:
            with suppress(ActorError), trio.move_on_after(rng.uniform(0, 2)):
                fatal = [Break()] if rng.random() < 0.02 else []
                request = rng.choice([AddNumber(1), Nap(0.3), Keep(), Nap(3.0), *fatal])
                await self._someone().ask(request, deadline=rng.uniform(0.1, 1.5))
            with suppress(ActorError), trio.move_on_after(rng.uniform(0, 0.5)):
                final = [StopSelf()] if rng.random() < 0.05 else []
                await self._someone().send(
                    rng.choice([DiaryNote(1), Begin(0.2), Later(0.2, 1), *final])
                )
            with suppress(ActorError, ValueError), trio.move_on_after(rng.uniform(0, 2)):
                await self._invite_or_send_away()
            with suppress(ActorError, TypeError), trio.move_on_after(rng.uniform(0, 2)):
                self.topic.subscribe(
                    self._someone(),
                    overflow=rng.choice(list(TopicOverflow)),
                    capacity=rng.randrange(1, 4),
                )
                await self.topic.publish(DiaryNote(1))
            await trio.sleep(rng.uniform(0, 0.2))
            self.runtime.snapshot()

    async def _invite_or_send_away(self) -> None:
        rng = self.rng
        host = rng.choice([self.guests, self.top or self.guests])
        name = f"{rng.choice('xyz')}{rng.randrange(4)}"
        if rng.random() < 0.4:
            await host.stop_child(name)
        else:
            make = rng.choice([SampleActor, SlowLifecycle])
            await host.start_child(actor_child(name, make, restart=rng.choice(list(Restart))))

    def _someone(self) -> Ref:
        name = self.rng.choice(["a", "w", "b", "c", "p", "p", "x0", "x1", "y2", "z3", "crew"])
        if name == "crew":
            return self.crew
        if name == "p":
            return self.pool[str(self.rng.randrange(60))]
        return self.runtime.ref(name)


@in_many_orders
async def test_supervisor_survives_a_storm_and_stops_in_time(runtime: Runtime, seed: int) -> None:
    callers = RandomCallers(runtime, seed)
    seconds = callers.rng.uniform(1, 30)
    with suppress(SupervisorFailed), trio.move_on_after(seconds):
        async with open_supervisor(
            runtime,
            "top",
            callers.tree(),
            strategy=callers.rng.choice(list(Strategy)),
            intensity=RestartIntensity(restarts=20),
            stop_seconds=STOP_SECONDS,
            limit=6,
        ) as callers.top:
            await callers.rage()
    assert trio.current_time() <= seconds + STOP_SECONDS
    await trio.sleep(3)
    assert len(callers.pool) == 0
    assert (callers.crew.free, callers.crew.depth, callers.crew.waiting) == (0, 0, 0)
    assert (len(callers.topic), callers.topic.snapshot().waiting) == (0, 0)
    assert len(runtime.deadlines) == 0
    workers = runtime.workers.statistics()
    assert (workers.alive, workers.queued) == (workers.parked, 0)
    assert runtime.snapshot().tree == ()
