"""A recovery by real processes: `fw serve`, and a mail server with STARTTLS that is down first.

Rules: O-51, O-58, D-225: it holds no part of the link.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.fw_actors.mail.smtp_server import MailServer
from tests.live_site import PASSWORD, LiveSite, eventually

OTHER = "another decent passphrase"
CSRF = {"X-FW-CSRF": "1"}
QUICK = {"backoffSeconds": 0.1, "backoffCapSeconds": 0.5}


@pytest.fixture
def port() -> Iterator[int]:
    """A reserved port that refuses connections until a server listens there."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextlib.contextmanager
def mail_server(authority: trustme.CA, port: int) -> Iterator[MailServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = MailServer(port=port, users={"desk": "mail password"}, starttls=context)
    try:
        yield server
    finally:
        server.stop()


def settings(folder: Path, authority: trustme.CA, port: int) -> dict[str, str]:
    """Return the environment for the mail server, whose authority is trusted by a file."""
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    return {
        "FW_MAIL_TRANSPORT": "smtp", "FW_SMTP_HOST": "127.0.0.1", "FW_SMTP_PORT": str(port),
        "FW_SMTP_USER": "desk", "FW_SMTP_PASSWORD": "mail password",
        "FW_PUBLIC_URL": "http://desk.example", "SSL_CERT_FILE": str(folder / "authority.pem"),
    }  # fmt: skip


def deliveries(client: httpx.Client) -> list[dict[str, Any]]:
    """The Email Deliveries so far, oldest first."""
    query = {"fields": '["recipient", "template", "status", "error"]', "order_by": "creation asc"}
    reply = client.get("/api/resource/Email Delivery", params=query)
    assert reply.status_code == 200, reply.text
    found = reply.json()["data"]
    return [
        {key: row[key] for key in ("recipient", "template", "status", "error")} for row in found
    ]


def text_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part is not None
    return str(part.get_content())


@pytest.mark.usefixtures("on_both_stores")
def test_recovery_link_reaches_only_recovered_mail_server(tmp_path: Path, port: int) -> None:
    authority = trustme.CA()
    environ = settings(tmp_path, authority, port)
    with LiveSite(tmp_path, ops=QUICK, apps=()) as site:
        site.add_manager()
        site.start(**environ)
        with site.client() as client:
            response = client.post("/api/auth/forgot-password", json={"usr": "ADMIN"})
            assert response.json() == {"ok": True}
            (waiting,) = eventually(lambda: [d for d in deliveries(client) if d["error"]])
            assert (waiting["recipient"], waiting["template"], waiting["status"]) == (
                "admin@example.test", "recovery", "Retrying",
            )  # fmt: skip
            with mail_server(authority, port) as server:
                ((sender, recipients, mail),) = eventually(lambda: server.mails)
                assert (sender, recipients) == ("fw@localhost", ["admin@example.test"])
                assert server.auths == [("desk", "mail password")]
                eventually(lambda: deliveries(client)[0]["status"] == "Sent")
                link = re.search(
                    r"http://desk\.example/reset-password#token=(\S{32})", text_of(mail)
                )
                assert link is not None
                body = {"token": link[1], "password": OTHER}
                assert client.post("/api/auth/reset-password", json=body).status_code == 200
                mails = eventually(lambda: server.mails[1:])
                assert "token" not in mails[0][2].as_string()
        with httpx.Client(base_url=site.url, headers=CSRF, timeout=30) as browser:
            for pwd, status in ((PASSWORD, 401), (OTHER, 200)):
                reply = browser.post("/api/login", json={"usr": "admin", "pwd": pwd})
                assert reply.status_code == status
            found = [browser.get(f"/api/resource/{name}?limit=500").text for name in
                     ("Email Delivery", "Version", "Error Log", "Audit Event")]  # fmt: skip
        site.end()
    kept = [*found, (tmp_path / "serve.log").read_text()]
    kept += [file.read_bytes().decode("latin-1") for file in (tmp_path / "data").iterdir()]
    for secret in (link[1], "mail password", OTHER):
        assert [text[:80] for text in kept if secret in text] == []
