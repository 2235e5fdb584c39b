"""The actors of a play: they perform the steps of each message, and report to the model."""

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
from tests.supervisors.plays.letters import (
    EPSILON,
    BrokenPartError,
    CurtainError,
    HasFallen,
    HasRisen,
    LaterAnswer,
    Life,
    Perform,
    PerformAtOnce,
    PerformWhileWanted,
    PlayLetter,
    Publication,
    Rang,
    Step,
    TellTale,
    TellTaleAtOnce,
    WorkEnded,
)

if TYPE_CHECKING:
    from tests.supervisors.plays.random_play import Play


class Puppet(Actor):
    """Performs the steps of each message, and reports them to the model."""

    slow_seconds = inf

    def __init__(self, play: Play, name: str) -> None:
        if play.chance(play.make_fails):
            play.failed[name] += 1
            raise BrokenPartError("make")
        self.play = play
        self.name = name
        self.life = Life(name, self)

    async def started(self) -> None:
        play = self.play
        play.begin_life(self.life)
        with play.busy(self.life, None, counts=False):
            if play.chance(play.slow_starts):
                try:
                    await trio.sleep(play.dice.uniform(0, 0.5))
                except trio.Cancelled:
                    play.maybe_failed[self.name] += 1
                    raise
            if play.chance(play.start_fails):
                play.failed[self.name] += 1
                raise BrokenPartError("started")

    @handles(Perform)
    async def do(self, message: Perform) -> Any:
        return await self._perform(message.letter, message)

    @handles(PerformWhileWanted, give_up=True)
    async def do_while_wanted(self, message: PerformWhileWanted) -> Any:
        return await self._perform(message.letter, message, gives_up=True)

    @handles(PerformAtOnce)
    def do_at_once(self, message: PerformAtOnce) -> Any:
        return self._perform_at_once(message.letter, message)

    @handles(TellTale)
    async def tale(self, message: TellTale) -> None:
        await self._perform(message.letter, message)

    @handles(TellTaleAtOnce)
    def tale_at_once(self, message: TellTaleAtOnce) -> None:
        self._perform_at_once(message.letter, message)

    @handles(Publication)
    def read(self, message: Publication) -> None:
        with self.play.busy(self.life, None):
            self.play.read(self.life, message.number)

    @handles(Rang)
    async def rang(self, message: Rang) -> None:
        with self.play.busy(self.life, None):
            play, life = self.play, self.life
            play.expect(message.life is life, "a timer of an earlier instance", life.name)
            play.expect(message.number not in life.cancelled, "a cancelled timer", life.name)
            due, _ = life.timers.pop(message.number, (-inf, None))
            play.expect(due <= play.now() + EPSILON, "a timer before its time", life.name)
            if play.chance(0.2):
                await trio.sleep(0.1)

    @handles(WorkEnded)
    def work_ended(self, message: WorkEnded) -> None:
        with self.play.busy(self.life, None):
            life = self.life
            self.play.expect(message.life is life, "work of an earlier instance", life.name)
            known = life.works.pop(message.number, -1)
            self.play.expect(known is not None and known >= 0, "work twice, or early", life.name)
            if life.kept:
                self._answer(*life.kept.pop(0))

    @handles(LaterAnswer)
    def later_answer(self, message: LaterAnswer) -> None:
        with self.play.busy(self.life, None):
            self.play.expect(message.life is self.life, "answer for an earlier instance", self.name)
            self.life.asking -= 1
            self.play.settle(message.letter, message.outcome)

    @handles(HasFallen)
    def fallen(self, message: HasFallen) -> None:
        with self.play.busy(self.life, None):
            life, down = self.life, message.down
            self.play.expect(message.life is life, "a watch of an earlier instance", life.name)
            end = message.watch, down.incarnation if message.repeats else 0
            if down.incarnation:
                self.play.expect(end not in life.downs, f"{down} twice", life.name)
            life.downs.add(end)

    @handles(HasRisen)
    def risen(self, message: HasRisen) -> None:
        with self.play.busy(self.life, None):
            start = message.watch, message.up.incarnation
            self.play.expect(message.life is self.life, "an Up of an earlier instance", self.name)
            self.play.expect(start not in self.life.ups, f"{message.up} twice", self.name)
            self.life.ups.add(start)

    def describe(self) -> dict[str, object]:
        return {"busy": self.life.busy}

    # Parts.

    async def _perform(self, letter: PlayLetter, message: Any, *, gives_up: bool = False) -> Any:
        with self.play.busy(self.life, letter, gives_up=gives_up):
            for step in message.steps:
                if step[0] in AWAITED:
                    await self._await(letter, step)
                elif (result := self._step(letter, message, step)) is not None:
                    return result
            return self._result(letter)

    def _perform_at_once(self, letter: PlayLetter, message: Any) -> Any:
        with self.play.busy(self.life, letter):
            for step in message.steps:
                if (
                    step[0] not in AWAITED
                    and (result := self._step(letter, message, step)) is not None
                ):
                    return result
            return self._result(letter)

    def _result(self, letter: PlayLetter) -> int | None:
        if not letter.asked:
            return None
        if not letter.kept:
            letter.answered, letter.value = True, letter.number
        return letter.number

    def _answer(self, letter: PlayLetter, reply: PendingReply[int]) -> None:
        if letter.answered:  # by an error that has left the handler
            return
        letter.answered = True
        if letter.number % 3:
            letter.value = letter.number
            reply.answer(letter.number)
        else:
            letter.error = Refused("later")
            reply.fail(letter.error)

    async def _await(self, letter: PlayLetter, step: Step) -> None:  # noqa: C901
        play, parent = self.play, letter if letter.asked and not letter.answered else None
        match step:
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case ("yield",):
                await trio.lowlevel.checkpoint()
            case ("send", to, steps):
                self.life.waits_for = to
                with suppress(MailboxFull, ActorGone, AskCycle, ActorFailed):
                    await play.send(to, steps)
                self.life.waits_for = None
            case ("ask", to, steps, deadline, caught, capped):
                self.life.waits_for = to
                try:
                    await play.ask(to, steps, deadline, parent=parent, capped=capped)
                except (ActorError, Refused):
                    if not caught:
                        raise
                self.life.waits_for = None
            case ("swallow", seconds):
                with suppress(trio.Cancelled):
                    await trio.sleep(seconds)
            case ("guest", name, starts):
                with suppress(ActorError, ValueError):
                    if starts:
                        await play.guests.start_child(play.guest(name))
                    else:
                        await play.guests.stop_child(name)
            case ("publish",):
                with suppress(AskCycle):
                    await play.publish()

    def _step(self, letter: PlayLetter, message: Any, step: Step) -> Any:  # noqa: C901, PLR0912, PLR0915
        play, life, context = self.play, self.life, self.context
        match step:
            case ("tell", to, steps):
                play.tell(to, steps)
            case ("ask later", to, steps, deadline):
                parent = letter if letter.kept and not letter.answered else None
                play.ask_later(self, to, steps, deadline, parent)
            case ("work", seconds, fails, reports):
                with suppress(MailboxFull):
                    number = play.number()
                    then = (lambda outcome: WorkEnded(life, number, outcome)) if reports else None
                    context.work(self._work, number, seconds, fails, reports, then=then)
                    life.queued += 1
                    if reports:
                        life.works[number] = None
            case ("after", seconds, named):
                with suppress(MailboxFull):
                    number = play.number()
                    name = "the timer" if named else None
                    if named:
                        self._forget_timer()
                    timer = context.after(seconds, Rang(life, number), name=name)
                    life.timers[number] = play.now() + seconds, timer
                    if named:
                        self.named = number
            case ("every", seconds):
                with suppress(MailboxFull):
                    context.every(seconds, Rang(life, play.number()), name="the ticker")
            case ("cancel timers",):
                for number, (_, timer) in life.timers.items():
                    timer.cancel()
                    life.cancelled.add(number)
                life.timers.clear()
            case ("keep", seconds) if letter.asked and not letter.kept:
                reply: PendingReply[int] = context.keep_reply()
                letter.kept = True
                life.kept.append((letter, reply))
                if seconds is not None:
                    with suppress(MailboxFull):
                        number = play.number()
                        context.work(
                            self._work,
                            number,
                            seconds,
                            False,
                            True,
                            then=lambda outcome: WorkEnded(life, number, outcome),
                        )
                        life.queued += 1
                        life.works[number] = None
            case ("stash",) if letter.begun == 1 and not letter.kept:
                return self._stash(letter, message)
            case ("unstash",):
                context.unstash()
            case ("watch", to, repeat):
                number = play.number()
                with suppress(MailboxFull):
                    life.watches.append(
                        context.watch(
                            play.ref(to),
                            then=lambda down: HasFallen(life, number, repeat, down),
                            up=(lambda up: HasRisen(life, number, up)) if repeat else None,
                            repeat=repeat,
                        )
                    )
                    if repeat:
                        play.hear()
                        life.repeating[number] = to, play.started.get(to, [0])[-1]
            case ("unwatch",):
                for watch in life.watches:
                    watch.cancel()
                life.watches.clear()
                life.repeating.clear()
            case ("stop",):
                context.stop()
            case ("raise", kind):
                raise ERRORS[kind]()
        return None

    named: int | None = None

    def _forget_timer(self) -> None:
        """Expect that a timer of the same name replaces the last one."""
        if self.named is not None:
            self.life.cancelled.add(self.named)
            self.life.timers.pop(self.named, None)
            self.named = None

    def _stash(self, letter: PlayLetter, message: Any) -> Any:
        letters = self.play.runtime.dead_letters
        before = letters.counts()[DeadLetterReason.FULL]
        reply = self.context.stash(message)
        if letters.counts()[DeadLetterReason.FULL] > before:
            letter.lost = True
        else:
            letter.stashed = True
            self.play.note_stash(self, letter)
        return reply if letter.asked else "stashed"

    async def _work(self, number: int, seconds: float, fails: bool, reports: bool) -> int:
        life, play = self.life, self.play
        life.queued -= 1
        life.running += 1
        play.expect(life.running <= play.policy_of(self).max_work, "too much work", self.name)
        try:
            await trio.sleep(seconds)
            if fails:
                raise BrokenPartError("work")
            return number
        finally:
            life.running -= 1
            if reports and number in life.works:
                life.works[number] = play.now()


class PolitePuppet(Puppet):
    """Has a `stopping`, which takes time or fails."""

    async def stopping(self) -> None:
        play = self.play
        with play.busy(self.life, None, counts=False):
            await trio.sleep(play.dice.uniform(0, 0.3))
            if play.chance(play.stop_fails):
                play.failed[self.name] += 1
                raise BrokenPartError("stopping")


AWAITED: Final = ("sleep", "yield", "send", "ask", "publish", "swallow", "guest")

ERRORS: Final[dict[str, Callable[[], BaseException]]] = {
    "failure": lambda: BrokenPartError("handler"),
    "group": lambda: ExceptionGroup("two", [BrokenPartError("1"), KeyError("2")]),
    "refused": lambda: Refused("no"),
    "refused group": lambda: ExceptionGroup("two", [Refused("1"), AskTimeout("nobody", 1.0)]),
    "would block": trio.WouldBlock,
    "end of channel": trio.EndOfChannel,
    "stop iteration": StopIteration,
    "curtain": CurtainError,
}
PASSED_ON: Final = ("refused", "refused group")


def is_passed_on(error: BaseException) -> bool:
    """Whether an error that leaves a handler is the answer, and no failure: R-17 and R-18."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_passed_on(inner) for inner in error.exceptions)
    return isinstance(error, Refused | ActorError)
