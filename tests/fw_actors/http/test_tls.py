"""Connections over TLS, and the stream that gives trio's TLS one record at a time."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import trustme

from fw_actors.http import Origin
from fw_actors.http.exchange import BrokenConnection, Connection, PlainConnection
from fw_actors.http.tls import RecordStream, SessionCache, start_tls

RECORDS = [
    b"\x16\x03\x03\x00\x03abc",
    b"\x17\x03\x03\x00\x00",
    b"\x17\x03\x03\x01\x00" + b"x" * 256,
]


def records_over(sock: socket.socket) -> RecordStream:
    sock.setblocking(False)
    return RecordStream(PlainConnection(Origin("https", "h", 443), sock))


async def test_record_stream_returns_single_records() -> None:
    here, there = socket.socketpair()
    with here, there:
        records = records_over(here)
        there.sendall(b"".join(RECORDS))
        read = [await records.receive_some()]
        assert not records.is_reusable()
        read += [await records.receive_some() for _ in RECORDS[1:]]
        assert read == RECORDS
        assert records.is_reusable()


@pytest.mark.parametrize("size", [1, 4, 5, 6, 11])
async def test_record_stream_keeps_order_of_cut_bytes(size: int) -> None:
    whole = b"".join(RECORDS)
    here, there = socket.socketpair()
    with here, there:
        records = records_over(here)

        async def arrive() -> None:
            for at in range(0, len(whole), size):
                there.sendall(whole[at : at + size])
                await trio.lowlevel.checkpoint()
            there.shutdown(socket.SHUT_WR)

        read = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(arrive)
            while piece := await records.receive_some():
                read += piece
                ends = [sum(map(len, RECORDS[:n])) for n in range(4)]
                assert not any(len(read) - len(piece) < end < len(read) for end in ends)
        assert read == whole


@pytest.mark.parametrize("cut", [b"\x16", RECORDS[0][:6], b"HTTP/1.1 400 Bad"])
async def test_record_stream_returns_partial_record_before_end(cut: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        records = records_over(here)
        there.sendall(cut)
        there.shutdown(socket.SHUT_WR)
        assert await records.receive_some() == cut
        assert await records.receive_some() == b""


both = pytest.mark.parametrize("fast_path", [True, False], ids=["own", "trio's stream"])


@asynccontextmanager
async def connected(
    *, fast_path: bool, tickets: int = 0
) -> AsyncIterator[tuple[Connection, trio.SSLStream[RecordStream]]]:
    """Both ends of a TLS connection over TCP."""
    authority = trustme.CA()
    receiving, sending = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    receiving.num_tickets = tickets
    authority.issue_cert("h").configure_cert(receiving)
    authority.configure_trust(sending)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    with here, there:
        here.setblocking(False)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = trio.SSLStream(records_over(there), receiving, server_side=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            origin, sessions, turn = Origin("https", "h", 443), SessionCache(), trio.Lock()
            connection = await start_tls(origin, here, sending, sessions, turn, fast_path=fast_path)
        yield connection, server
        connection.close()


@both
async def test_receive_ready_returns_available_records_without_waiting(fast_path: bool) -> None:
    """The connection is closed after 512 bytes, unless the rest is there already (B-143)."""
    sent = bytes(range(256)) * 160  # 40 KiB: three records
    async with connected(fast_path=fast_path) as (connection, server):
        assert await connection.receive_ready(9) == b""
        await server.send_all(sent)
        read = await connection.receive(600)
        while data := await connection.receive_ready(65536):
            read += data
        assert read == sent
        await server.send_all(b"next")  # and it serves on
        assert await connection.receive(9) == b"next"
        assert connection.is_reusable()


@both
async def test_receive_ready_keeps_partial_record(fast_path: bool) -> None:
    async with connected(fast_path=fast_path) as (connection, server):
        raw = server.transport_stream
        pieces: list[bytes] = []

        async def hold_back(data: bytes) -> None:
            pieces.append(bytes(data))

        raw.send_all = hold_back  # type: ignore[method-assign, assignment]
        await server.send_all(b"x" * 100)
        del raw.send_all
        (record,) = pieces
        for piece in (record[:3], record[3:50]):
            await raw.send_all(piece)
            assert await connection.receive_ready(200) == b""
        await raw.send_all(record[50:])
        assert await connection.receive(200) == b"x" * 100


@both
async def test_receive_ready_treats_end_as_empty(fast_path: bool) -> None:
    async with connected(fast_path=fast_path) as (connection, server):
        server.transport_stream.close()
        assert await connection.receive_ready(9) == b""
        assert not connection.is_reusable()


@both
async def test_receive_treats_end_without_close_notify_as_end(fast_path: bool) -> None:
    async with connected(fast_path=fast_path) as (connection, server):
        await server.send_all(b"x")
        server.transport_stream.close()
        assert await connection.receive(9) == b"x"
        assert await connection.receive(9) == b""


@both
async def test_partial_record_after_response_makes_connection_unusable(fast_path: bool) -> None:
    """The rest of the record would be read as the next response (B-157)."""
    async with connected(fast_path=fast_path) as (connection, server):
        await server.send_all(b"a response")
        await server.transport_stream.send_all(b"\x17\x03\x03\x00")
        assert await connection.receive(10) == b"a response"
        assert await connection.receive_ready(10) == b""
        assert not connection.is_reusable()


@both
async def test_request_longer_than_socket_buffer_is_sent_while_peer_reads(fast_path: bool) -> None:
    sent, read = bytes(range(256)) * 8192, bytearray()  # 2 MiB
    async with connected(fast_path=fast_path) as (connection, server):

        async def read_all() -> None:
            while len(read) < len(sent):
                read.extend(await server.receive_some())

        assert await connection.start(sent) == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.send, memoryview(sent))
            await trio.testing.wait_all_tasks_blocked()  # the socket is full
            nursery.start_soon(read_all)
        assert read == sent


async def test_short_request_waits_for_full_socket() -> None:
    requests = [bytes([number]) * 8_000 for number in range(200)]
    async with connected(fast_path=True) as (connection, server):
        read = bytearray()

        async def send_all() -> None:
            for request in requests:
                assert await connection.start(request) == len(request)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all)
            await trio.testing.wait_all_tasks_blocked()  # the socket is full
            nursery.start_soon(_read_into, server, read, sum(map(len, requests)))
        assert read == b"".join(requests)


async def test_receiver_that_floods_session_tickets_delays_no_other_task() -> None:
    """OpenSSL reads tickets as long as there are any, so it gets few of them at a time."""
    passes = 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            passes += 1
            await trio.lowlevel.checkpoint()

    async with (
        connected(fast_path=True, tickets=1000) as (connection, server),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.send_all, b"a response")  # about 250 KiB before it
        nursery.start_soon(count_passes)
        assert await connection.receive(10) == b"a response"
        nursery.cancel_scope.cancel()
    assert passes > 12


async def _read_into(server: trio.SSLStream[RecordStream], read: bytearray, length: int) -> None:
    while len(read) < length:
        read.extend(await server.receive_some())


@pytest.mark.parametrize("waiting", [True, False])
async def test_closing_ends_receive(waiting: bool) -> None:
    """A deadline closes a connection in use (B-140)."""
    async with connected(fast_path=True) as (connection, _):
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                with pytest.raises(BrokenConnection):
                    await connection.receive(9)

            if waiting:
                nursery.start_soon(receive)
                await trio.testing.wait_all_tasks_blocked()
            connection.close()
            connection.close()
            await receive()
        assert await connection.receive_ready(9) == b""
        assert await connection.start(b"late") == 4
        assert connection.broken
