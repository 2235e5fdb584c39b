"""The messages of a random run, and the records that the model keeps of messages and instances."""

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
    from tests.supervisors.model_based.scripted_actors import ScriptedActor


Step: TypeAlias = tuple[Any, ...]

SINGLE_ACTORS: Final = ("a", "b", "c", "d")
DYNAMIC_CHILDREN: Final = ("x", "y")
KEYS: Final = ("k1", "k2", "k3", "k4", "k5")
POOL, SECOND_POOL, WORKER_POOL, TOPIC = "pool", "second_pool", "workers", "topic"
POOLS: Final = (POOL, SECOND_POOL)
CALLERS: Final = 6
STOP_SECONDS: Final = 6.0
EVENT_CAPACITY: Final = 10_000_000
EPSILON: Final = 1e-6


class MessageRecord:
    """What the model knows about one message."""

    def __init__(self, number: int, to: str, parent: MessageRecord | None, due: float) -> None:
        self.number = number
        self.to = to
        self.parent = parent
        """The request whose handler sends this one, if its deadline limits this one as well."""
        self.due = due
        """The time at which the ask must have ended."""
        self.is_request = False
        self.in_order = True
        """Whether its position in the order of the mailbox is known."""
        self.call_ended = False
        """Whether its caller no longer waits."""
        self.refused = False
        self.begun = 0
        """How many times a handler has begun it."""
        self.stashed = False
        """Whether it waits in a stash, or in front of the mailbox after that."""
        self.stash: list[MessageRecord] = []
        """The stash of its instance."""
        self.stash_overflowed = False
        """Whether the stash was full, so that it is a dead letter after a handler has begun it."""
        self.reply_kept = False
        self.answered = False
        """Whether a handler has answered it, by a value or an error."""
        self.value: int | None = None
        self.error: BaseException | None = None
        self.instance: InstanceRecord | None = None
        self.carried = 0
        """The value of the context variable that travels with it."""

    def __repr__(self) -> str:
        return f"<message {self.number} to {self.to}>"


class InstanceRecord:
    """What the model knows about one instance of an actor."""

    def __init__(self, name: str, actor: ScriptedActor) -> None:
        self.name = name
        self.actor = actor
        self.busy = False
        self.ended = False
        self.timers: dict[int, tuple[float, Timer]] = {}
        """The pending timers that fire once, with the times at which they are due."""
        self.cancelled_timers: set[int] = set()
        self.reporting_work: dict[int, float | None] = {}
        """Work whose end sends a message: the time of its end, or None while it runs."""
        self.running_work = 0
        self.queued_work = 0
        """Work that was submitted and does not run yet."""
        self.pending_asks = 0
        """Requests of `context.ask` whose outcome is not handled yet."""
        self.kept_replies: list[tuple[MessageRecord, PendingReply[int]]] = []
        self.watches: list[Watch] = []
        self.repeating_watches: dict[int, tuple[str, int]] = {}
        """Repeating watches: the watched actor, and its last incarnation when the watch began."""
        self.ups: set[tuple[int, int]] = set()
        self.stash: list[MessageRecord] = []
        """The stashed messages, in order."""
        self.last_publication = 0
        """The number of the last publication."""
        self.record: MessageRecord | None = None
        """The message that is being handled."""
        self.gives_up = False
        """Whether the running handler is declared with `give_up`."""
        self.waits_for: str | None = None
        """The actor whose answer or mailbox the handler waits for."""
        self.memberships: list[Membership] = []
        self.downs: set[tuple[int, int]] = set()


class ScriptedRequest(Request[int], frozen=True):
    """A request whose handler performs `steps`."""

    record: MessageRecord
    steps: tuple[Step, ...]


class SyncScriptedRequest(ScriptedRequest, frozen=True):
    """Its handler is a plain function."""


class GivingUpScriptedRequest(ScriptedRequest, frozen=True):
    """Its handler is declared with `give_up`."""


class ScriptedMessage(Message, frozen=True):
    """A message without an answer, whose handler performs `steps`."""

    record: MessageRecord
    steps: tuple[Step, ...]


class SyncScriptedMessage(ScriptedMessage, frozen=True):
    """Its handler is a plain function."""


class Publication(Message, frozen=True):
    number: int


class TimerFired(Message, frozen=True):
    """A timer that `instance` has set."""

    instance: InstanceRecord
    number: int


class WorkEnded(Message, frozen=True):
    instance: InstanceRecord
    number: int
    outcome: Outcome[Any]


class AskSettled(Message, frozen=True):
    instance: InstanceRecord
    record: MessageRecord
    outcome: Outcome[int]


class WatchedDown(Message, frozen=True):
    instance: InstanceRecord
    watch: int
    repeats: bool
    down: Down


class WatchedUp(Message, frozen=True):
    instance: InstanceRecord
    watch: int
    up: Up


CARRIED: Final[ContextVar[int]] = ContextVar("carried", default=0)
NOT_CARRIED: Final[ContextVar[str | None]] = ContextVar("not_carried", default=None)
"""Set by each handler to the name of its actor, and not carried to other actors."""


class ScriptedFailureError(Exception):
    """Ends an instance, as a defect does."""


class RuntimeAbortError(BaseException):
    """Ends the whole runtime, as an interrupt does."""
