"""What messages between actors cost, against trio's own channels and tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Final

import trio

from benchmarks.rows import Comparison, Effort, Row
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

BATCH: Final = 100  # messages told before the actor gets to run, and callers at once
DEADLINE: Final = 5.0

Question = tuple[int, trio.MemorySendChannel[int]]


class Add(Request[int], frozen=True):
    number: int


class Note(Message, frozen=True):
    number: int


class Summing(Actor):
    mailbox = MailboxPolicy(capacity=2 * BATCH)

    def __init__(self) -> None:
        self.sum = 0

    @handles(Add)
    async def add(self, message: Add) -> int:
        self.sum += message.number
        return self.sum

    @handles(Note)
    def note(self, message: Note) -> None:
        self.sum += message.number


def rows(effort: Effort) -> Iterator[Row]:
    """Measure the suite."""
    for name, ours, reference, what in (
        ("tell_nowait", tell, bare_put, "send_nowait of a bare channel"),
        ("tell_and_handle", tell_and_handle, bare_put_and_take, "and receive_nowait"),
        ("ask", ask, ask_over_channels, "two channels and fail_after"),
        ("ask_100_callers", ask_by_many, ask_over_channels_by_many, "two channels and fail_after"),
        ("keyed_spawn_and_ask", keyed_spawn, task_spawn, "a task and two channels each"),
    ):
        yield Comparison(
            suite="runtime",
            name=name,
            unit="messages/s",
            ours=partial(trio.run, ours, effort.events),
            reference=partial(trio.run, reference, effort.events),
            reference_name=what,
        ).measure(effort)


@asynccontextmanager
async def running() -> AsyncIterator[ActorRef]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with (
        open_runtime(clock=clock, entropy=entropy) as runtime,
        runtime.running("sum", Summing) as ref,
    ):
        yield ref


async def tell(events: int) -> float:
    async with running() as ref:
        spent = 0.0
        note = Note(1)
        for _ in range(events // BATCH):
            began = perf_counter()
            for _ in range(BATCH):
                ref.tell(note)
            spent += perf_counter() - began
            await ref.ask(Add(0))
        return events / spent


async def bare_put(events: int) -> float:
    send, receive = trio.open_memory_channel[int](BATCH)
    spent = 0.0
    with send, receive:
        for _ in range(events // BATCH):
            began = perf_counter()
            for _ in range(BATCH):
                send.send_nowait(1)
            spent += perf_counter() - began
            for _ in range(BATCH):
                receive.receive_nowait()
    return events / spent


async def tell_and_handle(events: int) -> float:
    async with running() as ref:
        note = Note(1)
        began = perf_counter()
        for _ in range(events // BATCH):
            for _ in range(BATCH):
                ref.tell(note)
            await ref.ask(Add(0))
        return events / (perf_counter() - began)


async def bare_put_and_take(events: int) -> float:
    send, receive = trio.open_memory_channel[int](BATCH)
    with send, receive:
        began = perf_counter()
        for _ in range(events // BATCH):
            for _ in range(BATCH):
                send.send_nowait(1)
            for _ in range(BATCH):
                receive.receive_nowait()
        return events / (perf_counter() - began)


async def ask(events: int, callers: int = 1) -> float:
    async with running() as ref:

        async def call() -> None:
            for _ in range(events // callers):
                await ref.ask(Add(1), deadline=DEADLINE)

        return events / await seconds_of(call, callers)


async def ask_over_channels(events: int, callers: int = 1) -> float:
    send, receive = trio.open_memory_channel[Question](2 * BATCH)

    async def call() -> None:
        for _ in range(events // callers):
            await ask_one(send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_all, receive)
        rate = events / await seconds_of(call, callers)
        nursery.cancel_scope.cancel()
    return rate


async def ask_by_many(events: int) -> float:
    return await ask(events, BATCH)


async def ask_over_channels_by_many(events: int) -> float:
    return await ask_over_channels(events, BATCH)


async def keyed_spawn(events: int) -> float:
    async with open_runtime(clock=SystemClock(), entropy=SystemEntropy()) as runtime:
        pool = KeyedPool(runtime, "sums", lambda key: Summing(), capacity=events)
        began = perf_counter()
        for number in range(events):
            await pool[str(number)].ask(Add(1), deadline=DEADLINE)
        return events / (perf_counter() - began)


async def task_spawn(events: int) -> float:
    async with trio.open_nursery() as nursery:
        began = perf_counter()
        for _ in range(events):
            send, receive = trio.open_memory_channel[Question](1)
            nursery.start_soon(answer_all, receive)
            await ask_one(send)
        rate = events / (perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate


async def ask_one(send: trio.MemorySendChannel[Question]) -> None:
    reply, answer = trio.open_memory_channel[int](1)
    with reply, answer, trio.fail_after(DEADLINE):
        await send.send((1, reply))
        await answer.receive()


async def answer_all(receive: trio.MemoryReceiveChannel[Question]) -> None:
    total = 0
    async for number, reply in receive:
        total += number
        reply.send_nowait(total)


async def seconds_of(call: Callable[[], Awaitable[None]], callers: int) -> float:
    """Return how long `callers` calls at once take together."""
    began = perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(call)
    return perf_counter() - began
