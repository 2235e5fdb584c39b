"""Forms of new documents (H-130)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trio.testing import MockClock

from tests.http_site import http_site

DEFAULTS = """
from datetime import date, datetime

from fw_actors.app import Check, Data, Date, Datetime, DocType, Table


class DefaultedRow(DocType, child=True):
    off = Check(default=False)


class Defaulted(DocType):
    off = Check(default=False)
    on = Check(default=True)
    day = Date(default=date(2026, 1, 31))
    moment = Datetime(default=datetime(2026, 1, 31, 8))
    rows = Table(DefaultedRow)
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[str]:
    """An app whose defaults are Python's objects."""
    (tmp_path / "defaulted_app.py").write_text(DEFAULTS)
    path = list(sys.path)
    yield "defaulted_app"
    sys.path[:] = path
    sys.modules.pop("defaulted_app", None)


async def test_form_of_document_inserted_by_sql_is_shown(
    tmp_path: Path, app: str, autojump_clock: MockClock
) -> None:
    """SQL may insert a row without owner and times (D-197)."""
    async with http_site(tmp_path, apps=(app,)) as site:
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        await site.do(lambda fw: fw.db.sql("INSERT INTO doc_defaulted (name) VALUES ('by SQL')"))
        reply = await site.ask("GET", "/app/Defaulted/by%20SQL", sid=sid)
        page = reply.body.decode()
        assert (reply.status, "by SQL" in page, "None" in page) == (200, True, False)
        assert 'data-modified=""' in page


async def test_form_cancels_submitted_document_of_doctype_no_longer_submittable(
    tmp_path: Path, app: str, autojump_clock: MockClock
) -> None:
    """D-124: the page shows the state and the button."""
    async with http_site(tmp_path, apps=(app,)) as site:
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        insert = "INSERT INTO doc_defaulted (name, docstatus) VALUES ('b', 1)"
        await site.do(lambda fw: fw.db.sql(insert))
        page = (await site.ask("GET", "/app/Defaulted/b", sid=sid)).body.decode()
        assert ">Submitted<" in page
        assert 'data-act="cancel"' in page
        reply = await site.ask("POST", "/api/resource/Defaulted/b/cancel", sid=sid)
        assert reply.status == 200
        page = (await site.ask("GET", "/app/Defaulted/b", sid=sid)).body.decode()
        assert ">Cancelled<" in page
        assert 'data-act="delete"' in page


async def test_form_and_description_show_defaults_as_documents_do(
    tmp_path: Path, app: str, autojump_clock: MockClock
) -> None:
    """A form must send what an insert without these fields stores (D-52, D-56)."""
    async with http_site(tmp_path, apps=(app,)) as site:
        sid = await site.sid(await site.add_account("boss", "System Manager"))
        page = (await site.ask("GET", "/new/Defaulted", sid=sid)).body.decode()
        inputs = {
            name: tag
            for tag in re.findall(r"<input [^>]*>", page)
            for name in re.findall(r'name="(\w+)"', tag)
        }
        assert " checked" in inputs["on"]
        assert " checked" not in inputs["off"]
        assert 'value="2026-01-31"' in inputs["day"]
        assert "2026-01-31T08:00:00.000Z" in page
        described = (await site.ask("GET", "/api/openapi.json", sid=sid)).json
        found = described["components"]["schemas"]["Defaulted.inserted"]["properties"]
        fields = ("off", "on", "day", "moment")
        assert [found[field]["default"] for field in fields] == [
            0, 1, "2026-01-31", "2026-01-31T08:00:00.000Z",
        ]  # fmt: skip
