"""One of several processes of a service without requests: it is ready, and answers.

While the file exists that its argument names, it is not ready unless it starts alone.

It ends when the channel does, or is asked to. As a program it is a fork server, as the real one.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

import msgspec

from supervisors.service.control_channel import Assignment
from supervisors.service.fork_server import serve_assignments


def load(assignment: Assignment) -> None:
    """Load nothing."""


def serve(assignment: Assignment) -> None:
    control = socket.socket(fileno=assignment.control)
    if len(sys.argv) < 2 or assignment.alone or not Path(sys.argv[1]).exists():
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
    serve_assignments(load, serve)
