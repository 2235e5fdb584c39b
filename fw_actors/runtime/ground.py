"""What all actors of one runtime share, whatever addresses they have."""

from __future__ import annotations

from collections.abc import Callable

import trio

from fw_actors.runtime.clock import Clock
from fw_actors.runtime.dead_letters import DeadLetters
from fw_actors.runtime.deadlines import Deadlines
from fw_actors.runtime.entropy import Entropy
from fw_actors.runtime.faults import one_line
from fw_actors.runtime.inspection import Inspectable
from fw_actors.runtime.log import Log
from fw_actors.runtime.workers import Workers


class Ground:
    """The ground that cells and pools stand on; `Runtime` is built on it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        clock: Clock,
        entropy: Entropy,
        log: Log,
        scrub: Callable[[str], str] = str,
    ) -> None:
        self._scrub = scrub
        self.clock = clock
        self.entropy = entropy
        self.log = log
        self.deadlines = Deadlines()
        self.workers = Workers(nursery)
        self.dead_letters = DeadLetters(clock, log)
        self.late_replies = 0
        self._nodes: dict[Inspectable, None] = {}

    def one_line(self, error: BaseException) -> str:
        """Return a failure as one short line, without what must not be told."""
        return one_line(error, self._scrub)

    def add_node(self, node: Inspectable) -> None:
        """Show a node at the top of the tree."""
        self._nodes[node] = None

    def remove_node(self, node: Inspectable) -> None:
        """Show it no longer at the top: it has gone, or somebody else shows it."""
        self._nodes.pop(node, None)
