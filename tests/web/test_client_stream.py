"""A connection's stream: no wait without an end."""

from __future__ import annotations

import random
import struct

import pytest
import trio
from trio.testing import MockClock

from web.connections import SEND_SECONDS, ClientStream

LARGE = b"x" * 8 * 1024 * 1024


@pytest.fixture
def pair() -> tuple[ClientStream, trio.SocketStream]:
    """Our end and the client's."""
    ours, theirs = trio.socket.socketpair()
    return ClientStream(trio.SocketStream(ours)), trio.SocketStream(theirs)


async def closed(*streams: trio.abc.AsyncResource) -> None:
    for stream in streams:
        await trio.aclose_forcefully(stream)


async def test_stream_sends_a_short_part_at_once(
    pair: tuple[ClientStream, trio.SocketStream],
) -> None:
    """RFC 9110 §10.1.1: a client waits for a 100 before it sends the body."""
    ours, theirs = pair
    await ours.send_all(b"HTTP/1.1 100 \r\n\r\n")
    with trio.fail_after(5):
        assert await theirs.receive_some() == b"HTTP/1.1 100 \r\n\r\n"
    await closed(ours, theirs)


async def test_stream_sends_at_once_without_a_checkpoint(
    pair: tuple[ClientStream, trio.SocketStream],
) -> None:
    ours, theirs = pair
    with trio.testing.assert_no_checkpoints():
        await ours.send_all(b"an answer")
    with trio.fail_after(5):
        assert await theirs.receive_some() == b"an answer"
    await closed(ours, theirs)


async def test_stream_read_is_always_a_checkpoint(
    pair: tuple[ClientStream, trio.SocketStream],
) -> None:
    """Without one, a client that sends without a pause would starve all others."""
    ours, theirs = pair
    await theirs.send_all(b"requests")
    with trio.testing.assert_checkpoints():
        assert await ours.receive_some(4) == b"requ"
    assert await ours.receive_some() == b"ests"
    await theirs.send_eof()
    assert await ours.receive_some() == b""
    await closed(ours, theirs)


async def test_stream_read_raises_closed_after_a_reset() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    theirs = await trio.open_tcp_stream(*listener.socket.getsockname())
    ours = ClientStream(await listener.accept())
    reset = struct.pack("ii", 1, 0)  # lingers for no time: a close sends RST
    theirs.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, reset)
    await theirs.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await ours.receive_some()
    with pytest.raises(trio.BrokenResourceError):
        await ours.send_all(b"an answer")
    await closed(ours, listener)


async def test_stream_neither_reads_nor_sends_after_abort(
    pair: tuple[ClientStream, trio.SocketStream],
) -> None:
    """Its descriptor may be another connection's by then."""
    ours, theirs = pair
    ours.abort()
    with pytest.raises(trio.ClosedResourceError):
        await ours.receive_some()
    with pytest.raises(trio.ClosedResourceError):
        await ours.send_all(b"an answer")
    await closed(theirs)


async def test_stream_send_ends_if_the_client_does_not_read(
    pair: tuple[ClientStream, trio.SocketStream], autojump_clock: MockClock
) -> None:
    ours, theirs = pair
    start = trio.current_time()
    with pytest.raises(trio.BrokenResourceError), trio.CancelScope(shield=True):
        await ours.send_all(LARGE)
    assert trio.current_time() - start == pytest.approx(SEND_SECONDS)
    await closed(ours, theirs)


async def test_stream_send_is_complete_for_a_slow_client(
    pair: tuple[ClientStream, trio.SocketStream], nursery: trio.Nursery
) -> None:
    ours, theirs = pair
    answer = random.Random(7).randbytes(len(LARGE))

    async def send() -> None:
        await ours.send_all(answer)
        await ours.send_eof()

    nursery.start_soon(send)
    assert b"".join([bytes(part) async for part in theirs]) == answer
    await closed(ours, theirs)


async def test_stream_abort_ends_shielded_operations(
    pair: tuple[ClientStream, trio.SocketStream],
) -> None:
    ours, theirs = pair

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError), trio.CancelScope(shield=True):
            await ours.send_all(LARGE)

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await ours.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked(0.01)
        ours.abort()
    await closed(theirs)
