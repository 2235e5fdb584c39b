"""Answers without an end: few of them, and none once the service stops."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from fw_actors.errors import OverloadedError
from web.response import MAX_STREAMS, RECONNECT, EventStreams, SendPart, sse_event


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
        with pytest.raises(OverloadedError):
            streams.open(endless)
        streams.end()


async def test_event_streams_are_not_opened_while_stopping() -> None:
    streams = EventStreams()
    late = streams.open(endless)
    streams.end()
    with pytest.raises(OverloadedError):
        streams.open(endless)
    sent: list[bytes] = []

    async def send(part: bytes) -> None:
        sent.append(part)

    assert late.stream is not None
    await late.stream(send)  # begun before the end, and run only after it
    assert sent == []
