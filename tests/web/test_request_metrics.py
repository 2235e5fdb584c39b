"""Requests are counted by route and status, and logged in one line each."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
import structlog
import trio
from trio.testing import MockClock

from fw_actors.config import ProxyTrustPolicy
from fw_actors.errors import OverloadedError, ValidationError
from tests.web.client import AppClient
from tests.web.fakes import FakeGateway, HeldGateway, app_of


async def numbers(client: AppClient) -> dict[str, float]:
    """The lines of `/metrics` that are numbers of requests."""
    client.peer = "127.0.0.1"
    lines = (await client.ask("GET", "/metrics")).body.decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith("fw_")]
    return {name: float(value) for name, value in pairs}


async def test_request_metrics_is_counted_by_route_and_status(client: AppClient) -> None:
    for _ in range(2):
        await client.ask("GET", "/api/health")
    await client.ask("GET", "/no/such/path")
    found = await numbers(client)
    assert found['fw_requests_total{route="/api/health",status="200"}'] == 2
    assert found['fw_requests_total{route="none",status="404"}'] == 1
    assert found['fw_request_seconds_bucket{le="+Inf"}'] == found["fw_request_seconds_count"] == 3


async def test_request_metrics_counts_requests_beyond_the_limit() -> None:
    """They are refused without further work (H-120), and in the metrics all the same."""
    gateway = HeldGateway()
    client = AppClient(app_of(gateway, max_requests=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.ask, "POST", "/api/login", {"usr": "anna", "pwd": "x"})
        await gateway.began.wait()
        assert (await client.ask("GET", "/api/boot")).status == 503
        gateway.release.set()
    assert (await numbers(client))['fw_requests_total{route="none",status="503"}'] == 1


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Forwarded-Proto"])
async def test_request_metrics_counts_ignored_forwarding_headers(
    client: AppClient, header: str
) -> None:
    """doctor warns when such headers arrive while FW_TRUST_PROXY is off (O-137)."""
    await client.ask("GET", "/api/health", headers=[(header, "10.0.0.1")])
    await client.ask("GET", "/api/health", headers=[("X-Other", "10.0.0.1")])
    assert (await numbers(client))["fw_forwarded_ignored_total"] == 1


async def test_request_metrics_counts_no_forwarding_header_of_a_trusted_proxy(
    gateway: FakeGateway,
) -> None:
    client = AppClient(app_of(gateway, trust=ProxyTrustPolicy(every_peer=True)))
    await client.ask("GET", "/api/health", headers=[("X-Forwarded-For", "10.0.0.1")])
    assert (await numbers(client))["fw_forwarded_ignored_total"] == 0


@pytest.mark.parametrize(("peer", "ignored"), [("10.1.2.3", 0), ("192.0.2.1", 1)])
async def test_request_metrics_counts_forwarding_header_of_peer_outside_trusted_networks(
    gateway: FakeGateway, peer: str, ignored: int
) -> None:
    """O-137: if the proxy's network is wrong, its clients count as one address as without it."""
    networks = (ip_network("10.0.0.0/8"),)
    client = AppClient(app_of(gateway, trust=ProxyTrustPolicy(networks=networks)))
    client.peer = peer
    await client.ask("GET", "/api/health", headers=[("X-Forwarded-For", "203.0.113.1")])
    assert (await numbers(client))["fw_forwarded_ignored_total"] == ignored


async def test_request_log_is_one_line_without_query_and_body(client: AppClient) -> None:
    with structlog.testing.capture_logs() as lines:
        await client.ask("POST", "/api/login?pwd=s3cret", {"usr": "anna", "pwd": "s3cret"})
    (line,) = [line for line in lines if line["event"] == "web.request"]
    assert (line["method"], line["path"], line["log_level"]) == ("POST", "/api/login", "info")
    assert {"request_id", "status", "user", "address", "duration_ms"} <= set(line)
    assert "s3cret" not in repr(lines)


async def request_line(error: Exception) -> dict[str, object]:
    """The line of a sign-in that ends with `error`."""
    gateway = FakeGateway()
    gateway.refuse = error
    with structlog.testing.capture_logs() as lines:
        await AppClient(app_of(gateway)).ask("POST", "/api/login", {"usr": "a", "pwd": "x"})
    (line,) = [dict(line) for line in lines if line["event"] == "web.request"]
    return line


async def test_request_log_has_type_of_error_without_its_message() -> None:
    """A message may quote what the client sent."""
    line = await request_line(ValidationError("There is no s3cret."))
    assert (line["status"], line["error"]) == (422, "ValidationError")
    assert "s3cret" not in repr(line)


async def test_request_log_has_reason_of_503() -> None:
    line = await request_line(OverloadedError("Too many calls wait for the store."))
    assert (line["status"], line["error"]) == (503, "OverloadedError")
    assert line["reason"] == "Too many calls wait for the store."


async def test_request_log_names_defect_by_error_of_response() -> None:
    line = await request_line(RuntimeError("s3cret"))
    assert (line["status"], line["error"]) == (500, "InternalError")
    assert "s3cret" not in repr(line)


async def test_request_log_has_duration_in_milliseconds(autojump_clock: MockClock) -> None:
    gateway = HeldGateway()
    client = AppClient(app_of(gateway))
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, "POST", "/api/login", {"usr": "anna", "pwd": "x"})
            await gateway.began.wait()
            await trio.sleep(1.25)
            gateway.release.set()
    (line,) = [line for line in lines if line["event"] == "web.request"]
    assert line["duration_ms"] == 1250.0
