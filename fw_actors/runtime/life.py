"""The terms of an actor's life: its states, what an instance holds, how one fails."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from fw_actors.runtime.faults import RuntimeFault, one_line

if TYPE_CHECKING:
    from fw_actors.runtime.messages import Message
    from fw_actors.runtime.reply import Reply


class State(Enum):
    """Where an actor is in its life."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    FAILED = "failed"


class Hold(Protocol):
    """Something an instance is still to bring to an end: a kept reply, work, a timer, a watch."""

    def abandon(self, fault: RuntimeFault) -> None:
        """End it because the instance has gone. Must not raise."""


class Arrival(Hold, Protocol):
    """A hold that ends with a message to its own actor, through the side lane."""

    def take(self) -> Message | Reply[Any] | None:
        """Give the message and end the hold; None when there is nothing to handle any more."""


class CrashedError(Exception):
    """Carries a failure out of the turn in which it happened; it never reaches a caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(one_line(error))
        self.error = error
