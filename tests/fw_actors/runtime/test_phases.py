"""Phases and the stash: messages of another phase wait, in order and in bounded number."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
import trio
from outcome import Outcome
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    ActorRef,
    AskTimeout,
    DeadLetterReason,
    KeyedPool,
    MailboxFull,
    MailboxPolicy,
    Message,
    PendingReply,
    Request,
    Runtime,
    WorkerPool,
    handles,
)
from supervisors import Strategy, actor_child, open_supervisor, pool_child, worker_pool_child
from tests.fw_actors.runtime.sample_actors import Break, DiaryNote, LogBook, SampleActor


class LinkPhase(Enum):
    CONNECTING = "connecting"
    READY = "ready"


class LinkConnected(Message, frozen=True):
    outcome: Outcome[None]


class ReadQuery(Request[int], frozen=True):
    number: int


class Reset(Message, frozen=True):
    pass


class ConnectingClient(Actor):
    """Ready after a second; queries and notes wait until then."""

    mailbox = MailboxPolicy(capacity=128, max_stash=4)
    first_phase = LinkPhase.CONNECTING
    seconds = 1.0

    def __init__(self, diary: list[Any] | None = None) -> None:
        self.diary = [] if diary is None else diary

    async def started(self) -> None:
        self.connect()

    def connect(self) -> None:
        self.context.work(trio.sleep, self.seconds, then=LinkConnected)

    @handles(LinkConnected)
    def connected(self, message: LinkConnected) -> None:
        self.context.enter(LinkPhase.READY)

    @handles(ReadQuery, phase=LinkPhase.READY)
    async def query(self, message: ReadQuery) -> int:
        self.diary.append(message.number)
        await trio.lowlevel.checkpoint()
        return message.number

    @handles(DiaryNote, phase=LinkPhase.READY)
    def note(self, message: DiaryNote) -> None:
        self.diary.append(message.number)

    @handles(Reset, phase=LinkPhase.READY)
    def reset(self, message: Reset) -> None:
        self.context.enter(LinkPhase.CONNECTING)
        self.connect()

    @handles(Break)
    def break_down(self, message: Break) -> int:
        raise ValueError("broken")


class Sorter(Actor):
    """Sets odd numbers aside until it gets 0."""

    mailbox = MailboxPolicy(max_stash=2)

    def __init__(self, diary: list[Any]) -> None:
        self.diary = diary
        self.open = False

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        if message.number == 0:
            self.open = True
            self.context.unstash()
        elif message.number % 2 and not self.open:
            self.context.stash(message)
        else:
            self.diary.append(message.number)

    @handles(ReadQuery)
    def query(self, message: ReadQuery) -> int | PendingReply[int]:
        return message.number if self.open else self.context.stash(message)


async def test_phase_sets_aside_what_only_another_phase_handles(runtime: Runtime) -> None:
    """R-25: told and asked messages, in order, ahead of later ones."""
    diary: list[Any] = []
    async with (
        runtime.running("client", lambda: ConnectingClient(diary)) as ref,
        trio.open_nursery() as nursery,
    ):
        ref.tell(DiaryNote(1))
        nursery.start_soon(ref.ask, ReadQuery(2), 5.0)
        await wait_all_tasks_blocked()
        ref.tell(DiaryNote(3))
        await wait_all_tasks_blocked()
        seen = await ref.inspect()
        assert (diary, seen.stashed, seen.phase) == ([], 3, "CONNECTING")
        await trio.sleep(1)
        assert await ref.ask(ReadQuery(4), deadline=1.0) == 4
        assert diary == [1, 2, 3, 4]
        seen = await ref.inspect()
        assert (seen.stashed, seen.phase, seen.pending) == (0, "READY", 0)


async def test_phase_may_change_back(runtime: Runtime) -> None:
    """R-25: also within one batch of messages."""
    diary: list[Any] = []
    async with runtime.running("client", lambda: ConnectingClient(diary)) as ref:
        await trio.sleep(1.5)
        for message in (DiaryNote(1), Reset(), DiaryNote(2), DiaryNote(3)):
            ref.tell(message)
        await wait_all_tasks_blocked()
        assert diary == [1]
        await trio.sleep(1.5)
        assert diary == [1, 2, 3]


async def test_phase_begins_anew_with_the_next_instance(runtime: Runtime) -> None:
    """R-25, R-26: the stash of one that fails comes back for the next."""
    diary: list[Any] = []
    specs = [actor_child("client", lambda: ConnectingClient(diary))]
    async with open_supervisor(runtime, "top", specs):
        ref = runtime.ref("client", of=ConnectingClient)
        await trio.sleep(1.5)
        ref.tell(DiaryNote(1))
        ref.tell(Reset())
        ref.tell(DiaryNote(2))
        with pytest.raises(ActorFailed):
            await ref.ask(Break(), deadline=1.0)
        ref.tell(DiaryNote(3))
        await trio.sleep(0.5)
        assert diary == [1]
        await trio.sleep(1)
        assert diary == [1, 2, 3]
    assert sum(runtime.snapshot().dead_letters.values()) == 0


async def test_phase_that_an_actor_does_not_have_is_refused(runtime: Runtime) -> None:
    async with runtime.running("plain", SampleActor) as plain:
        assert isinstance(plain.cell.actor, SampleActor)
        assert plain.cell.actor.context.phase is None
        with pytest.raises(ValueError, match="'plain' has no phase"):
            plain.cell.actor.context.enter(LinkPhase.READY)


def test_phases_that_do_not_fit_are_refused_with_the_class() -> None:
    """R-25."""
    with pytest.raises(TypeError, match=r"its first_phase must be a LinkPhase, not None"):

        class NoFirst(Actor):
            @handles(DiaryNote, phase=LinkPhase.READY)
            def note(self, message: DiaryNote) -> None: ...

    with pytest.raises(TypeError, match=r"in the phase LinkPhase\.READY, and in all phases"):

        class BothPhases(Actor):
            first_phase = LinkPhase.READY

            @handles(DiaryNote, phase=LinkPhase.READY)
            def note(self, message: DiaryNote) -> None: ...

            @handles(DiaryNote)
            def other(self, message: DiaryNote) -> None: ...

    with pytest.raises(TypeError, match="note and other both handle DiaryNote"):

        class SamePhase(Actor):
            first_phase = LinkPhase.READY

            @handles(DiaryNote, phase=LinkPhase.READY)
            def note(self, message: DiaryNote) -> None: ...

            @handles(DiaryNote, phase=LinkPhase.READY)
            def other(self, message: DiaryNote) -> None: ...


async def test_phases_may_have_different_handlers(runtime: Runtime) -> None:
    """R-25."""

    class PhasedDoor(Actor):
        first_phase = LinkPhase.CONNECTING

        @handles(ReadQuery, phase=LinkPhase.CONNECTING)
        def closed(self, message: ReadQuery) -> int:
            self.context.enter(LinkPhase.READY)
            return 0

        @handles(ReadQuery, phase=LinkPhase.READY)
        def opened(self, message: ReadQuery) -> int:
            return message.number

    async with runtime.running("door", PhasedDoor) as ref:
        assert [await ref.ask(ReadQuery(number), deadline=1.0) for number in (7, 8)] == [0, 8]


async def test_stash_keeps_the_order_of_messages(runtime: Runtime) -> None:
    """R-26."""
    diary: list[Any] = []
    async with runtime.running("sorter", lambda: Sorter(diary)) as ref:
        for number in (1, 2, 3, 4, 0, 6, 5):
            ref.tell(DiaryNote(number))
        await wait_all_tasks_blocked()
    assert diary == [2, 4, 1, 3, 6, 5]


async def test_stash_at_its_limit_refuses(runtime: Runtime) -> None:
    """R-26: the asker gets MailboxFull, a told message is a dead letter, the actor goes on."""
    diary: list[Any] = []
    async with runtime.running("sorter", lambda: Sorter(diary)) as ref:
        for number in (1, 3, 5):
            ref.tell(DiaryNote(number))
        with pytest.raises(MailboxFull, match="'sorter' is full: the limit is 2 stashed messages"):
            await ref.ask(ReadQuery(7), deadline=1.0)
        ref.tell(DiaryNote(0))
        assert await ref.ask(ReadQuery(7), deadline=1.0) == 7
        assert (await ref.inspect()).actor.failed == 0
    assert diary == [1, 3]
    assert runtime.snapshot().dead_letters[DeadLetterReason.FULL] == 1


async def test_stash_has_room_for_what_replaces_withdrawn_requests(runtime: Runtime) -> None:
    """R-26, R-42."""
    diary: list[Any] = []
    async with runtime.running("sorter", lambda: Sorter(diary)) as ref:
        for _ in range(5):
            with pytest.raises(AskTimeout):
                await ref.ask(ReadQuery(7), deadline=1.0)
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(0))
        await wait_all_tasks_blocked()
        seen = (await ref.inspect()).actor
    assert diary == [1]
    assert (seen.cancelled, sum(runtime.snapshot().dead_letters.values())) == (1, 0)


async def test_stash_is_settled_at_a_stop(runtime: Runtime, nursery: trio.Nursery) -> None:
    """R-26, R-61."""
    diary: list[Any] = []

    async def ask(ref: ActorRef[Sorter]) -> None:
        with pytest.raises(ActorGone):
            await ref.ask(ReadQuery(7))
        diary.append("gone")

    async with runtime.running("sorter", lambda: Sorter(diary)) as ref:
        nursery.start_soon(ask, ref)
        await wait_all_tasks_blocked()
        ref.tell(DiaryNote(1))
    await wait_all_tasks_blocked()
    assert diary == ["gone"]
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1


async def test_stash_is_handled_before_a_stop_that_waits_for_work(runtime: Runtime) -> None:
    """R-60: the work whose end makes the actor ready."""
    diary: list[Any] = []
    async with runtime.running("client", lambda: ConnectingClient(diary)) as ref:
        ref.tell(DiaryNote(1))
    assert diary == [1]


async def test_stash_keeps_a_keyed_actor(runtime: Runtime) -> None:
    """R-53."""
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: Sorter(diary), idle_seconds=1.0)
    pool["a"].tell(DiaryNote(1))
    await trio.sleep(60)
    assert len(pool) == 1
    pool["a"].tell(DiaryNote(0))
    await trio.sleep(60)
    assert (diary, len(pool)) == ([1], 0)


async def test_stash_of_a_keyed_actor_comes_back_by_a_completion(runtime: Runtime) -> None:
    """R-25: the cell has no mailbox while it waits for its work."""
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: ConnectingClient(diary))
    assert await pool["a"].ask(ReadQuery(1), deadline=5.0) == 1
    assert trio.current_time() == 1.0
    pool["a"].tell(Reset())
    pool["a"].tell(DiaryNote(2))
    await trio.sleep(0.5)
    await pool.close(trio.current_time() + 5)
    assert diary == [1, 2]


async def test_stash_of_a_keyed_actor_that_fails_comes_back(runtime: Runtime) -> None:
    """R-26: first of all, for the next instance."""
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: ConnectingClient(diary))
    for message in (DiaryNote(1), Break(), DiaryNote(2)):
        pool["a"].tell(message)
    await trio.sleep(2)
    assert diary == [1, 2]


async def test_stash_of_a_keyed_actor_is_settled_with_its_pool(
    runtime: Runtime, nursery: trio.Nursery, log: LogBook
) -> None:
    """R-61: it waits for a message that can no longer be sent."""
    pool = KeyedPool(runtime, "p", lambda key: Sorter([]))
    pool["a"].tell(DiaryNote(1))

    async def ask() -> None:
        with pytest.raises(ActorGone):
            await pool["a"].ask(ReadQuery(7))

    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    await pool.close(trio.current_time() + 5)
    assert runtime.snapshot().dead_letters[DeadLetterReason.STOPPED] == 1
    assert (len(pool), len(log.named("actor_failed"))) == (0, 0)


@pytest.mark.parametrize("keyed", [False, True])
async def test_stash_outlives_a_restart_with_siblings(runtime: Runtime, keyed: bool) -> None:
    """R-26, R-76."""
    diary: list[Any] = []
    pool = KeyedPool(runtime, "p", lambda key: Sorter(diary))
    child = pool_child("p", pool) if keyed else actor_child("one", lambda: Sorter(diary))
    specs = [actor_child("bad", SampleActor), child]
    async with open_supervisor(runtime, "top", specs, strategy=Strategy.ONE_FOR_ALL):
        ref = pool["a"] if keyed else runtime.ref("one")
        ref.tell(DiaryNote(1))
        await wait_all_tasks_blocked()
        runtime.ref("bad").tell(Break())
        await trio.sleep(1)
        ref.tell(DiaryNote(0))
        await wait_all_tasks_blocked()
    assert diary == [1]


async def test_stash_of_a_worker_that_fails_goes_to_the_workers(runtime: Runtime) -> None:
    """R-26."""
    diary: list[Any] = []
    pool = WorkerPool(runtime, "w", lambda: ConnectingClient(diary), size=1)
    async with open_supervisor(runtime, "top", [worker_pool_child(pool)]):
        pool.tell(DiaryNote(1))
        with pytest.raises(ActorFailed):
            await pool.ask(Break(), deadline=1.0)
        await trio.sleep(2)
        assert diary == [1]
