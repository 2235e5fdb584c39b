"""A receiver in Node, with the npm package `standardwebhooks`: alone, and behind a real nginx."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.live_site import LiveSite, eventually
from tests.nginx import free_port, nginx

HERE = Path(__file__).parent
PREFIXED, RAW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "sécret-ключ-☃ of any length"
SERVERS = """
server {{
    listen 127.0.0.1:{plain};
    listen 127.0.0.1:{tls} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
}}
"""


@dataclass
class NodeReceiver:
    """Return the Node receiver's report of each POST, in order."""

    port: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)

    def of(self, path: str) -> list[dict[str, Any]]:
        return [line for line in list(self.reports) if line["path"] == path]


@contextmanager
def node_receiver(paths: dict[str, dict[str, Any]]) -> Iterator[NodeReceiver]:
    """Run `node_receiver.js`; `paths` as it says."""
    vendor = str(HERE / "vendor" / "node_modules")
    process = subprocess.Popen(
        ["node", str(HERE / "node_receiver.js"), json.dumps(paths)],
        env={**os.environ, "NODE_PATH": vendor}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = process.stdout
    receiver = NodeReceiver(int(lines.readline()))

    def listen() -> None:
        for line in lines:
            receiver.reports.append(json.loads(line))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield receiver
    finally:
        process.kill()
        process.wait(20)
        listener.join(20)
        lines.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A private CA, and a certificate of 127.0.0.1; the paths of their files."""
    folder = tmp_path_factory.mktemp("ca")
    ca = trustme.CA()
    server = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    server.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return {"ca": str(folder / "ca.pem"), "server": str(folder / "server.pem")}


def subscribe(client: httpx.Client, url: str, event: str, secret: str) -> None:
    body = {"url": url, "event_type": "Custom", "custom_event": event, "secret": secret}
    answer = client.post("/api/resource/Webhook", json=body)
    assert answer.status_code == 201, answer.text


def call(client: httpx.Client, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"/api/method/core.services.webhooks.{operation}", json=body)
    assert answer.status_code == 200, answer.text
    answer_body: dict[str, Any] = answer.json()
    return answer_body


def test_node_receiver_verifies_attempts_retries_and_replays(
    tmp_path: Path, authority: dict[str, str]
) -> None:
    """Both kinds of secret; over HTTP, and nginx with TLS (B-125, B-22, B-23)."""
    data = {"text": "ünïcode ☃ 😀", "nested": [{"a": None}, 1.5, 9007199254740992]}
    secrets = {"/prefixed": PREFIXED, "/raw": RAW, "/proxied": PREFIXED, "/tls": RAW}
    paths = {path: {"secret": key, "answers": [503, 200]} for path, key in secrets.items()}
    plain, tls = free_port(), free_port()
    with (
        LiveSite(tmp_path, ops={"backoffSeconds": 0.1}, apps=()) as site,
        node_receiver(paths) as receiver,
        nginx(
            tmp_path,
            SERVERS.format(
                plain=plain, tls=tls, upstream=receiver.port,
                certificate=authority["server"], key=authority["server"],
            ),
            plain, tls,
        ),
    ):  # fmt: skip
        site.add_manager()
        site.start(SSL_CERT_FILE=authority["ca"])
        own = f"http://127.0.0.1:{receiver.port}"
        bases = {
            "/prefixed": own, "/raw": own,
            "/proxied": f"http://127.0.0.1:{plain}", "/tls": f"https://127.0.0.1:{tls}",
        }  # fmt: skip
        with site.client() as client:
            for path, secret in secrets.items():
                subscribe(client, bases[path] + path, "node.asked", secret)
            ids = call(client, "emit", {"name": "node.asked", "data": data})["deliveries"]
            eventually(lambda: _all_sent(client, ids))
            for delivery in ids:
                call(client, "replay", {"delivery": delivery})
            eventually(lambda: all(len(receiver.of(path)) == 3 for path in paths))
    for path in paths:
        lines = receiver.of(path)
        assert [line.get("data") for line in lines] == [data] * 3, lines
        assert {line["id"] for line in lines} <= set(ids)
        assert len({line["id"] for line in lines}) == 1


def test_node_receiver_refuses_signature_of_other_secret(tmp_path: Path) -> None:
    """The test above could fail: the package says no where the secret differs."""
    with (
        LiveSite(tmp_path, apps=()) as site,
        node_receiver({"/x": {"secret": PREFIXED, "answers": [400]}}) as receiver,
    ):
        site.add_manager()
        site.start()
        with site.client() as client:
            subscribe(client, f"http://127.0.0.1:{receiver.port}/x", "node.asked", RAW)
            call(client, "emit", {"name": "node.asked", "data": {}})
            eventually(lambda: receiver.reports)
    [line] = receiver.reports
    assert "No matching signature" in line["error"]


def _all_sent(client: httpx.Client, ids: list[str]) -> bool:
    params = {"fields": '["name"]', "filters": '[["status", "=", "Sent"]]'}
    rows = client.get("/api/resource/Webhook Delivery", params=params).json()["data"]
    return {row["name"] for row in rows} == set(ids)
