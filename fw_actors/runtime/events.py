"""The runtime's own events as a topic: starts, ends, failures, refusals, lost messages.

Nothing is made, and next to nothing is done, while the topic has no member.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.mailbox import DeadLetterReason, Item
from fw_actors.runtime.membership import Listener, Membership, Slow
from fw_actors.runtime.messages import Message
from fw_actors.runtime.topics import Topic

if TYPE_CHECKING:
    from fw_actors.runtime.ref import Ref
    from fw_actors.runtime.system import Runtime

EVENTS_KEPT: Final = 256


class EventKind(Enum):
    """The kinds of events. Those that are also logged have the name of the log's event."""

    STARTED = "actor_started"
    STOPPED = "actor_stopped"
    PASSIVATED = "actor_passivated"
    FAILED = "actor_failed"
    RESTARTED = "child_restarted"
    CHILD_FAILED = "child_failed"
    GAVE_UP = "supervisor_gave_up"
    REFUSED = "message_refused"
    DEAD_LETTER = "dead_letter"
    PASSED_ON = "passed_on"
    WORK_FAILED = "work_failed"
    SLOW = "slow_handler"
    STOP_OVERDUE = "stop_overdue"
    STOP_FORCED = "actor_stop_forced"
    POOL_STOP_FORCED = "pool_stop_forced"
    UNSUBSCRIBED = "member_unsubscribed"


class RuntimeEvent(Message, frozen=True):
    """One event. It has types and names, never the contents of a message."""

    kind: EventKind
    name: str
    """The actor, pool, child, supervisor or member that it is about."""
    at: int
    """Unix time in ms."""
    reason: str = ""
    """An error as one line without secrets, or the reason of a dead letter; may be empty."""
    message_type: str = ""
    """The type of the message, if it is about one."""
    life: int = 0
    """The number of the instance that started or ended; see `Down`."""


class EventTopic(Topic[RuntimeEvent]):
    """The topic `runtime.events`. No member can make the runtime wait."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, "runtime.events")

    def subscribe(
        self,
        ref: Ref,
        *,
        slow: Slow = Slow.DROP_OLDEST,
        capacity: int = EVENTS_KEPT,
        accept: Callable[[RuntimeEvent], bool] | None = None,
        then: Message | None = None,
    ) -> Membership:
        """Do as `Topic.subscribe` does. Raises ValueError for `Slow.WAIT`."""
        check_slow(slow)
        return super().subscribe(ref, slow=slow, capacity=capacity, accept=accept, then=then)

    def listening(
        self,
        *,
        slow: Slow = Slow.DROP_OLDEST,
        capacity: int = EVENTS_KEPT,
        accept: Callable[[RuntimeEvent], bool] | None = None,
    ) -> AbstractContextManager[Listener[RuntimeEvent]]:
        """Do as `Topic.listening` does. Raises ValueError for `Slow.WAIT`."""
        check_slow(slow)
        return super().listening(slow=slow, capacity=capacity, accept=accept)

    def emit(self, kind: EventKind, name: str, **details: Any) -> None:
        """Publish an event, unless there is nobody to get it; for the runtime.

        What happens often asks for `has_members` before.
        """
        if self.has_members:
            self.tell(RuntimeEvent(kind, name, self._runtime.clock.now(), **details))

    def emit_refusal(self, name: str, error: ActorError, message: Message) -> None:
        """Publish that a message was refused, by the error that its sender gets."""
        if self.has_members:
            self.emit(
                EventKind.REFUSED, name, reason=str(error), message_type=type(message).__name__
            )

    def emit_dead_letter(self, name: str, message: object, reason: DeadLetterReason) -> None:
        """Publish that a message was lost, unless it was an event itself."""
        if self.has_members and not isinstance(message, RuntimeEvent):
            self.emit(
                EventKind.DEAD_LETTER,
                name,
                reason=reason.value,
                message_type=type(message).__name__,
            )

    def note_removal(self, name: str, reason: str) -> None:
        """Publish that a topic has unsubscribed a member."""
        self.emit(EventKind.UNSUBSCRIBED, name, reason=reason)

    def drop(self, member: Membership, item: Item, reason: DeadLetterReason) -> None:
        """Do nothing: a lost event is counted by its member, and is no event itself."""


def check_slow(slow: Slow) -> None:
    """Raise ValueError for a policy by which the runtime would wait."""
    if slow is Slow.WAIT:
        raise ValueError("the runtime waits for no member: choose another policy than Slow.WAIT")
