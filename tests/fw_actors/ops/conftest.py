"""All of it in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fw_actors.virtual_site_kit import site
from tests.virtual_time import in_virtual_time

__all__ = ["site"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, HERE)
