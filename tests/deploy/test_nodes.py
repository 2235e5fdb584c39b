"""Two nodes on one PostgreSQL behind a real nginx, all configured as docs/scaling.md says.

Only addresses, ports and the folder of the certificate are other ones. The proxy connects from
127.0.0.1, and clients have loopback addresses of their own.
"""

from __future__ import annotations

import signal
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest
import trustme

from tests.crash.nodes import several_nodes
from tests.deploy.scaling_page import balancer, node_environment
from tests.live_site import PASSWORD, LiveSite
from tests.nginx import free_port, nginx
from tests.postgres_cluster import PostgresCluster

CSRF = {"X-FW-CSRF": "1"}
SERVICES = "/api/method/core.services."
PROXY = "127.0.0.1"
CLAIMED = "203.0.113.7"


@dataclass(frozen=True)
class LoadBalancedNodes:
    """Nodes and the proxy before them."""

    nodes: list[LiveSite]
    url: str
    certificates: ssl.SSLContext

    @contextmanager
    def client(self, address: str, url: str = "") -> Iterator[httpx.Client]:
        """A client with an address of its own, which claims another one."""
        transport = httpx.HTTPTransport(local_address=address, verify=self.certificates)
        headers = CSRF | {"X-Forwarded-For": CLAIMED, "Forwarded": f"for={CLAIMED}"}
        with httpx.Client(
            base_url=url or self.url, transport=transport, headers=headers, timeout=30
        ) as client:
            yield client


@pytest.fixture(scope="module")
def balanced(
    tmp_path_factory: pytest.TempPathFactory, cluster: PostgresCluster
) -> Iterator[LoadBalancedNodes]:
    folder = tmp_path_factory.mktemp("balanced")
    authority = trustme.CA()
    certificate = authority.issue_cert(PROXY)
    certificate.cert_chain_pems[0].write_to_path(folder / "fullchain.pem")
    certificate.private_key_pem.write_to_path(folder / "privkey.pem")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    port = free_port()
    environment = node_environment()
    assert environment.pop("FW_BIND") in balancer()
    environment["FW_TRUST_PROXY"] = environment["FW_TRUST_PROXY"].replace("10.0.0.2", PROXY)
    with cluster.schema() as url, several_nodes(folder, url, 2) as nodes:
        nodes[0].add_manager()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.start(**environment), nodes))
        text = balancer().replace("443", str(port)).replace("/etc/ssl/fw", str(folder))
        for number, node in enumerate(nodes):
            text = text.replace(f"10.0.0.1{number + 1}:8000", node.url.removeprefix("http://"))
        with nginx(folder, text, port):
            yield LoadBalancedNodes(nodes, f"https://{PROXY}:{port}", trusting)


def sign_in(client: httpx.Client) -> dict[str, str]:
    """Sign in as the manager; return the cookie."""
    answer = client.post("/api/login", json={"usr": "admin", "pwd": PASSWORD})
    assert answer.status_code == 200, answer.text
    assert "; Secure" in answer.headers["set-cookie"]
    return {"sid": client.cookies["sid"]}


def own_address(client: httpx.Client) -> str:
    """Return the address that the session was begun from, as the service has it."""
    sessions = client.get(SERVICES + "sessions.listMySessions").json()["sessions"]
    (found,) = (each["ip"] for each in sessions if each["current"])
    return str(found)


def test_session_is_valid_at_each_node(balanced: LoadBalancedNodes) -> None:
    """O-37."""
    with balanced.client("127.0.0.2") as client:
        cookie = sign_in(client)
        for _ in balanced.nodes:
            assert client.get("/api/boot").json()["user"]["name"] == "admin"
        for node in balanced.nodes:
            assert httpx.get(f"{node.url}/api/boot", cookies=cookie).json()["user"] is not None
        assert client.post("/api/logout").status_code == 200
        for node in balanced.nodes:
            assert httpx.get(f"{node.url}/api/boot", cookies=cookie).json()["user"] is None


def test_client_address_is_seen_by_proxy(balanced: LoadBalancedNodes) -> None:
    """A forged address is ignored with and without the proxy (H-92, O-40)."""
    with balanced.client("127.0.0.2") as client:
        sign_in(client)
        assert own_address(client) == "127.0.0.2"
    with balanced.client("127.0.0.3", balanced.nodes[1].url) as client:
        answer = client.post("/api/login", json={"usr": "admin", "pwd": PASSWORD})
        session = {"cookie": f"sid={answer.cookies['sid']}"}
        client.headers.update(session)
        assert own_address(client) == "127.0.0.3"


def test_wrong_passwords_count_across_the_nodes(balanced: LoadBalancedNodes) -> None:
    """The proxy spreads them; the budget of five is one (O-37)."""
    with balanced.client("127.0.0.4") as client:
        body = {"usr": "somebody", "pwd": "wrong"}
        answers = [client.post("/api/login", json=body).status_code for _ in range(6)]
    assert answers == [401] * 4 + [429] * 2


def test_metrics_are_closed_to_clients(balanced: LoadBalancedNodes) -> None:
    with balanced.client("127.0.0.2") as client:
        assert client.get("/metrics").status_code == 403


def test_remaining_node_serves_after_kill(balanced: LoadBalancedNodes) -> None:
    """Reads, writes and sign-ins; the last test of this module, because it kills a node (O-37)."""
    first, second = balanced.nodes
    with balanced.client("127.0.0.2") as client:
        sign_in(client)
        first.end(signal.SIGKILL)
        titles = [f"after the kill {number}" for number in range(6)]
        for title in titles:
            made = client.post("/api/resource/Note", json={"title": title})
            assert made.status_code == 201, made.text
        listed = client.get("/api/resource/Note", params={"limit": 500, "fields": '["title"]'})
        assert {row["title"] for row in listed.json()["data"]} >= set(titles)
        with balanced.client("127.0.0.2") as another:
            sign_in(another)
    assert second.process is not None
