"""A receiver that records the time of the first byte of each request, in a process of its own.

`python -m benchmarks.delivery.stamps` prints its port and, at the end of its input, the times: a
line of JSON, nanoseconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.delivery.events import BODY_BYTES
from benchmarks.delivery.receivers import ANSWER, url_of

_END_OF_HEAD: Final = b"\r\n\r\n"


class Stamps:
    """The receiver, as who measures sees it."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process, self.url = process, url

    def taken(self) -> list[int]:
        """End the receiver; return its times in the order of the requests."""
        out, _ = self._process.communicate()
        times: list[int] = json.loads(out)
        return times


@contextmanager
def stamping() -> Iterator[Stamps]:
    """Run the receiver."""
    command = [sys.executable, "-m", "benchmarks.delivery.stamps"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Stamps(process, process.stdout.readline().strip())
        finally:
            process.kill()


def _serve(connection: socket.socket, times: list[int]) -> None:
    with connection:
        while head := connection.recv(65_536):
            times.append(time.monotonic_ns())
            while _END_OF_HEAD not in head or len(head.partition(_END_OF_HEAD)[2]) < BODY_BYTES:
                head += connection.recv(65_536)
            connection.sendall(ANSWER)


def main() -> None:
    times: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(url_of(listening), flush=True)

        def accept() -> None:
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=_serve, args=(connection, times), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        sys.stdin.read()
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
