"""A play of actors by chance, and a sequential model of it that checks each step.

Every message carries its part: steps that its handler performs. A `PlayLetter` stands for the
message in the model. It records the call that has sent it, each handler that has begun it, and its
end, so that the rules of the runtime can be stated about letters:

- a letter begins at most once, unless it was stashed meanwhile, and never after its asker has gone;
- the letters of one mailbox begin in the order of the calls that have sent them;
- an asker gets the answer, or an error that the model explains, at its deadline at the latest;
- a letter that was told begins, or is a dead letter;
- when all tasks wait, no actor that could handle a message has one.

Timers, work, watches, publications and the counters of snapshots have their rules beside these. An
error in a handler would be a failure of an actor, so violations are collected, and the test looks
at them.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Final

import trio
from trio.testing import MockClock

from fw_actors.runtime import (
    ActorError,
    MessageTrace,
    Refused,
    SeededEntropy,
    TopicOverflow,
    TraceOutcome,
    TrioClock,
    open_runtime,
)
from fw_actors.runtime.errors import leaves
from fw_actors.runtime.testing import LogBook, task_order
from supervisors import (
    DynamicSupervisor,
    Strategy,
    Supervisor,
    SupervisorFailed,
    open_supervisor,
)
from tests.supervisors.plays.letters import (
    CALLERS,
    CARRIED,
    CREW,
    GUESTS,
    KEYS,
    MANY_EVENTS,
    POOL,
    POOLS,
    SIDE,
    SINGLES,
    STOP_SECONDS,
    CurtainError,
    Publication,
    Step,
)
from tests.supervisors.plays.puppets import ERRORS, Puppet
from tests.supervisors.plays.rest import RestRules


class Play(RestRules):
    """One play: the callers, and what they and the actors do by chance."""

    def somebody(self) -> str:
        kind = self.dice.choice([*SINGLES, *GUESTS, POOL, POOL, POOL, SIDE, CREW, CREW])
        return f"{kind}/{self.dice.choice(KEYS)}" if kind in POOLS else kind

    def steps(self, depth: int = 0) -> tuple[Step, ...]:
        dice = self.dice
        steps = tuple(self._random_step(depth) for _ in range(dice.randrange(4 - depth)))
        if self.chance(0.05):  # a timer that is cancelled when it has expired already
            steps += (("after", 0.1, False), ("sleep", 0.25), ("cancel timers",))
        if self.chance(self.failures):
            steps += (("raise", dice.choice([kind for kind in ERRORS if kind != "curtain"])),)
        if self.chance(self.fatal):
            steps += (("raise", "curtain"),)
        if self.chance(self.stops):
            steps += (("stop",),)
        return steps

    def _random_step(self, depth: int) -> Step:  # noqa: C901, PLR0911
        dice = self.dice
        kind = dice.choice(STEPS if depth < 3 else STEPS[:NOT_NESTED])
        seconds = dice.choice([0.0, 0.1, 0.25, 0.5, dice.uniform(0, 2)])
        match kind:
            case "tell" | "send":
                return kind, self.somebody(), self.steps(depth + 1)
            case "ask":
                caught, capped = dice.random() < 0.7, dice.random() < 0.8
                deadline = dice.choice([0.25, seconds + 0.1, 2.0])
                return kind, self.somebody(), self.steps(depth + 1), deadline, caught, capped
            case "ask later":
                return kind, self.somebody(), self.steps(depth + 1), dice.choice([0.25, 2.0])
            case "work":
                return kind, seconds, dice.random() < 0.2, dice.random() < 0.7
            case "after":
                return kind, seconds, dice.random() < 0.3
            case "every":
                return kind, seconds + 0.3
            case "keep":
                return kind, dice.choice([None, seconds])
            case "watch":
                return kind, self._watchable(), dice.random() < 0.5
            case "sleep":
                return ("swallow" if self.swallows and dice.random() < 0.2 else kind), seconds
            case "guest":
                return kind, dice.choice(GUESTS), dice.random() < 0.5
        return (kind,)

    def _watchable(self) -> str:
        name = self.somebody()
        return SINGLES[0] if name == CREW else name

    # Callers.

    async def perform(self) -> None:
        """Run a tree for a time while callers call, end it, and check what is left."""
        with suppress(SupervisorFailed), trio.move_on_after(self.dice.uniform(1, 12)):
            async with (
                open_supervisor(
                    self.runtime,
                    "top",
                    self.tree(),
                    strategy=self.dice.choice(list(Strategy)),
                    intensity=self._intensity(),
                    stop_seconds=STOP_SECONDS,
                    limit=2,
                ) as top,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self.look)
                for _ in range(CALLERS):
                    nursery.start_soon(self.call, top)
        for pool in self.pools.values():
            await pool.close(self.now() + STOP_SECONDS)
        await trio.sleep(70)  # longer than any alarm that might be left
        self.check_rest()
        self.check_end()

    async def call(self, top: Supervisor) -> None:
        while True:
            with suppress(ActorError, Refused, ValueError):
                await self._call_once(top)
            if self.dice.random() < 0.7:
                await trio.sleep(self.dice.choice([0.0, 0.1, self.dice.uniform(0, 1)]))

    async def _call_once(self, top: Supervisor) -> None:  # noqa: C901, PLR0912, PLR0915
        dice = self.dice
        match dice.choice(CALLS):
            case "tell":
                for _ in range(dice.randrange(1, 4)):
                    self.tell(self.somebody(), self.steps())
            case "send":
                with trio.move_on_after(dice.choice([0.2, 5.0])):
                    await self.send(self.somebody(), self.steps())
            case "ask":
                with trio.move_on_after(dice.choice([0.0, 0.1, 0.5, inf])):
                    deadline = dice.choice([0.1, 0.5, dice.uniform(0.01, 5.0)])
                    await self.ask(self.somebody(), self.steps(), deadline)
            case "burst":
                name, seconds = self.somebody(), dice.choice([0.0, 0.5])
                async with trio.open_nursery() as nursery:
                    for _ in range(dice.randrange(2, 6)):
                        nursery.start_soon(self._ask_quietly, name, (("sleep", seconds),))
            case "chain":
                sleep: Step = ("sleep", 2.0)
                steps = (("ask", self.somebody(), (sleep,), 5.0, True, True),)
                with trio.move_on_after(0.3):
                    await self._ask_quietly(self.somebody(), steps)
            case "stash":
                name = self.somebody()
                for _ in range(dice.randrange(2, 4)):
                    self.tell(name, (("stash",),))
                await trio.sleep(dice.choice([0.0, 0.3]))
                self.tell(name, (("unstash",),))
            case "stop between":
                if self.chance(self.stops):
                    name = dice.choice(SINGLES)
                    for _ in range(2):
                        self.tell(name, (("raise", "failure"),))
                    await trio.sleep(0.01)
                    self.refs[name].stop(self.now() + 1.0)
            case "rejoin":
                ref = self.ref(self._watchable())
                self.topic.subscribe(ref, overflow=TopicOverflow.UNSUBSCRIBE, capacity=3)
                for _ in range(4):
                    self.published += 1
                    self.topic.tell(Publication(self.published))
                self.topic.subscribe(ref, overflow=TopicOverflow.DROP_OLDEST, capacity=5)
                with trio.move_on_after(1.0):
                    await self.publish()
            case "inspect":
                name = self._watchable()
                await self.ref(name).inspect(deadline=dice.choice([0.1, 1.0]))
            case "suspend":
                ref = self.refs[dice.choice(SINGLES)]
                ref.suspend()
                await trio.sleep(dice.uniform(0, 0.5))
                ref.resume()
            case "stop":
                if self.chance(self.stops):
                    name = dice.choice(SINGLES)
                    deadline = self.now() + dice.choice([0.0, 0.5])
                    actor = self.refs[name].cell.actor
                    self.refs[name].stop(deadline)
                    if isinstance(actor, Puppet):
                        self.stopped.append((name, actor.life, deadline))
            case "pool":
                await self._close_or_open()
            case "guest":
                name = dice.choice(GUESTS)
                hosts: list[Supervisor | DynamicSupervisor] = [self.guests, top]
                host = dice.choice(hosts)
                with trio.move_on_after(dice.choice([0.1, inf])):
                    if dice.random() < 0.5:
                        await host.start_child(self.guest(name))
                    else:
                        await host.stop_child(name)
            case "publish":
                with trio.move_on_after(dice.choice([0.2, 5.0])):
                    await self.publish()
            case "join":
                await self._join()

    async def _ask_quietly(self, name: str, steps: tuple[Step, ...]) -> None:
        with suppress(ActorError, Refused):
            await self.ask(name, steps, 5.0)

    async def _close_or_open(self) -> None:
        dice, pool = self.dice, self.pools[SIDE]
        deadline = self.now() + dice.choice([0.0, 0.3, 5.0])
        with trio.move_on_after(dice.choice([0.1, inf])):
            await (pool.close if dice.random() < 0.5 else pool.end_instances)(deadline)
        await trio.sleep(dice.uniform(0, 0.5))
        with suppress(RuntimeError):  # it is still closing
            pool.open()

    async def _join(self) -> None:
        dice = self.dice
        name = self._watchable()
        membership = self.topic.subscribe(
            self.ref(name),
            overflow=dice.choice(list(TopicOverflow)),
            capacity=dice.randrange(1, 4),
        )
        if dice.random() < 0.5:
            await trio.sleep(dice.uniform(0, 1))
            membership.cancel()


STEPS: Final = (
    "sleep", "yield", "work", "after", "every", "cancel timers", "keep", "keep", "stash", "unstash",
    "watch", "unwatch", "publish", "guest", "tell", "send", "ask", "ask", "ask later",
)  # fmt: skip
NOT_NESTED: Final = STEPS.index("tell")
CALLS: Final = (
    "tell", "tell", "send", "ask", "ask", "ask", "inspect", "suspend", "stop", "guest", "publish",
    "join", "pool", "burst", "chain", "stash", "stop between", "rejoin",
)  # fmt: skip


class CountedTraces:
    """Hooks that note how far each message has come."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._stages: dict[int, str] = {}

    def enqueued(self, message: MessageTrace, parent: MessageTrace | None) -> None:
        self._enter(message, None, "enqueued")

    def begun(self, message: MessageTrace) -> None:
        stage = self._stages.get(message.number)
        if stage == "ended":  # it was stashed
            stage = self._stages[message.number] = "enqueued"
        self._enter(message, "enqueued", "begun")

    def ended(
        self, message: MessageTrace, outcome: TraceOutcome, error: BaseException | None
    ) -> None:
        self._enter(message, "begun", "ended")

    def _enter(self, message: MessageTrace, before: str | None, stage: str) -> None:
        if self._stages.get(message.number) != before:
            self.violations.append(f"{message.actor}: {message.message_type} {stage}")
        self._stages[message.number] = stage


async def _perform(seed: int, plays: list[Play], traces: CountedTraces) -> None:
    log = LogBook()
    async with open_runtime(
        clock=TrioClock(0),
        entropy=SeededEntropy(seed),
        log=log,
        carry=(CARRIED,) if seed % 3 == 0 else (),
        hooks=traces if seed % 5 == 0 else None,
    ) as runtime:
        with runtime.events.listening(capacity=MANY_EVENTS) as listener:
            play = Play(runtime, seed, listener)
            plays.append(play)
            await play.perform()
            play.expect(not log.named("trace_failed"), "tracing has ended", "runtime")


def violations_of(seed: int) -> list[str]:
    """Perform the play of this seed, and return the rules that the runtime has broken."""
    plays: list[Play] = []
    traces = CountedTraces()
    try:
        with task_order(seed):
            trio.run(_perform, seed, plays, traces, clock=MockClock(autojump_threshold=0))
    except BaseException as error:
        if not any(isinstance(leaf, CurtainError) for leaf in leaves(error)):
            raise
    (play,) = plays
    play.check_curtain()
    return play.violations + traces.violations
