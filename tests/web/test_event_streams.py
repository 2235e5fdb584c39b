"""Answers without an end: few of them, and none once the service stops."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from fw_actors.errors import OverloadedError
from tests.nginx import free_port, nginx
from tests.web.fakes import FakeGateway, app_of
from tests.web.serving import BOOT, served
from web.exchange import Exchange
from web.operations import Operation
from web.response import MAX_STREAMS, RECONNECT, EventStreams, Response, SendPart, sse_event


async def endless(send: SendPart) -> None:
    await send(sse_event(b"{}"))
    await trio.sleep_forever()


async def test_event_stream_sends_events_until_ended() -> None:
    streams, sent = EventStreams(), list[bytes]()

    async def send(part: bytes) -> None:
        sent.append(part)

    answer = streams.open(endless)
    assert answer.stream is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer.stream, send)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(streams), sent) == (1, [RECONNECT, b"data: {}\n\n"])
        streams.end()
    assert len(streams) == 0


async def test_event_streams_are_sixteen_at_most() -> None:
    streams = EventStreams()

    async def send(part: bytes) -> None:
        """Take it."""

    async with trio.open_nursery() as nursery:
        for _ in range(MAX_STREAMS):
            answer = streams.open(endless)
            assert answer.stream is not None
            nursery.start_soon(answer.stream, send)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OverloadedError, match=r"limit of open consoles \(16\) is reached"):
            streams.open(endless)
        streams.end()


async def test_event_streams_are_sixteen_though_more_requests_wait() -> None:
    """A request whose body is not complete has a response, but no stream yet (H-172)."""
    streams, began = EventStreams(), list[int]()

    async def events(send: SendPart) -> None:
        began.append(len(streams))
        await trio.sleep_forever()

    async def send(part: bytes) -> None:
        """Take it."""

    waiting = [streams.open(events) for _ in range(MAX_STREAMS + 3)]
    async with trio.open_nursery() as nursery:
        for answer in waiting:
            assert answer.stream is not None
            nursery.start_soon(answer.stream, send)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(began), len(streams)) == (MAX_STREAMS, MAX_STREAMS)
        streams.end()


async def test_event_streams_are_not_opened_while_stopping() -> None:
    streams = EventStreams()
    late = streams.open(endless)
    streams.end()
    with pytest.raises(OverloadedError, match="The service is stopping"):
        streams.open(endless)
    sent: list[bytes] = []

    async def send(part: bytes) -> None:
        sent.append(part)

    assert late.stream is not None
    await late.stream(send)  # begun before the end, and run only after it
    assert sent == []


async def test_event_stream_passes_proxy_that_buffers_responses(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    """nginx holds a response back by default until its buffers are full (H-172)."""
    app = app_of(gateway)

    async def handle(_: Exchange) -> Response:
        return app.streams.open(endless)

    operations = app.routes["/api/boot"].operations
    assert isinstance(operations, dict)
    operations["GET"] = Operation(handle, operations["GET"].authentication)
    port = free_port()
    async with served(app) as site:
        block = f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {site.url}; }} }}"
        with nginx(tmp_path, block, port):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(BOOT)
                got = b""
                while b"data: {}" not in got:
                    got += await stream.receive_some()
