"""Opens the store on SQLite: one writer thread with group commit, a few reader threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fw_actors.runtime.clock import Clock
from fw_actors.runtime.entropy import Entropy
from fw_actors.store.contract import Store

MAX_WAITING_WRITES: Final = 4096
MAX_WAITING_READS: Final = 1024
READER_THREADS: Final = 2
BUSY_SECONDS: Final = 3.0


@asynccontextmanager
async def open_sqlite(
    path: Path,
    *,
    clock: Clock,
    entropy: Entropy,
    inline: bool = False,
    max_waiting_writes: int = MAX_WAITING_WRITES,
    max_waiting_reads: int = MAX_WAITING_READS,
    reader_threads: int = READER_THREADS,
    busy_seconds: float = BUSY_SECONDS,
) -> AsyncIterator[Store]:
    """Open the database at `path`, make or migrate its tables, and close it at the end."""
    raise AssertionError
    yield
