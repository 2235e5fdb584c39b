"""Scripted actors: they perform the steps of each message, and report to the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio

from fw_actors.runtime import (
    Actor,
    ActorError,
    ActorFailed,
    ActorGone,
    AskCycle,
    AskTimeout,
    MailboxFull,
    PendingReply,
    Refused,
    handles,
)
from fw_actors.runtime.mailbox import DeadLetterReason
from tests.supervisors.model_based.messages import (
    EPSILON,
    AskSettled,
    GivingUpScriptedRequest,
    InstanceRecord,
    MessageRecord,
    Publication,
    RuntimeAbortError,
    ScriptedFailureError,
    ScriptedMessage,
    ScriptedRequest,
    Step,
    SyncScriptedMessage,
    SyncScriptedRequest,
    TimerFired,
    WatchedDown,
    WatchedUp,
    WorkEnded,
)

if TYPE_CHECKING:
    from tests.supervisors.model_based.random_run import RandomRun


class ScriptedActor(Actor):
    """Performs the steps of each message, and reports them to the model."""

    slow_seconds = inf

    def __init__(self, model: RandomRun, name: str) -> None:
        if model.chance(model.make_failure_rate):
            model.failed[name] += 1
            raise ScriptedFailureError("make")
        self.model = model
        self.name = name
        self.instance = InstanceRecord(name, self)

    async def started(self) -> None:
        model = self.model
        model.add_instance(self.instance)
        with model.handling(self.instance, None, counts=False):
            if model.chance(model.slow_start_rate):
                try:
                    await trio.sleep(model.rng.uniform(0, 0.5))
                except trio.Cancelled:
                    model.maybe_failed[self.name] += 1
                    raise
            if model.chance(model.start_failure_rate):
                model.failed[self.name] += 1
                raise ScriptedFailureError("started")

    @handles(ScriptedRequest)
    async def request(self, message: ScriptedRequest) -> Any:
        return await self._run_steps(message.record, message)

    @handles(GivingUpScriptedRequest, give_up=True)
    async def giving_up_request(self, message: GivingUpScriptedRequest) -> Any:
        return await self._run_steps(message.record, message, gives_up=True)

    @handles(SyncScriptedRequest)
    def sync_request(self, message: SyncScriptedRequest) -> Any:
        return self._run_sync_steps(message.record, message)

    @handles(ScriptedMessage)
    async def scripted_message(self, message: ScriptedMessage) -> None:
        await self._run_steps(message.record, message)

    @handles(SyncScriptedMessage)
    def sync_scripted_message(self, message: SyncScriptedMessage) -> None:
        self._run_sync_steps(message.record, message)

    @handles(Publication)
    def publication(self, message: Publication) -> None:
        with self.model.handling(self.instance, None):
            self.model.record_publication(self.instance, message.number)

    @handles(TimerFired)
    async def timer_fired(self, message: TimerFired) -> None:
        with self.model.handling(self.instance, None):
            model, instance = self.model, self.instance
            model.expect(
                message.instance is instance, "a timer of an earlier instance", instance.name
            )
            model.expect(
                message.number not in instance.cancelled_timers, "a cancelled timer", instance.name
            )
            due, _ = instance.timers.pop(message.number, (-inf, None))
            model.expect(due <= model.now() + EPSILON, "a timer before its time", instance.name)
            if model.chance(0.2):
                await trio.sleep(0.1)

    @handles(WorkEnded)
    def work_ended(self, message: WorkEnded) -> None:
        with self.model.handling(self.instance, None):
            instance = self.instance
            self.model.expect(
                message.instance is instance, "work of an earlier instance", instance.name
            )
            known = instance.reporting_work.pop(message.number, -1)
            self.model.expect(
                known is not None and known >= 0, "work twice, or early", instance.name
            )
            if instance.kept_replies:
                self._answer(*instance.kept_replies.pop(0))

    @handles(AskSettled)
    def ask_settled(self, message: AskSettled) -> None:
        with self.model.handling(self.instance, None):
            self.model.expect(
                message.instance is self.instance, "answer for an earlier instance", self.name
            )
            self.instance.pending_asks -= 1
            self.model.settle(message.record, message.outcome)

    @handles(WatchedDown)
    def watched_down(self, message: WatchedDown) -> None:
        with self.model.handling(self.instance, None):
            instance, down = self.instance, message.down
            self.model.expect(
                message.instance is instance, "a watch of an earlier instance", instance.name
            )
            end = message.watch, down.incarnation if message.repeats else 0
            if down.incarnation:
                self.model.expect(end not in instance.downs, f"{down} twice", instance.name)
            instance.downs.add(end)

    @handles(WatchedUp)
    def watched_up(self, message: WatchedUp) -> None:
        with self.model.handling(self.instance, None):
            start = message.watch, message.up.incarnation
            self.model.expect(
                message.instance is self.instance, "an Up of an earlier instance", self.name
            )
            self.model.expect(start not in self.instance.ups, f"{message.up} twice", self.name)
            self.instance.ups.add(start)

    def describe(self) -> dict[str, object]:
        return {"busy": self.instance.busy}

    # Steps.

    async def _run_steps(
        self, record: MessageRecord, message: Any, *, gives_up: bool = False
    ) -> Any:
        with self.model.handling(self.instance, record, gives_up=gives_up):
            for step in message.steps:
                if step[0] in ASYNC_STEPS:
                    await self._run_async_step(record, step)
                elif (result := self._run_sync_step(record, message, step)) is not None:
                    return result
            return self._result(record)

    def _run_sync_steps(self, record: MessageRecord, message: Any) -> Any:
        with self.model.handling(self.instance, record):
            for step in message.steps:
                if (
                    step[0] not in ASYNC_STEPS
                    and (result := self._run_sync_step(record, message, step)) is not None
                ):
                    return result
            return self._result(record)

    def _result(self, record: MessageRecord) -> int | None:
        if not record.is_request:
            return None
        if not record.reply_kept:
            record.answered, record.value = True, record.number
        return record.number

    def _answer(self, record: MessageRecord, reply: PendingReply[int]) -> None:
        if record.answered:  # by an error that has left the handler
            return
        record.answered = True
        if record.number % 3:
            record.value = record.number
            reply.answer(record.number)
        else:
            record.error = Refused("later")
            reply.fail(record.error)

    async def _run_async_step(self, record: MessageRecord, step: Step) -> None:  # noqa: C901
        model, parent = self.model, record if record.is_request and not record.answered else None
        match step:
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case ("yield",):
                await trio.lowlevel.checkpoint()
            case ("send", to, steps):
                self.instance.waits_for = to
                with suppress(MailboxFull, ActorGone, AskCycle, ActorFailed):
                    await model.send(to, steps)
                self.instance.waits_for = None
            case ("ask", to, steps, deadline, caught, capped):
                self.instance.waits_for = to
                try:
                    await model.ask(to, steps, deadline, parent=parent, capped=capped)
                except (ActorError, Refused):
                    if not caught:
                        raise
                self.instance.waits_for = None
            case ("swallow cancellation", seconds):
                with suppress(trio.Cancelled):
                    await trio.sleep(seconds)
            case ("dynamic child", name, starts):
                with suppress(ActorError, ValueError):
                    if starts:
                        await model.dynamic.start_child(model.dynamic_spec(name))
                    else:
                        await model.dynamic.stop_child(name)
            case ("publish",):
                with suppress(AskCycle):
                    await model.publish()

    def _run_sync_step(self, record: MessageRecord, message: Any, step: Step) -> Any:  # noqa: C901, PLR0912, PLR0915
        model, instance, context = self.model, self.instance, self.context
        match step:
            case ("tell", to, steps):
                model.tell(to, steps)
            case ("context ask", to, steps, deadline):
                parent = record if record.reply_kept and not record.answered else None
                model.ask_later(self, to, steps, deadline, parent)
            case ("work", seconds, fails, reports):
                with suppress(MailboxFull):
                    number = model.number()
                    then = (
                        (lambda outcome: WorkEnded(instance, number, outcome)) if reports else None
                    )
                    context.work(self._work, number, seconds, fails, reports, then=then)
                    instance.queued_work += 1
                    if reports:
                        instance.reporting_work[number] = None
            case ("after", seconds, named):
                with suppress(MailboxFull):
                    number = model.number()
                    name = "the timer" if named else None
                    if named:
                        self._replace_named_timer()
                    timer = context.after(seconds, TimerFired(instance, number), name=name)
                    instance.timers[number] = model.now() + seconds, timer
                    if named:
                        self.named_timer = number
            case ("every", seconds):
                with suppress(MailboxFull):
                    context.every(seconds, TimerFired(instance, model.number()), name="the ticker")
            case ("cancel timers",):
                for number, (_, timer) in instance.timers.items():
                    timer.cancel()
                    instance.cancelled_timers.add(number)
                instance.timers.clear()
            case ("keep reply", seconds) if record.is_request and not record.reply_kept:
                reply: PendingReply[int] = context.keep_reply()
                record.reply_kept = True
                instance.kept_replies.append((record, reply))
                if seconds is not None:
                    with suppress(MailboxFull):
                        number = model.number()
                        context.work(
                            self._work,
                            number,
                            seconds,
                            False,
                            True,
                            then=lambda outcome: WorkEnded(instance, number, outcome),
                        )
                        instance.queued_work += 1
                        instance.reporting_work[number] = None
            case ("stash",) if record.begun == 1 and not record.reply_kept:
                return self._stash(record, message)
            case ("unstash",):
                context.unstash()
            case ("watch", to, repeat):
                number = model.number()
                with suppress(MailboxFull):
                    instance.watches.append(
                        context.watch(
                            model.ref(to),
                            then=lambda down: WatchedDown(instance, number, repeat, down),
                            up=(lambda up: WatchedUp(instance, number, up)) if repeat else None,
                            repeat=repeat,
                        )
                    )
                    if repeat:
                        model.collect_events()
                        instance.repeating_watches[number] = to, model.started.get(to, [0])[-1]
            case ("unwatch",):
                for watch in instance.watches:
                    watch.cancel()
                instance.watches.clear()
                instance.repeating_watches.clear()
            case ("stop",):
                context.stop()
            case ("raise", kind):
                raise ERRORS[kind]()
        return None

    named_timer: int | None = None

    def _replace_named_timer(self) -> None:
        """Expect that a timer of the same name replaces the earlier one."""
        if self.named_timer is not None:
            self.instance.cancelled_timers.add(self.named_timer)
            self.instance.timers.pop(self.named_timer, None)
            self.named_timer = None

    def _stash(self, record: MessageRecord, message: Any) -> Any:
        dead_letters = self.model.runtime.dead_letters
        before = dead_letters.counts()[DeadLetterReason.FULL]
        reply = self.context.stash(message)
        if dead_letters.counts()[DeadLetterReason.FULL] > before:
            record.stash_overflowed = True
        else:
            record.stashed = True
            self.model.record_stash(self, record)
        return reply if record.is_request else "stashed"

    async def _work(self, number: int, seconds: float, fails: bool, reports: bool) -> int:
        instance, model = self.instance, self.model
        instance.queued_work -= 1
        instance.running_work += 1
        model.expect(
            instance.running_work <= model.policy_of(self).max_work, "too much work", self.name
        )
        try:
            await trio.sleep(seconds)
            if fails:
                raise ScriptedFailureError("work")
            return number
        finally:
            instance.running_work -= 1
            if reports and number in instance.reporting_work:
                instance.reporting_work[number] = model.now()


class StoppingScriptedActor(ScriptedActor):
    """A scripted actor whose `stopping` takes time or fails."""

    async def stopping(self) -> None:
        model = self.model
        with model.handling(self.instance, None, counts=False):
            await trio.sleep(model.rng.uniform(0, 0.3))
            if model.chance(model.stop_failure_rate):
                model.failed[self.name] += 1
                raise ScriptedFailureError("stopping")


ASYNC_STEPS: Final = (
    "sleep",
    "yield",
    "send",
    "ask",
    "publish",
    "swallow cancellation",
    "dynamic child",
)

ERRORS: Final[dict[str, Callable[[], BaseException]]] = {
    "failure": lambda: ScriptedFailureError("handler"),
    "group": lambda: ExceptionGroup("two", [ScriptedFailureError("1"), KeyError("2")]),
    "refused": lambda: Refused("no"),
    "refused group": lambda: ExceptionGroup("two", [Refused("1"), AskTimeout("nobody", 1.0)]),
    "would block": trio.WouldBlock,
    "end of channel": trio.EndOfChannel,
    "stop iteration": StopIteration,
    "abort": RuntimeAbortError,
}
ANSWERING_ERRORS: Final = ("refused", "refused group")


def is_answer(error: BaseException) -> bool:
    """Return whether an error that leaves a handler is its answer, not a failure (R-17, R-18)."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_answer(inner) for inner in error.exceptions)
    return isinstance(error, Refused | ActorError)
