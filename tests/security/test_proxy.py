"""The client address behind a real nginx (H-92, O-40)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.live_site import LiveSite
from tests.nginx import free_port, nginx

CSRF = {"X-FW-CSRF": "1"}
SERVER = """
server {{
    listen 127.0.0.1:{port};
    location / {{
        proxy_pass {upstream};
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto https;
    }}
}}
"""


@contextmanager
def proxy(folder: Path, upstream: str) -> Iterator[str]:
    """Run nginx before `upstream`; its URL. It adds the peer to X-Forwarded-For."""
    port = free_port()
    with nginx(folder, SERVER.format(port=port, upstream=upstream), port):
        yield f"http://127.0.0.1:{port}"


def statuses(url: str, forwarded: list[str]) -> list[int]:
    """Sign in wrongly once for each claim of an address; the answers' statuses."""
    found = []
    with httpx.Client(base_url=url, headers=CSRF, timeout=30) as client:
        for number, claim in enumerate(forwarded):
            body = {"usr": f"nobody{number}", "pwd": "x"}
            headers = {"X-Forwarded-For": claim}
            found.append(client.post("/api/login", json=body, headers=headers).status_code)
    return found


def narrow(folder: Path) -> LiveSite:
    """A site whose addresses have two attempts."""
    site = LiveSite(folder, apps=())
    (folder / "fw.json").write_text('{"site": {"name": "x"}, "auth": {"addressAttempts": 2}}')
    return site


def test_trusted_proxy_counts_by_rightmost_entry(tmp_path: Path) -> None:
    """Entries sent by the client are left of the address that nginx saw, here loopback."""
    with narrow(tmp_path) as site:
        site.start(FW_TRUST_PROXY="on")
        with proxy(tmp_path, site.url) as url:
            inventions = [f"198.51.100.{number}" for number in range(4)]
            assert statuses(url, inventions) == [401, 401, 429, 429]


def test_trusted_networks_are_skipped_from_right(tmp_path: Path) -> None:
    """Behind nginx and a second trusted proxy the rightmost untrusted address counts."""
    with narrow(tmp_path) as site:
        site.start(FW_TRUST_PROXY="127.0.0.0/8,10.0.0.0/8")
        with proxy(tmp_path, site.url) as url:
            first = ["6.6.6.6, 198.51.100.1, 10.1.1.1", "7.7.7.7, 198.51.100.1, 10.1.1.2"]
            assert statuses(url, [*first, "8.8.8.8, 198.51.100.1, 10.1.1.3"]) == [401, 401, 429]
            assert statuses(url, ["198.51.100.2, 10.1.1.1"]) == [401]


def test_untrusted_proxy_counts_by_its_own_address(tmp_path: Path) -> None:
    """`X-Forwarded-For` of an untrusted peer is ignored (A-101, H-90)."""
    with narrow(tmp_path) as site:
        site.start()
        with proxy(tmp_path, site.url) as url:
            assert statuses(url, ["198.51.100.1", "198.51.100.2", "198.51.100.3"]) == [
                401,
                401,
                429,
            ]


def test_forwarded_proto_is_used_only_under_trust(tmp_path: Path) -> None:
    """`X-Forwarded-Proto` is believed under the same rule (H-95)."""
    with narrow(tmp_path) as site:
        for trust, secure in (("on", True), ("off", False)):
            site.start(FW_TRUST_PROXY=trust)
            with proxy(tmp_path, site.url) as url:
                reply = httpx.post(f"{url}/api/logout", headers=CSRF, timeout=30)
                assert ("; Secure" in reply.headers["set-cookie"]) is secure
            site.end()
