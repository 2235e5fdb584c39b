"""Values that would be code somewhere: they stay values, over the whole service."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from markupsafe import escape

from tests.http_site import HttpSite

HOSTILE = [
    "' OR '1'='1",
    "x'; DROP TABLE doc_role; --",
    "\\' OR 1=1 --",
    '") OR ("1"="1',
    "%",
    "${7*7}{{7*7}}#{7*7}",
    "<script>alert(1)</script>",
]


async def listed(site: HttpSite, sid: str, operator: str, value: str) -> list[str]:
    filters = quote(json.dumps([["name", operator, value]]))
    reply = await site.ask("GET", f"/api/resource/Role?filters={filters}", sid=sid)
    assert reply.status == 200, reply.body
    return [row["name"] for row in reply.json["data"]]


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_value_in_a_filter_is_only_compared(site: HttpSite, value: str) -> None:
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")
    assert await listed(site, sid, "=", value) == []
    made = await site.ask("POST", "/api/resource/Role", {"name": value.replace("/", "")}, sid=sid)
    assert made.status == 201, made.body
    assert await listed(site, sid, "=", value.replace("/", "")) == [value.replace("/", "")]
    assert len(await listed(site, sid, "!=", "-")) == 3  # the two of the start and this one


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_value_on_a_page_is_only_shown(site: HttpSite, value: str) -> None:
    name = value.replace("/", "")
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")
    await site.ask("POST", "/api/resource/Role", {"name": name}, sid=sid)
    for path in ("/app/Role", f"/app/Role/{quote(name, safe='')}"):
        page = await site.ask("GET", path, sid=sid, headers=[("Accept", "text/html")])
        assert page.status == 200
        text = page.body.decode()
        assert "<script>alert" not in text
        assert str(escape(name)) in text


@pytest.mark.parametrize("value", [*HOSTILE, '"}, "roles": ["System Manager"], "x": {"'])
async def test_hostile_value_in_json_stays_one_string(site: HttpSite, value: str) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    given = {"fullName": value}
    assert (await site.op("profile.updateMyProfile", given, sid=sid)).status == 200
    report = json.loads((await site.op("profile.getMyProfile", sid=sid)).body)
    assert (report["fullName"], report["roles"]) == (value, [])


async def test_hostile_name_in_a_link_is_encoded(site: HttpSite) -> None:
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")
    await site.ask("POST", "/api/resource/Role", {"name": 'a?b#c"d%2F'}, sid=sid)
    page = await site.ask("GET", "/app/Role", sid=sid, headers=[("Accept", "text/html")])
    assert 'href="/app/Role/a%3Fb%23c%22d%252F"' in page.body.decode()
