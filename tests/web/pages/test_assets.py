"""The files of the pages: kept for ever under a path that changes with them."""

from __future__ import annotations

import re

from tests.web.client import AppClient


async def asset_folder(client: AppClient) -> str:
    found = re.search(r"/static/[0-9a-f]{16}", (await client.ask("GET", "/login")).body.decode())
    assert found is not None
    return found.group()


async def test_assets_of_every_page_exist(client: AppClient) -> None:
    for path in ("/login", "/forgot-password", "/reset-password"):
        text = (await client.ask("GET", path)).body.decode()
        names = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))
        assert names
        for name in names:
            assert (await client.ask("GET", name)).status == 200


async def test_assets_are_cached_under_their_version_only(client: AppClient) -> None:
    folder = await asset_folder(client)
    current = await client.ask("GET", folder + "/style.css")
    assert current.header("Content-Type") == "text/css; charset=utf-8"
    assert current.header("Cache-Control") == "public, max-age=31536000, immutable"
    other = await client.ask("GET", "/static/0000/style.css")
    assert (other.status, other.header("Cache-Control")) == (200, "no-store")
    assert other.body == current.body


async def test_assets_are_the_only_files_served(client: AppClient) -> None:
    folder = await asset_folder(client)
    for name in ("nothing.js", "htmx-LICENSE.txt", "..%2fassets.py", "%2e%2e/assets.py"):
        reply = await client.ask("GET", f"{folder}/{name}")
        assert (reply.status, reply.error["type"]) == (404, "NotFoundError")
