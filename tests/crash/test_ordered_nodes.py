"""Two nodes on one PostgreSQL are killed at random: each document's deliveries keep their order,
and none is lost (B-320, B-323)."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.crash.load import CSRF
from tests.crash.nodes import several_nodes
from tests.live_site import LiveReceiver, LiveSite, eventually
from tests.webhook_kit import deliveries, make_webhook

ROUNDS = 2
DOCUMENTS = 3
LEASE_SECONDS = 45  # of a Webhook with the default timeout


class NoteWriter:
    """Saves one Note repeatedly, at each node in turn, with the next number as its title."""

    def __init__(self, note: str) -> None:
        self.note = note
        self.number = 0
        self.answered: list[int] = []
        """The numbers that are stored for certain; one whose node was killed may be, or not."""

    def until(self, ended: threading.Event, clients: Sequence[httpx.Client]) -> None:
        while not ended.is_set():
            self.number += 1
            client = clients[self.number % len(clients)]
            with suppress(httpx.TransportError):
                body = {"title": str(self.number)}
                answer = client.put(f"/api/resource/Note/{self.note}", json=body)
                if answer.status_code == 200:
                    self.answered.append(self.number)


@pytest.mark.timeout(300)
def test_document_order_survives_kills_of_both_nodes(tmp_path: Path, postgres_url: str) -> None:
    rng = random.Random(1)
    with several_nodes(tmp_path, postgres_url, 2) as nodes, LiveReceiver() as receiver:
        nodes[0].add_manager()
        start(nodes[:1], 0)
        saves = made(nodes[0], receiver)
        nodes[0].end()
        for number in range(ROUNDS):
            start(nodes, number)  # both with the Webhook
            save_and_kill(nodes, saves, rng)
        start(nodes[:1], ROUNDS)
        with nodes[0].client() as client:
            eventually(lambda: not waiting(client), seconds=60)
        arrived = [json.loads(got.body)["data"]["doc"] for got in receiver.got]
    for each in saves:
        numbers = [int(doc["title"]) for doc in arrived if doc["name"] == each.note]
        first = list(dict.fromkeys(numbers))  # one that a kill cut off is sent again
        assert first == sorted(first)
        assert set(each.answered) <= set(first)
        assert len(each.answered) > ROUNDS


def waiting(client: httpx.Client) -> list[str]:
    return [
        each["name"]
        for status in ("Queued", "Retrying")
        for each in deliveries(client, status=status)
    ]


def start(nodes: Sequence[LiveSite], number: int) -> None:
    """Start nodes, with clocks that say that all leases have ended."""
    environ = {"FW_MODE": "development", "FW_CLOCK_OFFSET": str(number * LEASE_SECONDS)}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: node.start(**environ), nodes))


def made(node: LiveSite, receiver: LiveReceiver) -> list[NoteWriter]:
    """Make an ordered Webhook and the Notes that it watches."""
    with node.client() as client:
        notes = [client.post("/api/resource/Note", json={"title": "0"}) for _ in range(DOCUMENTS)]
        make_webhook(client, receiver.url, ordering="document", on_insert=0, on_update=1)
    return [NoteWriter(note.json()["data"]["name"]) for note in notes]


def save_and_kill(
    nodes: Sequence[LiveSite], saves: Sequence[NoteWriter], rng: random.Random
) -> None:
    """Save at both nodes, kill one, go on at the other, and kill that as well."""
    with nodes[0].client() as client:
        cookies = {"sid": client.cookies["sid"]}
    clients = [
        httpx.Client(base_url=node.url, headers=CSRF, cookies=cookies, timeout=10) for node in nodes
    ]
    ended = threading.Event()
    threads = [threading.Thread(target=each.until, args=(ended, clients)) for each in saves]
    for thread in threads:
        thread.start()
    for node in rng.sample(nodes, len(nodes)):
        time.sleep(rng.uniform(0.3, 0.8))
        node.end(signal.SIGKILL)
    ended.set()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
