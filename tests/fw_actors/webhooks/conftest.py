"""All of it in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fw_actors.virtual_site_kit import VirtualSite, site
from tests.fw_actors.webhooks.manual_dispatcher import ManualDispatcher
from tests.virtual_time import in_virtual_time

__all__ = ["site"]

HERE = Path(__file__).parent


@pytest.fixture(params=[True, False], ids=["packed", "row by row"])
async def dispatcher(site: VirtualSite, request: pytest.FixtureRequest) -> ManualDispatcher:
    return ManualDispatcher(site, packed=request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, HERE)
