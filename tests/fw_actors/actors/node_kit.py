"""Several processes on one store, in virtual time: they are started, stopped in order, and killed.

Each process has its own store, so that a killed one can be cut off at any call: its transaction is
then either committed or not begun, and none of its tasks continues.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from random import Random
from typing import Any, Generic, Protocol, TypeVar

import trio

from fw_actors.store import Store
from fw_actors.store.postgres import BETWEEN_NOTICES_SECONDS


class NodeParts(Protocol):
    """The parts of a running process; `woken` is called for commits of other processes."""

    @property
    def store(self) -> Store:
        """The process's own store."""

    def woken(self) -> None:
        """Wake up the workers: another process has committed."""


PartsT = TypeVar("PartsT", bound=NodeParts)
Opening = Callable[[int], AbstractAsyncContextManager[PartsT]]


class VirtualNode(Generic[PartsT]):
    """One process; `parts` are those that its opening returned."""

    def __init__(self, number: int, parts: PartsT, scope: trio.CancelScope) -> None:
        self.number, self.parts, self.scope = number, parts, scope
        self.stopping = trio.Event()
        self.is_killed = False
        self.notice_planned, self.notified_at = False, -inf

    @property
    def is_up(self) -> bool:
        """Whether it works: it was neither killed nor told to stop."""
        return not (self.is_killed or self.stopping.is_set())


class VirtualNodes(Generic[PartsT]):
    """Processes on one store.

    Each write and its answer take up to `slowest` seconds. A notice of a commit takes up to
    `notice_seconds` to the other processes. On PostgreSQL each commit sends one, else those that
    the process asks for.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        opening: Opening[PartsT],
        random: Random,
        *,
        slowest: float = 0.0,
        notice_seconds: float = 0.0,
        each_commit: bool = False,
    ) -> None:
        self._nursery, self._opening, self._random = nursery, opening, random
        self._slowest, self._notice_seconds = slowest, notice_seconds
        self.each_commit = each_commit
        self._started = 0
        self.up: list[VirtualNode[PartsT]] = []
        """The processes that work."""
        self.killed_at = -inf
        """When a process was killed last."""
        self.notices = 0
        """The number of notices that were sent."""

    async def start(self) -> VirtualNode[PartsT]:
        """Start a process."""
        self._started += 1
        node: VirtualNode[PartsT] = await self._nursery.start(self._run, self._started)
        self.up.append(node)
        return node

    def stop(self, node: VirtualNode[PartsT]) -> None:
        """Tell a process to stop in order."""
        self.up.remove(node)
        node.stopping.set()

    def kill(self, node: VirtualNode[PartsT]) -> None:
        """End a process where it stands. Its last transaction may be committed."""
        self.up.remove(node)
        node.is_killed, self.killed_at = True, trio.current_time()
        node.scope.cancel()

    async def _run(self, number: int, task_status: trio.TaskStatus[VirtualNode[PartsT]]) -> None:
        with trio.CancelScope() as scope:
            async with self._opening(number) as parts:
                node = VirtualNode(number, parts, scope)
                self._connect(node)
                task_status.started(node)
                await node.stopping.wait()

    def _connect(self, node: VirtualNode[PartsT]) -> None:
        """Give the store its times, and have it reach the other processes."""
        store = node.parts.store
        write, read = store.write, store.read

        async def alive() -> None:
            if node.is_killed:
                await trio.sleep_forever()

        async def write_slowly(*args: Any, **options: Any) -> object:
            await alive()
            await trio.sleep(self._random.uniform(0.0, self._slowest))
            await alive()
            with trio.CancelScope(shield=True):  # a commit is not undone by a cancellation
                answer = await write(*args, **options)
                if self.each_commit and getattr(answer, "leased", True):
                    self._committed(node)
                if not node.is_killed:
                    await trio.sleep(self._random.uniform(0.0, self._slowest))
            await alive()
            return answer

        async def read_alive(*args: Any, **options: Any) -> object:
            await alive()
            return await read(*args, **options)

        def notify() -> None:
            if not self.each_commit and not node.is_killed:
                self.notify(node)

        vars(store).update(write=write_slowly, read=read_alive, notify_others=notify)

    def notify(self, sender: VirtualNode[PartsT] | None = None) -> None:
        """Notify all processes but the sender of a commit; without one, of a command's."""
        self.notices += 1
        for node in self.up:
            if node is not sender:
                self._nursery.start_soon(self._arrive, node)

    def _committed(self, node: VirtualNode[PartsT]) -> None:
        """Notify the others as PostgreSQL's processes do: at once, and then after a pause."""
        if not node.notice_planned:
            node.notice_planned = True
            self._nursery.start_soon(self._notify_later, node)

    async def _notify_later(self, node: VirtualNode[PartsT]) -> None:
        await trio.sleep_until(node.notified_at + BETWEEN_NOTICES_SECONDS)
        node.notice_planned, node.notified_at = False, trio.current_time()
        self.notify(node)

    async def _arrive(self, node: VirtualNode[PartsT]) -> None:
        await trio.sleep(self._random.uniform(0.0, self._notice_seconds))
        if node.is_up:
            node.parts.woken()
