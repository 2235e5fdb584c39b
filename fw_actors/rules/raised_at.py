"""An exception as a few words that hold nothing of its text: its type, and where it was raised."""

from __future__ import annotations

import traceback
from pathlib import Path


def raised_at(error: BaseException) -> str:
    """Return `RuntimeError in shop.py, line 12`: its text may hold what must not be told."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
