"""A function that holds a thread of a store."""

from __future__ import annotations

import threading

import trio
import trio.testing

from fw_actors.store import Tx


class TransactionGate:
    """Holds a transaction inside its function until the test opens the gate."""

    def __init__(self) -> None:
        self._inside = threading.Event()
        self._open = threading.Event()

    def __call__(self, tx: Tx) -> str:
        self._inside.set()
        assert self._open.wait(timeout=10)
        return "held"

    async def entered(self) -> None:
        await trio.to_thread.run_sync(self._inside.wait, 10)

    def open(self) -> None:
        self._open.set()
