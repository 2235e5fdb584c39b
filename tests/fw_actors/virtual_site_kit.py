"""A site in virtual time with the apps `shop` and `examples.notes`, and its users."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.accounts_kit import SiteWithAccounts
from tests.site_kit import database_of, inline_site

APPS = Path(__file__).parent / "documents" / "apps"


class VirtualSite(SiteWithAccounts):
    """A site with shortcuts for the tests."""

    domain = "x.test"

    async def sql(self, text: str, **params: Any) -> list[tuple[Any, ...]]:
        """Run SQL in a transaction of its own; the rows as tuples."""
        rows = await self.do(lambda fw: fw.db.sql(text, params))
        return [tuple(row.values()) for row in rows]

    async def subscribe(self, event: str = "note.shared", **fields: Any) -> str:
        """Make a Webhook for a custom event; its name."""
        return await self.hook(event_type="Custom", custom_event=event, **fields)

    async def watch(self, doctype: str, *events: str, **fields: Any) -> str:
        """Make a Webhook for document events; its name."""
        ticked = dict.fromkeys(events, 1)
        return await self.hook(event_type="Document", webhook_doctype=doctype, **ticked, **fields)

    async def hook(self, **fields: Any) -> str:
        values = {"url": "https://receiver.test/hook", "secret": "a signing secret", **fields}
        name: str = (await self.do(lambda fw: fw.new_doc("Webhook", **values).insert())).name
        return name

    async def counts(self) -> tuple[int, int]:
        """Return the numbers of deliveries and of queued jobs."""
        (deliveries,) = await self.sql("SELECT count(*) FROM doc_webhook_delivery")
        (jobs,) = await self.sql("SELECT count(*) FROM fw_job")
        return deliveries[0], jobs[0]

    async def deliveries(self) -> list[dict[str, Any]]:
        """Return all deliveries in the order of their ids, payloads read."""
        rows = await self.do(
            lambda fw: fw.db.sql("SELECT * FROM doc_webhook_delivery ORDER BY name")
        )
        return [{**row, "payload": json.loads(row["payload"])} for row in rows]


@asynccontextmanager
async def open_virtual_site(folder: Path, **changes: Any) -> AsyncIterator[VirtualSite]:
    """Open a site whose store is in `folder`; `changes` as in `inline_site`."""
    settings = {"apps": ("shop", "examples.notes"), "database": database_of(folder), **changes}
    async with inline_site(APPS, **settings) as site:
        yield VirtualSite(site)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[VirtualSite]:
    async with open_virtual_site(tmp_path) as site:
        yield site
