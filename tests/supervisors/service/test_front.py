"""The web front as a child of the service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.config import WebPolicy
from fw_actors.runtime import SeededEntropy
from supervisors.service.front import (
    STARTING_REQUESTS,
    StartingFrontEnd,
    answering_while_starting,
    server_child,
)
from tests.site_kit import make_config
from tests.web.client import AppClient, ClientResponse
from tests.web.fakes import SID, FakeGateway, app_of
from tests.web.serving import BOOT, answer
from web.listening import bind
from web.request import front_request


async def test_failed_server_restarts_on_the_same_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept = trio.SocketListener.accept
    failures = [OSError("the socket fails")]

    async def failing(listener: trio.SocketListener) -> trio.SocketStream:
        if failures:
            raise failures.pop()
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    bound = bind("127.0.0.1", 0)
    unused: Any = None
    child = server_child(app_of(FakeGateway()), bound).make(unused)
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        await child.run(cast(Any, trio.TASK_STATUS_IGNORED))
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{bound.url}/api/health")).status_code == 200
        assert child.request_stop(0)
    assert bound.socket.fileno() == -1, "nobody is left waiting in its queue"


@pytest.fixture
def starting(tmp_path: Path) -> StartingFrontEnd:
    return StartingFrontEnd(make_config(tmp_path), "http://127.0.0.1:1", SeededEntropy(1))


HEALTH = b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"
SIGN_IN = {"usr": "ann", "pwd": "x" * 2000}


async def test_early_request_is_served_after_the_start(
    starting: StartingFrontEnd,
) -> None:
    """It waits, and health answers meanwhile (H-108, H-101, H-102)."""
    client, replies = AppClient(starting), list[ClientResponse]()

    async def sign_in() -> None:
        replies.append(await client.ask("POST", "/api/login", SIGN_IN))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sign_in)
        await wait_all_tasks_blocked()
        assert (await client.ask("GET", "/api/health")).status == 200
        assert (await client.ask("GET", "/api/ready")).status == 503
        assert not replies
        gateway = FakeGateway()
        starting.hand_over(app_of(gateway))
    assert replies[0].status == (await AppClient(app_of(gateway)).ask(
        "POST", "/api/login", SIGN_IN
    )).status  # fmt: skip
    assert (await client.ask("GET", "/api/ready")).status == 200


async def test_early_batch_is_served_whole(starting: StartingFrontEnd) -> None:
    """The limits of bodies are those of the operations, not of the start (B-87, H-108)."""
    client, replies = AppClient(starting), list[ClientResponse]()
    gateway = FakeGateway()
    gateway.roles = frozenset({"Event Publisher"})
    events = [{"name": "a.b", "data": {"text": "x" * 3000}}] * 1000

    async def emit() -> None:
        path = "/api/method/core.services.webhooks.emitMany"
        replies.append(await client.ask("POST", path, {"events": events}, sid=SID))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(emit)
        await wait_all_tasks_blocked()
        starting.hand_over(app_of(gateway))
    assert replies[0].status == 200
    assert len(replies[0].json["events"]) == 1000


async def test_early_request_is_refused_after_10_seconds(
    starting: StartingFrontEnd, autojump_clock: MockClock
) -> None:
    reply = await AppClient(starting).ask("GET", "/api/boot")
    assert (reply.status, reply.error["type"]) == (503, "OverloadedError")
    assert trio.current_time() == pytest.approx(10, abs=0.1)


async def test_early_requests_are_limited_to_a_hundred(
    starting: StartingFrontEnd, autojump_clock: MockClock
) -> None:
    client, statuses = AppClient(starting), list[tuple[float, int]]()

    async def boot() -> None:
        reply = await client.ask("GET", "/api/boot")
        statuses.append((trio.current_time() // 1, reply.status))

    async with trio.open_nursery() as nursery:
        for _ in range(STARTING_REQUESTS + 3):
            nursery.start_soon(boot)
    assert statuses == [(0, 503)] * 3 + [(10, 503)] * STARTING_REQUESTS


async def test_early_connection_is_served_until_the_service_stops(
    tmp_path: Path,
) -> None:
    """Its requests are those of the service, each in one of its slots; it drains it (H-108)."""
    unused: Any = None
    bound, app = bind("127.0.0.1", 0), app_of(FakeGateway(), max_requests=1)
    port = bound.socket.getsockname()[1]
    config = make_config(tmp_path)
    async with (
        answering_while_starting(config, bound, SeededEntropy(1)) as start,
        await trio.open_tcp_stream("127.0.0.1", port) as early,
    ):
        await early.send_all(HEALTH)
        assert b" 200 " in await answer(early)
        child = server_child(app, bound, start.connections).make(unused)
        async with trio.open_nursery() as nursery:
            await nursery.start(child.run)
            start.hand_over(app)
            async with await trio.open_tcp_stream("127.0.0.1", port) as late:
                for stream in (early, late):
                    await stream.send_all(BOOT)
                    assert b" 200 " in await answer(stream)
            assert child.request_stop(0)
            assert await early.receive_some() == b"", "it was closed with the others"


async def test_early_responses_have_hsts_on_https_sites(tmp_path: Path) -> None:
    """A browser that meets the site first while it starts stays with https, too (H-34)."""
    config = make_config(tmp_path, public_url="https://fw.example.test")
    config = replace(config, web=WebPolicy(max_requests=1, hsts_include_sub_domains=True))
    starting = StartingFrontEnd(config, "http://127.0.0.1:1", SeededEntropy(1))
    client, busy = AppClient(starting), front_request("GET", b"/api/boot", [], "1.1", None)
    with starting.slot(busy):
        for path, status in (("/api/health", 200), ("/api/ready", 503), ("/app", 503)):
            reply = await client.ask("GET", path)
            assert reply.status == status
            expected = "max-age=31536000; includeSubDomains"
            assert reply.header("Strict-Transport-Security") == expected
