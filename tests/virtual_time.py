"""Runs the async tests of a folder in virtual time: a clock at 0 that jumps when all tasks wait."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fw_actors.runtime.pytest_plugin import run_in_virtual_time


def in_virtual_time(items: Sequence[pytest.Item], folder: Path) -> None:
    """Mark the async tests below `folder`; call it from `pytest_collection_modifyitems`."""
    files = {path for path in {item.path for item in items} if path.is_relative_to(folder)}
    for item in items:
        if item.path in files:
            run_in_virtual_time(item)
