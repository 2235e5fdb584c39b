"""The suite `runtime`: the cost of messages between actors, against trio's own channels and tasks.

The references do the least that moves a message or answers a question: no failure handling, no
counters, no deadline; so `ask` and `ask_100` set none either. Ours has all other guarantees.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Final

import trio

from benchmarks import runtime_loads
from benchmarks.rows import BenchmarkRow, Comparison, Effort
from fw_actors.runtime import (
    Actor,
    ActorRef,
    KeyedPool,
    MailboxPolicy,
    Message,
    Request,
    SystemClock,
    SystemEntropy,
    handles,
    open_runtime,
)

BOUND: Final = 1024  # messages in a mailbox, and in the channels of the references
CALLERS: Final = 100
DEADLINE: Final = 5.0
KEPT: Final = 100  # keyed actors that stay; each further one puts the oldest away
MESSAGES_AN_EVENT: Final = 10  # told, since one is too quick to be timed by the thousand

Question = tuple[int, trio.MemorySendChannel[int]]


class AddValue(Request[int], frozen=True):
    """Answered with the sum."""

    number: int


class NumberTold(Message, frozen=True):
    number: int


class Summing(Actor):
    mailbox = MailboxPolicy(capacity=BOUND)

    def __init__(self) -> None:
        self.sum = 0

    @handles(AddValue)
    def add(self, message: AddValue) -> int:
        self.sum += message.number
        return self.sum

    @handles(NumberTold)
    def note(self, message: NumberTold) -> None:
        self.sum += message.number


class MessagesMiscounted(Exception):
    """Raised when not every message was handled."""


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    messages = effort.events * MESSAGES_AN_EVENT
    for name, unit, times, ours, reference, what in (
        ("tell", "messages/s", messages, tell, awaited, "awaited send and receive on a channel"),
        ("tell_nowait", "messages/s", messages, tell, nowait, "send_nowait and receive_nowait"),
        ("ask", "answers/s", effort.events, ask, bare_ask, "a request and a reply, two channels"),
        ("ask_100", "answers/s", effort.events, ask_100, bare_ask_100, "the same, 100 callers"),
        ("spawn", "actors/s", effort.events, spawn, bare_spawn, "a task with a channel"),
    ):
        yield Comparison(
            suite="runtime",
            name=name,
            unit=unit,
            ours=partial(trio.run, ours, times),
            reference=partial(trio.run, reference, times),
            reference_name=what,
        ).measure(effort)
    yield from runtime_loads.rows(effort)


@asynccontextmanager
async def running() -> AsyncIterator[ActorRef]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with (
        open_runtime(clock=clock, entropy=entropy) as runtime,
        runtime.running("sum", Summing) as ref,
    ):
        yield ref


async def tell(messages: int) -> float:
    """Fill the mailbox, let the actor empty it, over and over; its last message is a question."""
    batch = BOUND - 1
    sent = handled = 0
    async with running() as ref:
        put, note = ref.tell, NumberTold(1)
        began = perf_counter()
        while sent < messages:
            for _ in range(batch):
                put(note)
            sent += batch
            handled = await ref.ask(AddValue(0), deadline=DEADLINE)
        spent = perf_counter() - began
    if handled != sent:
        raise MessagesMiscounted(f"{sent} messages were sent, {handled} were handled.")
    return sent / spent


async def awaited(messages: int) -> float:
    """One task awaits each send, another one each receive."""
    send, receive = trio.open_memory_channel[int](BOUND)

    async def produce() -> None:
        async with send:
            for _ in range(messages):
                await send.send(1)

    async with receive, trio.open_nursery() as nursery:
        began = perf_counter()
        nursery.start_soon(produce)
        total = 0
        for _ in range(messages):
            total += await receive.receive()
        return total / (perf_counter() - began)


async def nowait(messages: int) -> float:
    """Fill the channel, empty it, over and over, in one task that never waits."""
    send, receive = trio.open_memory_channel[int](BOUND)
    put, take = send.send_nowait, receive.receive_nowait
    with send, receive:
        began = perf_counter()
        total = 0
        for _ in range(messages // BOUND):
            for _ in range(BOUND):
                put(1)
            for _ in range(BOUND):
                total += take()
        return total / (perf_counter() - began)


async def ask(questions: int, callers: int = 1) -> float:
    async with running() as ref:

        async def call() -> None:
            for _ in range(questions // callers):
                await ref.ask(AddValue(1))

        return questions / await seconds_of(call, callers)


async def ask_100(questions: int) -> float:
    return await ask(questions, CALLERS)


async def bare_ask(questions: int, callers: int = 1) -> float:
    """Each caller has one channel for its replies, all the time."""
    send, receive = trio.open_memory_channel[Question](BOUND)

    async def call() -> None:
        reply, answer = trio.open_memory_channel[int](1)
        with reply, answer:
            for _ in range(questions // callers):
                await send.send((1, reply))
                await answer.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_all, receive)
        rate = questions / await seconds_of(call, callers)
        nursery.cancel_scope.cancel()
    return rate


async def bare_ask_100(questions: int) -> float:
    return await bare_ask(questions, CALLERS)


async def answer_all(receive: trio.MemoryReceiveChannel[Question]) -> None:
    total = 0
    async for number, reply in receive:
        total += number
        await reply.send(total)


async def spawn(actors: int) -> float:
    """Make one a key, ask it once, put it away: all are gone when the clock stops."""
    async with open_runtime(clock=SystemClock(), entropy=SystemEntropy()) as runtime:
        pool = KeyedPool(runtime, "sums", lambda key: Summing(), capacity=KEPT)
        keys = [str(number) for number in range(actors)]
        began = perf_counter()
        for key in keys:
            await pool[key].ask(AddValue(1), deadline=DEADLINE)
        await pool.close()
        spent = perf_counter() - began
        if len(pool):
            raise MessagesMiscounted(f"{len(pool)} actors are still there.")
    return actors / spent


async def bare_spawn(actors: int) -> float:
    """Start a task with a channel, have it answer once, and end."""
    reply, answer = trio.open_memory_channel[int](1)

    async def answer_once(receive: trio.MemoryReceiveChannel[int]) -> None:
        with receive:
            await reply.send(await receive.receive())

    with reply, answer:
        began = perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(actors):
                send, receive = trio.open_memory_channel[int](1)
                nursery.start_soon(answer_once, receive)
                with send:
                    await send.send(1)
                    await answer.receive()
        return actors / (perf_counter() - began)


async def seconds_of(call: Callable[[], Awaitable[None]], callers: int) -> float:
    """Return how long `callers` calls at once take together."""
    began = perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(call)
    return perf_counter() - began
