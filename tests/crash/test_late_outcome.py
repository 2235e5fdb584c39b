"""An outcome that comes after its lease was taken over by another process changes nothing.

The second process is two minutes ahead (FW_CLOCK_OFFSET), so that it finds the lease expired
while the first one is still waiting for its answer.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live_site import SECRET, LiveSite, eventually

DEVELOPMENT = {"FW_MODE": "development"}  # FW_CLOCK_OFFSET is taken there alone


class LateRefusalReceiver:
    """A receiver that keeps its first request waiting and refuses it on demand."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.refuse = threading.Event()
        outer = self

        class LateRefusalHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                outer.ids.append(self.headers["webhook-id"])
                first = len(outer.ids) == 1
                if first:
                    outer.refuse.wait(120)
                self.send_response(400 if first else 204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LateRefusalHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.refuse.set()
        self._server.shutdown()
        self._server.server_close()


def owe(client: httpx.Client, url: str) -> str:
    """Make a Webhook and owe it an event; the delivery's name."""
    fields = {"url": url, "event_type": "Custom", "custom_event": "a.b", "timeout": 60}
    made = client.post("/api/resource/Webhook", json={**fields, "secret": SECRET})
    assert made.status_code == 201, made.text
    emit = "/api/method/core.services.webhooks.emit"
    emitted = client.post(emit, json={"name": "a.b", "data": {}}).json()
    name: str = emitted["deliveries"][0]
    return name


def read_delivery(client: httpx.Client, name: str) -> dict[str, Any]:
    """Return the delivery as it is now."""
    found: dict[str, Any] = client.get(f"/api/resource/Webhook Delivery/{name}").json()["data"]
    return found


@contextmanager
def worker_ahead(site: LiveSite) -> Iterator[None]:
    """Run a further delivery process whose clock is two minutes ahead."""
    environ = {**DEVELOPMENT, "FW_CLOCK_OFFSET": "120"}
    with (site.folder / "worker.log").open("ab") as log:
        process = site.begin("worker", environ=environ, stderr=log.fileno())
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.usefixtures("on_both_stores")
def test_late_outcome_does_not_overwrite_other_process(tmp_path: Path) -> None:
    """An outcome is written on condition of the lease's token, else it is dropped and logged
    (B-211)."""
    receiver = LateRefusalReceiver()
    with LiveSite(tmp_path, apps=()) as site:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client:
            name = owe(client, receiver.url)
            eventually(lambda: receiver.ids)
            with worker_ahead(site):
                before = eventually(
                    lambda: _sent(read_delivery(client, name)), seconds=55
                )  # below timeout
            receiver.refuse.set()
            log = site.folder / "serve.log"
            eventually(lambda: "delivery.lease_lost" in log.read_text())
            after = read_delivery(client, name)
        receiver.close()
    assert before == after
    assert (after["attempts"], after["response_status"], after["error"]) == (1, 204, None)
    assert receiver.ids == [name, name]


def _sent(delivery: dict[str, Any]) -> dict[str, Any] | None:
    return delivery if delivery["status"] == "Sent" else None
