"""Hooks for each message: queueing time, handling time, outcome and cause."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from outcome import Outcome
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    Actor,
    ActorError,
    AskTimeout,
    KeyedPool,
    MailboxPolicy,
    Message,
    MessageTrace,
    Overflow,
    PendingReply,
    Refused,
    Request,
    Runtime,
    SeededEntropy,
    Topic,
    TraceOutcome,
    TrioClock,
    WorkerPool,
    handles,
    open_runtime,
)
from fw_actors.runtime.testing import LogBook
from supervisors import actor_child, open_supervisor, worker_pool_child
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Begin,
    Break,
    DiaryNote,
    Forward,
    Later,
    Nap,
    SampleActor,
)


class HookRecorder:
    """Hooks that record their calls."""

    def __init__(self) -> None:
        self.queued: list[tuple[str, str]] = []
        self.begun_traces: list[MessageTrace] = []
        self.endings: list[tuple[str, str, float, float, TraceOutcome]] = []
        self.errors: list[BaseException | None] = []
        self.causes: dict[str, str] = {}

    def enqueued(self, message: MessageTrace, parent: MessageTrace | None) -> None:
        self.queued.append((message.actor, message.message_type))
        label = f"{message.actor} {message.message_type}"
        self.causes[label] = "" if parent is None else f"{parent.actor} {parent.message_type}"
        assert message.parent == (0 if parent is None else parent.number)

    def begun(self, message: MessageTrace) -> None:
        self.begun_traces.append(message)

    def ended(
        self, message: MessageTrace, outcome: TraceOutcome, error: BaseException | None
    ) -> None:
        row = (message.actor, message.message_type, message.queued_seconds, message.handled_seconds)
        self.endings.append((*row, outcome))
        self.errors.append(error)


@pytest.fixture
def hooks() -> HookRecorder:
    return HookRecorder()


@pytest.fixture
async def traced(hooks: HookRecorder, log: LogBook) -> AsyncIterator[Runtime]:
    async with open_runtime(
        clock=TrioClock(0), entropy=SeededEntropy(1), log=log, hooks=hooks
    ) as runtime:
        yield runtime


HANDLED = TraceOutcome.HANDLED


async def test_hooks_report_queueing_and_handling_times(
    traced: Runtime, hooks: HookRecorder
) -> None:
    """R-120: of told, sent and asked messages alike."""
    async with traced.running("a", SampleActor) as ref:
        ref.tell(Nap(2.0))
        await wait_all_tasks_blocked()
        await ref.send(Nap(1.0))
        ref.tell(DiaryNote(1))
        assert await ref.ask(AddNumber(1), deadline=9.0) == 1
    assert hooks.queued == [("a", "Nap"), ("a", "Nap"), ("a", "DiaryNote"), ("a", "AddNumber")]
    assert hooks.endings == [
        ("a", "Nap", 0.0, 2.0, HANDLED),
        ("a", "Nap", 2.0, 1.0, HANDLED),
        ("a", "DiaryNote", 3.0, 0.0, HANDLED),
        ("a", "AddNumber", 3.0, 0.0, HANDLED),
    ]
    assert [trace.number for trace in hooks.begun_traces] == [1, 2, 3, 4]


async def test_wait_for_room_is_queueing_time(traced: Runtime, hooks: HookRecorder) -> None:
    class One(SampleActor):
        mailbox = MailboxPolicy(capacity=1)

    async with traced.running("a", One) as ref:
        ref.tell(Nap(2.0))
        await wait_all_tasks_blocked()
        ref.tell(DiaryNote(1))
        await ref.send(DiaryNote(2))
        await wait_all_tasks_blocked()
    assert [row[2] for row in hooks.endings] == [0.0, 2.0, 2.0]


class Defy(Request[int], frozen=True):
    """Refused."""


class Hold(Request[int], frozen=True):
    """Answered by work."""


class HoldEnded(Message, frozen=True):
    reply: PendingReply[int]
    outcome: Outcome[int]


class Various(SampleActor):
    @handles(Defy)
    def defy(self, message: Defy) -> int:
        raise Refused("no")

    @handles(Hold)
    def hold(self, message: Hold) -> PendingReply[int]:
        reply: PendingReply[int] = self.context.keep_reply()
        self.context.work(self._ask, then=lambda outcome: HoldEnded(reply, outcome))
        return reply

    async def _ask(self) -> int:
        return 1

    @handles(HoldEnded)
    def done(self, message: HoldEnded) -> None:
        message.reply.answer(message.outcome.unwrap())


async def test_hooks_report_outcomes_with_errors(traced: Runtime, hooks: HookRecorder) -> None:
    """R-120."""
    pool = KeyedPool(traced, "p", lambda key: Various())
    requests: list[Request[int]] = [AddNumber(1), Defy(), Forward((traced.ref("absent"),)), Break()]
    for request in requests:
        try:
            await pool["k"].ask(request, deadline=5.0)
        except (ActorError, Refused):
            continue
    pool["k"].tell(Nap(100.0))
    await wait_all_tasks_blocked()
    await pool.close(trio.current_time() + 1.0)
    assert [ending[-1] for ending in hooks.endings] == [
        TraceOutcome.HANDLED,
        TraceOutcome.REFUSED,
        TraceOutcome.PASSED_ON,
        TraceOutcome.FAILED,
        TraceOutcome.CANCELLED,
    ]
    names = [type(error).__name__ for error in hooks.errors]
    assert names == ["NoneType", "Refused", "ActorGone", "ValueError", "Cancelled"]


async def test_cause_is_the_message_whose_handler_or_work_sends(
    traced: Runtime, hooks: HookRecorder
) -> None:
    """R-121: through asks, work, and the message of its end."""
    other = traced.ref("other")

    class AskingVarious(Various):
        async def _ask(self) -> int:
            return await other.ask(AddNumber(5), deadline=5.0)

    async with (
        traced.running("other", SampleActor),
        traced.running("asks", AskingVarious) as asks,
        traced.running("front", SampleActor) as front,
    ):
        assert await front.ask(Forward((asks, other)), deadline=5.0) == 3
        assert await asks.ask(Hold(), deadline=5.0) == 5
    assert hooks.causes == {
        "front Forward": "",
        "asks Forward": "front Forward",
        "other Forward": "asks Forward",
        "asks Hold": "",
        "other AddNumber": "asks Hold",
        "asks HoldEnded": "asks Hold",
    }
    assert TraceOutcome.KEPT in [ending[-1] for ending in hooks.endings]


async def test_message_of_a_timer_has_no_cause(traced: Runtime, hooks: HookRecorder) -> None:
    async with traced.running("a", SampleActor) as ref:
        ref.tell(Later(1.0, 7))
        await trio.sleep(2)
        ref.tell(Begin(1.0))
        await trio.sleep(2)
    assert hooks.causes == {"a Later": "", "a DiaryNote": "", "a Begin": "", "a Finished": ""}
    assert [ending[2] for ending in hooks.endings] == [0.0] * 4


async def test_actor_that_a_handler_starts_has_no_cause(
    traced: Runtime, hooks: HookRecorder
) -> None:
    class Starts(Actor):
        @handles(AddNumber)
        async def add(self, message: AddNumber) -> int:
            await top.start_child(actor_child("b", SampleActor))
            return 1

    async with open_supervisor(traced, "top", [actor_child("a", Starts)]) as top:
        await traced.ref("a").ask(AddNumber(1), deadline=5.0)
        traced.ref("b").tell(Later(1.0, 7))
        await trio.sleep(2)
    assert hooks.causes["b DiaryNote"] == ""


async def test_dropped_message_is_not_begun(traced: Runtime, hooks: HookRecorder) -> None:
    class TracedDropping(SampleActor):
        mailbox = MailboxPolicy(capacity=1, overflow=Overflow.DROP_OLDEST)

    async with traced.running("a", TracedDropping) as ref:
        ref.suspend()
        ref.tell(DiaryNote(1))
        ref.tell(DiaryNote(2))
        ref.resume()
        await wait_all_tasks_blocked()
        ref.stop(trio.current_time() + 1.0)
        await wait_all_tasks_blocked()
        assert not ref.tell(DiaryNote(3))
    assert (len(hooks.queued), len(hooks.endings)) == (2, 1)


async def test_publications_and_pools_of_workers_are_traced(
    traced: Runtime, hooks: HookRecorder
) -> None:
    topic: Topic[DiaryNote] = Topic(traced, "news")
    pool = WorkerPool(traced, "w", SampleActor, size=2)
    async with open_supervisor(traced, "top", [worker_pool_child(pool)]):
        topic.subscribe(pool)
        with topic.listening() as listener:
            await topic.publish(DiaryNote(1))
            topic.tell(DiaryNote(2))
            assert [note.number for note in listener.take_all()] == [1, 2]
        assert await pool.ask(AddNumber(1), deadline=1.0) == 1
    assert hooks.queued == [("w", "DiaryNote"), ("w", "DiaryNote"), ("w", "AddNumber")]
    assert len(hooks.endings) == 3


async def test_keyed_actors_are_traced_over_passivations(
    traced: Runtime, hooks: HookRecorder
) -> None:
    pool = KeyedPool(traced, "p", lambda key: SampleActor(), idle_seconds=1.0)
    for _ in range(2):
        for key in "ab":
            assert await pool[key].ask(AddNumber(1), deadline=5.0) == 1
        await trio.sleep(5)
    assert [ending[0] for ending in hooks.endings] == ["p/a", "p/b", "p/a", "p/b"]


async def test_failed_hook_ends_tracing_only(log: LogBook) -> None:
    """R-122."""

    class Fails(HookRecorder):
        def begun(self, message: MessageTrace) -> None:
            raise ZeroDivisionError("the hook")

    hooks = Fails()
    async with (
        open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log, hooks=hooks) as runtime,
        runtime.running("a", SampleActor) as ref,
    ):
        for number in (1, 2):
            assert await ref.ask(AddNumber(1), deadline=1.0) == number
    assert (len(hooks.queued), hooks.endings) == (1, [])
    (entry,) = log.named("trace_failed")
    assert entry["error"] == "ZeroDivisionError: the hook"


async def test_cancelled_request_is_skipped_under_tracing(
    traced: Runtime, hooks: HookRecorder
) -> None:
    async with traced.running("a", SampleActor) as ref:
        ref.tell(Nap(2.0))
        await wait_all_tasks_blocked()
        answers: list[Any] = []
        with trio.move_on_after(1):
            answers.append(await ref.ask(Break(), deadline=5.0))
        await trio.sleep(3)
        assert ref.cell.cancelled == 1
        assert ref.cell.failed == 0
    assert answers == []


class FakeSpan:
    """A span with the methods that the page uses."""

    def __init__(self, name: str, parent: FakeSpan | None) -> None:
        self.name, self.parent = name, parent
        self.attributes: dict[str, object] = {}
        self.is_ended = False

    def set_attribute(self, name: str, value: object) -> None:
        self.attributes[name] = value

    def record_exception(self, error: BaseException) -> None:
        self.attributes["error"] = error

    def end(self) -> None:
        self.is_ended = True


class FakeTracer:
    """A tracer with the methods that the page uses; a context is its current span."""

    def __init__(self) -> None:
        self.spans: list[FakeSpan] = []

    def start_span(self, name: str, context: FakeSpan | None) -> FakeSpan:
        self.spans.append(FakeSpan(name, context))
        return self.spans[-1]


async def test_spans_of_the_page_are_children_of_their_causes(
    log: LogBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's code runs against stand-ins for OpenTelemetry, which record its calls."""
    current: ContextVar[FakeSpan | None] = ContextVar("span", default=None)
    package, context, trace = (
        ModuleType(name)
        for name in ("opentelemetry", "opentelemetry.context", "opentelemetry.trace")
    )
    vars(context).update(get_current=current.get, attach=current.set, detach=current.reset)
    vars(trace).update(Tracer=FakeTracer, set_span_in_context=lambda span: span)
    vars(package).update(context=context, trace=trace)
    for module in (package, context, trace):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    page = (Path(__file__).parents[3] / "docs" / "runtime.md").read_text()
    (code,) = re.findall(r"```python\n(from opentelemetry .*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"MessageTrace": MessageTrace, "TraceOutcome": TraceOutcome}
    exec(compile(code, "docs/runtime.md", "exec"), names)
    tracer = FakeTracer()
    async with (
        open_runtime(
            clock=TrioClock(0),
            entropy=SeededEntropy(1),
            log=log,
            hooks=names["Spans"](tracer),
            carry=[current],
        ) as runtime,
        runtime.running("b", SampleActor) as b,
        runtime.running("a", SampleActor) as a,
    ):
        assert await a.ask(Forward((b,)), deadline=5.0) == 2
        a.tell(Begin(1.0))
        await trio.sleep(2)
    first, second, *_ = tracer.spans
    assert (first.name, first.parent) == ("a Forward", None)
    assert (second.name, second.parent) == ("b Forward", first)
    assert first.attributes == {"messaging.queued_seconds": 0.0, "actor.outcome": "HANDLED"}
    assert all(span.is_ended for span in tracer.spans)
    assert log.named("trace_failed") == []


class GuardPhase(Enum):
    SHUT = 1
    OPEN = 2


async def test_actor_with_phases_is_traced_in_each(traced: Runtime, hooks: HookRecorder) -> None:
    """R-120: a message that was set aside is begun twice, and kept the first time."""

    class Guarded(SampleActor):
        first_phase = GuardPhase.SHUT

        @handles(Hold, phase=GuardPhase.OPEN)
        def hold(self, message: Hold) -> int:
            return 5

        @handles(DiaryNote)
        def note(self, message: DiaryNote) -> None:
            self.context.enter(GuardPhase.OPEN)

    async with traced.running("a", Guarded) as ref, trio.open_nursery() as nursery:
        answers: list[int] = []

        async def ask() -> None:
            answers.append(await ref.ask(Hold(), deadline=5.0))

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        ref.tell(DiaryNote(1))
    assert answers == [5]
    assert [(kind, outcome) for _, kind, _, _, outcome in hooks.endings] == [
        ("Hold", TraceOutcome.KEPT),
        ("DiaryNote", HANDLED),
        ("Hold", HANDLED),
    ]


async def test_handler_that_gives_up_is_traced_as_cancelled(
    traced: Runtime, hooks: HookRecorder
) -> None:
    """R-120, R-142."""

    class TracedYielding(SampleActor):
        @handles(Nap, give_up=True)
        async def nap(self, message: Nap) -> int:
            await trio.sleep(message.seconds)
            return 1

    async with traced.running("a", TracedYielding) as ref:
        with pytest.raises(AskTimeout):
            await ref.ask(Nap(9.0), deadline=1.0)
    assert hooks.endings == [("a", "Nap", 0.0, 1.0, TraceOutcome.CANCELLED)]
