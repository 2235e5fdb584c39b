"""The environment that the processes of a simulated site share: machine, network, observers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from fw_actors.http import Origin
from tests.simulation.faulty_store import StoreFaults
from tests.simulation.incarnation import Incarnation
from tests.simulation.mail_server import SimulatedMailServer
from tests.simulation.network import WireListener
from tests.simulation.wall_clock import WallClock

if TYPE_CHECKING:
    from tests.simulation.node import NodeProcess


class BrokenPromise(Exception):
    """Raised for a promise that was not kept; the text says which."""


@dataclass
class SimulationTrace:
    """Everything that happened, in order; the same seed gives the same lines, byte for byte."""

    began: float
    lines: list[str] = field(default_factory=list)

    def __call__(self, who: str, what: str) -> None:
        """Add a line."""
        self.lines.append(f"{trio.current_time() - self.began:10.3f} {who}: {what}")

    @property
    def digest(self) -> str:
        """A hash of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


@dataclass
class TraceLog:
    """The log of one process: its events' names are part of the trace."""

    trace: SimulationTrace
    incarnation: Incarnation
    failed: Callable[[Incarnation, Exception], None]
    """Called for a defect that the service has caught: there must be none."""
    corrected: Callable[[], None]
    """Called after times in the future were corrected."""

    def info(self, event: str, **fields: object) -> None:
        """Note an event."""
        if not self.incarnation.dead:
            self.trace(self.incarnation.label, f"log {event}")

    debug = info

    def warning(self, event: str, **fields: object) -> None:
        """Note an event, with its error."""
        if event == "clock.corrected":
            self.corrected()
        if not self.incarnation.dead:
            self.trace(self.incarnation.label, f"log {event} {fields.get('error', '')}".rstrip())

    def error(self, event: str, **fields: object) -> None:
        """Note an event; a defect of a delivery is a broken promise."""
        self.warning(event, **fields)
        if event == "delivery.defect" and not self.incarnation.dead:
            self.failed(self.incarnation, RuntimeError(str(fields.get("error"))))


@dataclass
class SimulatedEnvironment:
    """The environment of a simulated site. The callbacks observe what its processes do."""

    seed: str
    clock: WallClock
    trace: SimulationTrace
    nursery: trio.Nursery
    store_faults: StoreFaults
    listeners: Mapping[Origin, WireListener]
    mail_server: SimulatedMailServer
    committed: Callable[[Incarnation], None]
    hashed: Callable[[str], None]
    process_failed: Callable[[Incarnation, Exception], None]
    stopped: Callable[[Incarnation, NodeProcess], None]
    corrected: Callable[[], None]

    def seed_of(self, what: str) -> int:
        """Return the seed of one source of chance: none depends on how often another is asked."""
        text = f"{self.seed}/{what}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")

    def log_of(self, incarnation: Incarnation) -> TraceLog:
        """Return the log of one process."""
        return TraceLog(self.trace, incarnation, self.process_failed, self.corrected)
