"""One envelope, one set of headers, whatever becomes of a request (H-50, H-33, H-32)."""

from __future__ import annotations

import re
from ipaddress import ip_network

import pytest
import structlog
import trio

from fw_actors.access.types import SignedIn, SignInAttempt
from fw_actors.config import ProxyTrustPolicy
from fw_actors.errors import OverloadedError
from tests.web.client import AppClient, ClientResponse, connected
from tests.web.fakes import PASSWORD, SID, FakeGateway, app_of
from web.exchange import Traffic

GOOD = {"usr": "ann", "pwd": PASSWORD}


async def some_of_each(client: AppClient) -> list[ClientResponse]:
    """Answers of every kind of way out."""
    return [
        await client.ask("GET", "/api/boot"),
        await client.ask("GET", "/api/nothing"),
        await client.ask("GET", "/no-such-page"),
        await client.ask("PUT", "/api/login", GOOD),
        await client.ask("POST", "/api/login", b"{"),
        await client.ask("POST", "/api/login", GOOD),
        await client.ask("POST", "/api/login", {"usr": "ann", "pwd": "no"}),
        await client.ask("OPTIONS", "/api/login"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/api/nothing",
        "/nothing",
        "/api/login/",
        "/api//login",
        "//api/login",
        "/api",
        "/api/",
        "/api/resource/a/b/c/d",
        "/api/resource/",
        "/api/method/no.such",
        "/API/login",
        "*",
        "?x",
    ],
)
async def test_an_unknown_path_is_404_for_every_verb(client: AppClient, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS", "BREW"):
        reply = await client.ask(method, path)
        assert (reply.status, reply.error["type"]) == (404, "NotFoundError")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/login", "POST, OPTIONS"),
        ("PUT", "/api/login", "POST, OPTIONS"),
        ("POST", "/api/boot", "GET, HEAD, OPTIONS"),
        ("DELETE", "/api/health", "GET, HEAD, OPTIONS"),
        ("BREW", "/api/resource/Order/a", "GET, PUT, DELETE, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_verb_is_405_and_told_the_right_ones(
    client: AppClient, method: str, path: str, allowed: str
) -> None:
    reply = await client.ask(method, path)
    assert (reply.status, reply.error["type"]) == (405, "MethodNotAllowedError")
    assert reply.header("Allow") == allowed


async def test_options_tells_the_verbs_and_head_is_answered_as_get(client: AppClient) -> None:
    reply = await client.ask("OPTIONS", "/api/resource/Order")
    assert (reply.status, reply.header("Allow")) == (204, "GET, POST, HEAD, OPTIONS")
    assert (await client.ask("HEAD", "/api/health")).status == 200


async def test_every_answer_is_json_that_nobody_may_keep(client: AppClient) -> None:
    for reply in await some_of_each(client):
        assert reply.header("Content-Type") == "application/json; charset=utf-8"
        assert reply.header("Cache-Control") == "no-store"
        assert reply.header("X-Content-Type-Options") == "nosniff"
        assert reply.header("Referrer-Policy") == "no-referrer"
        policy = reply.header("Content-Security-Policy") or ""
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.header("Strict-Transport-Security") is None
        if reply.status != 204:
            assert reply.header("Content-Length") == str(len(reply.body))


async def test_hsts_is_for_sites_that_are_https(gateway: FakeGateway) -> None:
    client = AppClient(app_of(gateway, url="https://fw.example.test"))
    for reply in await some_of_each(client):
        assert reply.header("Strict-Transport-Security") == "max-age=31536000"


async def test_hsts_is_for_subdomains_where_the_policy_says_so(gateway: FakeGateway) -> None:
    url = "https://fw.example.test"
    client = AppClient(app_of(gateway, url=url, hsts_include_sub_domains=True))
    for reply in await some_of_each(client):
        told = reply.header("Strict-Transport-Security")
        assert told == "max-age=31536000; includeSubDomains"
    client = AppClient(app_of(gateway, hsts_include_sub_domains=True))
    assert (await client.ask("GET", "/")).header("Strict-Transport-Security") is None


async def test_every_answer_has_a_request_id_of_its_own(client: AppClient) -> None:
    ids = [reply.header("X-Request-Id") or "" for reply in await some_of_each(client)]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,64}", found) for found in ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a", True),
        ("req-1.x_Y", True),
        ("Z" * 64, True),
        ("Z" * 65, False),
        ("a b", False),
        ("a/b", False),
        ("", False),
        ("a,b", False),
        ("é", False),
    ],
)
async def test_an_incoming_request_id_is_kept_when_it_is_fit(
    client: AppClient, given: str, kept: bool
) -> None:
    reply = await client.ask("GET", "/api/boot", headers=[("X-Request-Id", given)])
    assert (reply.header("X-Request-Id") == given) is kept


@pytest.mark.parametrize(
    ("peer", "trust", "kept"),
    [
        ("203.0.113.9", ProxyTrustPolicy(), True),
        ("203.0.113.9", ProxyTrustPolicy(every_peer=True), True),
        ("10.0.0.1", ProxyTrustPolicy(networks=(ip_network("10.0.0.0/8"),)), True),
        ("203.0.113.9", ProxyTrustPolicy(networks=(ip_network("10.0.0.0/8"),)), False),
    ],
)
async def test_where_proxies_are_trusted_a_client_past_them_chooses_no_request_id(
    gateway: FakeGateway, peer: str, trust: ProxyTrustPolicy, kept: bool
) -> None:
    """Else it could have its acts recorded under the id of another one's."""
    client = AppClient(app_of(gateway, trust=trust), peer)
    reply = await client.ask("POST", "/api/login", GOOD, headers=[("X-Request-Id", "theirs")])
    assert (reply.header("X-Request-Id") == "theirs") is kept
    assert (gateway.attempts[0].request_id == "theirs") is kept


async def test_a_defect_is_logged_and_tells_only_the_request_id(
    client: AppClient, gateway: FakeGateway
) -> None:
    gateway.refuse = ValueError("the secret is hunter2")
    with structlog.testing.capture_logs() as logs:
        reply = await client.ask("POST", "/api/login", GOOD, headers=[("X-Request-Id", "r-1")])
    assert (reply.status, reply.error["type"]) == (500, "InternalError")
    assert "r-1" in reply.error["message"]
    assert b"hunter2" not in reply.body
    failed = [line for line in logs if line["event"] != "web.request"]
    assert [(line["event"], line["request_id"]) for line in failed] == [
        ("web.request_failed", "r-1")
    ]
    assert gateway.defects == [("POST /api/login", gateway.refuse, "r-1")]


async def test_a_refusal_inside_a_nursery_is_a_refusal(
    client: AppClient, gateway: FakeGateway
) -> None:
    gateway.refuse = ExceptionGroup("nursery", [OverloadedError(retry_after=3)])
    reply = await client.ask("POST", "/api/login", GOOD)
    assert (reply.status, reply.header("Retry-After")) == (503, "3")


class HeldGateway(FakeGateway):
    """Lets sign-ins wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = trio.Event()
        self.waiting = 0

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1
        return await super().sign_in(attempt)


async def test_more_requests_than_places_are_turned_away_and_places_come_back() -> None:
    """At most web.maxRequests are served at once; more get 503 (H-120)."""
    gateway = HeldGateway()
    client = AppClient(app_of(gateway, max_requests=3))
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client.ask, "POST", "/api/login", GOOD)
        await trio.testing.wait_all_tasks_blocked()
        reply = await client.ask("GET", "/api/boot", headers=[("X-Request-Id", "mine")])
        assert (reply.status, reply.error["type"]) == (503, "OverloadedError")
        assert reply.header("Retry-After") == "1"
        assert reply.header("Cache-Control") == "no-store"
        assert reply.header("X-Request-Id") == "mine"
        assert (await client.ask("GET", "/api/boot")).header("X-Request-Id")
        gateway.release.set()
    assert client.app.active_requests == 0
    assert (await client.ask("GET", "/api/boot")).status == 200


async def test_a_client_that_goes_away_cancels_its_request_and_gives_the_place_back() -> None:
    gateway = HeldGateway()
    app = app_of(gateway)
    async with connected(app) as stream:
        await stream.send_all(
            b"POST /api/login HTTP/1.1\r\nHost: x\r\nX-FW-CSRF: 1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 25\r\n\r\n"
            b'{"usr": "ann", "pwd":"x"}'
        )
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (gateway.waiting, app.active_requests) == (1, 1)
        await stream.aclose()
    assert (gateway.waiting, app.active_requests) == (0, 0)


async def test_a_failure_outside_of_any_operation_is_answered_in_the_envelope(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Traffic, *_: object) -> None:
        raise ValueError("inside")

    monkeypatch.setattr(Traffic, "record", broken)
    with structlog.testing.capture_logs():
        reply = await client.ask("GET", "/api/health")
    assert (reply.status, reply.error["type"]) == (500, "InternalError")
    assert reply.header("X-Request-Id")
    assert b"inside" not in reply.body


@pytest.mark.parametrize("host", ["", "a b", "[", "\u00ff", "x" * 300, "fw.example.test:99999"])
async def test_the_host_header_decides_nothing(client: AppClient, host: str) -> None:
    reply = await client.ask("GET", "/api/boot", headers=[("Host", host)], sid=SID)
    assert (reply.status, reply.json["site"]["url"]) == (200, "http://127.0.0.1:1")
