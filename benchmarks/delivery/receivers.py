"""Faulty receivers: one that hangs, one that refuses, one that takes 2 seconds."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

SLOW_SECONDS: Final = 2.0
ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 1024


@contextmanager
def bad_receivers() -> Iterator[list[str]]:
    """Give the URLs of all three."""
    with ExitStack() as open_:
        # The kernel takes the connections of the first; nobody ever reads them.
        hangs = open_.enter_context(socket.create_server((_HOST, 0), backlog=_BACKLOG))
        refuses = open_.enter_context(socket.socket())
        refuses.bind((_HOST, 0))  # and does not listen
        slow = open_.enter_context(socket.create_server((_HOST, 0), backlog=_BACKLOG))
        threading.Thread(target=_answer_slowly, args=(slow,), daemon=True).start()
        yield [url_of(each) for each in (hangs, refuses, slow)]


def url_of(listening: socket.socket) -> str:
    """Return the URL to post to."""
    return f"http://{_HOST}:{listening.getsockname()[1]}/hook"


def _answer_slowly(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_serve_slowly, args=(connection,), daemon=True).start()


def _serve_slowly(connection: socket.socket) -> None:
    with connection:
        while connection.recv(65_536):
            time.sleep(SLOW_SECONDS)
            connection.sendall(ANSWER)
