"""Tools for tests of actors: faults, probes, orders of tasks, and a logger.

Faults drop, delay or crash on messages as they leave a mailbox:

    faults = nth({2: Drop(), 5: Delay(3.0), 7: Crash()})
    with injecting(runtime.ref("dispatcher"), faults) as injector:
        ...
    assert [injected.fault for injected in injector.injected] == [Drop(), Delay(3.0), Crash()]

It works on a single actor over all its instances, or on a pool as a whole.

A probe replaces an actor, and keeps the messages that it receives:

    async with probing(runtime, "mailer") as probe:
        ...
        assert (await probe.got(Send)).address == "ann@example.com"
        await probe.silent(5.0)

`task_order(seed)` makes the order in which trio runs its tasks repeatable, and `@seeds(50)` runs a
test in fifty such orders, each with a new runtime. trio runs ready tasks in batches, each in the
order of arrival or in reverse, by a random number; the order of arrival also depends on the
addresses of objects. For Hypothesis, trio can instead sort a batch and shuffle it with a random
generator; `task_order` uses the same switch for any test, with a generator that belongs to the
test.

`restarted(ref)` waits for an actor's next instance. A `LogBook` keeps the log of a runtime. The
fixtures for pytest are in `fw_actors.runtime.pytest_plugin`.
"""

from __future__ import annotations

import inspect
import random  # noqa: TID251 - a generator of the seed, for trio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Final, TypeVar

import trio
import trio._core._run
from trio.testing import MockClock

from fw_actors.runtime.actor import Actor
from fw_actors.runtime.cell import ActorCell
from fw_actors.runtime.clock import SeededEntropy, TrioClock
from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.keyed_pool import KeyedPool
from fw_actors.runtime.mailbox import Item
from fw_actors.runtime.messages import Handler, Message
from fw_actors.runtime.operations import operations_of
from fw_actors.runtime.ref import ActorRef
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.system import Runtime, open_runtime
from fw_actors.runtime.topics import EventKind, RuntimeEvent
from fw_actors.runtime.worker_pool import WorkerPool


class LogBook:
    """A logger that keeps its entries: level, event and fields of each."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("debug", event, fields))

    def info(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("error", event, fields))

    def named(self, event: str) -> list[dict[str, object]]:
        """Return the fields of all entries of an event."""
        return [fields for _, name, fields in self.entries if name == event]


_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_DICE: Final = "_r"


@contextmanager
def task_order(seed: int) -> Iterator[None]:
    """Make every `trio.run` inside the block order its tasks only by `seed`.

    The same seed gives the same order, even in another process and under another hash seed, if the
    tasks are deterministic: time from a MockClock, no threads, no sockets.
    """
    names = vars(trio._core._run)
    before = _parts(names)
    names.update({_SWITCH: True, _DICE: random.Random(seed)})
    try:
        yield
    finally:
        names.update(before)


def _parts(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replaced parts of trio; a KeyError here means that trio's implementation has
    changed."""
    return {name: names[name] for name in (_SWITCH, _DICE)}


SUPPLIED: Final = ("runtime", "log", "seed")
START_MS: Final = 1_700_000_000_000
"""The Unix time at which runtimes of tests begin, in ms."""


class SeedOption:
    """The seed that `--only-seed` of the pytest plugin has chosen for all tests."""

    only: int | None = None


def seeds(
    count: int, *, only: int | None = None
) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., None]]:
    """Run an async test in virtual time, once for each of the seeds from 0 to `count` - 1.

    The seed determines the order in which trio runs its tasks, and seeds the runtime's entropy. The
    test may have the parameters `runtime`, `log` (the runtime's `LogBook`) and `seed`; other
    parameters are left to pytest, but async fixtures are not available. The result is a plain
    function, so it needs neither a plugin nor pytest. A failure has a note with its seed, and with
    the way to run only that seed: `only=`, or `--only-seed` of `fw_actors.runtime.pytest_plugin`.
    Raises ValueError if `count` is less than 1.
    """
    if count < 1:
        raise ValueError("count must be at least 1")

    def decorate(test: Callable[..., Awaitable[object]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        requested = [name for name in signature.parameters if name in SUPPLIED]
        others = [p for name, p in signature.parameters.items() if name not in SUPPLIED]

        @wraps(test)
        def run_all(*values: Any, **named: Any) -> None:
            chosen = SeedOption.only if only is None else only
            for seed in range(count) if chosen is None else (chosen,):
                run = partial(_run, partial(test, *values), requested, seed, named)
                try:
                    with task_order(seed):
                        trio.run(run, clock=MockClock(autojump_threshold=0))
                except BaseException as error:
                    error.add_note(
                        f"under seed {seed} of {count}; this one alone: "
                        f"@seeds({count}, only={seed}), or pytest --only-seed={seed}"
                    )
                    raise

        # So that pytest does not search fixtures of these names.
        run_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run_all

    return decorate


async def _run(
    test: Callable[..., Awaitable[object]],
    requested: Iterable[str],
    seed: int,
    named: Mapping[str, Any],
) -> None:
    log = LogBook()
    clock, entropy = TrioClock(START_MS), SeededEntropy(seed)
    async with open_runtime(clock=clock, entropy=entropy, log=log) as runtime:
        values = {"runtime": runtime, "log": log, "seed": seed}
        await test(**named, **{name: values[name] for name in requested})


__all__ = [
    "Crash",
    "Delay",
    "Drop",
    "Fault",
    "InjectedCrash",
    "InjectedFault",
    "Injector",
    "LogBook",
    "Plan",
    "Probe",
    "injecting",
    "nth",
    "probing",
    "restarted",
    "seeds",
    "task_order",
]


@dataclass(frozen=True, slots=True)
class Drop:
    """Loses the message: no handler, no answer, no dead letter; its asker waits until its
    deadline."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Delivers the message `seconds` later, after others that arrived meanwhile.

    If the instance ends meanwhile, the message is lost and its asker gets the error.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Crash:
    """Fails the instance as if the message's handler had raised `InjectedCrash`."""


Fault = Drop | Delay | Crash
Plan = Callable[[int, Message], Fault | None]
"""Decides on each message, given its number (from 1) and the message itself."""


class InjectedCrash(Exception):
    """The failure that a `Crash` causes."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """An injected fault, with the actor and the number of the message (from 1)."""

    actor: str
    number: int
    message: str
    fault: Fault


@dataclass(slots=True)
class Injector:
    """Counts the messages that `injecting` has seen, and keeps the injected faults."""

    plan: Plan
    seen: int = 0
    injected: list[InjectedFault] = field(default_factory=list)

    def inject(self, cell: ActorCell, item: Item) -> Item | None:
        """Return the item, or inject a fault and return None: there is nothing to handle.

        Raises CrashedError as a failed handler does.
        """
        message = item.message if isinstance(item, PendingReply) else item
        self.seen += 1
        fault = self.plan(self.seen, message)
        if fault is None:
            return item
        self.injected.append(InjectedFault(cell.name, self.seen, type(message).__name__, fault))
        if isinstance(fault, Delay):
            DelayedMessage(cell, item, fault.seconds)
        elif isinstance(fault, Crash):
            raise cell.record_injected_failure(item, InjectedCrash(f"on message {self.seen}"))
        return None


class DelayedMessage:
    """A message that returns as a completion, so that it needs no room in the mailbox."""

    serves: Final = None

    def __init__(self, cell: ActorCell, item: Item, seconds: float) -> None:
        self._cell, self._item, self._seconds = cell, item, seconds
        operations_of(cell).add(self)
        cell.runtime.deadlines.add(self, seconds)

    def expire(self) -> None:
        """Queue the completion."""
        operations_of(self._cell).complete(self)

    def take(self) -> Item:
        """End the operation and return the message."""
        operations_of(self._cell).remove(self)
        return self._item

    def abandon(self, error: ActorError) -> None:
        """Lose the message because the instance has ended."""
        self._cell.runtime.deadlines.withdraw(self, self._seconds)
        if isinstance(self._item, PendingReply):
            self._item.abandon(error)


def nth(faults: Mapping[int, Fault]) -> Plan:
    """Return the plan that injects each fault on the message of its number, from 1."""
    return lambda number, _: faults.get(number)


@contextmanager
def injecting(target: ActorRef | KeyedPool | WorkerPool[Any], plan: Plan) -> Iterator[Injector]:
    """Inject faults into a single actor, or into all actors of a pool, while the block runs.

    Completions of work, timers and watches are not affected: they do not pass the mailbox.
    """
    injector = Injector(plan)
    cell_or_pool = target.cell if isinstance(target, ActorRef) else target
    cell_or_pool.inject_faults(injector.inject)
    try:
        yield injector
    finally:
        cell_or_pool.inject_faults(None)


MessageT = TypeVar("MessageT", bound=Message)


class Probe:
    """The messages that a probe has received and `got` has not returned yet."""

    def __init__(self, answers: Mapping[type[Message], object]) -> None:
        self.answers = dict(answers)
        """The answer to each type of request; other requests get None."""
        self.messages: list[Message] = []
        self._arrived = trio.Event()

    def receive(self, message: Message) -> object:
        """Keep a message, and return its answer."""
        self.messages.append(message)
        self._arrived.set()
        self._arrived = trio.Event()
        return self.answers.get(type(message))

    async def got(self, kind: type[MessageT], within: float = 1.0) -> MessageT:
        """Return the first message of this type, once; wait for it, for at most `within` seconds.

        Raises AssertionError if none has arrived.
        """
        with trio.move_on_after(within):
            while True:
                for message in self.messages:
                    if type(message) is kind:
                        self.messages.remove(message)
                        return message
                await self._arrived.wait()
        raise AssertionError(f"no {kind.__name__} within {within:g} s, only {self.messages!r}")

    async def silent(self, seconds: float) -> None:
        """Raise AssertionError if there is a message, or if one arrives within `seconds`."""
        await trio.sleep(seconds)
        if self.messages:
            raise AssertionError(f"within {seconds:g} s there were {self.messages!r}")


class ProbeActor(Actor):
    """The actor of a probe: handles messages of every type."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe


RECEIVE: Final = Handler(lambda actor, message: actor.probe.receive(message), is_async=False)


class _AnyMessage(dict[type[Message], Handler]):
    def __missing__(self, kind: type[Message]) -> Handler:
        return RECEIVE


ProbeActor.handlers = _AnyMessage()


@asynccontextmanager
async def probing(
    runtime: Runtime, name: str, answers: Mapping[type[Message], object] | None = None
) -> AsyncIterator[Probe]:
    """Run a probe at the address `name` while the block runs."""
    probe = Probe(answers or {})
    async with runtime.running(name, lambda: ProbeActor(probe)):
        yield probe


@asynccontextmanager
async def restarted(ref: ActorRef, within: float = 60.0) -> AsyncIterator[None]:
    """Wait, at the end of the block, until a new instance of a single actor has started.

    An instance that started in the block counts too. Raises AssertionError if none has started
    `within` seconds after the end of the block.
    """
    cell = ref.cell
    before = cell.incarnation

    def is_new(event: RuntimeEvent) -> bool:
        return (
            event.kind is EventKind.STARTED
            and event.name == cell.name
            and event.incarnation > before
        )

    with cell.runtime.events.listening(accept=is_new) as starts:
        yield
        with trio.move_on_after(within) as scope:
            await anext(starts)
    if scope.cancelled_caught:
        raise AssertionError(f"no new instance of {cell.name!r} within {within:g} s")
