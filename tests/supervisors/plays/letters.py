"""The messages of a play, and what the model knows of each message and of each instance."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from outcome import Outcome

from fw_actors.runtime import (
    Down,
    Membership,
    Message,
    PendingReply,
    Request,
    Timer,
    Up,
    Watch,
)

if TYPE_CHECKING:
    from tests.supervisors.plays.puppets import Puppet


Step: TypeAlias = tuple[Any, ...]

SINGLES: Final = ("a", "b", "c", "d")
GUESTS: Final = ("x", "y")
KEYS: Final = ("k1", "k2", "k3", "k4", "k5")
POOL, SIDE, CREW, TOPIC = "pool", "side", "crew", "topic"
POOLS: Final = (POOL, SIDE)
CALLERS: Final = 6
STOP_SECONDS: Final = 6.0
MANY_EVENTS: Final = 10_000_000
EPSILON: Final = 1e-6


class PlayLetter:
    """One message in the model."""

    def __init__(self, number: int, to: str, parent: PlayLetter | None, due: float) -> None:
        self.number = number
        self.to = to
        self.parent = parent
        """The letter whose asker this one is asked for."""
        self.due = due
        """The latest end of the ask."""
        self.asked = False
        self.in_order = True
        """Whether its turn in the mailbox is known."""
        self.gone = False
        """Whether its asker no longer waits."""
        self.refused = False
        self.begun = 0
        self.stashed = False
        """Whether it waits in a stash, or in front of the mailbox after that."""
        self.stash: list[PlayLetter] = []
        """The letters that its instance has set aside, in order."""
        self.lost = False
        """Whether the model expects a dead letter although it has begun."""
        self.kept = False
        self.answered = False
        """Whether a handler has answered it, by a value or an error."""
        self.value: int | None = None
        self.error: BaseException | None = None
        self.life: Life | None = None
        self.carried = 0
        """The value of the context variable that travels with it."""

    def __repr__(self) -> str:
        return f"<letter {self.number} to {self.to}>"


class Life:
    """One instance of an actor in the model."""

    def __init__(self, name: str, actor: Puppet) -> None:
        self.name = name
        self.actor = actor
        self.busy = False
        self.ended = False
        self.timers: dict[int, tuple[float, Timer]] = {}
        """The pending timers that fire once, with the times at which they are due."""
        self.cancelled: set[int] = set()
        self.works: dict[int, float | None] = {}
        """Work with a message at its end: the time of its end, None while it runs."""
        self.running = 0
        self.queued = 0
        """Works that were begun by the actor, and do not run yet."""
        self.asking = 0
        """Requests of `context.ask` whose answer was not handled yet."""
        self.kept: list[tuple[PlayLetter, PendingReply[int]]] = []
        self.watches: list[Watch] = []
        self.repeating: dict[int, tuple[str, int]] = {}
        """Watches that repeat: the watched actor, and its last incarnation before."""
        self.ups: set[tuple[int, int]] = set()
        self.stash: list[PlayLetter] = []
        self.read = 0
        """The number of the last publication."""
        self.letter: PlayLetter | None = None
        """The letter in hand."""
        self.gives_up = False
        self.waits_for: str | None = None
        """The actor for which the handler waits."""
        self.memberships: list[Membership] = []
        self.downs: set[tuple[int, int]] = set()


class Perform(Request[int], frozen=True):
    letter: PlayLetter
    steps: tuple[Step, ...]


class PerformAtOnce(Perform, frozen=True):
    """The handler is a plain function."""


class PerformWhileWanted(Perform, frozen=True):
    """The handler gives up."""


class TellTale(Message, frozen=True):
    letter: PlayLetter
    steps: tuple[Step, ...]


class TellTaleAtOnce(TellTale, frozen=True):
    """The handler is a plain function."""


class Publication(Message, frozen=True):
    number: int


class Rang(Message, frozen=True):
    """A timer of `life`."""

    life: Life
    number: int


class WorkEnded(Message, frozen=True):
    life: Life
    number: int
    outcome: Outcome[Any]


class LaterAnswer(Message, frozen=True):
    life: Life
    letter: PlayLetter
    outcome: Outcome[int]


class HasFallen(Message, frozen=True):
    life: Life
    watch: int
    repeats: bool
    down: Down


class HasRisen(Message, frozen=True):
    life: Life
    watch: int
    up: Up


CARRIED: Final[ContextVar[int]] = ContextVar("carried", default=0)
SEEN: Final[ContextVar[str | None]] = ContextVar("seen", default=None)
"""Set by each handler, and not carried."""


class BrokenPartError(Exception):
    """Fails an instance."""


class CurtainError(BaseException):
    """Ends the whole runtime, as an interrupt does."""
