"""A full or failing disk and a locked file: 503 until writes work again.

A failing store is 503 (O-14, O-13), with the real threads and files; nothing is
restarted.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio
from sqlalchemy import text

from fw_actors.errors import OverloadedError
from fw_actors.ops.site import Site, open_site
from tests.live_site import LiveSite, eventually
from tests.site_kit import make_config

LARGE = "x" * 60_000
WRITERS = 40


@asynccontextmanager
async def threaded_site(folder: Path) -> AsyncIterator[Site]:
    async with open_site(make_config(folder, apps=("examples.notes",))) as site:
        yield site


async def pragma(site: Site, words: str) -> Any:
    """Run a PRAGMA on the connection that writes."""
    return await site.store.write(lambda tx: tx.rows(text(f"PRAGMA {words}"))[0][0])


async def write_notes(site: Site, prefix: str) -> tuple[set[str], int]:
    """Write notes at once; return the titles of those that were answered, and how many were not."""
    answered: set[str] = set()
    refused: list[str] = []

    async def write(title: str) -> None:
        note = {"title": title, "text": LARGE}
        try:
            await site.write("Administrator", lambda fw: fw.new_doc("Note", **note).insert())
        except OverloadedError:
            refused.append(title)
        else:
            answered.add(title)

    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(write, f"{prefix} {number}")
    return answered, len(refused)


async def titles(site: Site) -> set[str]:
    rows = await site.read("Administrator", lambda fw: fw.get_all("Note", fields=["title"]))
    return {row["title"] for row in rows}


async def test_full_disk_refuses_writes_until_space_is_free(
    tmp_path: Path,
) -> None:
    """SQLITE_FULL ends the transaction of a whole group: no acknowledged write is lost."""
    async with threaded_site(tmp_path) as site:
        max_pages = await pragma(site, "max_page_count")
        await pragma(site, f"max_page_count={await pragma(site, 'page_count') + 200}")
        before, refused = await write_notes(site, "before")
        assert refused
        assert await titles(site) == before
        await pragma(site, f"max_page_count={max_pages}")
        after, refused = await write_notes(site, "after")
        assert not refused
        assert await titles(site) == before | after


async def test_unwritable_disk_refuses_writes_and_allows_reads(tmp_path: Path) -> None:
    """The system refuses every write (EFBIG, by a limit of the process), and later does not."""
    async with threaded_site(tmp_path) as site:
        before, _ = await write_notes(site, "before")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        try:
            nobody, refused = await write_notes(site, "meanwhile")
            found = await titles(site)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (nobody, refused) == (set(), WRITERS)
        assert found == before
        after, refused = await write_notes(site, "after")
        assert not refused
        assert await titles(site) == before | after


def test_locked_database_is_503_until_unlocked(tmp_path: Path) -> None:
    """A lock longer than the store waits is 503; acknowledged writes stay."""
    with LiveSite(tmp_path) as site:
        site.add_manager()
        site.start()
        with site.client() as client:
            assert note(client, "before").status_code == 201
            other = sqlite3.connect(tmp_path / "data" / "fw.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            refused = note(client, "meanwhile")
            assert refused.status_code == 503
            assert refused.json()["error"]["type"] == "OverloadedError"
            assert int(refused.headers["retry-after"]) >= 1
            assert client.get("/api/resource/Note").status_code == 200
            other.execute("ROLLBACK")
            other.close()
            eventually(lambda: note(client, "after").status_code == 201)
            found = client.get("/api/resource/Note", params={"fields": '["title"]'}).json()["data"]
        assert {row["title"] for row in found} == {"before", "after"}


def note(client: httpx.Client, title: str) -> httpx.Response:
    return client.post("/api/resource/Note", json={"title": title})
