"""A service in virtual time for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http_site import HttpSite, http_site
from tests.virtual_time import in_virtual_time

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, HERE)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[HttpSite]:
    async with http_site(tmp_path) as made:
        yield made
