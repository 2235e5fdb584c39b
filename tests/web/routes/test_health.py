"""Health, readiness, and the numbers for this machine only (H-101, H-102, H-104)."""

from __future__ import annotations

import resource

import pytest
import trio

from fw_actors.actors.metrics import MetricSample
from tests.web.client import AppClient, connected
from tests.web.fakes import KEY, SID, FakeGateway, app_of


async def test_health_is_200_in_any_state(client: AppClient, gateway: FakeGateway) -> None:
    gateway.is_ready = False
    reply = await client.ask("GET", "/api/health")
    assert (reply.status, reply.json) == (200, {"ok": True})


async def test_ready_is_503_until_requests_can_be_served(
    client: AppClient, gateway: FakeGateway
) -> None:
    assert (await client.ask("GET", "/api/ready")).json == {"ok": True}
    gateway.is_ready = False
    reply = await client.ask("GET", "/api/ready")
    assert (reply.status, reply.error["type"]) == (503, "OverloadedError")


async def test_metrics_count_open_files_when_no_descriptor_is_left(client: AppClient) -> None:
    """O-327: the alert FwFilesRunOut needs the numbers then; counting needs a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with connected(client.app, "127.0.0.1") as stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            reply = b"".join([part async for part in stream])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {"process_open_fds 3.0", "process_max_fds 3.0"} <= set(reply.decode().splitlines())


async def test_metrics_are_in_the_format_of_prometheus(
    client: AppClient, gateway: FakeGateway
) -> None:
    client.peer = "127.0.0.1"
    gateway.numbers = [
        MetricSample("fw_password_hashes", "counter", "Hashes, decoys too.", 3),
        MetricSample("fw_deliveries", "counter", "Deliveries.", 2, {"outcome": "Sent"}),
        MetricSample("fw_deliveries", "counter", "Deliveries.", 1, {"outcome": "Failed"}),
        MetricSample("fw_store_queue_depth", "gauge", "Waiting.", 0),
    ]
    reply = await client.ask("GET", "/metrics")
    assert reply.status == 200
    assert (reply.header("Content-Type") or "").startswith("text/plain; version=0.0.4")
    lines = reply.body.decode().splitlines()
    # The samples of the front end and of the process follow.
    assert [line for line in lines if not line.startswith("# HELP")][:7] == [
        "# TYPE fw_password_hashes_total counter",
        "fw_password_hashes_total 3.0",
        "# TYPE fw_deliveries_total counter",
        'fw_deliveries_total{outcome="Sent"} 2.0',
        'fw_deliveries_total{outcome="Failed"} 1.0',
        "# TYPE fw_store_queue_depth gauge",
        "fw_store_queue_depth 0.0",
    ]


@pytest.mark.parametrize(
    ("peer", "header", "status"),
    [
        ("127.0.0.1", None, 200),
        ("::1", None, 200),
        ("::ffff:127.0.0.1", None, 200),
        ("203.0.113.9", None, 403),
        ("127.0.0.1", "Forwarded", 403),
        ("127.0.0.1", "X-Forwarded-For", 403),
        ("127.0.0.1", "X-Forwarded-Proto", 403),
        ("127.0.0.1", "x-forwarded-anything", 403),
        ("127.0.0.1", "X-Other", 200),
    ],
)
async def test_metrics_are_for_this_machine_unless_forwarded(
    client: AppClient, peer: str, header: str | None, status: int
) -> None:
    client.peer = peer
    headers = [(header, "127.0.0.1")] if header else []
    assert (await client.ask("GET", "/metrics", headers=headers)).status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("localhost", 200), ("localhost.:8000", 200),
        ("site.localhost:8000", 200), ("node7:8000", 200), ("192.0.2.1", 200), ("", 200),
        ("rebound.example:8000", 403), ("rebound.example.", 403), ("127.0.0.1.example", 403),
        ("localhost.example:8000", 403),
    ],
)  # fmt: skip
async def test_metrics_are_not_for_pages_whose_name_leads_to_this_machine(
    client: AppClient, host: str, status: int
) -> None:
    """The owner of a name decides to which address it leads (DNS rebinding, H-104)."""
    client.peer = "127.0.0.1"
    assert (await client.ask("GET", "/metrics", headers=[("Host", host)])).status == status


@pytest.mark.parametrize(
    ("roles", "key", "status"),
    [({"System Manager"}, KEY, 200), ({"Sales User"}, KEY, 403), ({"System Manager"}, "x", 401)],
)
async def test_metrics_elsewhere_need_the_key_of_a_system_manager(
    client: AppClient, gateway: FakeGateway, roles: set[str], key: str, status: int
) -> None:
    """The numbers are open to a System Manager's key, and 403 for others (H-104)."""
    client.peer, gateway.roles = "203.0.113.9", frozenset(roles)
    headers = [("Authorization", f"Bearer {key}")]
    assert (await client.ask("GET", "/metrics", headers=headers)).status == status


async def test_metrics_accept_no_session(client: AppClient, gateway: FakeGateway) -> None:
    client.peer, gateway.roles = "203.0.113.9", frozenset({"System Manager"})
    assert (await client.ask("GET", "/metrics", sid=SID)).status == 403


class HeldReadiness(FakeGateway):
    """Answers whether it is ready once it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = trio.Event()
        self.times_asked = 0

    async def ready(self) -> bool:
        self.times_asked += 1
        await self.release.wait()
        return True


async def test_readiness_is_checked_once_for_concurrent_requests(
    nursery: trio.Nursery,
) -> None:
    """No limit of requests applies to it, so it must not fill the store's queue."""
    gateway = HeldReadiness()
    client = AppClient(app_of(gateway, max_requests=1))
    statuses = []

    async def ask() -> None:
        statuses.append((await client.ask("GET", "/api/ready")).status)

    async with connected(client.app) as leaving:
        await leaving.send_all(b"GET /api/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.02)
        for _ in range(20):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert gateway.times_asked == 1
    await trio.testing.wait_all_tasks_blocked(0.02)
    assert gateway.times_asked == 2, "the one that asked for all went away: another one asks"
    gateway.release.set()
    with trio.fail_after(20):
        while len(statuses) < 20:
            await trio.lowlevel.checkpoint()
    assert set(statuses) == {200}
