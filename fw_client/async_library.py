"""Sleeping and locking for tasks, under trio or asyncio."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager


def _trio_runs() -> bool:
    """Return whether the caller is a task of trio, which only a program that has imported trio can
    have."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


async def sleep(seconds: float) -> None:
    """Wait, while other tasks run."""
    if _trio_runs():
        import trio

        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


class LibraryLock:
    """A lock of the library that runs when it is first taken; it may be created before that."""

    def __init__(self) -> None:
        self._lock: AbstractAsyncContextManager[object] | None = None

    async def __aenter__(self) -> None:
        if self._lock is None:
            self._lock = _new_lock()
        await self._lock.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        assert self._lock is not None, "it was taken"
        await self._lock.__aexit__(None, None, None)


def _new_lock() -> AbstractAsyncContextManager[object]:
    if _trio_runs():
        import trio

        return trio.Lock()
    return asyncio.Lock()
