"""Threads of one lane take turns, as long as turns are short."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lets one thread work at a time, and nobody wait long for one that takes its time.

    Two threads with short work pass the interpreter's lock to and fro with each statement:
    measured, 64 callers, reads of 50 µs took 52 µs in turns and 60 to 110 µs side by side.
    """

    def __init__(self, patience: float) -> None:
        """`patience`: for how many seconds a turn is waited for, counted from its beginning."""
        self._patience = patience
        self._lock = threading.Lock()
        self._began = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for the turn; where it takes too long, go on beside it."""
        left = self._began + self._patience - time.monotonic()
        mine = self._lock.acquire(timeout=max(0.0, left))
        if mine:
            self._began = time.monotonic()
        try:
            yield
        finally:
            if mine:
                self._lock.release()
