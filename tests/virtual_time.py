"""Runs the async tests of a folder in virtual time: a clock at 0 that jumps when all tasks wait.

pytest-trio uses a clock fixture only where a test itself names it, not where a fixture does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import Clock, Instrument
from trio.testing import MockClock


def run(
    fn: Callable[..., Awaitable[Any]], *, clock: Clock | None, instruments: Sequence[Instrument]
) -> Any:
    """Stand in for `trio.run`; a clock that the test asks for is used instead."""
    clock = clock or MockClock(autojump_threshold=0)
    return trio.run(fn, clock=clock, instruments=instruments)


def in_virtual_time(items: Sequence[pytest.Item], folder: Path) -> None:
    """Mark the async tests below `folder`; call it from `pytest_collection_modifyitems`."""
    files = {path for path in {item.path for item in items} if path.is_relative_to(folder)}
    for item in items:
        if item.path in files and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run), append=False)
