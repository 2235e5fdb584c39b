"""One deliberate fault: a changed line of the service, and the tests that must find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SIMULATION: Final = "simulation"


@dataclass(frozen=True)
class Mutation:
    """Replaces `old`, which stands in `file` once, by `new`.

    `found_by`: the simulation, the tests of a path, or one test as `path::name`.
    """

    name: str
    file: str
    old: str
    new: str
    found_by: str = SIMULATION

    @property
    def names_a_test(self) -> bool:
        """Whether one test function alone has to find it."""
        return "::" in self.found_by
