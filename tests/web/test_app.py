"""The envelope and the headers of every response (H-50, H-33, H-32)."""

from __future__ import annotations

import re
from ipaddress import ip_network

import pytest
import structlog
import trio

import web.app
from fw_actors.config import ProxyTrustPolicy
from fw_actors.errors import FwError, OverloadedError
from tests.web.client import AppClient, ClientResponse, connected
from tests.web.fakes import PASSWORD, SID, FakeGateway, HeldGateway, app_of
from web.exchange import RequestMetrics

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
async def test_app_answers_404_for_an_unknown_path_and_any_verb(
    client: AppClient, path: str
) -> None:
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
async def test_app_answers_405_with_the_allowed_verbs(
    client: AppClient, method: str, path: str, allowed: str
) -> None:
    reply = await client.ask(method, path)
    assert (reply.status, reply.error["type"]) == (405, "MethodNotAllowedError")
    assert reply.header("Allow") == allowed


async def test_app_answers_options_with_verbs_and_head_as_get(client: AppClient) -> None:
    reply = await client.ask("OPTIONS", "/api/resource/Order")
    assert (reply.status, reply.header("Allow")) == (204, "GET, POST, HEAD, OPTIONS")
    response = await client.ask("OPTIONS", "/api/resource/Order?limit=5&any=1")
    assert (response.status, response.header("Allow")) == (204, "GET, POST, HEAD, OPTIONS")
    assert (await client.ask("HEAD", "/api/health")).status == 200


async def test_app_answers_json_that_is_not_cached(client: AppClient) -> None:
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


async def test_app_sends_hsts_on_https_sites_only(gateway: FakeGateway) -> None:
    client = AppClient(app_of(gateway, url="https://fw.example.test"))
    for reply in await some_of_each(client):
        assert reply.header("Strict-Transport-Security") == "max-age=31536000"


async def test_app_sends_hsts_for_subdomains_by_policy(gateway: FakeGateway) -> None:
    """C-32."""
    url = "https://fw.example.test"
    client = AppClient(app_of(gateway, url=url, hsts_include_sub_domains=True))
    for reply in await some_of_each(client):
        header = reply.header("Strict-Transport-Security")
        assert header == "max-age=31536000; includeSubDomains"
    client = AppClient(app_of(gateway, hsts_include_sub_domains=True))
    assert (await client.ask("GET", "/")).header("Strict-Transport-Security") is None


async def test_app_gives_each_response_its_own_request_id(client: AppClient) -> None:
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
async def test_request_id_is_kept_if_fit_to_be_logged(
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
async def test_request_id_of_a_client_past_the_proxy_is_replaced(
    gateway: FakeGateway, peer: str, trust: ProxyTrustPolicy, kept: bool
) -> None:
    """A kept id could record a client's acts under the id of another request (H-31)."""
    client = AppClient(app_of(gateway, trust=trust), peer)
    reply = await client.ask("POST", "/api/login", GOOD, headers=[("X-Request-Id", "theirs")])
    assert (reply.header("X-Request-Id") == "theirs") is kept
    assert (gateway.attempts[0].request_id == "theirs") is kept


async def test_app_logs_a_defect_and_shows_only_the_request_id(
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
    assert failed[0]["exc_info"] is gateway.refuse
    assert gateway.defects == [("POST /api/login", gateway.refuse, "r-1")]


async def test_app_counts_and_records_a_defect_outside_of_any_operation(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a defect is in the Error Log and in the metrics, too (O-105)."""
    client = AppClient(app_of(gateway), "127.0.0.1")
    defect = RuntimeError("no envelope can be made")

    def failing(_error: FwError) -> object:
        monkeypatch.undo()
        raise defect

    gateway.refuse = OverloadedError()
    monkeypatch.setattr(web.app, "error_response", failing)
    reply = await client.ask("POST", "/api/login", GOOD)
    assert (reply.status, reply.error["type"]) == (500, "InternalError")
    assert [(at, error) for at, error, _ in gateway.defects] == [("POST /api/login", defect)]
    assert b"\nfw_server_errors_total 1.0\n" in (await client.ask("GET", "/metrics")).body


async def test_app_finds_an_error_inside_exception_groups(
    client: AppClient, gateway: FakeGateway
) -> None:
    gateway.refuse = ExceptionGroup("nursery", [OverloadedError(retry_after=3)])
    reply = await client.ask("POST", "/api/login", GOOD)
    assert (reply.status, reply.header("Retry-After")) == (503, "3")


async def test_app_answers_503_beyond_max_requests_and_frees_slots() -> None:
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


async def test_app_frees_the_slot_of_a_client_that_leaves() -> None:
    gateway = HeldGateway()
    app = app_of(gateway)
    with trio.fail_after(20):
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


async def test_app_answers_a_failure_outside_operations_in_the_envelope(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RequestMetrics, *_: object) -> None:
        raise ValueError("inside")

    monkeypatch.setattr(RequestMetrics, "record", broken)
    with structlog.testing.capture_logs():
        reply = await client.ask("GET", "/api/health")
    assert (reply.status, reply.error["type"]) == (500, "InternalError")
    assert reply.header("X-Request-Id")
    assert b"inside" not in reply.body


@pytest.mark.parametrize("host", ["", "evil.example", "[::1]", "x" * 300, "fw.example.test:99999"])
async def test_app_ignores_the_host_header(client: AppClient, host: str) -> None:
    """One that is no host and port is 400 (`test_framing`, H-130)."""
    reply = await client.ask("GET", "/api/boot", headers=[("Host", host)], sid=SID)
    assert (reply.status, reply.json["site"]["url"]) == (200, "http://127.0.0.1:1")
