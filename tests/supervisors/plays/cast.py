"""The actors of a play and their tree, by chance."""

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
from tests.supervisors.plays.letters import (
    CARRIED,
    CREW,
    GUESTS,
    POOL,
    POOLS,
    SINGLES,
    TOPIC,
    Life,
    PlayLetter,
    Publication,
)
from tests.supervisors.plays.puppets import PolitePuppet, Puppet


class Cast:
    """The actors of one play, with policies, strategies and faults by chance."""

    def __init__(self, runtime: Runtime, seed: int, listener: Listener[RuntimeEvent]) -> None:
        self.runtime = runtime
        self.dice = dice = random.Random(seed)
        self.violations: list[str] = []
        self.letters: list[PlayLetter] = []
        self.told: Counter[str] = Counter()
        """Dead letters of calls that were refused."""
        self.handled: Counter[str] = Counter()
        self.unsure: Counter[str] = Counter()
        """Handlers that were cancelled, perhaps because they give up."""
        self.failed: Counter[str] = Counter()
        self.maybe_failed: Counter[str] = Counter()
        """Starts that were cancelled, perhaps because they have taken too long."""
        self.last_begun: Counter[str] = Counter()
        self.current: dict[str, Life] = {}
        self.lives: list[Life] = []
        self.listener = listener
        self.events: list[RuntimeEvent] = []
        self.started: dict[str, list[int]] = {}
        self.stopped: list[tuple[str, Life, float]] = []
        self._numbers = 0
        calm = dice.random() < 0.4
        few = 0.0 if calm else dice.choice([0.0, 0.02, 0.1])
        self.make_fails = dice.choice([0.0, few])
        self.start_fails = dice.choice([0.0, few])
        self.stop_fails = dice.choice([0.0, few])
        self.slow_starts = dice.choice([0.0, 0.5])
        self.fatal = 0.0 if dice.random() < 0.8 else 0.003
        self.swallows = dice.random() < 0.2
        self.failures = 0.0 if calm else dice.choice([0.02, 0.1, 0.3])
        self.stops = dice.choice([0.0, 0.02, 0.2])
        self.policies = {name: self._policy() for name in (*SINGLES, *GUESTS, *POOLS, CREW)}
        self.carries = CARRIED in runtime.carry
        self.pools = {name: self._pool(name) for name in POOLS}
        self.crew = WorkerPool(
            runtime,
            CREW,
            lambda: self.make(CREW),
            size=dice.randrange(1, 5),
            mailbox=self.policies[CREW],
        )
        self.guests = DynamicSupervisor("guests", limit=2)
        self.topic: Topic[Publication] = Topic(runtime, TOPIC)
        self.published = 0
        self.kinds = {name: dice.choice([Puppet, PolitePuppet]) for name in self.policies}
        self.refs = {name: runtime.ref(name) for name in (*SINGLES, *GUESTS)}

    def chance(self, part: float) -> bool:
        return part > 0 and self.dice.random() < part

    def now(self) -> float:
        return trio.current_time()

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def expect(self, holds: bool, text: str, name: str) -> None:
        if not holds:
            self.violations.append(f"{name}: {text}")

    # The actors.

    def make(self, name: str) -> Puppet:
        """Return a new actor; the puppets know the whole play."""
        return self.kinds[name.partition("/")[0]](cast("Any", self), name)

    def ref(self, name: str) -> Ref:
        pool, _, key = name.partition("/")
        if key:
            return self.pools[pool][key]
        return self.crew if name == CREW else self.refs[name]

    def policy_of(self, puppet: Puppet) -> MailboxPolicy:
        if puppet.name == CREW:
            return puppet.mailbox
        return self.policies[puppet.name.partition("/")[0]]

    def tree(self) -> list[ChildSpec]:
        dice = self.dice
        inner = [
            self._actor("b"),
            pool_child(POOL, self.pools[POOL], shutdown_seconds=self._seconds()),
        ]
        children = [
            self._actor("a"),
            supervisor_child(
                "inner",
                inner,
                strategy=dice.choice(list(Strategy)),
                intensity=self._intensity(),
                shutdown_seconds=self._seconds(),
            ),
            self._actor("c"),
            dynamic_child(self.guests, intensity=self._intensity()),
            worker_pool_child(
                self.crew, intensity=self._intensity(), shutdown_seconds=self._seconds()
            ),
            self._actor("d"),
        ]
        dice.shuffle(children)
        return children

    def guest(self, name: str) -> ChildSpec:
        return self._actor(name)

    def _pool(self, name: str) -> KeyedPool:
        dice = self.dice
        return KeyedPool(
            self.runtime,
            name,
            lambda key: self.make(f"{name}/{key}"),
            capacity=dice.randrange(2, 6),
            idle_seconds=dice.choice([0.0, 0.5, 5.0]),
            intensity=self._intensity(),
            mailbox=self.policies[name],
            shutdown_seconds=dice.choice([0.1, 5.0]),
            start_seconds=dice.choice([0.3, 60.0]),
        )

    def _actor(self, name: str) -> ChildSpec:
        return actor_child(
            name,
            lambda: self.make(name),
            restart=self.dice.choice([Restart.PERMANENT, Restart.PERMANENT, *Restart]),
            shutdown_seconds=self._seconds(),
            start_seconds=self.dice.choice([0.3, 60.0]),
            mailbox=self.policies[name],
        )

    def _seconds(self) -> float:
        return self.dice.choice([0.2, 1.0, 5.0])

    def _policy(self) -> MailboxPolicy:
        dice = self.dice
        return MailboxPolicy(
            capacity=dice.randrange(1, 5),
            overflow=dice.choice(list(Overflow)),
            max_work=dice.randrange(1, 4),
            max_timers=dice.randrange(1, 5),
            max_stash=dice.randrange(4),
        )

    def _intensity(self) -> RestartIntensity:
        few = self.dice.random() < 0.2
        return RestartIntensity(
            restarts=3 if few else 300, backoff=self.dice.choice([0.0, 0.2, 1.0])
        )

    def cell(self, name: str) -> ActorCell | None:
        """Return the cell of an actor, if there is one; none for the crew."""
        pool, _, key = name.partition("/")
        if not key:
            return self.refs[name].cell if name in self.refs else None
        return next((cell for cell in self.pools[pool].cells() if cell.key == key), None)
