"""One deliberate fault: a line of the service that is changed, and who has to find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SIMULATION: Final = "simulation"


@dataclass(frozen=True)
class Mutation:
    """Replaces `old`, which stands in `file` once, by `new`.

    `found_by`: the simulation, or the tests of a path.
    """

    name: str
    file: str
    old: str
    new: str
    found_by: str = SIMULATION
