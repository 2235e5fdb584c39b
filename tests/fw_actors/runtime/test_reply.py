"""Requests and replies: deadlines, cancellation, kept replies."""

from __future__ import annotations

import pytest
import trio
from trio.testing import Sequencer, wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorFailed,
    ActorGone,
    ActorRef,
    AlreadyAnswered,
    AskTimeout,
    DeadLetterReason,
    NotHandled,
    PendingReply,
    Request,
    Runtime,
    handles,
)
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    DiaryNote,
    Give,
    Keep,
    Nap,
    SampleActor,
)


class DeskQuestion(Request[str], frozen=True):
    pass


class Unheard(Request[str], frozen=True):
    pass


class KeepingDesk(Actor):
    """Keeps every question, so that the test answers."""

    def __init__(self) -> None:
        self.slots: list[PendingReply[str]] = []

    @handles(DeskQuestion)
    def question(self, message: DeskQuestion) -> PendingReply[str]:
        reply: PendingReply[str] = self.context.keep_reply()
        self.slots.append(reply)
        return reply


async def test_ask_returns_the_handler_result(runtime: Runtime) -> None:
    async with runtime.running("a", SampleActor) as ref:
        assert [await ref.ask(AddNumber(n), deadline=1.0) for n in (1, 2, 3)] == [1, 3, 6]


async def test_ask_times_out_and_counts_the_late_answer(
    runtime: Runtime,
) -> None:
    async with runtime.running("a", SampleActor) as ref:
        start = trio.current_time()
        with pytest.raises(AskTimeout, match="'a' did not answer within 2 s"):
            await ref.ask(Nap(5), deadline=2.0)
        assert trio.current_time() - start == 2.0
        await trio.sleep(10)
        assert runtime.snapshot().late_replies == 1


async def test_ask_that_timed_out_in_the_mailbox_is_skipped(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    async with runtime.running("a", SampleActor) as ref:
        nursery.start_soon(ref.ask, Nap(5))
        await wait_all_tasks_blocked()
        with pytest.raises(AskTimeout):
            await ref.ask(AddNumber(1), deadline=1.0)
        assert await ref.ask(AddNumber(10)) == 10
        assert runtime.snapshot().tree[0].cancelled == 1


async def test_ask_answer_before_cancellation_wins(runtime: Runtime, nursery: trio.Nursery) -> None:
    desk = KeepingDesk()
    got: list[str] = []
    scope = trio.CancelScope()
    async with runtime.running("a", lambda: desk) as ref:

        async def ask() -> None:
            with scope:
                got.append(await ref.ask(DeskQuestion(), deadline=9.0))

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        desk.slots[0].answer("yes")
        scope.cancel()
        await wait_all_tasks_blocked()
        assert got == ["yes"]
        assert runtime.snapshot().late_replies == 0


async def test_ask_cancellation_before_answer_wins(runtime: Runtime, nursery: trio.Nursery) -> None:
    desk = KeepingDesk()
    got: list[str] = []
    scope = trio.CancelScope()
    async with runtime.running("a", lambda: desk) as ref:

        async def ask() -> None:
            with scope:
                got.append(await ref.ask(DeskQuestion(), deadline=9.0))

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        scope.cancel()
        assert not desk.slots[0].awaited
        desk.slots[0].answer("yes")
        await wait_all_tasks_blocked()
        assert (got, scope.cancelled_caught) == ([], True)
        assert runtime.snapshot().late_replies == 1


@pytest.mark.parametrize("answer_first", [True, False])
async def test_ask_answer_and_deadline_at_once_give_one_outcome(
    runtime: Runtime, nursery: trio.Nursery, answer_first: bool
) -> None:
    desk = KeepingDesk()
    ends: list[str] = []
    async with runtime.running("a", lambda: desk) as ref:

        async def ask() -> None:
            try:
                ends.append(await ref.ask(DeskQuestion(), deadline=9.0))
            except AskTimeout:
                ends.append("timeout")

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        slot = desk.slots[0]

        def expire() -> None:
            runtime.deadlines.withdraw(slot, 9.0)  # as when it has fallen due
            slot.expire()

        steps = [lambda: slot.answer("yes"), expire]
        for step in steps if answer_first else reversed(steps):
            step()
        await wait_all_tasks_blocked()
    assert ends == ["yes" if answer_first else "timeout"]
    assert len(runtime.deadlines) == 0


async def test_ask_cancelled_before_it_began_is_not_handled(
    runtime: Runtime,
) -> None:
    async with runtime.running("a", SampleActor) as ref:
        with trio.CancelScope() as scope:
            scope.cancel()
            await ref.ask(AddNumber(1), deadline=1.0)
        assert scope.cancelled_caught
        assert await ref.ask(AddNumber(1)) == 1


async def test_ask_of_failed_actor_raises_a_new_error_per_asker(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    errors: list[BaseException] = []
    cell = runtime.cell("a")

    async def ask() -> None:
        with pytest.raises(ActorFailed, match="'a' failed: ValueError: broken") as info:
            await runtime.ref("a").ask(Keep())
        errors.append(info.value)

    async def live(task_status: trio.TaskStatus[object]) -> None:
        with pytest.raises(ActorFailed):
            await cell.run(SampleActor, task_status)
        cell.terminate()

    await nursery.start(live)
    nursery.start_soon(ask)
    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    cell.tell(Break())
    await wait_all_tasks_blocked()
    assert len(errors) == 2
    assert errors[0] is not errors[1]


async def test_kept_reply_is_answered_once(runtime: Runtime, nursery: trio.Nursery) -> None:
    desk = KeepingDesk()
    async with runtime.running("a", lambda: desk) as ref:
        nursery.start_soon(ref.ask, DeskQuestion())
        await wait_all_tasks_blocked()
        desk.slots[0].answer("yes")
        with pytest.raises(AlreadyAnswered, match="'a' has already answered this DeskQuestion"):
            desk.slots[0].fail(ValueError())


async def test_kept_reply_fails_with_a_given_error(runtime: Runtime, nursery: trio.Nursery) -> None:
    desk = KeepingDesk()
    order = Sequencer()
    async with runtime.running("a", lambda: desk) as ref:

        async def ask() -> None:
            async with order(0):
                pass
            with pytest.raises(LookupError, match="no such row"):
                await ref.ask(DeskQuestion())

        nursery.start_soon(ask)
        async with order(1):
            await wait_all_tasks_blocked()
            desk.slots[0].fail(LookupError("no such row"))


async def test_kept_reply_does_not_block_other_messages(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await runtime.ref("a").ask(Keep()))

    async with runtime.running("a", SampleActor) as ref:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        assert await ref.ask(AddNumber(1)) == 1
        ref.tell(Give(42))
        await wait_all_tasks_blocked()
        assert answers == [42]


async def test_kept_reply_of_a_told_message_is_unwanted(runtime: Runtime) -> None:
    desk = KeepingDesk()
    async with runtime.running("a", lambda: desk) as ref:
        ref.tell(DeskQuestion())
        await wait_all_tasks_blocked()
        assert not desk.slots[0].awaited
        desk.slots[0].answer("to nobody")


async def test_kept_and_queued_requests_raise_actor_gone_at_stop(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    gone: list[str] = []

    async def ask() -> None:
        with pytest.raises(ActorGone):
            await runtime.ref("a").ask(DeskQuestion(), deadline=60.0)
        gone.append("gone")

    async with runtime.running("a", KeepingDesk):
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
    await wait_all_tasks_blocked()
    assert gone == ["gone", "gone"]
    assert len(runtime.deadlines) == 0


async def test_message_without_handler_fails_its_asker_only(runtime: Runtime) -> None:
    async with runtime.running("a", SampleActor) as ref:
        with pytest.raises(NotHandled, match="'a' has no handler for Unheard"):
            await ref.ask(Unheard())
        ref.tell(Unheard())
        assert await ref.ask(AddNumber(1)) == 1
    assert runtime.snapshot().dead_letters[DeadLetterReason.NOT_HANDLED] == 2


async def test_ref_without_actor_refuses(runtime: Runtime) -> None:
    ref = runtime.ref("nobody")
    assert not ref.tell(DiaryNote(1))
    with pytest.raises(ActorGone, match="'nobody' is not running"):
        await ref.ask(AddNumber(1), deadline=1.0)
    with pytest.raises(ActorGone):
        await ref.send(DiaryNote(1))
    letter = runtime.snapshot().last_dead_letters[-1]
    assert (letter.recipient, letter.message, letter.reason) == (
        "nobody",
        "DiaryNote",
        DeadLetterReason.GONE,
    )
    assert letter.at == 1_700_000_000_000


async def test_restart_keeps_requests_behind_the_failed_one(
    runtime: Runtime, nursery: trio.Nursery
) -> None:
    answers: dict[str, object] = {}
    cell = runtime.cell("a")

    async def ask(request: Request[int]) -> None:
        try:
            answers[type(request).__name__] = await runtime.ref("a").ask(request, deadline=60.0)
        except ActorFailed as error:
            answers[type(request).__name__] = error.error

    async def live_twice(task_status: trio.TaskStatus[ActorRef]) -> None:
        with pytest.raises(ActorFailed):
            await cell.run(SampleActor, task_status)
        await trio.sleep(5)
        await cell.run(SampleActor)

    await nursery.start(live_twice)
    for request in (Nap(1), Break(), AddNumber(5)):
        nursery.start_soon(ask, request)
        await wait_all_tasks_blocked()
    await trio.sleep(10)
    assert answers == {"Nap": 1, "Break": "ValueError: broken", "AddNumber": 5}
    cell.stop(trio.current_time() + 1)
