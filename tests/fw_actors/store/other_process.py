"""Another process on the database of a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def process(program: str, database: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """Run a program on the database; give its standard input and output."""
    with subprocess.Popen(
        [sys.executable, "-c", program, database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        yield started.stdin, started.stdout
        started.stdin.close()
        assert started.wait(timeout=50) == 0
