"""Lists as files, and chosen by state; refusals at paths that there are not."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from fw_actors.documents.handle import Fw
from tests.http_site import HttpSite, http_site
from tests.web.client import connected
from web.pages import exporting
from web.pages.exporting import csv_bytes, safe_cell
from web.pages.listing import json_in_words

HTML = (("Accept", "text/html"),)


@pytest.fixture
async def site(tmp_path: Path, autojump_clock: Any) -> AsyncIterator[HttpSite]:
    async with http_site(tmp_path) as site:
        await site.add_account("boss", "System Manager")
        await site.add_account("wendy")
        yield site


async def table(site: HttpSite, path: str) -> list[dict[str, str]]:
    reply = await site.ask("GET", path, sid=await site.sid("boss"))
    assert reply.status == 200, reply.body
    assert reply.header("Content-Type") == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(reply.body.decode(), newline="")))


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+49 471", "'+49 471"),
        ("-2", "'-2"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "'\t=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ("a;=1+1;b", "a;'=1+1;b"),
        ("a; @SUM(A1)", "a;' @SUM(A1)"),
        ('a;"=1+1', "a;'\"=1+1"),
        ('"=1+1" is 2', '"=1+1" is 2'),
        ("a;b", "a;b"),
        (-2, -2),
        (1.5, 1.5),
        (None, ""),
        ("", ""),
    ],
)
def test_safe_cell_is_no_formula(value: Any, cell: Any) -> None:
    """O-305."""
    assert safe_cell(value) == cell


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("text", ['a;"=1+1', 'a;" =1+1;"', 'a; "=1+1', 'a;""=1+1', '"=1+1'])
def test_csv_has_no_formula_at_either_delimiter(text: str, delimiter: str) -> None:
    """O-305."""
    content = csv_bytes([[text, "b"], ["b", text]]).decode()
    cells = [each for row in csv.reader(content.splitlines(), delimiter=delimiter) for each in row]
    assert not [each for each in cells if each.lstrip().startswith("=")]


def test_csv_quotes_what_would_split_a_cell() -> None:
    assert csv_bytes([['a"b', "c,d", "e\nf"]]) == b'"a""b","c,d","e\nf"\r\n'


SECRETS = """
from fw_actors.app import Data, DocType, Password


class Keyring(DocType, name="CSV Keyring"):
    owner_name = Data()
    pin = Password()
    api_secret = Data()
    wifi_password = Data()
    secretary = Data()
"""


async def test_export_omits_fields_named_like_secrets(
    tmp_path: Path, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the export of a document does (D-16, O-305)."""
    (tmp_path / "keyring_app.py").write_text(SECRETS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    async with http_site(tmp_path, apps=("keyring_app",)) as site:
        await site.add_account("boss", "System Manager")
        values = dict.fromkeys(("owner_name", "pin", "api_secret", "wifi_password"), "hidden")
        await site.do(lambda fw: fw.new_doc("CSV Keyring", secretary="Ada", **values).insert())
        (row,) = await table(site, "/export/CSV%20Keyring")
        assert (row["secretary"], row["owner_name"]) == ("Ada", "hidden")
        assert not {"pin", "api_secret", "wifi_password"} & row.keys()


async def test_export_follows_filters_of_address(site: HttpSite) -> None:
    """Filters, search, order and state of its address; no secrets (O-305, O-306)."""
    await site.do(lambda fw: fw.get_doc("User", "wendy").db_set("fullName", "=HYPERLINK(1)"))
    rows = await table(site, "/export/User?_sort=name")
    assert [row["name"] for row in rows] == ["boss", "wendy"]
    assert rows[1]["fullName"] == "'=HYPERLINK(1)"
    assert not {"new_password", "roles"} & rows[0].keys()
    assert [row["name"] for row in await table(site, "/export/User?_q=wend")] == ["wendy"]
    assert await table(site, "/export/User?_state=disabled") == []
    assert len(await table(site, "/export/User?_state=active")) == 2


def _insert_minutes(minutes: dict[str, Any], fw: Fw) -> None:
    fw.new_doc("Minutes", **minutes).insert()


async def test_list_filters_numbers_of_address(tmp_path: Path, autojump_clock: Any) -> None:
    """Filters of a page are those of the JSON API (D-30), each with its field's type."""
    async with http_site(tmp_path, apps=("examples.notes",)) as site:
        await site.add_account("boss", "System Manager")
        for budget in (2.5, 1e22, None):
            minutes = {"meeting": f"of {budget}", "budget": budget}
            await site.do(partial(_insert_minutes, minutes))
        sid = await site.sid("boss")
        for text, found in (("2.5", 1), ("1e22", 1), ("3", 0)):
            reply = await site.ask("GET", f"/export/Minutes?budget={text}", sid=sid)
            assert (reply.status, len(reply.body.splitlines())) == (200, 1 + found)
        for text in ("x", "nan", "1e400"):
            reply = await site.ask("GET", f"/app/Minutes?budget={text}", sid=sid)
            assert reply.status == 400


@pytest.mark.parametrize("path", ["/app/Role", "/export/Role"])
async def test_list_refuses_a_time_that_utc_cannot_show(site: HttpSite, path: str) -> None:
    """H-204: a time typed in a zone may be of the year 10000, or 0, in UTC."""
    sid = await site.sid("boss")
    for query in ("_to=9999-12-31T23:59-12:00", "_from=0001-01-01T00:00%2B12:00"):
        assert (await site.ask("GET", f"{path}?{query}", sid=sid)).status == 400


async def test_truncated_export_is_named_in_file_name(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-305."""
    monkeypatch.setattr(exporting, "MAX_COUNTED_ROWS", 1)
    monkeypatch.setattr("fw_actors.documents.query.MAX_COUNTED_ROWS", 1)
    reply = await site.ask("GET", "/export/User", sid=await site.sid("boss"))
    assert reply.body.count(b"\r\n") == 2
    header = reply.header("Content-Disposition")
    assert header == "attachment; filename*=UTF-8''User%20%28first%201%29.csv"


async def test_export_holds_no_slot_while_it_is_read_slowly(site: HttpSite) -> None:
    """A slot ends when the response is made (H-121), and its bytes are limited (H-128): the rows,
    which take several times as much memory, are not kept until the client has read them."""

    def add_records(fw: Any) -> None:
        for number in range(3000):
            row = {"name": f"{number:0140}"}
            fw.db.sql("INSERT INTO doc_role (name, creation, modified) VALUES (:name, 0, 0)", row)

    await site.do(add_records)
    sid = await site.sid("boss")
    head = f"GET /export/Role HTTP/1.1\r\nHost: x\r\nCookie: sid={sid}\r\n\r\n"
    async with connected(site.app) as client:
        await client.send_all(head.encode())
        await wait_all_tasks_blocked()
        assert site.app.active_requests == 0
        begin = (await client.receive_some()).partition(b"\r\n\r\n")[0]
    assert b"content-length: " in begin


async def test_export_requires_permission(site: HttpSite) -> None:
    """O-305."""
    sid = await site.sid("wendy")
    for path, status in (("User", 403), ("Nope", 404), ("Has%20Role", 400)):
        reply = await site.ask(
            "GET", f"/export/{path}", sid=sid if status == 403 else await site.sid("boss")
        )
        assert reply.status == status


@pytest.mark.parametrize(
    ("state", "user", "status"), [("odd", "boss", 400), ("active", "wendy", 403)]
)
async def test_state_filter_is_for_managers_only(
    site: HttpSite, state: str, user: str, status: int
) -> None:
    """O-306."""
    reply = await site.ask("GET", f"/app/User?_state={state}", sid=await site.sid(user))
    assert reply.status == status


async def test_state_filter_is_not_for_managers_with_scopes(site: HttpSite) -> None:
    """A-380: who is locked, disabled or invited is for those without access scopes."""
    await site.add_account("sam", "System Manager")
    scope = {"user": "sam", "allow": "User", "for_value": "sam"}
    await site.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
    sid = await site.sid("sam")
    assert (await site.ask("GET", "/app/User", sid=sid)).status == 200
    for path in ("/app/User", "/export/User"):
        assert (await site.ask("GET", f"{path}?_state=disabled", sid=sid)).status == 403


async def test_list_shows_details_of_audit_events_in_words(site: HttpSite) -> None:
    """H-205: an Audit Event says nothing without its detail; JSON is not sorted by."""
    await site.do(lambda fw: fw.get_doc("User", "wendy").db_set("enabled", 0))
    await site.do(lambda fw: fw.get_doc("User", "wendy").rename("wanda"))
    reply = await site.ask("GET", "/app/Audit%20Event", sid=await site.sid("boss"), headers=HTML)
    page = reply.body.decode()
    assert "Changed: enabled; Enabled: false</td>" in page
    assert "Old: wendy; New: wanda</td>" in page
    assert ">Detail</th>" in page


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"changed": ["url", "enabled"], "until": None}, "Changed: url, enabled; Until: none"),
        ({"failures": 3, "roles": []}, "Failures: 3; Roles: none"),
        ({"filter": {"user": "ann"}}, 'Filter: {"user": "ann"}'),
        ({}, ""),
        ([1, "a"], "1, a"),
        ("text", "text"),
    ],
)
def test_json_in_words_names_members(value: Any, text: str) -> None:
    """SQL may have written anything."""
    assert json_in_words(value) == text


async def test_unknown_path_keeps_menu_for_signed_in_user(site: HttpSite) -> None:
    """H-205."""
    sid = await site.sid("boss")
    framed = await site.ask("GET", "/nowhere", sid=sid, headers=HTML)
    assert framed.status == 404
    assert b"Document types" in framed.body
    for given in ({"headers": HTML}, {"headers": HTML, "sid": "x" * 32}):
        bare = await site.ask("GET", "/nowhere", **given)
        assert (bare.status, b"Document types" in bare.body) == (404, False)
        assert bare.header("Content-Type") == "text/html; charset=utf-8"
    for path, headers in (("/nowhere", ()), ("/api/nowhere", HTML)):
        reply = await site.ask("GET", path, sid=sid, headers=headers)
        assert reply.error["type"] == "NotFoundError"
