"""One process of the simulated site, from its start to its end: it can be killed at any step.

A killed process does nothing more: its store, its connections and its answers are cut off at
once, and its tasks are unwound without a moment of virtual time passing, shields or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from trio.lowlevel import Task

MAX_UNWINDING: Final = 20_000


class ProcessNotEnded(Exception):
    """Raised if a killed process does not end, because one of its tasks swallows a cancellation."""


class Incarnation:
    """One incarnation of a process; the unique `label` names it in the trace."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.dead = False
        self.ended = trio.Event()
        self._scope = trio.CancelScope()
        self._task: Task | None = None
        self._thawed: trio.Event | None = None
        self.thawed_at = float("-inf")

    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        """Run the process; returns when it has ended, of itself or by a kill.

        Raises what `body` raises, unless it was killed.
        """
        self._task = trio.lowlevel.current_task()
        try:
            with self._scope:
                await body()
        except Exception:
            if not self.dead:
                raise
        finally:
            self.dead = True
            self.ended.set()

    async def step(self) -> None:
        """A point where the process can be killed or frozen. Everything with an effect outside
        of it passes here before and after."""
        await trio.lowlevel.checkpoint()
        while self._thawed is not None and not self.dead:
            await self._thawed.wait()
        while self.dead:
            await trio.sleep_forever()

    def freeze(self) -> None:
        """Stop it as SIGSTOP does, while time passes."""
        self._thawed = self._thawed or trio.Event()

    def thaw(self) -> None:
        """Have it go on."""
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None
            self.thawed_at = trio.current_time()

    async def kill(self) -> None:
        """End it as SIGKILL does; returns when all its tasks have ended, at the same instant."""
        self.dead = True
        self.thaw()
        self._scope.cancel()
        for _ in range(MAX_UNWINDING):
            if self.ended.is_set():
                return
            if self._task is not None:
                self._unshield(self._task)
            await trio.lowlevel.checkpoint()
        raise ProcessNotEnded(self.label)

    def _unshield(self, task: Task) -> None:
        """Open every shield between a task and the process's own scope.

        trio offers no such thing, and rightly so: it is for a process that is no more.
        """
        status: Any = task._cancel_status
        while status is not None and status._scope is not self._scope:
            if status._scope.shield:
                status._scope.shield = False
            status = status._parent
        for nursery in task.child_nurseries:
            for child in nursery.child_tasks:
                self._unshield(child)
