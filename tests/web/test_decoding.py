"""Input that a client has encoded is decoded once; any further encoding is data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.client import AppClient
from tests.web.fakes import SID, FakeDocuments, FakeGateway, app_of
from tests.web.serving import served

ASK = b"GET %s HTTP/1.1\r\nHost: x\r\nCookie: sid=%s\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"%41", "A"),
        (b"%2541", "%41"),
        (b"%252e%252e", "%2e%2e"),
        (b"%25252f", "%252f"),
        (b"%C3%A9", "é"),
        (b"a+b", "a+b"),
    ],
)
async def test_path_is_decoded_once(
    gateway: FakeGateway, documents: FakeDocuments, path: bytes, name: str
) -> None:
    documents.held[name] = {"name": name}
    async with served(app_of(gateway)) as server:
        got = await server.exchange(ASK % (b"/api/resource/Order/" + path, SID.encode()))
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), got
    assert json.loads(body)["data"]["name"] == name


@pytest.mark.parametrize("path", [b"%FF", b"a%C3", b"%C0%AF", b"%ED%A0%80", b"%F5%80%80%80"])
async def test_path_that_is_not_utf_8_is_404(
    gateway: FakeGateway, documents: FakeDocuments, path: bytes
) -> None:
    """It names nothing (H-138): a replacement character would name another document."""
    for count in range(1, 5):
        documents.held["\ufffd" * count] = documents.held["a" + "\ufffd" * count] = {}
    async with served(app_of(gateway)) as server:
        got = await server.exchange(ASK % (b"/api/resource/Order/" + path, SID.encode()))
    assert got.startswith(b"HTTP/1.1 404"), got
    assert b"There is nothing under this path." in got


async def test_query_is_decoded_once(client: AppClient, documents: FakeDocuments) -> None:
    filters = '[["title","=","%2541"]]'
    encoded = filters.replace("%", "%25").replace('"', "%22")
    assert (
        await client.ask("GET", f"/api/resource/Order?filters={encoded}", sid=SID)
    ).status == 200
    ((_, listing),) = documents.calls
    assert listing == {"filters": json.loads(filters)}


async def test_body_is_decoded_once(client: AppClient, documents: FakeDocuments) -> None:
    body: dict[str, Any] = {"name": "A", "title": '"\\u0041&lt;%41"'}
    reply = await client.ask("POST", "/api/resource/Order", body, sid=SID)
    assert reply.status == 201
    assert documents.held["A"]["title"] == body["title"]
