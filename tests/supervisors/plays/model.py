"""The model: what senders and handlers report, and the rules that each report must keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

import trio
from outcome import Outcome

from fw_actors.runtime import (
    ActorError,
    AskTimeout,
    MailboxFull,
    Overflow,
    Refused,
)
from fw_actors.runtime.cell import ActorState
from tests.supervisors.plays.cast import Cast
from tests.supervisors.plays.letters import (
    CARRIED,
    CREW,
    EPSILON,
    SEEN,
    LaterAnswer,
    Life,
    Perform,
    PerformAtOnce,
    PerformWhileWanted,
    PlayLetter,
    Publication,
    Step,
    TellTale,
    TellTaleAtOnce,
)
from tests.supervisors.plays.puppets import Puppet, is_passed_on


class PlayModel(Cast):
    """Checks each call, each handler and each answer."""

    def begin_life(self, life: Life) -> None:
        name = life.name
        if name == CREW:
            self.lives.append(life)
            return
        before = self.current.get(name)
        self.expect(before is None or not before.busy, "two instances at once", name)
        self.current[name] = life
        self.lives.append(life)

    @contextmanager
    def busy(  # noqa: C901
        self, life: Life, letter: PlayLetter | None, *, gives_up: bool = False, counts: bool = True
    ) -> Iterator[None]:
        """Mark a handler of `life` while it runs, and note its end."""
        name = life.name
        self.expect(not life.busy, "two messages at once", name)
        life.busy = True
        life.letter, life.gives_up = letter, gives_up
        self.expect(SEEN.get() in (None, name), "a variable of another actor", name)
        SEEN.set(name)
        if letter is not None:
            self.begin(life, letter)
        try:
            yield
        except trio.Cancelled as error:
            if gives_up:
                self.unsure[name] += 1
            if letter is not None:
                letter.error = error
            raise
        except Exception as error:
            if counts and letter is not None:
                letter.error = error
                if is_passed_on(error):
                    letter.answered = True
                    self.handled[name] += 1
                else:
                    self.failed[name] += 1
            raise
        except BaseException as error:
            if letter is not None:
                letter.error = error
            raise
        else:
            self.handled[name] += counts
        finally:
            life.busy = False
            life.letter = life.waits_for = None

    def begin(self, life: Life, letter: PlayLetter) -> None:
        name = letter.to
        letter.begun += 1
        letter.life = life
        if name in self.refs:
            self.expect(
                self.refs[name].cell.state is not ActorState.SUSPENDED, "handles suspended", name
            )
        if self.carries:
            self.expect(CARRIED.get() == letter.carried, f"{letter!r} has {CARRIED.get()}", name)
        if letter.stashed and letter.stash is life.stash:  # a failed start may have lost some
            earlier = letter.stash[: letter.stash.index(letter)]
            kept = [other for other in earlier if other.in_order and not other.gone]
            self.expect(not kept, f"{letter!r} before {kept}", name)
            letter.stash.remove(letter)
        again = letter.begun > 1 or letter.stashed
        self.expect(letter.begun == 1 or letter.stashed, f"{letter!r} begun again", name)
        self.expect(not letter.gone, f"{letter!r} begun although its asker has gone", name)
        letter.stashed = False
        if letter.asked:
            self.expect(self.now() <= letter.due + EPSILON, f"{letter!r} begun late", name)
        parent = letter.parent
        while parent is not None and not parent.answered:
            self.expect(not parent.gone, f"{letter!r} begun for nobody", name)
            parent = parent.parent
        if letter.in_order and not again:
            self.expect(letter.number > self.last_begun[name], f"{letter!r} out of order", name)
            self.last_begun[name] = letter.number

    def note_stash(self, puppet: Puppet, letter: PlayLetter) -> None:
        """Note a letter that was set aside."""
        letter.stash = puppet.life.stash
        letter.stash.append(letter)
        cell = self.cell(puppet.name)
        if cell is not None:
            returned = cell.mailbox.returned
            limit = self.policy_of(puppet).max_stash
            self.expect(cell.stashed + returned <= limit, "a stash over its limit", puppet.name)

    def read(self, life: Life, number: int) -> None:
        self.expect(number > life.read, f"publication {number} after {life.read}", life.name)
        life.read = number

    # Calls.

    def letter(self, to: str, parent: PlayLetter | None = None, due: float = inf) -> PlayLetter:
        letter = PlayLetter(self.number(), to, parent, due)
        self.letters.append(letter)
        return letter

    def tell(self, to: str, steps: tuple[Step, ...]) -> None:
        letter = self.letter(to)
        kind = TellTaleAtOnce if letter.number % 2 else TellTale
        room = self._room(to)
        accepted = self.ref(to).tell(kind(letter, steps))
        self.expect(room in (None, accepted), f"tell returned {accepted}", to)
        if not accepted:
            letter.refused = True
            self.told[to] += 1

    def _room(self, to: str) -> bool | None:
        """Whether a message would be accepted, if that is known."""
        cell = self.refs[to].cell if to in self.refs else None
        if cell is None or cell.mailbox.is_fed:
            return None
        if cell.mailbox.is_closed:
            return False
        depth = cell.mailbox.depth - cell.mailbox.returned
        return cell.policy.overflow is Overflow.DROP_OLDEST or depth < cell.mailbox.capacity

    async def send(self, to: str, steps: tuple[Step, ...]) -> None:
        letter = self.letter(to)
        kind = TellTaleAtOnce if letter.number % 2 else TellTale
        letter.carried = letter.number
        token = CARRIED.set(letter.number)
        try:
            await self.ref(to).send(kind(letter, steps))
        except BaseException:
            letter.refused = letter.gone = True
            raise
        finally:
            CARRIED.reset(token)

    async def ask(
        self,
        to: str,
        steps: tuple[Step, ...],
        deadline: float,
        *,
        parent: PlayLetter | None = None,
        capped: bool = True,
    ) -> None:
        began = self.now()
        due = began + deadline
        if parent is not None and capped:
            due = max(began, min(due, parent.due))
        letter = self.letter(to, parent if capped else None, due)
        letter.asked = True
        kind = (Perform, PerformAtOnce, PerformWhileWanted)[letter.number % 3]
        letter.carried = letter.number
        token = CARRIED.set(letter.number)
        try:
            value = await self.ref(to).ask(kind(letter, steps), deadline=deadline, capped=capped)
        except (ActorError, Refused) as error:
            self._asked(letter, None, error)
            raise
        except BaseException:
            letter.gone = True
            raise
        else:
            self._asked(letter, value, None)
        finally:
            CARRIED.reset(token)

    def ask_later(
        self,
        puppet: Puppet,
        to: str,
        steps: tuple[Step, ...],
        deadline: float,
        parent: PlayLetter | None,
    ) -> None:
        letter = self.letter(to, parent)
        letter.asked = True
        letter.carried = CARRIED.get()
        letter.in_order = False  # it may have to wait for its turn as a piece of work
        life = puppet.life
        with suppress(MailboxFull):
            puppet.context.ask(
                self.ref(to),
                Perform(letter, steps),
                then=lambda outcome: LaterAnswer(life, letter, outcome),
                deadline=deadline,
            )
            life.asking += 1

    def settle(self, letter: PlayLetter, outcome: Outcome[int]) -> None:
        """Note the outcome of a request of `context.ask`."""
        try:
            value: int | None = outcome.unwrap()
        except (ActorError, Refused) as error:
            self._asked(letter, None, error)
        else:
            self._asked(letter, value, None)

    def _asked(self, letter: PlayLetter, value: int | None, error: Exception | None) -> None:
        now, name = self.now(), letter.to
        self.expect(not letter.gone, f"{letter!r} settled twice", name)
        letter.gone = True
        self.expect(
            now <= letter.due + EPSILON,
            f"{letter!r} settled after its deadline {vars(letter)} {error!r}",
            name,
        )
        if value is not None:
            self.expect(letter.value == value == letter.number, f"{letter!r}: {value}", name)
            return
        early = now < letter.due - EPSILON
        step: PlayLetter | None = letter
        while step is not None and early:  # the deadline of a request of `context.ask` is not known
            early, step = step.in_order, step.parent
        if letter.value is not None and early:
            self.expect(False, f"{letter!r} was answered, but got {error!r}", name)
        match error:
            case AskTimeout() if early:
                orphan = letter.parent is not None
                passed = letter.error is not None and is_passed_on(letter.error)
                self.expect(
                    orphan or passed,
                    f"{letter!r}, due {letter.due:.6f}, got {error!r}; {vars(letter)}",
                    name,
                )
            case Refused():
                self.expect(letter.answered, f"{letter!r} was not refused", name)

    async def publish(self) -> None:
        self.published += 1
        await self.topic.publish(Publication(self.published))
