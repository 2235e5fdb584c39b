"""The tests of supervision run in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual_time import in_virtual_time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, Path(__file__).parent)
