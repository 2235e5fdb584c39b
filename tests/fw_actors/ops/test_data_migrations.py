"""Data migrations of apps, on both stores (D-173 to D-177)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
import trio

from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.errors import ConfigurationError
from fw_actors.ops.data_migrations import DataMigrationFailed, pending, run_pending
from fw_actors.ops.doctor.system import app_facts, evaluate_apps
from fw_actors.ops.site import Site
from tests.site_kit import inline_site, keep_database_at

APP = """\
from fw_actors.app import Data, DocType, Int, migration

class Contact(DocType, naming="field:full_name"):
    full_name = Data(required=True)
    first_name = Data()
    visits = Int()
"""
FIRST = """
@migration(1)
def split_names(fw):
    for row in fw.get_all("Contact"):
        contact = fw.get_doc("Contact", row["name"])
        contact.first_name = contact.full_name.split()[0]
        contact.save()
"""
BATCHES = """
@migration(2)
def count_visits(fw, cursor):
    left = fw.get_all("Contact", [["name", ">", cursor or ""]], ["name"], "name asc", limit=2)
    for row in left:
        contact = fw.get_doc("Contact", row["name"])
        contact.visits = (contact.visits or 0) + 1
        contact.save()
        if contact.full_name == STOP:
            raise ValueError("stop")
    return left[-1]["name"] if left else None
"""
NAMES = ("Ada Lovelace", "Carl Gauss", "Emmy Noether", "Kurt Goedel", "Leonhard Euler")

OpenApp = Callable[[str], AbstractAsyncContextManager[Site]]


@pytest.fixture(params=["sqlite", "postgres"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param == "postgres":
        keep_database_at(tmp_path, request.getfixturevalue("postgres_url"))
    return tmp_path


@pytest.fixture
def open_app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenApp]:
    """Open the site with an app of this text, as a new process would."""
    monkeypatch.syspath_prepend(folder)
    seeds = count(1)

    @asynccontextmanager
    async def open_app(text: str) -> AsyncIterator[Site]:
        sys.modules.pop("contacts", None)
        (folder / "contacts.py").write_text(text)
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)  # the second may be the same
        async with inline_site(folder, next(seeds), apps=("contacts",)) as site:
            yield site

    yield open_app
    sys.modules.pop("contacts", None)


async def fill(site: Site) -> None:
    await site.write(
        ADMINISTRATOR, lambda fw: [fw.new_doc("Contact", full_name=n).insert() for n in NAMES]
    )


async def ran(site: Site) -> list[str]:
    return [str(each) async for each in run_pending(site)]


async def waiting(site: Site) -> list[str]:
    return [str(each) for each in await site.store.read(lambda tx: pending(tx, site.registry))]


async def field(site: Site, name: str) -> list[object]:
    rows = await site.read(
        ADMINISTRATOR, lambda fw: fw.get_all("Contact", fields=[name], order_by="name asc")
    )
    return [row[name] for row in rows]


async def test_data_migrations_run_once_each_in_order(open_app: OpenApp) -> None:
    """D-174."""
    async with open_app(APP) as site:
        await fill(site)
        assert await ran(site) == []
    async with open_app(APP + "STOP = None\n" + BATCHES + FIRST) as site:
        assert await waiting(site) == ["contacts 1 (split_names)", "contacts 2 (count_visits)"]
        assert await ran(site) == ["contacts 1 (split_names)", "contacts 2 (count_visits)"]
        assert await field(site, "first_name") == [name.split()[0] for name in NAMES]
        assert await field(site, "visits") == [1] * len(NAMES)
        assert (await ran(site), await waiting(site)) == ([], [])


async def test_failed_batch_is_undone_and_repeated_by_the_next_run(
    open_app: OpenApp,
) -> None:
    async with open_app(APP) as site:
        await fill(site)
    async with open_app(APP + 'STOP = "Kurt Goedel"\n' + FIRST + BATCHES) as site:
        with pytest.raises(DataMigrationFailed, match=r"contacts 2 \(count_visits\) failed: stop"):
            await ran(site)
        assert await field(site, "visits") == [1, 1, None, None, None]
        assert await waiting(site) == ["contacts 2 (count_visits)"]
        (finding,) = evaluate_apps(await app_facts(site)).findings
        assert finding.text == "the data migration contacts 2 (count_visits) has begun"
    async with open_app(APP + "STOP = None\n" + FIRST + BATCHES) as site:
        assert await ran(site) == ["contacts 2 (count_visits)"]
        assert await field(site, "visits") == [1] * len(NAMES)


async def test_migration_whose_search_takes_too_long_is_named(open_app: OpenApp) -> None:
    """D-176: the command reported only that a query took too long."""
    failing = "\n@migration(1)\ndef search(fw):\n    raise query_timeout(5.0)\n"
    async with open_app(APP + "from fw_actors.errors import query_timeout\n" + failing) as site:
        with pytest.raises(DataMigrationFailed, match=r"contacts 1 \(search\) failed: The query"):
            await ran(site)


async def test_failed_migration_blocks_later_migrations(open_app: OpenApp) -> None:
    failing = FIRST.replace("contact.save()", "contact.save(); raise SystemExit(3)")
    async with open_app(APP + "STOP = None\n" + failing + BATCHES) as site:
        await fill(site)
        with pytest.raises(DataMigrationFailed, match="would have ended the process"):
            await ran(site)
        assert await field(site, "first_name") == [None] * len(NAMES)
        assert await field(site, "visits") == [None] * len(NAMES)
        assert len(await waiting(site)) == 2


async def test_parallel_migration_runs_do_the_work_once(open_app: OpenApp) -> None:
    async with open_app(APP + "STOP = None\n" + FIRST + BATCHES) as site:
        await fill(site)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ran, site)
        assert await field(site, "visits") == [1] * len(NAMES)


async def test_app_version_older_than_its_data_is_refused(open_app: OpenApp) -> None:
    async with open_app(APP + "STOP = None\n" + FIRST + BATCHES) as site:
        await ran(site)
    with pytest.raises(ConfigurationError, match="has run migration 2, but this version of the"):
        async with open_app(APP + FIRST):
            pass
    renamed = APP + "STOP = None\n" + FIRST.replace("split_names", "join_names") + BATCHES
    with pytest.raises(ConfigurationError, match="1 was run as split_names and is now"):
        async with open_app(renamed):
            pass


@pytest.mark.parametrize(
    ("cursor", "said"),
    [
        ("1", "returned the cursor 1 twice"),
        ("object()", "The cursor must be JSON"),
        ("__import__('datetime').datetime(2026, 1, 1)", "The cursor must be JSON"),
        ("float('nan')", "The cursor must be JSON"),
        (r"'half \ud800'", "The cursor must be JSON"),
        ("'x' * 20_000", "The cursor is longer than 10,000 characters"),
    ],
)
async def test_migration_cursor_must_be_new_short_json(
    open_app: OpenApp, cursor: str, said: str
) -> None:
    """The next batch gets what the one before returned (D-175): of a datetime it got a text, with
    which SQL compared every time as earlier, so that the migration ended as done."""
    text = f"\n@migration(1)\ndef go_on(fw, cursor):\n    return {cursor}\n"
    async with open_app(APP + text) as site:
        with pytest.raises(DataMigrationFailed, match=said):
            await ran(site)
