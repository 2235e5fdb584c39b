"""A site with the app `shop`, in virtual time, with short helpers for it."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fw_actors.access.users import add_user
from fw_actors.ops.site import Site
from tests.app_modules import apps_as_they_were
from tests.site_kit import database_of, inline_site
from tests.virtual_time import in_virtual_time

T = TypeVar("T")
HERE = Path(__file__).parent
APPS = HERE / "apps"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, HERE)


class ShopSite:
    """A site with the app `shop`, and helpers that write on it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.shop: Any = importlib.import_module("shop")

    async def do(self, fn: Callable[[Any], T], user: str = "Administrator") -> T:
        """Run `fn` in a transaction of its own."""
        return await self.site.write(user, fn)

    async def add_account(self, *roles: str, name: str = "sam") -> str:
        """Make a user with these roles; the user's name."""
        await self.do(lambda fw: add_user(fw, name, f"{name}@x.test", roles=roles))
        return name


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[ShopSite]:
    async with inline_site(APPS, apps=("shop",), database=database_of(tmp_path)) as site:
        desk = ShopSite(site)
        desk.shop.CALLED.clear()
        desk.shop.LATE.clear()
        yield desk


OpenVersion = Callable[[str], AbstractAsyncContextManager[Site]]


@pytest.fixture
def open_version(tmp_path: Path) -> OpenVersion:
    """Open the test's site with a version of its app `shed`, given as text, as a new process
    would."""
    seeds = count(1)

    @asynccontextmanager
    async def open_version(text: str) -> AsyncIterator[Site]:
        (tmp_path / "shed.py").write_text(f"from fw_actors.app import *\n{text}")
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)  # the second may be the same
        sys.modules.pop("shed", None)  # another version may be open
        with apps_as_they_were(tmp_path):
            async with inline_site(tmp_path, next(seeds), apps=("shed",)) as site:
                yield site

    return open_version
