"""TLS is handed one record at a time, however the bytes arrive."""

from __future__ import annotations

import socket

import pytest
import trio

from fw_actors.http import Origin
from fw_actors.http.connection import PlainConnection
from fw_actors.http.tls import Records

RECORDS = [
    b"\x16\x03\x03\x00\x03abc",
    b"\x17\x03\x03\x00\x00",
    b"\x17\x03\x03\x01\x00" + b"x" * 256,
]


def records_over(sock: socket.socket) -> Records:
    sock.setblocking(False)
    return Records(PlainConnection(Origin("https", "h", 443), sock))


async def test_records_that_came_together_are_handed_up_one_by_one() -> None:
    here, there = socket.socketpair()
    with here, there:
        records = records_over(here)
        there.sendall(b"".join(RECORDS))
        read = [await records.receive_some()]
        assert not records.is_quiet()
        read += [await records.receive_some() for _ in RECORDS[1:]]
        assert read == RECORDS
        assert records.is_quiet()


@pytest.mark.parametrize("size", [1, 4, 5, 6, 11])
async def test_bytes_are_handed_up_in_order_however_they_are_cut(size: int) -> None:
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
async def test_what_is_cut_off_is_handed_up_before_the_end(cut: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        records = records_over(here)
        there.sendall(cut)
        there.shutdown(socket.SHUT_WR)
        assert await records.receive_some() == cut
        assert await records.receive_some() == b""
