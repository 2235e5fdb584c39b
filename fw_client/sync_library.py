"""Sleeping and locking for threads; async_library has them for tasks."""

from __future__ import annotations

import threading
import time


def sleep(seconds: float) -> None:
    """Wait, while other threads run."""
    time.sleep(seconds)


LibraryLock = threading.Lock
