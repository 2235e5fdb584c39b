"""Several processes on one store: each event goes out once, whoever is killed or frozen."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.test_main_job import deliveries, make_webhook
from tests.live_site import LiveReceiver, LiveSite, eventually

NOTES = 60
DEVELOPMENT = {"FW_MODE": "development"}


@contextmanager
def workers(site: LiveSite, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run further delivery processes."""
    command = [sys.executable, "-P", "-m", "fw_cli", "worker"]
    log = (site.folder / "workers.log").open("ab")
    running = [
        subprocess.Popen(command, cwd=site.folder, env=site.environ(**DEVELOPMENT), stderr=log,
                         stdout=subprocess.DEVNULL)
        for _ in range(count)
    ]  # fmt: skip
    try:
        eventually(lambda: (site.folder / "workers.log").read_text().count("worker.ready") == count)
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait(30)
        log.close()


@pytest.mark.timeout(180)
def test_a_server_and_two_workers_send_each_event_once(tmp_path: Path) -> None:
    """Delivery survives two processes on one store (interface §7): leases, not luck."""
    with LiveSite(tmp_path) as site, LiveReceiver() as receiver:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client, workers(site, 2):
            make_webhook(client, receiver.url)
            for number in range(NOTES):
                answer = client.post("/api/resource/Note", json={"title": f"note {number}"})
                assert answer.status_code == 201
            sent = eventually(lambda: [d for d in deliveries(client) if d["status"] == "Sent"][59:])
        assert sent
        assert Counter(receiver.ids) == dict.fromkeys(receiver.ids, 1)
        assert len(receiver.ids) == NOTES


@pytest.mark.timeout(180)
def test_a_frozen_worker_holds_up_nothing_but_its_own_leases(tmp_path: Path) -> None:
    """SIGSTOP: the others go on; thawed, it goes on too, and sends nothing twice."""
    with LiveSite(tmp_path) as site, LiveReceiver() as receiver:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client, workers(site, 1) as (worker,):
            make_webhook(client, receiver.url)
            worker.send_signal(signal.SIGSTOP)
            for number in range(NOTES):
                client.post("/api/resource/Note", json={"title": f"note {number}"})
            eventually(lambda: len(set(receiver.ids)) == NOTES)
            worker.send_signal(signal.SIGCONT)
            eventually(lambda: all(d["status"] == "Sent" for d in deliveries(client)))
        assert Counter(receiver.ids) == dict.fromkeys(receiver.ids, 1)
