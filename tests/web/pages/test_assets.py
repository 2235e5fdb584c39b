"""The files of the pages: kept for ever under a path that changes with them."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.web.client import AppClient
from web.pages.rendering import takes_gzip


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


async def test_assets_are_compressed_for_clients_that_accept_gzip(client: AppClient) -> None:
    """H-207."""
    folder = await asset_folder(client)
    plain = await client.ask("GET", folder + "/style.css")
    packed = await client.ask(
        "GET", folder + "/style.css", headers=[("Accept-Encoding", "br, gzip")]
    )
    assert packed.header("Content-Encoding") == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) * 3 < len(plain.body)
    for reply in (plain, packed):
        assert reply.header("Vary") == "Accept-Encoding"
    small = await client.ask("GET", folder + "/mark.svg", headers=[("Accept-Encoding", "gzip")])
    assert small.header("Content-Encoding") is None


async def test_pages_are_never_compressed(client: AppClient) -> None:
    """H-207."""
    page = await client.ask("GET", "/login", headers=[("Accept-Encoding", "gzip")])
    assert page.header("Content-Encoding") is None


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("", False), ("gzip", True), ("br;q=1, GZIP ; q=0.5", True), ("gzip;q=0", False),
        ("gzip;q=0.000", False), ("*", True), ("identity", False), ("xgzip", False),
        ("gzip;q=x", False), ("*, gzip;q=0", False), ("*;q=0, gzip", True), ("*;q=0", False),
    ],
)  # fmt: skip
def test_takes_gzip_reads_accept_encoding(accepted: str, taken: bool) -> None:
    assert takes_gzip(accepted) is taken
