"""One of several processes of a service without requests: it is ready, and answers.

While the file exists that its argument names, it is not ready unless it starts alone.

It ends when the channel does, or is asked to. Reads the assignment as the real one does.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

import msgspec


def main() -> None:
    assignment = msgspec.msgpack.decode(sys.stdin.buffer.read())
    control = socket.socket(fileno=assignment["control"])
    if len(sys.argv) < 2 or assignment["alone"] or not Path(sys.argv[1]).exists():
        send(control, ["ask", 0, "ready", None])
    while len(head := control.recv(4, socket.MSG_WAITALL)) == 4:
        (length,) = struct.unpack("!I", head)
        _, number, name, *_ = msgspec.msgpack.decode(control.recv(length, socket.MSG_WAITALL))
        if name in ("stop", "end"):
            os._exit(0)
        send(control, ["answer", number, name, True])


def send(control: socket.socket, frame: list[object]) -> None:
    content = msgspec.msgpack.encode(frame)
    control.sendall(struct.pack("!I", len(content)) + content)


if __name__ == "__main__":
    main()
