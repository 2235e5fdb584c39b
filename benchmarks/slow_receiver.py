"""A receiver that answers each request with 204 after a while: `python -m … DESCRIPTOR SECONDS`."""

from __future__ import annotations

import re
import socket
import sys
from functools import partial
from typing import Final

import trio

_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_READ_BYTES: Final = 65_536


async def serve(descriptor: int, seconds: float) -> None:
    """Answer on a listening socket until the process is killed."""
    listener = trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor))
    await trio.serve_listeners(partial(answer, seconds), [trio.SocketListener(listener)])


async def answer(seconds: float, stream: trio.SocketStream) -> None:
    """Read requests of one connection, and answer each after `seconds`."""
    async with stream:
        waiting = b""
        while data := await stream.receive_some(_READ_BYTES):
            waiting += data
            head, end, body = waiting.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if end and length is not None and len(body) >= int(length[1]):
                waiting = body[int(length[1]) :]
                await trio.sleep(seconds)
                await stream.send_all(b"HTTP/1.1 204 No Content\r\n\r\n")


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]), float(sys.argv[2]))
