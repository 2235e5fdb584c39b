"""Several nodes on one PostgreSQL: a killed or frozen node loses nothing; the rows decide.

Rules: O-37, B-42, A-64, B-214.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.crash.load import CSRF
from tests.crash.nodes import several_nodes
from tests.live_site import NO_TLS, PASSWORD, USUAL_HASH, LiveReceiver, LiveSite, eventually
from tests.webhook_kit import deliveries, make_webhook

TIMEOUT_SECONDS = 60  # of a Webhook: no machine is too slow for it
AFTER_THE_LEASE = {"FW_MODE": "development", "FW_CLOCK_OFFSET": str(TIMEOUT_SECONDS + 40)}
NOTES = 24
GUESSES = 100

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def nodes(tmp_path: Path, postgres_url: str) -> Iterator[list[LiveSite]]:
    """Three nodes, started."""
    with several_nodes(tmp_path, postgres_url, 3) as nodes:
        nodes[0].add_manager()
        with ThreadPoolExecutor() as pool:
            # The usual hashes: the longer one takes, the more guesses wait for the first ones.
            environ = {"FW_MODE": "development", "FW_ARGON2": USUAL_HASH}
            list(pool.map(lambda node: node.start(**environ), nodes))
        yield nodes


@pytest.fixture
def cookie(nodes: list[LiveSite]) -> dict[str, str]:
    """A session, which holds on every node."""
    with nodes[0].client() as client:
        return {"sid": client.cookies["sid"]}


@pytest.fixture
def at(cookie: dict[str, str]) -> Iterator[Callable[[LiveSite], httpx.Client]]:
    """Return the manager's client at a node, wherever that listens by now."""
    clients: list[httpx.Client] = []

    def at(node: LiveSite) -> httpx.Client:
        client = httpx.Client(
            base_url=node.url, headers=CSRF, cookies=cookie, timeout=60, verify=NO_TLS
        )
        clients.append(client)
        return client

    yield at
    for client in clients:
        client.close()


def write_note(client: httpx.Client, title: str = "a note") -> None:
    answer = client.post("/api/resource/Note", json={"title": title})
    assert answer.status_code == 201, answer.text


def hashes(client: httpx.Client) -> float:
    """Return how many passwords a node has hashed."""
    lines = client.get("/metrics").text.splitlines()
    return float(next(x for x in lines if x.startswith("fw_password_hashes_total")).split()[-1])


def test_guesses_over_three_nodes_hash_at_most_limit(
    nodes: list[LiveSite], at: Callable[[LiveSite], httpx.Client]
) -> None:
    """Parallel guesses never hash more than `maxLoginAttempts`, on any node (A-64)."""
    nodes[0].prepare("user", "add", "victim", "--email", "victim@example.test",
                     "--password-stdin", stdin=PASSWORD)  # fmt: skip
    clients = [at(node) for node in nodes]
    before = sum(map(hashes, clients))

    def guess(number: int) -> int:
        body = {"usr": "victim", "pwd": f"wrong {number}"}
        return clients[number % 3].post("/api/login", json=body).status_code

    with ThreadPoolExecutor(32) as pool:
        statuses = Counter(pool.map(guess, range(GUESSES)))
    for number in range(5):  # concurrent guesses may not have locked the name; now it is locked
        guess(number)
    assert set(statuses) <= {401, 429, 503}  # a machine may be too busy to charge
    assert statuses[401] <= 4
    assert sum(map(hashes, clients)) - before == 5
    for client in clients:
        answer = client.post("/api/login", json={"usr": "victim", "pwd": PASSWORD})
        assert answer.status_code == 429


def test_lockouts_and_sessions_apply_on_all_nodes(
    nodes: list[LiveSite], at: Callable[[LiveSite], httpx.Client]
) -> None:
    """The rows decide, not a process: counters, locks, sessions (O-37, A-100)."""
    first, second, third = nodes
    for number in range(5):
        at(first).post("/api/login", json={"usr": "admin", "pwd": f"wrong {number}"})
    right = {"usr": "admin", "pwd": PASSWORD}
    assert [at(node).post("/api/login", json=right).status_code for node in nodes] == [429] * 3
    second.fw("user", "unlock", "admin")
    with third.client() as client:
        session = {**CSRF, "cookie": f"sid={client.cookies['sid']}"}
    own = "/api/method/core.services.profile.getMyProfile"
    with httpx.Client(headers=session, timeout=60) as client:
        assert client.get(first.url + own).status_code == 200
        assert client.post(second.url + "/api/logout").status_code == 200
    with httpx.Client(headers=session, timeout=60) as client:
        assert [client.get(node.url + own).status_code for node in nodes] == [401] * 3


def test_deliveries_of_killed_and_frozen_node_are_taken_over(
    nodes: list[LiveSite], at: Callable[[LiveSite], httpx.Client]
) -> None:
    """The outcome of a thawed node is fenced off by its lease (O-35, O-33)."""
    first, killed, frozen = nodes
    with LiveReceiver(None, None, None, 204) as receiver:  # one in the hands of each node
        hook = make_webhook(
            at(first), receiver.url, timeout=TIMEOUT_SECONDS, on_update=1, max_attempts=1
        )
        for _ in range(3):
            write_note(at(first))
        eventually(lambda: len(receiver.got) == 3)
        held = set(receiver.ids)
        killed.end(signal.SIGKILL)
        assert frozen.process is not None
        frozen.process.send_signal(signal.SIGSTOP)
        receiver.release()
        eventually(lambda: len(deliveries(at(first), status="Sent")) == 1)
        for _ in range(NOTES):
            write_note(at(first))
        eventually(lambda: len(deliveries(at(first), status="Sent")) == NOTES + 1)
        left = {row["name"] for row in deliveries(at(first), status="Queued")}
        killed.start(**AFTER_THE_LEASE)
        sent = eventually(lambda: (deliveries(at(first), status="Sent"))[NOTES + 2 :])
        assert sent
        assert killed.end() == 0  # its clock is ahead, and would end the others' leases as well
        frozen.process.send_signal(signal.SIGCONT)
        log = frozen.folder / "serve.log"
        eventually(lambda: "delivery.lease_lost" in log.read_text())
        write_note(at(first))
        eventually(lambda: len(deliveries(at(frozen), status="Sent")) == NOTES + 4)
        rows = deliveries(at(first), webhook=hook)
    assert {(row["status"], row["attempts"]) for row in rows} == {("Sent", 1)}
    assert len(left) == 2
    assert left < held
    counts = Counter(receiver.ids)
    assert {name for name, count in counts.items() if count > 1} == left
    assert max(counts.values()) == 2


def test_webhook_of_other_node_is_used_after_restart(
    nodes: list[LiveSite], at: Callable[[LiveSite], httpx.Client]
) -> None:
    """Subscriptions are cached per process (B-42); an attempt uses the Webhook's url of that
    moment (B-127)."""
    first, second, third = nodes
    with LiveReceiver() as receiver, LiveReceiver() as other:
        for node in nodes:
            write_note(at(node), "before there is a webhook")
        hook = make_webhook(at(first), receiver.url, timeout=TIMEOUT_SECONDS)
        write_note(at(second), "unseen")
        write_note(at(first), "seen")
        eventually(lambda: len(deliveries(at(second), status="Sent")) == 1)
        assert third.end() == 0
        third.start(FW_MODE="development")
        write_note(at(third), "seen after a restart")
        eventually(lambda: len(deliveries(at(second), status="Sent")) == 2)
        answer = at(second).put(f"/api/resource/Webhook/{hook}", json={"url": other.url})
        assert answer.status_code == 200
        write_note(at(third), "sent to the new address")
        eventually(lambda: len(deliveries(at(first), status="Sent")) == 3)
    assert (len(receiver.got), len(other.got)) == (2, 1)
