"""The runtime: everything that actors share, and the registry of single actors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

import trio

from fw_actors.runtime.background import Workers
from fw_actors.runtime.clock import Clock, Entropy
from fw_actors.runtime.errors import one_line
from fw_actors.runtime.mailbox import DeadLetters
from fw_actors.runtime.pool import KeyedPool
from fw_actors.runtime.ref import ActorRef
from fw_actors.runtime.single import SingleCell
from fw_actors.runtime.snapshot import Inspectable, RuntimeSnapshot
from fw_actors.runtime.timers import Deadlines

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor


class Log(Protocol):
    """An event and its fields; a structlog logger is one."""

    def debug(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class SilentLog:
    """Says nothing; for tests and benchmarks."""

    def debug(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def info(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def warning(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def error(self, event: str, **fields: object) -> None:
        """Do nothing."""


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


@contextmanager
def unwrap_single_error() -> Iterator[None]:
    """Around a nursery that is nobody's business: one error comes out as itself, more as a group.

    For blocks such as `open_runtime`, whose callers want to catch what happened in them.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__


SHUTDOWN_SECONDS: Final = 5.0


class Runtime(Ground):
    """Made by `open_runtime`. All of it is for trio's own thread."""

    def __init__(
        self,
        nursery: trio.Nursery,
        clock: Clock,
        entropy: Entropy,
        log: Log,
        scrub: Callable[[str], str] = str,
    ) -> None:
        super().__init__(nursery, clock, entropy, log, scrub)
        # Weak: an address that nobody holds and nothing runs under is forgotten.
        self._cells: WeakValueDictionary[str, SingleCell] = WeakValueDictionary()

    def ref(self, name: str) -> ActorRef:
        """Return the address `name`, whether an actor of that name runs or not."""
        return ActorRef(self.cell(name))

    def cell(self, name: str) -> SingleCell:
        """Return what is behind that address; for supervisors, which run actors in it."""
        cell = self._cells.get(name)
        if cell is None:
            cell = self._cells[name] = SingleCell(self, name)
        return cell

    @asynccontextmanager
    async def running(
        self, name: str, make: Callable[[], Actor], shutdown_seconds: float = SHUTDOWN_SECONDS
    ) -> AsyncIterator[ActorRef]:
        """Run an actor without a supervisor while the block runs; then stop it in order.

        A failure of the actor cancels the block, and comes out of it as ActorFailed.
        Raises ValueError when an actor of that name is running already.
        """
        cell = self.cell(name)
        cell.check_free()
        self.add_node(cell)
        try:
            with unwrap_single_error():
                async with trio.open_nursery() as nursery:
                    ref: ActorRef = await nursery.start(cell.live, make)
                    try:
                        yield ref
                    finally:
                        cell.stop(trio.current_time() + shutdown_seconds)
        finally:
            cell.retire()
            self.remove_node(cell)

    def snapshot(self) -> RuntimeSnapshot:
        """Return everything that is alive, as a frozen value."""
        return RuntimeSnapshot(
            tree=tuple(node.snapshot() for node in self._nodes),
            deadlines=len(self.deadlines),
            workers=self.workers.alive,
            workers_parked=self.workers.parked,
            late_replies=self.late_replies,
            dead_letters=self.dead_letters.counts(),
            last_dead_letters=self.dead_letters.last(),
        )

    async def close(self, deadline: float) -> None:
        """Close the pools that nobody closed, and end the runtime's own tasks."""
        try:
            for pool in [node for node in self._nodes if isinstance(node, KeyedPool)]:
                await pool.close(deadline)
        finally:
            self.workers.close()
            self.deadlines.close()


@asynccontextmanager
async def open_runtime(
    *,
    clock: Clock,
    entropy: Entropy,
    log: Log | None = None,
    scrub: Callable[[str], str] = str,
) -> AsyncIterator[Runtime]:
    """Run a runtime while the block runs.

    At its end, also by cancellation, pools that are still open have five seconds to finish.
    `log` is a structlog-like logger; without one nothing is logged. `scrub` removes secrets from
    the texts of failures, which snapshots, answers and the log tell.
    """
    with unwrap_single_error():
        async with trio.open_nursery() as nursery:
            runtime = Runtime(nursery, clock, entropy, log or SilentLog(), scrub)
            nursery.start_soon(runtime.deadlines.run)
            try:
                yield runtime
            finally:
                with trio.CancelScope(shield=True):
                    await runtime.close(trio.current_time() + SHUTDOWN_SECONDS)
