"""The number of simultaneous POSTs at a receiver: a real service and a real receiver."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live_site import SECRET, LiveSite, eventually

pytestmark = pytest.mark.timeout(300)  # several processes start and end, on a slow machine too

SLOTS = 4
SLOW_SECONDS = 1.3  # over the second that makes a receiver slow (B-232)


@dataclass
class PostCounter:
    """Notes with each POST how many it has at that moment, this one included."""

    at_once: list[int] = field(default_factory=list)
    answered: int = 0
    _inside: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> int:
        """Return the number of this POST, from 0."""
        with self._lock:
            self._inside += 1
            self.at_once.append(self._inside)
            return len(self.at_once) - 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            self.answered += 1


@contextmanager
def counting(delays: Callable[[int], tuple[float, float]]) -> Iterator[tuple[PostCounter, str]]:
    """A receiver; `delays` gives the seconds before the head and the body of each answer."""
    counted = PostCounter()

    class DelayedAnswer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            before_head, before_body = delays(counted.enter())
            time.sleep(before_head)
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
            self.wfile.flush()
            time.sleep(before_body)
            counted.leave()  # before its last byte, which lets the next one come
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), DelayedAnswer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield counted, f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        server.server_close()


def deliver(folder: Path, url: str, events: int, counted: PostCounter) -> None:
    """Have a service send `events` to `url` that are due before it starts; wait until all went."""
    with LiveSite(folder, ops={"perReceiverConcurrency": SLOTS}) as site:
        made = (
            f'fw.new_doc("Webhook", url="{url}", event_type="Custom", custom_event="a.b", '
            f'timeout=60, secret="{SECRET}").insert().name'
        )
        json.loads(site.prepare("eval", made, "--commit"))
        owed = f'[fw.webhooks.emit("a.b", {{}}) for _ in range({events})]'
        site.prepare("eval", owed, "--commit")
        site.start()
        eventually(lambda: counted.answered == events)


def test_slow_response_head_reduces_a_receiver_to_one_slot(tmp_path: Path) -> None:
    """An attempt that waits over 1 s for an answer's head sets its receiver back to one slot
    (B-232)."""
    quick, slow = 8, 10
    with counting(lambda number: (SLOW_SECONDS if number >= quick else 0.0, 0.0)) as (counted, url):
        deliver(tmp_path, url, quick + slow, counted)
    assert max(counted.at_once) == SLOTS, "it had grown to all that it may have"
    assert counted.at_once[-(slow - SLOTS - 1) :] == [1] * (slow - SLOTS - 1)


def test_slow_response_body_keeps_the_slots_of_a_receiver(tmp_path: Path) -> None:
    """Only the time to the head counts."""
    with counting(lambda number: (0.0, SLOW_SECONDS)) as (counted, url):
        deliver(tmp_path, url, 12, counted)
    assert max(counted.at_once) == SLOTS
