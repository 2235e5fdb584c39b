"""Several processes on one store send each event once, despite kills and freezes."""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.fork_server import ForkedProcess
from tests.live_site import SECRET, LiveReceiver, LiveSite, eventually
from tests.webhook_kit import deliveries, make_webhook

NOTES = 60
DEVELOPMENT = {"FW_MODE": "development"}


@contextmanager
def workers(site: LiveSite, count: int) -> Iterator[list[ForkedProcess]]:
    """Run further delivery processes."""
    log = (site.folder / "workers.log").open("ab")
    running = [site.begin("worker", environ=DEVELOPMENT, stderr=log.fileno()) for _ in range(count)]
    try:
        eventually(lambda: (site.folder / "workers.log").read_text().count("worker.ready") == count)
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait(30)
        log.close()


def freeze(process: ForkedProcess, database: Path) -> None:
    """Stop it between two of its transactions: within one, SQLite would block other writers."""
    while True:
        process.send_signal(signal.SIGSTOP)
        with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
            else:
                return


@pytest.mark.timeout(300)
def test_server_and_workers_send_event_once(tmp_path: Path) -> None:
    """Deliveries are sent once by several processes on one store (B-214)."""
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


@pytest.mark.timeout(300)
def test_frozen_worker_delays_only_its_own_leases(tmp_path: Path) -> None:
    """SIGSTOP: the other process continues; the thawed one too, and sends nothing twice."""
    with LiveSite(tmp_path) as site, LiveReceiver() as receiver:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client, workers(site, 1) as (worker,):
            make_webhook(client, receiver.url)
            freeze(worker, site.folder / "data" / "fw.db")
            for number in range(NOTES):
                answer = client.post("/api/resource/Note", json={"title": f"note {number}"})
                assert answer.status_code == 201
            eventually(lambda: len(set(receiver.ids)) == NOTES)
            worker.send_signal(signal.SIGCONT)
            eventually(lambda: all(d["status"] == "Sent" for d in deliveries(client)))
        assert Counter(receiver.ids) == dict.fromkeys(receiver.ids, 1)


@pytest.mark.timeout(300)
def test_stopped_worker_returns_its_deliveries_to_server(
    tmp_path: Path,
) -> None:
    """After 10 s attempts are cancelled, not counted, and given back (O-31)."""
    with LiveSite(tmp_path) as site, LiveReceiver(None, None, 204) as receiver:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client, workers(site, 1) as (worker,):
            make_webhook(client, receiver.url, timeout=60, max_attempts=1)  # a lease of 90 s
            for number in range(2):
                client.post("/api/resource/Note", json={"title": f"note {number}"})
            eventually(lambda: len(receiver.ids) == 2)  # one in the hands of each process
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
            receiver.release()
            rows = eventually(lambda: [d for d in deliveries(client) if d["status"] == "Sent"][1:])
            attempts = [row["attempts"] for row in deliveries(client)]
        assert rows
        assert attempts == [1, 1]
        assert sorted(Counter(receiver.ids).values()) == [1, 2]


@pytest.mark.timeout(300)
def test_queued_events_are_sent_with_webhooks_off(tmp_path: Path) -> None:
    """`FW_WEBHOOKS=off` stops new events; those queued before still go out (B-61)."""
    with LiveSite(tmp_path) as site, LiveReceiver() as receiver:
        site.add_manager()
        hook = {
            "url": receiver.url, "event_type": "Custom", "custom_event": "order.paid",
            "secret": SECRET, "timeout": 60,
        }  # fmt: skip
        site.prepare("eval", "--commit", f"fw.new_doc('Webhook', **{hook!r}).insert().name",
                **DEVELOPMENT)  # fmt: skip
        site.prepare("eval", "--commit", "fw.webhooks.emit('order.paid', {})")
        site.start(FW_WEBHOOKS="off", **DEVELOPMENT)
        with site.client() as client:
            late = {"name": "order.paid", "data": {}}
            answer = client.post("/api/method/core.services.webhooks.emit", json=late)
            assert answer.json() == {"deliveries": []}
            eventually(lambda: [d["status"] for d in deliveries(client)] == ["Sent"])
        assert site.end() == 0
        assert len(receiver.got) == 1
