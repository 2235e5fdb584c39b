"""What the console shows at one moment: values that become JSON as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fw_actors.services.console_facts import StoreFacts


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """A node of the tree; `rate` is messages a second since the view before."""

    path: str
    name: str
    kind: str
    state: str
    level: int
    depth: int
    capacity: int
    alive: int
    running: int
    handled: int
    rate: float
    failed: int
    restarts: int
    last_error: str


class Receiver(msgspec.Struct, frozen=True, rename="camel"):
    """A receiver: its places, what they hold, and how it does."""

    origin: str
    in_flight: int
    window: int
    limit: int
    health: str
    """healthy, slow or paused."""


class DeadLetterShown(msgspec.Struct, frozen=True):
    """A message that reached nobody."""

    recipient: str
    message: str
    reason: str
    at: int


class TracedMessage(msgspec.Struct, frozen=True):
    """A message that an actor was about to handle: its type and its fields' types, no values."""

    at: int
    message: str
    fields: str


class Trace(msgspec.Struct, frozen=True):
    """What was seen of an actor; `until` in ms since the epoch."""

    actor: str
    until: int
    seen: int
    messages: list[TracedMessage]


class ConsoleView(msgspec.Struct, frozen=True, rename="camel"):
    """Everything at one moment. Times in ms since the epoch; `rates` per second."""

    number: int
    at: int
    every: float
    """Seconds until the next one may be made."""
    tree: list[Node]
    rates: Mapping[str, float]
    in_flight: int
    places: int
    receivers: list[Receiver]
    store: StoreFacts
    dead_letters: int
    last_dead_letters: list[DeadLetterShown]
    traces: list[Trace]
    numbers: Mapping[str, Any]
