"""Wrong use of the runtime is refused where it happens, with the right use (R-140, R-141)."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    AskTimeout,
    Context,
    KeyedPool,
    MailboxPolicy,
    Message,
    Ref,
    RestartIntensity,
    Runtime,
    SeededEntropy,
    SystemClock,
    Topic,
    handles,
    open_runtime,
)
from tests.fw_actors.runtime.sample_actors import AddNumber, DiaryNote, Nap, SampleActor


class Do(Message, frozen=True):
    """Has the handler call a function with its context."""

    act: Callable[[Context], Any]


class Doer(Actor):
    """Calls the function of each message."""

    @handles(Do)
    async def do(self, message: Do) -> None:
        message.act(self.context)


async def failure_of(runtime: Runtime, act: Callable[[Context], Any]) -> BaseException | None:
    """Return the error of a handler that calls `act` with its context."""
    try:
        async with runtime.running("doer", Doer) as ref:
            ref.tell(Do(act))
            await trio.sleep(10)
    except ActorFailed as failed:
        return failed.__cause__
    raise AssertionError("the handler did not fail")


async def test_context_in_a_constructor_is_refused_with_advice(runtime: Runtime) -> None:
    class EarlyContext(Actor):
        def __init__(self) -> None:
            self.name = self.context

    with pytest.raises(ActorFailed) as failed:
        async with runtime.running("early", EarlyContext):
            pass
    assert "EarlyContext has no context in its constructor: use it in started" in str(
        failed.value.__cause__
    )


def test_actor_names_a_missing_attribute() -> None:
    with pytest.raises(AttributeError, match="'Doer' object has no attribute 'missing'"):
        Doer().missing  # type: ignore[attr-defined]  # noqa: B018


def make_class(*_: object) -> Any:
    """Return the class in place of an instance."""
    return Doer


async def test_make_must_return_an_actor(runtime: Runtime) -> None:
    with pytest.raises(ActorFailed) as failed:
        async with runtime.running("a", make_class):
            pass
    assert "make must return an actor, not <class" in str(failed.value.__cause__)


async def test_make_of_a_pool_must_return_an_actor(runtime: Runtime) -> None:
    pool = KeyedPool(runtime, "p", make_class, capacity=1)
    with pytest.raises(ActorFailed) as failed:
        await pool["k"].ask(AddNumber(1), deadline=1)
    assert "make must return an actor, not <class" in str(failed.value.__cause__)


async def test_then_must_return_a_message(runtime: Runtime) -> None:
    error = await failure_of(
        runtime,
        lambda context: context.work(trio.sleep, 1, then=lambda outcome: None),  # type: ignore[arg-type,return-value]
    )
    assert str(error) == "then must return the message for the actor, not None"


async def _nothing() -> None:
    """A function whose coroutine is given in its place."""


async def test_work_takes_a_function_not_a_coroutine(runtime: Runtime) -> None:
    """Python does not warn of a coroutine that was never awaited."""
    error = await failure_of(
        runtime,
        lambda context: context.work(_nothing()),  # type: ignore[arg-type]
    )
    assert isinstance(error, TypeError)
    assert "an async function and its arguments, as in work(fn, 1)" in str(error)


@pytest.mark.parametrize(
    "act",
    [
        lambda context: context.after(nan, DiaryNote(1)),
        lambda context: context.every(nan, DiaryNote(1)),
        lambda context: context.every(0, DiaryNote(1)),
        lambda context: context.every(1, DiaryNote(1), first=nan),
    ],
)
async def test_timer_requires_a_number_of_seconds(
    runtime: Runtime, act: Callable[[Context], Any]
) -> None:
    assert isinstance(await failure_of(runtime, act), ValueError)


async def test_refused_timer_leaves_the_earlier_one_of_its_name(runtime: Runtime) -> None:
    """R-39, R-141."""
    actor = SampleActor()
    async with runtime.running("a", lambda: actor):
        earlier = actor.context.after(1, DiaryNote(1), name="retry")
        with pytest.raises(ValueError, match="must be a number"):
            actor.context.after(nan, DiaryNote(2), name="retry")
        with pytest.raises(ValueError, match="must be positive"):
            actor.context.every(0, DiaryNote(3), name="retry")
        assert earlier.pending


@pytest.mark.parametrize("deadline", [0, -1.0, nan])
async def test_ask_without_time_sends_nothing(runtime: Runtime, deadline: float) -> None:
    async with runtime.running("a", SampleActor) as ref:
        with pytest.raises(AskTimeout):
            await ref.ask(AddNumber(5), deadline=deadline)
        assert await ref.ask(AddNumber(1), deadline=1) == 1


@pytest.mark.parametrize("settings", [{"restarts": -1}, {"calm_seconds": -1.0}, {"backoff": -0.1}])
def test_restart_intensity_has_no_negative_numbers(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        RestartIntensity(**settings)


async def test_limits_of_pools_and_topics_are_checked(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=0)
    with pytest.raises(ValueError, match="idle_seconds 0 or more"):
        KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=1, idle_seconds=nan)
    with pytest.raises(ValueError, match="max_members must be at least 1"):
        Topic[DiaryNote](runtime, "t", max_members=0)


async def test_ended_runtime_refuses_actors_and_pools() -> None:
    async with open_runtime(clock=SystemClock(), entropy=SeededEntropy(1)) as runtime:
        pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=1)
    with pytest.raises(RuntimeError, match="The runtime has ended"):
        async with runtime.running("a", SampleActor):
            pass
    with pytest.raises(RuntimeError, match="The runtime has ended"):
        pool.open()
    with pytest.raises(RuntimeError, match="The runtime has ended"):
        KeyedPool(runtime, "q", lambda key: SampleActor(), capacity=1)


async def test_pool_cannot_be_opened_while_it_closes(runtime: Runtime) -> None:
    """A second close that was waiting does not close a pool opened since."""
    pool = KeyedPool(runtime, "p", lambda key: SampleActor(), capacity=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_suppressed_ask, pool)
        await wait_all_tasks_blocked()
        nursery.start_soon(pool.close)
        nursery.start_soon(pool.close)
        await wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="still closing"):
            pool.open()
        await trio.sleep(11)
    pool.open()
    assert await pool["k"].ask(AddNumber(1), deadline=1) == 1


async def _suppressed_ask(pool: KeyedPool) -> None:
    assert await pool["k"].ask(Nap(5.0), deadline=20) == 1


class Sleep(Message, frozen=True):
    """Keeps the actor busy for these seconds."""

    seconds: float


class NeverAnswering(Actor):
    """Never answers."""

    @handles(AddNumber)
    async def add(self, request: AddNumber) -> int:
        await trio.sleep_forever()
        raise AssertionError


class NarrowAsker(Actor):
    """Has room for one message; notes how long an ask in its handler waited."""

    mailbox = MailboxPolicy(capacity=1)

    def __init__(self, silent: Ref, waited: list[float]) -> None:
        self._silent, self._waited = silent, waited

    @handles(Sleep)
    async def sleep(self, message: Sleep) -> None:
        await trio.sleep(message.seconds)

    @handles(Nap)
    async def nap(self, message: Nap) -> int:
        began = trio.current_time()
        try:
            return await self._silent.ask(AddNumber(1), deadline=message.seconds)
        finally:
            self._waited.append(trio.current_time() - began)


async def test_deadline_runs_while_the_asker_waits_for_room(runtime: Runtime) -> None:
    """A handler that begins such a request at once may ask no longer than is left."""
    waited: list[float] = []
    async with (
        runtime.running("silent", NeverAnswering) as silent,
        runtime.running("narrow", lambda: NarrowAsker(silent, waited)) as ref,
    ):
        ref.tell(Sleep(2))
        await wait_all_tasks_blocked()
        ref.tell(Sleep(0))  # the mailbox is full
        with pytest.raises(AskTimeout):
            await ref.ask(Nap(100), deadline=5)
        await trio.sleep(0.1)
    assert waited == [pytest.approx(3)]
