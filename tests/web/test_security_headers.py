"""Security headers of responses of every kind."""

from __future__ import annotations

import re

import pytest
import structlog.testing

from tests.web.client import AppClient, ClientResponse, connected
from tests.web.fakes import PASSWORD, SID, FakeGateway, app_of
from tests.web.serving import rest

POLICY = {
    "default-src": "'none'",  # holds for object-src too, and for all that is not named here
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
YEAR = 365 * 86_400


async def replies(client: AppClient) -> list[ClientResponse]:
    """Responses of every kind: of the API, pages, files, errors, redirects."""
    page = await client.ask("GET", "/login")
    file = re.search(r'href="(/static/[^"]+\.css)"', page.body.decode())
    assert file is not None
    browser = [("Accept", "text/html")]
    return [
        page,
        await client.ask("GET", file[1]),
        await client.ask("GET", file[1].replace("style.css", "mark.svg")),
        await client.ask("GET", file[1].replace("style.css", "api.js")),
        await client.ask("GET", file[1].replace(".css", ".gone")),
        await client.ask("GET", "/"),
        await client.ask("GET", "/app", headers=browser),
        await client.ask("GET", "/no-such-page", headers=browser),
        await client.ask("GET", "/api/boot", sid=SID),
        await client.ask("POST", "/api/login", {"usr": "ann", "pwd": PASSWORD}),
        await client.ask("POST", "/api/login", {"usr": "ann", "pwd": "wrong"}),
        await client.ask("POST", "/api/login", b"{"),
        await client.ask("DELETE", "/api/boot"),
        await client.ask("OPTIONS", "/api/login"),
    ]


def policy_of(reply: ClientResponse) -> dict[str, str]:
    """The directives of a response's Content-Security-Policy."""
    text = reply.header("Content-Security-Policy") or ""
    found = [each.strip().partition(" ") for each in text.split(";") if each.strip()]
    assert len({name for name, _, _ in found}) == len(found)
    return {name: sources for name, _, sources in found}


async def test_headers_have_the_one_strict_content_policy(client: AppClient) -> None:
    for reply in await replies(client):
        assert policy_of(reply) == POLICY


async def test_headers_forbid_content_sniffing(client: AppClient) -> None:
    for reply in await replies(client):
        assert reply.header("X-Content-Type-Options") == "nosniff"


async def test_headers_send_no_referrer(client: AppClient) -> None:
    for reply in await replies(client):
        assert reply.header("Referrer-Policy") == "no-referrer"


async def test_headers_detach_a_page_from_its_opener(client: AppClient) -> None:
    """The page of another site that opened a tab cannot navigate it later (H-33)."""
    for reply in await replies(client):
        assert reply.header("Cross-Origin-Opener-Policy") == "same-origin"


async def test_headers_name_content_type_and_charset(client: AppClient) -> None:
    found = [reply.header("Content-Type") for reply in await replies(client)]
    kinds = {kind for kind in found if kind is not None}
    assert kinds == {
        "text/html; charset=utf-8",
        "text/css; charset=utf-8",
        "text/javascript; charset=utf-8",
        "image/svg+xml; charset=utf-8",
        "application/json; charset=utf-8",
    }
    assert len(found) == len([kind for kind in found if kind])


async def test_headers_allow_caching_of_assets_only(client: AppClient) -> None:
    page, style, picture, script, *others = await replies(client)
    for file in (style, picture, script):
        assert "max-age" in (file.header("Cache-Control") or "")
    for reply in (page, *others):
        assert reply.header("Cache-Control") == "no-store"


async def test_headers_have_hsts_for_a_year_on_https_sites(
    gateway: FakeGateway,
) -> None:
    client = AppClient(app_of(gateway, url="https://fw.example.test"))
    for reply in await replies(client):
        directives = (reply.header("Strict-Transport-Security") or "").split(";")
        ages = [each.strip() for each in directives if each.strip().startswith("max-age=")]
        assert len(ages) == 1
        assert int(ages[0].removeprefix("max-age=")) >= YEAR


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 17 * 1024, 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    ],
)
async def test_headers_of_invalid_requests_are_those_of_all(
    gateway: FakeGateway, sent: bytes, status: int
) -> None:
    """Without the envelope (H-129), but with the headers of every response (H-30, H-32, H-33)."""
    app = app_of(gateway, url="https://fw.example.test")
    with structlog.testing.capture_logs() as logs:
        async with connected(app) as stream:
            await stream.send_all(sent)
            got = await rest(stream)
    head, _, body = got.decode().partition("\r\n\r\n")
    line, *lines = head.split("\r\n")
    found = dict(each.lower().split(": ", 1) for each in lines)
    assert line == f"HTTP/1.1 {status} "
    assert not body
    assert found["content-length"] == "0"
    assert found["connection"] == "close"
    assert found["cache-control"] == "no-store"
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "no-referrer"
    assert found["cross-origin-opener-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in found["content-security-policy"]
    assert "max-age" in found["strict-transport-security"]
    (rejected,) = [each for each in logs if each["event"] == "web.rejected"]
    assert rejected["request_id"] == found["x-request-id"]
    assert (rejected["status"], rejected["log_level"]) == (status, "debug")
    assert rejected["address"]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
async def test_headers_open_no_response_to_other_origins(client: AppClient, origin: str) -> None:
    headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")]
    for method, path in (("OPTIONS", "/api/login"), ("GET", "/api/boot"), ("POST", "/api/login")):
        reply = await client.ask(method, path, headers=headers, sid=SID)
        assert not [name for name, _ in reply.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", ["/api/boot", "/api/login", "/login", "/app", "/api/resource/X"])
async def test_trace_is_405_everywhere(client: AppClient, path: str) -> None:
    reply = await client.ask("TRACE", path, headers=[("X-Mine", "echo-me")], sid=SID)
    assert reply.status == 405
    assert b"echo-me" not in reply.body
