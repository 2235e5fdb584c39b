"""The terms of an actor's life: its states, its instance, what comes to it aside, how it fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

from fw_actors.runtime.holds import Hold
from fw_actors.runtime.mailbox import MailboxPolicy
from fw_actors.runtime.messages import HandlerTable, Message
from fw_actors.runtime.reply import Reply


class State(Enum):
    """Where an actor is in its life."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    FAILED = "failed"


class Instance(Protocol):
    """What a cell runs: an `Actor`, as far as the cell has to know it."""

    mailbox: ClassVar[MailboxPolicy]
    handlers: ClassVar[HandlerTable]

    async def started(self) -> None: ...

    async def stopping(self) -> None: ...

    def describe(self) -> dict[str, object]: ...


class Arrival(Hold, Protocol):
    """A hold that ends with a message to its own actor, through the side lane."""

    def take(self) -> Message | Reply[Any] | None:
        """Give the message and end the hold; None when there is nothing to handle any more."""


@dataclass(frozen=True, slots=True)
class Down:
    """An instance of the single actor `name` went away; `error` is one line, None when in order."""

    name: str
    error: str | None


class Watcher(Protocol):
    """Somebody who is told when an instance has gone."""

    def fire(self, down: Down) -> None:
        """Hear of it; must not raise."""


class CrashedError(Exception):
    """Carries a failure out of the turn in which it happened; it never reaches a caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error
