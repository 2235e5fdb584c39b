"""`context.ask`: a request whose answer comes as a message, while the actor goes on (R-48)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from outcome import Outcome
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    AskCycle,
    AskTimeout,
    KeyedPool,
    MailboxPolicy,
    Message,
    PendingReply,
    Ref,
    Request,
    Runtime,
    handles,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Nap,
    SampleActor,
    SampleThatRefuses,
    SampleThatWaits,
)


class AskFor(Message, frozen=True):
    request: Request[int]
    deadline: float | None = 60.0


class Relay(Request[int], frozen=True):
    request: Request[int]
    deadline: float | None = 60.0


class AnswerArrived(Message, frozen=True):
    outcome: Outcome[int]
    reply: PendingReply[int] | None = None


class Asker(Actor):
    """Asks another actor, and keeps the outcomes."""

    mailbox = MailboxPolicy(max_work=2)

    def __init__(self, other: Callable[[], Ref]) -> None:
        self.other = other
        self.outcomes: list[object] = []
        self.seen: list[object] = []

    @handles(AskFor)
    def ask_for(self, message: AskFor) -> None:
        self.context.ask(
            self.other(), message.request, then=AnswerArrived, deadline=message.deadline
        )

    @handles(Relay)
    def relay(self, message: Relay) -> PendingReply[int]:
        reply: PendingReply[int] = self.context.keep_reply()
        self.context.ask(
            self.other(),
            message.request,
            then=lambda outcome: AnswerArrived(outcome, reply),
            deadline=message.deadline,
        )
        return reply

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        self.seen.append(message)

    @handles(AnswerArrived)
    def answered(self, message: AnswerArrived) -> None:
        try:
            value = message.outcome.unwrap()
        except Exception as error:
            self.outcomes.append(type(error))
            if message.reply is not None:
                message.reply.fail(error)
        else:
            self.outcomes.append(value)
            if message.reply is not None:
                message.reply.answer(value)


async def test_context_ask_brings_the_answer_as_a_message(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            ref.tell(AskFor(AddNumber(2)))
            await wait_all_tasks_blocked()
    assert asker.outcomes == [2]


async def test_context_ask_lets_the_actor_go_on(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            ref.tell(AskFor(Nap(5.0)))
            ref.tell(DiaryNote(1))
            await wait_all_tasks_blocked()
            assert (len(asker.seen), asker.outcomes) == (1, [])
            await trio.sleep(5.1)
            assert len(asker.outcomes) == 1


async def test_context_ask_starts_no_task(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            ref.tell(AskFor(Nap(5.0)))
            await wait_all_tasks_blocked()
            assert runtime.workers.statistics().alive == 0


@pytest.mark.parametrize(
    ("request_", "deadline", "error"),
    [(Break(), 60.0, ActorFailed), (Nap(9.0), 1.0, AskTimeout)],
)
async def test_context_ask_brings_the_error_as_a_message(
    runtime: Runtime, request_: Request[int], deadline: float, error: type[Exception]
) -> None:
    pool = KeyedPool(runtime, "others", lambda key: SampleActor())
    asker = Asker(lambda: pool["other"])
    async with runtime.running("asker", lambda: asker) as ref:
        ref.tell(AskFor(request_, deadline))
        await trio.sleep(2)
        assert asker.outcomes == [error]
    await pool.close(trio.current_time() + 20)


async def test_context_ask_of_an_ended_actor_brings_actor_gone(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        pass
    asker = Asker(lambda: other)
    async with runtime.running("asker", lambda: asker) as ref:
        ref.tell(AskFor(AddNumber(1)))
        await wait_all_tasks_blocked()
    assert asker.outcomes == [ActorGone]


async def test_context_ask_waits_for_room_in_a_full_mailbox(runtime: Runtime) -> None:
    async with runtime.running("other", SampleThatWaits) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            other.suspend()
            while other.tell(DiaryNote(1)):
                pass
            ref.tell(AskFor(AddNumber(3)))
            await wait_all_tasks_blocked()
            assert asker.outcomes == []
            other.resume()
            await wait_all_tasks_blocked()
            assert asker.outcomes == [3]


async def test_context_ask_of_an_actor_that_refuses_brings_mailbox_full(runtime: Runtime) -> None:
    async with runtime.running("other", SampleThatRefuses) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            other.suspend()
            while other.tell(DiaryNote(1)):
                pass
            ref.tell(AskFor(AddNumber(3)))
            await wait_all_tasks_blocked()
            assert [kind.__name__ for kind in asker.outcomes if isinstance(kind, type)] == [
                "MailboxFull"
            ]
            other.resume()


async def test_context_ask_counts_as_work(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            for _ in range(3):
                ref.tell(AskFor(Nap(1.0)))
            ref.tell(DiaryNote(1))
            await wait_all_tasks_blocked()
            assert (asker.context.works, asker.seen) == (3, [])  # two at once; one has to wait
            await trio.sleep(3.5)
            assert (len(asker.outcomes), len(asker.seen), asker.context.works) == (3, 1, 0)


async def test_context_ask_of_an_instance_that_ends_is_withdrawn(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            other.suspend()
            ref.tell(AskFor(AddNumber(1)))
            await wait_all_tasks_blocked()
            ref.stop(trio.current_time())
            await wait_all_tasks_blocked()
        other.resume()
        await wait_all_tasks_blocked()
        assert (await other.inspect()).actor.handled == 0
    assert asker.outcomes == []
    assert len(runtime.deadlines) == 0


async def test_context_ask_keeps_its_keyed_actor_until_the_answer(runtime: Runtime) -> None:
    askers: list[Asker] = []

    def make(key: str) -> Asker:
        askers.append(Asker(lambda: other))
        return askers[-1]

    async with runtime.running("other", SampleActor) as other:
        pool = KeyedPool(runtime, "askers", make, idle_seconds=1.0)
        pool["a"].tell(AskFor(Nap(5.0)))
        await trio.sleep(4)
        assert (len(pool), askers[0].outcomes) == (1, [])
        await pool.close(trio.current_time() + 20)
        assert len(askers[0].outcomes) == 1


async def test_context_ask_is_capped_by_the_request_that_it_serves(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            with pytest.raises(AskTimeout):
                await ref.ask(Relay(Nap(9.0)), deadline=2.0)
            await wait_all_tasks_blocked()
            assert asker.outcomes == [AskTimeout]


async def test_context_ask_answers_the_request_that_it_serves(runtime: Runtime) -> None:
    async with runtime.running("other", SampleActor) as other:
        asker = Asker(lambda: other)
        async with runtime.running("asker", lambda: asker) as ref:
            assert await ref.ask(Relay(AddNumber(7)), deadline=2.0) == 7


class Blocks(Actor):
    """Blocks in a handler until another actor has answered."""

    def __init__(self, other: Callable[[], Ref]) -> None:
        self.other = other

    @handles(Relay)
    async def relay(self, message: Relay) -> int:
        return await self.other().ask(message.request, deadline=message.deadline)

    @handles(AddNumber)
    def add(self, message: AddNumber) -> int:
        return message.number


async def test_context_ask_that_closes_a_ring_brings_ask_cycle(runtime: Runtime) -> None:
    asker = Asker(lambda: runtime.ref("blocks"))
    async with (
        runtime.running("asker", lambda: asker) as ref,
        runtime.running("blocks", lambda: Blocks(lambda: ref)) as blocks,
    ):
        with pytest.raises(AskCycle):
            await blocks.ask(Relay(Relay(AddNumber(1))), deadline=60.0)
    assert asker.outcomes == [AskCycle]


async def test_context_ask_of_itself_at_full_work_brings_ask_cycle(
    runtime: Runtime,
) -> None:
    refs: list[Ref] = []
    asker = Asker(lambda: refs[0])
    async with runtime.running("asker", lambda: asker) as ref:
        refs.append(ref)
        for _ in range(3):
            ref.tell(AskFor(Relay(AddNumber(1)), None))
        await trio.sleep(1)
        assert AskCycle in asker.outcomes
