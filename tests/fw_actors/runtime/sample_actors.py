"""Actors and messages for the tests of the runtime and the supervisors."""

from __future__ import annotations

from typing import Any

import trio
from outcome import Outcome

from fw_actors.runtime import (
    Actor,
    Down,
    MailboxPolicy,
    Message,
    Overflow,
    PendingReply,
    Ref,
    Request,
    handles,
)
from fw_actors.runtime.testing import LogBook as LogBook  # noqa: PLC0414 - for tests of these


class AddNumber(Request[int], frozen=True):
    """Answered with the sum so far."""

    number: int


class DiaryNote(Message, frozen=True):
    number: int


class Nap(Request[int], frozen=True):
    """Answered with 1 after these seconds."""

    seconds: float


class Break(Request[int], frozen=True):
    """Makes the handler fail."""


class Keep(Request[int], frozen=True):
    """The handler keeps the reply."""


class Give(Message, frozen=True):
    """Answers the oldest kept reply."""

    value: int


class Begin(Message, frozen=True):
    """Starts work that takes these seconds."""

    seconds: float


class Finished(Message, frozen=True):
    outcome: Outcome[Any]


class Later(Message, frozen=True):
    """Makes the actor send itself a DiaryNote after these seconds."""

    seconds: float
    number: int


class Forward(Request[int], frozen=True):
    """Asks the first actor of the path with the rest of it; the last one answers 1."""

    way: tuple[Ref, ...]


class WatchOver(Message, frozen=True):
    ref: Any


class Fell(Message, frozen=True):
    down: Down


class StopSelf(Message, frozen=True):
    """Stops the actor."""


class SampleActor(Actor):
    """An actor with one handler for each feature, and a diary that may outlive it."""

    def __init__(self, diary: list[Any] | None = None) -> None:
        self.diary: list[Any] = diary if diary is not None else []
        self.sum = 0
        self.kept: list[PendingReply[Any]] = []
        self.busy = False

    @handles(AddNumber)
    async def add(self, message: AddNumber) -> int:
        assert not self.busy, "two messages at once"
        self.busy = True
        self.sum += message.number
        await trio.lowlevel.checkpoint()
        self.busy = False
        return self.sum

    @handles(DiaryNote)
    def note(self, message: DiaryNote) -> None:
        self.diary.append(message.number)

    @handles(Nap)
    async def nap(self, message: Nap) -> int:
        await trio.sleep(message.seconds)
        return 1

    @handles(Break)
    def break_down(self, message: Break) -> int:
        raise ValueError("broken")

    @handles(Keep)
    def keep(self, message: Keep) -> PendingReply[int]:
        reply: PendingReply[int] = self.context.keep_reply()
        self.kept.append(reply)
        return reply

    @handles(Give)
    def give(self, message: Give) -> None:
        self.kept.pop(0).answer(message.value)

    @handles(Begin)
    def begin(self, message: Begin) -> None:
        self.context.work(self._work, message.seconds, then=Finished)

    async def _work(self, seconds: float) -> float:
        if seconds < 0:
            raise ValueError("negative")
        await trio.sleep(seconds)
        return seconds

    @handles(Finished)
    def finished(self, message: Finished) -> None:
        self.diary.append(message.outcome)
        if self.kept:
            self.kept.pop(0).answer(7)

    @handles(Later)
    def later(self, message: Later) -> None:
        self.context.after(message.seconds, DiaryNote(message.number))

    @handles(Forward)
    async def forward(self, message: Forward) -> int:
        if not message.way:
            return 1
        first, *rest = message.way
        return 1 + await first.ask(Forward(tuple(rest)), deadline=5.0)

    @handles(WatchOver)
    def watch(self, message: WatchOver) -> None:
        self.context.watch(message.ref, then=Fell)

    @handles(Fell)
    def fell(self, message: Fell) -> None:
        self.diary.append(message.down)

    @handles(StopSelf)
    def end(self, message: StopSelf) -> None:
        self.context.stop()

    def describe(self) -> dict[str, object]:
        return {"sum": self.sum}


class SlowLifecycle(SampleActor):
    """Writes its start and its stop into the diary; each takes a second."""

    async def started(self) -> None:
        await trio.sleep(1)
        self.diary.append("hello")

    async def stopping(self) -> None:
        await trio.sleep(1)
        self.diary.append("bye")


class SampleThatWaits(SampleActor):
    mailbox = MailboxPolicy(capacity=2, overflow=Overflow.WAIT, max_work=2, max_timers=2)


class SampleThatRefuses(SampleActor):
    mailbox = MailboxPolicy(capacity=2, overflow=Overflow.REFUSE)


class SampleThatDrops(SampleActor):
    mailbox = MailboxPolicy(capacity=2, overflow=Overflow.DROP_OLDEST)
