"""The set-up of a process's log, undone: in tests the process is that of all of them."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


def configure_plain_log() -> None:
    """Write each line in one step. structlog's own renderer, which colours the lines, takes longer
    than most requests."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ]
    )


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Set the log of this process up as it was before the block, with the hooks that write to it.

    Those of pytest fail the test that left a socket open.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = threading.excepthook, sys.unraisablehook
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        root.handlers, root.level = handlers, level
        logging.captureWarnings(False)
        structlog.reset_defaults()
        configure_plain_log()
