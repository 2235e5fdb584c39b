"""TLS is handed one record at a time, however the bytes arrive."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from fw_actors.http import Origin
from fw_actors.http.exchange import Connection, PlainConnection
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
    *, fast_path: bool
) -> AsyncIterator[tuple[Connection, trio.SSLStream[RecordStream]]]:
    """Both ends of a TLS connection on a pair of sockets."""
    authority = trustme.CA()
    receiving, sending = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    receiving.num_tickets = 0
    authority.issue_cert("h").configure_cert(receiving)
    authority.configure_trust(sending)
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        server = trio.SSLStream(records_over(there), receiving, server_side=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            origin, sessions, turn = Origin("https", "h", 443), SessionCache(), trio.Lock()
            connection = await start_tls(origin, here, sending, sessions, turn, fast_path=fast_path)
        yield connection, server


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
        assert await connection.receive(9) == b""
