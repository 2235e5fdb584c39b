"""Forms of documents (H-130)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trio.testing import MockClock

from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from tests.http_site import http_site
from web.pages.form import inputs

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


class GradedRow(DocType, child=True):
    note = Data(allow_on_submit=True)
    fixed = Data()
    kept = Data(read_only=True)


class Graded(
    DocType,
    naming="given",
    submittable=True,
    permissions={"Clerk": "list read create write submit cancel read:1", "Reader": "list read"},
):
    plain = Data(required=True, length=20)
    graded = Data(permlevel=1)
    kept = Data(read_only=True)
    free = Data(allow_on_submit=True)
    rows = Table(GradedRow)
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


async def test_form_locks_fields_that_user_cannot_change(
    tmp_path: Path, app: str, autojump_clock: MockClock
) -> None:
    """What a save would refuse: fields of a higher permlevel (D-90), read-only ones (D-92), those
    of a reader, and those of submitted (D-123) and cancelled documents."""
    async with http_site(tmp_path, apps=(app,)) as site:
        await site.add_account("cleo", "Clerk")
        await site.add_account("rita", "Reader")

        async def locked(user: str, name: str | None = "g1") -> dict[str, bool]:
            def fields(fw: Fw) -> dict[str, bool]:
                values = None if name is None else rest.read(fw, "Graded", name)
                found = inputs(fw, fw.documents.registry.meta("Graded"), values)
                assert {each.name: (each.required, each.length) for each in found}["plain"] == (
                    True,
                    20,
                )
                cells = {
                    f"{each.name}.{cell.name}": cell.locked
                    for each in found
                    for row in each.rows
                    for cell in row.cells
                }
                return {each.name: each.locked for each in found} | cells

            return await site.do(fields, user)

        def insert(fw: Fw) -> None:
            fw.new_doc("Graded", name="g1", plain="p", rows=[{"note": "n"}]).insert()

        assert await locked("cleo", None) == {
            "plain": False, "graded": True, "free": False, "rows": False,
        }  # fmt: skip
        await site.do(insert, "cleo")
        draft = {
            "plain": False, "graded": True, "kept": True, "free": False, "rows": False,
            "rows.note": False, "rows.fixed": False, "rows.kept": True,
        }  # fmt: skip
        assert await locked("cleo") == draft
        everything = {name: True for name in draft if name != "graded"}
        assert await locked("rita") == everything
        await site.do(lambda fw: fw.get_doc("Graded", "g1").submit(), "cleo")
        submitted = {**dict.fromkeys(draft, True), "free": False, "rows.note": False}
        assert await locked("cleo") == submitted
        await site.do(lambda fw: fw.get_doc("Graded", "g1").cancel(), "cleo")
        assert await locked("cleo") == dict.fromkeys(draft, True)
