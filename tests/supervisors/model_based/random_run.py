"""A random run of scripted actors, which a sequential model checks step by step.

Every message carries the steps that its handler performs. The model keeps a `MessageRecord` of each
message: the call that sends it, each handler that begins it, and its end. The invariants of the
runtime are stated about messages:

- a message begins at most once, unless it was stashed, and never after its caller has stopped
  waiting;
- the messages of one mailbox begin in the order of the calls that sent them;
- a caller of `ask` gets the answer, or an error that the model explains, at its deadline at the
  latest;
- a message of `tell` begins, or is a dead letter;
- at quiescence, when all tasks wait, no message waits for an actor that could handle it.

Timers, work, watches, publications and the counters of snapshots have invariants of their own. An
exception in a handler would be a failure of an actor, so violations are collected, and the test
asserts that there are none.
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
from tests.supervisors.model_based.messages import (
    CALLERS,
    CARRIED,
    DYNAMIC_CHILDREN,
    EVENT_CAPACITY,
    KEYS,
    POOL,
    POOLS,
    SECOND_POOL,
    SINGLE_ACTORS,
    STOP_SECONDS,
    WORKER_POOL,
    Publication,
    RuntimeAbortError,
    Step,
)
from tests.supervisors.model_based.quiescence import QuiescenceChecks
from tests.supervisors.model_based.scripted_actors import ERRORS, ScriptedActor


class RandomRun(QuiescenceChecks):
    """One run: the callers, and the random schedule of what they and the actors do."""

    def random_target(self) -> str:
        kind = self.rng.choice(
            [
                *SINGLE_ACTORS,
                *DYNAMIC_CHILDREN,
                POOL,
                POOL,
                POOL,
                SECOND_POOL,
                WORKER_POOL,
                WORKER_POOL,
            ]
        )
        return f"{kind}/{self.rng.choice(KEYS)}" if kind in POOLS else kind

    def random_steps(self, depth: int = 0) -> tuple[Step, ...]:
        rng = self.rng
        steps = tuple(self._random_step(depth) for _ in range(rng.randrange(4 - depth)))
        if self.chance(0.05):  # a timer that is cancelled when it has expired already
            steps += (("after", 0.1, False), ("sleep", 0.25), ("cancel timers",))
        if self.chance(self.failure_rate):
            steps += (("raise", rng.choice([kind for kind in ERRORS if kind != "abort"])),)
        if self.chance(self.abort_rate):
            steps += (("raise", "abort"),)
        if self.chance(self.stop_rate):
            steps += (("stop",),)
        return steps

    def _random_step(self, depth: int) -> Step:  # noqa: C901, PLR0911
        rng = self.rng
        kind = rng.choice(STEP_KINDS if depth < 3 else STEP_KINDS[:NOT_NESTED])
        seconds = rng.choice([0.0, 0.1, 0.25, 0.5, rng.uniform(0, 2)])
        match kind:
            case "tell" | "send":
                return kind, self.random_target(), self.random_steps(depth + 1)
            case "ask":
                caught, capped = rng.random() < 0.7, rng.random() < 0.8
                deadline = rng.choice([0.25, seconds + 0.1, 2.0])
                return (
                    kind,
                    self.random_target(),
                    self.random_steps(depth + 1),
                    deadline,
                    caught,
                    capped,
                )
            case "context ask":
                return (
                    kind,
                    self.random_target(),
                    self.random_steps(depth + 1),
                    rng.choice([0.25, 2.0]),
                )
            case "work":
                return kind, seconds, rng.random() < 0.2, rng.random() < 0.7
            case "after":
                return kind, seconds, rng.random() < 0.3
            case "every":
                return kind, seconds + 0.3
            case "keep reply":
                return kind, rng.choice([None, seconds])
            case "watch":
                return kind, self._random_watchable(), rng.random() < 0.5
            case "sleep":
                return (
                    "swallow cancellation"
                    if self.swallows_cancellation and rng.random() < 0.2
                    else kind
                ), seconds
            case "dynamic child":
                return kind, rng.choice(DYNAMIC_CHILDREN), rng.random() < 0.5
        return (kind,)

    def _random_watchable(self) -> str:
        name = self.random_target()
        return SINGLE_ACTORS[0] if name == WORKER_POOL else name

    # Callers.

    async def run(self) -> None:
        """Run a tree while callers send messages, stop it, and check what is left."""
        with suppress(SupervisorFailed), trio.move_on_after(self.rng.uniform(1, 12)):
            async with (
                open_supervisor(
                    self.runtime,
                    "top",
                    self.tree(),
                    strategy=self.rng.choice(list(Strategy)),
                    intensity=self._intensity(),
                    stop_seconds=STOP_SECONDS,
                    limit=2,
                ) as top,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self.check_repeatedly)
                for _ in range(CALLERS):
                    nursery.start_soon(self.run_caller, top)
        for pool in self.pools.values():
            await pool.close(self.now() + STOP_SECONDS)
        await trio.sleep(70)  # longer than any alarm that might be left
        self.check_quiescence()
        self.check_end()

    async def run_caller(self, top: Supervisor) -> None:
        while True:
            with suppress(ActorError, Refused, ValueError):
                await self._call_once(top)
            if self.rng.random() < 0.7:
                await trio.sleep(self.rng.choice([0.0, 0.1, self.rng.uniform(0, 1)]))

    async def _call_once(self, top: Supervisor) -> None:  # noqa: C901, PLR0912, PLR0915
        rng = self.rng
        match rng.choice(CALL_KINDS):
            case "tell":
                for _ in range(rng.randrange(1, 4)):
                    self.tell(self.random_target(), self.random_steps())
            case "send":
                with trio.move_on_after(rng.choice([0.2, 5.0])):
                    await self.send(self.random_target(), self.random_steps())
            case "ask":
                with trio.move_on_after(rng.choice([0.0, 0.1, 0.5, inf])):
                    deadline = rng.choice([0.1, 0.5, rng.uniform(0.01, 5.0)])
                    await self.ask(self.random_target(), self.random_steps(), deadline)
            case "burst":
                name, seconds = self.random_target(), rng.choice([0.0, 0.5])
                async with trio.open_nursery() as nursery:
                    for _ in range(rng.randrange(2, 6)):
                        nursery.start_soon(self._ask_ignoring_errors, name, (("sleep", seconds),))
            case "chain":
                sleep: Step = ("sleep", 2.0)
                steps = (("ask", self.random_target(), (sleep,), 5.0, True, True),)
                with trio.move_on_after(0.3):
                    await self._ask_ignoring_errors(self.random_target(), steps)
            case "stash":
                name = self.random_target()
                for _ in range(rng.randrange(2, 4)):
                    self.tell(name, (("stash",),))
                await trio.sleep(rng.choice([0.0, 0.3]))
                self.tell(name, (("unstash",),))
            case "stop between instances":
                if self.chance(self.stop_rate):
                    name = rng.choice(SINGLE_ACTORS)
                    for _ in range(2):
                        self.tell(name, (("raise", "failure"),))
                    await trio.sleep(0.01)
                    self.refs[name].stop(self.now() + 1.0)
            case "resubscribe":
                ref = self.ref(self._random_watchable())
                self.topic.subscribe(ref, overflow=TopicOverflow.UNSUBSCRIBE, capacity=3)
                for _ in range(4):
                    self.published += 1
                    self.topic.tell(Publication(self.published))
                self.topic.subscribe(ref, overflow=TopicOverflow.DROP_OLDEST, capacity=5)
                with trio.move_on_after(1.0):
                    await self.publish()
            case "inspect":
                name = self._random_watchable()
                await self.ref(name).inspect(deadline=rng.choice([0.1, 1.0]))
            case "suspend":
                ref = self.refs[rng.choice(SINGLE_ACTORS)]
                ref.suspend()
                await trio.sleep(rng.uniform(0, 0.5))
                ref.resume()
            case "stop":
                if self.chance(self.stop_rate):
                    name = rng.choice(SINGLE_ACTORS)
                    deadline = self.now() + rng.choice([0.0, 0.5])
                    actor = self.refs[name].cell.actor
                    self.refs[name].stop(deadline)
                    if isinstance(actor, ScriptedActor):
                        self.stopped.append((name, actor.instance, deadline))
            case "close pool":
                await self._reopen_pool()
            case "dynamic child":
                name = rng.choice(DYNAMIC_CHILDREN)
                hosts: list[Supervisor | DynamicSupervisor] = [self.dynamic, top]
                host = rng.choice(hosts)
                with trio.move_on_after(rng.choice([0.1, inf])):
                    if rng.random() < 0.5:
                        await host.start_child(self.dynamic_spec(name))
                    else:
                        await host.stop_child(name)
            case "publish":
                with trio.move_on_after(rng.choice([0.2, 5.0])):
                    await self.publish()
            case "subscribe":
                await self._subscribe()

    async def _ask_ignoring_errors(self, name: str, steps: tuple[Step, ...]) -> None:
        with suppress(ActorError, Refused):
            await self.ask(name, steps, 5.0)

    async def _reopen_pool(self) -> None:
        rng, pool = self.rng, self.pools[SECOND_POOL]
        deadline = self.now() + rng.choice([0.0, 0.3, 5.0])
        with trio.move_on_after(rng.choice([0.1, inf])):
            await (pool.close if rng.random() < 0.5 else pool.end_instances)(deadline)
        await trio.sleep(rng.uniform(0, 0.5))
        with suppress(RuntimeError):  # the pool is still closing
            pool.open()

    async def _subscribe(self) -> None:
        rng = self.rng
        name = self._random_watchable()
        membership = self.topic.subscribe(
            self.ref(name),
            overflow=rng.choice(list(TopicOverflow)),
            capacity=rng.randrange(1, 4),
        )
        if rng.random() < 0.5:
            await trio.sleep(rng.uniform(0, 1))
            membership.cancel()


STEP_KINDS: Final = (
    "sleep", "yield", "work", "after", "every", "cancel timers", "keep reply", "keep reply",
    "stash", "unstash", "watch", "unwatch", "publish", "dynamic child", "tell", "send", "ask",
    "ask", "context ask",
)  # fmt: skip
NOT_NESTED: Final = STEP_KINDS.index("tell")
CALL_KINDS: Final = (
    "tell", "tell", "send", "ask", "ask", "ask", "inspect", "suspend", "stop", "dynamic child",
    "publish", "subscribe", "close pool", "burst", "chain", "stash", "stop between instances",
    "resubscribe",
)  # fmt: skip


class TraceOrderCheck:
    """Tracing hooks that check the order of the stages of each message."""

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


async def _run(seed: int, runs: list[RandomRun], traces: TraceOrderCheck) -> None:
    log = LogBook()
    async with open_runtime(
        clock=TrioClock(0),
        entropy=SeededEntropy(seed),
        log=log,
        carry=(CARRIED,) if seed % 3 == 0 else (),
        hooks=traces if seed % 5 == 0 else None,
    ) as runtime:
        with runtime.events.listening(capacity=EVENT_CAPACITY) as listener:
            run = RandomRun(runtime, seed, listener)
            runs.append(run)
            await run.run()
            run.expect(not log.named("trace_failed"), "tracing has ended", "runtime")


def violations_of(seed: int) -> list[str]:
    """Perform the run of this seed, and return the invariants that the runtime violates."""
    runs: list[RandomRun] = []
    traces = TraceOrderCheck()
    try:
        with task_order(seed):
            trio.run(_run, seed, runs, traces, clock=MockClock(autojump_threshold=0))
    except BaseException as error:
        if not any(isinstance(leaf, RuntimeAbortError) for leaf in leaves(error)):
            raise
    (run,) = runs
    run.check_stopped()
    return run.violations + traces.violations
