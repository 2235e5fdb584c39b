"""The rows of the suite `runtime` with many actors, or with failing actors.

As in `benchmarks.runtime`, the references do the least that moves a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from statistics import quantiles
from time import perf_counter
from typing import Final

import trio

from benchmarks.rows import BenchmarkRow, Comparison, Effort
from fw_actors.runtime import (
    Actor,
    ActorRef,
    KeyedPool,
    MailboxPolicy,
    Message,
    Overflow,
    Request,
    Runtime,
    SilentLog,
    SystemClock,
    SystemEntropy,
    Topic,
    handles,
    open_runtime,
)
from fw_actors.runtime.cell import SECONDS_PER_BATCH
from supervisors import RestartIntensity, actor_child, open_supervisor

BUSY_SECONDS: Final = 0.001  # of one handler of the busy neighbour
KEYS: Final = 10_000
MEMBERS: Final = 100
BOUND: Final = 1024
DEADLINE: Final = 60.0

AT_ONCE: Final = RestartIntensity(restarts=1, seconds=0.0, backoff=0.0, jitter=0.0)
"""No delay, and no failure that is remembered."""


class ItemCount(Request[int], frozen=True):
    """Answered with the number of messages so far."""


class Item(Message, frozen=True):
    number: int


class Spin(Message, frozen=True):
    """Takes a millisecond of the processor."""


class CrashOrder(Message, frozen=True):
    pass


class Consumer(Actor):
    mailbox = MailboxPolicy(capacity=BOUND, overflow=Overflow.WAIT)

    def __init__(self) -> None:
        self.count = 0

    @handles(ItemCount)
    def ping(self, message: ItemCount) -> int:
        return self.count

    @handles(Item)
    def item(self, message: Item) -> None:
        self.count += 1

    @handles(Spin)
    def spin(self, message: Spin) -> None:
        end = perf_counter() + BUSY_SECONDS
        while perf_counter() < end:
            pass

    @handles(CrashOrder)
    def crash(self, message: CrashOrder) -> None:
        raise ValueError("crashed")


class Front(Actor):
    """Asks the actor behind it."""

    def __init__(self, behind: ActorRef) -> None:
        self.behind = behind

    @handles(ItemCount)
    async def ping(self, message: ItemCount) -> int:
        return await self.behind.ask(message, deadline=DEADLINE)


class MessagesNotHandled(Exception):
    """Raised when not every message was handled."""


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the rows."""
    neighbours = max(10, effort.events // 100)
    if effort.wants("busy_neighbour"):
        yield Comparison(
            suite="runtime",
            name="busy_neighbour",
            unit="ms (p99)",
            ours=partial(trio.run, busy_neighbour, neighbours),
            reference=lambda: 2 * SECONDS_PER_BATCH * 1000,
            reference_name="twice the limit of a batch",
            less_is_better=True,
        ).measure(effort)
    for name, unit, times, ours, reference, what in (
        ("chain_2", "answers/s", effort.events, chain_2, bare_chain, "three bare channels"),
        (
            "keyed_stream", "messages/s", effort.events * 10, keyed_stream, bare_stream,
            "a task and a channel for each of 10,000 keys",
        ),
        ("fan_out", "messages/s", effort.events * 10, fan_out, bare_fan_out, "100 bare channels"),
        ("restart", "restarts/s", effort.events // 10, restart, bare_restart,
         "a nursery that starts the task again"),
    ):  # fmt: skip
        if effort.wants(name):
            yield Comparison(
                suite="runtime",
                name=name,
                unit=unit,
                ours=partial(trio.run, ours, times),
                reference=partial(trio.run, reference, times),
                reference_name=what,
            ).measure(effort)


async def runtime_in(stack: AsyncExitStack) -> Runtime:
    opening = open_runtime(clock=SystemClock(), entropy=SystemEntropy(), log=SilentLog())
    return await stack.enter_async_context(opening)


async def busy_neighbour(asks: int) -> float:
    """Return the p99 of an ask, in ms, beside an actor that always has a thousand messages."""
    taken: list[float] = []
    async with AsyncExitStack() as stack:
        runtime = await runtime_in(stack)
        busy = await stack.enter_async_context(runtime.running("busy", Consumer, 0.0))
        quick = await stack.enter_async_context(runtime.running("quick", Consumer))
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(fill, busy)
        await trio.sleep(0.01)
        for _ in range(asks):
            began = perf_counter()
            await quick.ask(ItemCount(), deadline=DEADLINE)
            taken.append(perf_counter() - began)
        nursery.cancel_scope.cancel()
    return quantiles(taken, n=100, method="inclusive")[-1] * 1000


async def fill(busy: ActorRef) -> None:
    """Keep the mailbox full."""
    while True:
        while busy.tell(Spin()):
            pass
        await trio.lowlevel.checkpoint()


async def chain_2(questions: int) -> float:
    """Ask an actor that asks another one."""
    async with AsyncExitStack() as stack:
        runtime = await runtime_in(stack)
        behind = await stack.enter_async_context(runtime.running("behind", Consumer))
        front = await stack.enter_async_context(runtime.running("front", lambda: Front(behind)))
        began = perf_counter()
        for _ in range(questions):
            await front.ask(ItemCount(), deadline=DEADLINE)
        return questions / (perf_counter() - began)


async def bare_chain(questions: int) -> float:
    """Two tasks: the first passes a question on, the second one answers it."""
    to_first, first = trio.open_memory_channel[int](1)
    to_second, second = trio.open_memory_channel[int](1)
    to_caller, caller = trio.open_memory_channel[int](1)

    async def pass_on(
        receive: trio.MemoryReceiveChannel[int], send: trio.MemorySendChannel[int]
    ) -> None:
        async with send:
            async for number in receive:
                await send.send(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_on, first, to_second)
        nursery.start_soon(pass_on, second, to_caller)
        began = perf_counter()
        for number in range(questions):
            await to_first.send(number)
            await caller.receive()
        rate = questions / (perf_counter() - began)
        to_first.close()
    caller.close()
    return rate


async def keyed_stream(messages: int) -> float:
    """Tell the keys in turn: each is made by its first message, and kept."""
    count = 0

    class ItemCounter(Actor):
        @handles(Item)
        def item(self, message: Item) -> None:
            nonlocal count
            count += 1

    async with AsyncExitStack() as stack:
        runtime = await runtime_in(stack)
        pool = KeyedPool(
            runtime, "keys", lambda key: ItemCounter(), capacity=KEYS, idle_seconds=600.0
        )
        keys = [str(number) for number in range(KEYS)]
        began = perf_counter()
        for first in range(0, messages, KEYS):
            for number, key in enumerate(keys[: messages - first]):
                pool.tell(key, Item(number))
            await trio.lowlevel.checkpoint()
        while count < messages:
            await trio.lowlevel.checkpoint()
        rate = messages / (perf_counter() - began)
        await pool.close()
    return rate


async def bare_stream(messages: int) -> float:
    """A task and a channel for each key, made when its first message is there."""
    count = 0

    async def take(receive: trio.MemoryReceiveChannel[int]) -> None:
        nonlocal count
        async for _ in receive:
            count += 1

    sends: dict[str, trio.MemorySendChannel[int]] = {}
    keys = [str(number) for number in range(KEYS)]
    async with trio.open_nursery() as nursery:
        began = perf_counter()
        for first in range(0, messages, KEYS):
            for number, key in enumerate(keys[: messages - first]):
                if key not in sends:
                    sends[key], receive = trio.open_memory_channel[int](BOUND)
                    nursery.start_soon(take, receive)
                sends[key].send_nowait(number)
            await trio.lowlevel.checkpoint()
        while count < messages:
            await trio.lowlevel.checkpoint()
        rate = messages / (perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate


async def fan_out(messages: int) -> float:
    """Publish to a topic with 100 members, over and over."""
    async with AsyncExitStack() as stack:
        runtime = await runtime_in(stack)
        topic: Topic[Item] = Topic(runtime, "items")
        members = [
            await stack.enter_async_context(runtime.running(f"member-{number}", Consumer))
            for number in range(MEMBERS)
        ]
        for member in members:
            topic.subscribe(member, capacity=BOUND)
        rounds = messages // MEMBERS
        began = perf_counter()
        for number in range(rounds):
            await topic.publish(Item(number))
        for member in members:
            if await member.ask(ItemCount(), deadline=DEADLINE) != rounds:
                raise MessagesNotHandled("a member has missed a message")
        return messages / (perf_counter() - began)


async def bare_fan_out(messages: int) -> float:
    """A task and a channel for each member."""
    counts = [0] * MEMBERS

    async def take(member: int, receive: trio.MemoryReceiveChannel[Item]) -> None:
        async for _ in receive:
            counts[member] += 1

    rounds = messages // MEMBERS
    async with trio.open_nursery() as nursery:
        channels = [trio.open_memory_channel[Item](BOUND) for _ in range(MEMBERS)]
        for member, (_, receive) in enumerate(channels):
            nursery.start_soon(take, member, receive)
        began = perf_counter()
        for number in range(rounds):
            item = Item(number)
            for send, _ in channels:
                send.send_nowait(item)
            await trio.lowlevel.checkpoint()
        while sum(counts) < rounds * MEMBERS:
            await trio.lowlevel.checkpoint()
        rate = messages / (perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate


async def restart(times: int) -> float:
    """Crash a supervised actor and ask its successor, over and over."""
    async with AsyncExitStack() as stack:
        runtime = await runtime_in(stack)
        children = [actor_child("consumer", Consumer)]
        await stack.enter_async_context(
            open_supervisor(runtime, "restarts", children, intensity=AT_ONCE)
        )
        consumer = runtime.ref("consumer")
        began = perf_counter()
        for _ in range(times):
            consumer.tell(CrashOrder())
            await consumer.ask(ItemCount(), deadline=DEADLINE)
        return times / (perf_counter() - began)


async def bare_restart(times: int) -> float:
    """A task that raises at each other message, in a nursery that starts it again."""
    send, receive = trio.open_memory_channel[bool](BOUND)
    answer, answers = trio.open_memory_channel[int](1)

    async def run() -> None:
        async for crashes in receive:
            if crashes:
                raise ValueError("crashed")
            await answer.send(1)

    async def start_again() -> None:
        """Run in a task of its own, and in a new one after each crash."""
        try:
            await run()
        except ValueError:
            nursery.start_soon(start_again)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_again)
        began = perf_counter()
        for _ in range(times):
            send.send_nowait(True)
            send.send_nowait(False)
            await answers.receive()
        rate = times / (perf_counter() - began)
        send.close()
    answers.close()
    return rate
