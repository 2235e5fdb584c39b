"""Holds: what an actor's instance is still to bring to an end, and who keeps account of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from fw_actors.runtime.faults import RuntimeFault
from fw_actors.runtime.ground import Ground


class Hold(Protocol):
    """A kept reply, a piece of work, a timer, a watch."""

    def abandon(self, fault: RuntimeFault) -> None:
        """End it because the instance has gone. Must not raise."""


class Holder(ABC):
    """The part of a cell that a hold needs to know."""

    __slots__ = ("holds", "name", "runtime")

    def __init__(self, runtime: Ground, name: str) -> None:
        self.runtime = runtime
        self.name = name
        self.holds: dict[Hold, None] | None = None

    @abstractmethod
    def freed(self) -> None:
        """Note that the last hold has ended."""

    def hold(self, hold: Hold) -> None:
        """Note something that the instance is still to bring to an end."""
        if self.holds is None:
            self.holds = {}
        self.holds[hold] = None

    def release(self, hold: Hold) -> None:
        """Note that it came to its end; unknown ones are ignored."""
        if self.holds is None or hold not in self.holds:
            return
        del self.holds[hold]
        if not self.holds:
            self.holds = None
            self.freed()
