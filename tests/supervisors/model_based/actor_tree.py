"""A random supervision tree of scripted actors."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import trio

from fw_actors.runtime import (
    KeyedPool,
    Listener,
    MailboxPolicy,
    Overflow,
    Ref,
    RestartIntensity,
    Runtime,
    RuntimeEvent,
    Topic,
    WorkerPool,
)
from fw_actors.runtime.cell import ActorCell
from supervisors import (
    ChildSpec,
    DynamicSupervisor,
    Restart,
    Strategy,
    actor_child,
    dynamic_child,
    pool_child,
    supervisor_child,
    worker_pool_child,
)
from tests.supervisors.model_based.messages import (
    CARRIED,
    DYNAMIC_CHILDREN,
    POOL,
    POOLS,
    SINGLE_ACTORS,
    TOPIC,
    WORKER_POOL,
    InstanceRecord,
    MessageRecord,
    Publication,
)
from tests.supervisors.model_based.scripted_actors import ScriptedActor, StoppingScriptedActor


class RandomActorTree:
    """The actors of one run, with random policies, strategies and failure rates."""

    def __init__(self, runtime: Runtime, seed: int, listener: Listener[RuntimeEvent]) -> None:
        self.runtime = runtime
        self.rng = rng = random.Random(seed)
        self.violations: list[str] = []
        self.records: list[MessageRecord] = []
        self.refused_tells: Counter[str] = Counter()
        """How many messages of `tell` were refused, each of which is a dead letter."""
        self.handled: Counter[str] = Counter()
        self.maybe_handled: Counter[str] = Counter()
        """Handlers that were cancelled, and count as handled if they gave up."""
        self.failed: Counter[str] = Counter()
        self.maybe_failed: Counter[str] = Counter()
        """Starts that were cancelled, and count as failed if they took too long."""
        self.last_begun: Counter[str] = Counter()
        self.current: dict[str, InstanceRecord] = {}
        self.instances: list[InstanceRecord] = []
        self.listener = listener
        self.events: list[RuntimeEvent] = []
        self.started: dict[str, list[int]] = {}
        self.stopped: list[tuple[str, InstanceRecord, float]] = []
        self._numbers = 0
        reliable = rng.random() < 0.4
        rate = 0.0 if reliable else rng.choice([0.0, 0.02, 0.1])
        self.make_failure_rate = rng.choice([0.0, rate])
        self.start_failure_rate = rng.choice([0.0, rate])
        self.stop_failure_rate = rng.choice([0.0, rate])
        self.slow_start_rate = rng.choice([0.0, 0.5])
        self.abort_rate = 0.0 if rng.random() < 0.8 else 0.003
        self.swallows_cancellation = rng.random() < 0.2
        self.failure_rate = 0.0 if reliable else rng.choice([0.02, 0.1, 0.3])
        self.stop_rate = rng.choice([0.0, 0.02, 0.2])
        self.policies = {
            name: self._policy()
            for name in (*SINGLE_ACTORS, *DYNAMIC_CHILDREN, *POOLS, WORKER_POOL)
        }
        self.carries = CARRIED in runtime.carry
        self.pools = {name: self._pool(name) for name in POOLS}
        self.worker_pool = WorkerPool(
            runtime,
            WORKER_POOL,
            lambda: self.make_actor(WORKER_POOL),
            size=rng.randrange(1, 5),
            mailbox=self.policies[WORKER_POOL],
        )
        self.dynamic = DynamicSupervisor("dynamic", limit=2)
        self.topic: Topic[Publication] = Topic(runtime, TOPIC)
        self.published = 0
        self.actor_classes = {
            name: rng.choice([ScriptedActor, StoppingScriptedActor]) for name in self.policies
        }
        self.refs = {name: runtime.ref(name) for name in (*SINGLE_ACTORS, *DYNAMIC_CHILDREN)}

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def now(self) -> float:
        return trio.current_time()

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def expect(self, condition: bool, text: str, name: str) -> None:
        """Record a violation by the actor of this name, unless the condition holds."""
        if not condition:
            self.violations.append(f"{name}: {text}")

    # The actors.

    def make_actor(self, name: str) -> ScriptedActor:
        """Return a new actor, which reports to this model."""
        return self.actor_classes[name.partition("/")[0]](cast("Any", self), name)

    def ref(self, name: str) -> Ref:
        pool, _, key = name.partition("/")
        if key:
            return self.pools[pool][key]
        return self.worker_pool if name == WORKER_POOL else self.refs[name]

    def policy_of(self, actor: ScriptedActor) -> MailboxPolicy:
        if actor.name == WORKER_POOL:
            return actor.mailbox
        return self.policies[actor.name.partition("/")[0]]

    def tree(self) -> list[ChildSpec]:
        rng = self.rng
        inner = [
            self._actor("b"),
            pool_child(POOL, self.pools[POOL], shutdown_seconds=self._seconds()),
        ]
        children = [
            self._actor("a"),
            supervisor_child(
                "inner",
                inner,
                strategy=rng.choice(list(Strategy)),
                intensity=self._intensity(),
                shutdown_seconds=self._seconds(),
            ),
            self._actor("c"),
            dynamic_child(self.dynamic, intensity=self._intensity()),
            worker_pool_child(
                self.worker_pool, intensity=self._intensity(), shutdown_seconds=self._seconds()
            ),
            self._actor("d"),
        ]
        rng.shuffle(children)
        return children

    def dynamic_spec(self, name: str) -> ChildSpec:
        return self._actor(name)

    def _pool(self, name: str) -> KeyedPool:
        rng = self.rng
        return KeyedPool(
            self.runtime,
            name,
            lambda key: self.make_actor(f"{name}/{key}"),
            capacity=rng.randrange(2, 6),
            idle_seconds=rng.choice([0.0, 0.5, 5.0]),
            intensity=self._intensity(),
            mailbox=self.policies[name],
            shutdown_seconds=rng.choice([0.1, 5.0]),
            start_seconds=rng.choice([0.3, 60.0]),
        )

    def _actor(self, name: str) -> ChildSpec:
        return actor_child(
            name,
            lambda: self.make_actor(name),
            restart=self.rng.choice([Restart.PERMANENT, Restart.PERMANENT, *Restart]),
            shutdown_seconds=self._seconds(),
            start_seconds=self.rng.choice([0.3, 60.0]),
            mailbox=self.policies[name],
        )

    def _seconds(self) -> float:
        return self.rng.choice([0.2, 1.0, 5.0])

    def _policy(self) -> MailboxPolicy:
        rng = self.rng
        return MailboxPolicy(
            capacity=rng.randrange(1, 5),
            overflow=rng.choice(list(Overflow)),
            max_work=rng.randrange(1, 4),
            max_timers=rng.randrange(1, 5),
            max_stash=rng.randrange(4),
        )

    def _intensity(self) -> RestartIntensity:
        is_low = self.rng.random() < 0.2
        return RestartIntensity(
            restarts=3 if is_low else 300, backoff=self.rng.choice([0.0, 0.2, 1.0])
        )

    def cell(self, name: str) -> ActorCell | None:
        """Return the cell of an actor, if there is one; none for the worker pool."""
        pool, _, key = name.partition("/")
        if not key:
            return self.refs[name].cell if name in self.refs else None
        return next((cell for cell in self.pools[pool].cells() if cell.key == key), None)
