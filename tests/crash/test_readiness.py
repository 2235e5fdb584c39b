"""`/api/ready` and `/api/health` of a real process while it starts and while it stops.

Ready is 503 while starting, draining or when the store does not answer (H-102, H-101).
"""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.live_site import NO_TLS, LiveSite, eventually
from tests.nginx import free_port

HELD = """
import pathlib, time
from fw_actors.app import whitelist

@whitelist()
def wait(fw):
    folder = pathlib.Path(__file__).parent
    (folder / "began").touch()
    while not (folder / "release").exists():
        time.sleep(0.01)
    return "done"
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LiveSite]:
    (tmp_path / "held.py").write_text(HELD)
    with LiveSite(tmp_path, apps=("held",)) as site:
        yield site


def status_of(url: str, path: str) -> int | None:
    """Return the status of a request on a new connection; None if it is refused."""
    try:
        return httpx.get(url + path, timeout=30, verify=NO_TLS).status_code
    except httpx.TransportError:
        return None


def test_starting_service_is_healthy_and_not_ready(site: LiveSite) -> None:
    site.prepare("migrate")
    url = f"http://127.0.0.1:{(port := free_port())}"
    starting = threading.Thread(target=lambda: site.start(FW_BIND=f"127.0.0.1:{port}"))
    with closing(sqlite3.connect(site.folder / "data" / "fw.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")  # as another process that migrates
        starting.start()
        eventually(lambda: status_of(url, "/api/health") == 200)
        assert status_of(url, "/api/ready") == 503
        early: list[int | None] = []
        asking = threading.Thread(target=lambda: early.append(status_of(url, "/api/boot")))
        asking.start()
        assert status_of(url, "/api/ready") == 503
        assert site.url == ""
        other.execute("ROLLBACK")
    starting.join()
    asking.join()
    assert early == [200], "it has waited for the service (H-108)"
    assert site.url == url
    assert [status_of(url, path) for path in ("/api/health", "/api/ready", "/api/boot")] == [
        200
    ] * 3


@pytest.mark.usefixtures("on_both_stores")
def test_stopping_service_is_not_ready_and_finishes_requests(
    site: LiveSite,
) -> None:
    site.add_manager()
    site.start()
    process = site.process
    assert process is not None
    answers: list[httpx.Response] = []
    with site.client() as client:
        asking = threading.Thread(
            target=lambda: answers.append(client.post("/api/method/held.wait", json={}))
        )
        asking.start()
        eventually((site.folder / "began").exists)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: status_of(site.url, "/api/ready") == 503)
        assert status_of(site.url, "/api/health") == 200
        assert status_of(site.url, "/api/boot") == 503
        (site.folder / "release").touch()
        asking.join()
    assert (answers[0].status_code, json.loads(answers[0].content)) == (200, "done")
    assert process.wait(30) == 0
    assert status_of(site.url, "/api/health") is None
    site.process = None
