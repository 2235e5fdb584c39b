"""Client certificates, shown to a receiver that asks for one (B-370 to B-373)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from fw_actors.config import ClientCertificate, Config
from fw_actors.config.parsing import Environment, Source
from fw_actors.errors import ValidationError
from fw_actors.http import Endpoint, NetworkError, Sender, open_sender
from fw_actors.http.tls import TlsStatistics, end_of
from fw_actors.ops.doctor.delivery import evaluate_webhooks, webhook_facts
from fw_actors.ops.site import open_site
from fw_actors.rules.outgoing import EgressProxy
from fw_actors.runtime import SeededEntropy, TrioClock
from tests.fw_actors.http.egress_proxy import CREDENTIALS, tinyproxy
from tests.fw_actors.http.receiver import OK, ScriptedConnection, SocketReceiver, headers, receiving
from tests.site_kit import START_MS, make_config

LONG = 30.0
CLOSING = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
HOOK = {"url": "https://x.test/", "event_type": "Custom", "custom_event": "a.b", "secret": "s" * 32}


@dataclass
class ClientCertificateReceiver:
    """A receiver that serves only clients with a certificate of its authority."""

    receiver: SocketReceiver
    folder: Path
    authority: trustme.CA
    guests: list[str]
    answers: list[bytes]

    def certificate(self, name: str, guest: str | None = None, **options: Any) -> ClientCertificate:
        """Write the files of a certificate; without `guest` of a foreign authority."""
        authority = self.authority if guest else trustme.CA()
        made = authority.issue_cert(f"{guest or name}@club.test", **options)
        chain, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        made.cert_chain_pems[0].write_to_path(chain)
        made.private_key_pem.write_to_path(key)
        return ClientCertificate(name, chain, key)

    def target(self, certificate: str = "") -> Endpoint:
        return replace(self.receiver.target(), certificate=certificate)


@pytest.fixture
async def receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ClientCertificateReceiver]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trusted)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    guests: list[str] = []
    answers = [OK]

    async def serve(connection: ScriptedConnection) -> None:
        while await connection.request():
            assert isinstance(connection.stream, trio.SSLStream)
            shown: Any = connection.stream.getpeercert()
            guests.append(shown["subjectAltName"][0][1])
            await connection.stream.send_all(answers[-1])
            if answers[-1] == CLOSING:
                return

    async with receiving(serve, context=context) as receiver:
        yield ClientCertificateReceiver(receiver, tmp_path, authority, guests, answers)


@asynccontextmanager
async def knowing(*certificates: ClientCertificate) -> AsyncIterator[Sender]:
    async with open_sender(certificates={each.name: each for each in certificates}) as sender:
        yield sender


async def post(sender: Sender, target: Endpoint) -> int:
    return (await sender.post(target, b"{}", headers, timeout=LONG)).status


async def test_receiver_sees_certificate_named_by_webhook(
    receiver: ClientCertificateReceiver,
) -> None:
    """Only Webhooks with the same certificate share connections (B-372)."""
    ann, bob = receiver.certificate("ANN", "ann"), receiver.certificate("BOB", "bob")
    async with knowing(ann, bob) as sender:
        for name in ("ANN", "BOB", "ANN", "BOB"):
            assert await post(sender, receiver.target(name)) == 200
    assert receiver.guests == [f"{who}@club.test" for who in ("ann", "bob", "ann", "bob")]
    assert receiver.receiver.connections == 2


async def test_client_certificate_is_shown_through_proxy(
    receiver: ClientCertificateReceiver, tmp_path: Path
) -> None:
    """The certificate is shown inside the tunnel; the proxy gets clear text (B-156, B-370)."""
    ann = receiver.certificate("ANN", "ann")
    with tinyproxy(tmp_path) as port:
        proxy = EgressProxy("127.0.0.1", port, CREDENTIALS)
        async with open_sender(proxy=proxy, certificates={"ANN": ann}) as sender:
            assert await post(sender, receiver.target("ANN")) == 200
            with pytest.raises(NetworkError):
                await post(sender, receiver.target())
    assert receiver.guests == ["ann@club.test"]
    assert "CONNECT 127.0.0.1:" in (tmp_path / "log").read_text()


async def test_attempt_fails_without_accepted_certificate(
    receiver: ClientCertificateReceiver,
) -> None:
    """Nothing reaches the receiver's code (B-373)."""
    stranger = receiver.certificate("STRANGER")
    torn = receiver.certificate("TORN", "torn")
    torn.key.write_text("no key")
    kinds = {}
    async with knowing(stranger, torn) as sender:
        for name in ("", "STRANGER", "TORN", "UNKNOWN"):
            with pytest.raises(NetworkError) as failure:
                await post(sender, receiver.target(name))
            kinds[name] = str(failure.value)
    assert receiver.guests == []
    assert kinds["TORN"].startswith("tls: The client certificate TORN cannot be used")
    assert kinds["UNKNOWN"].startswith("tls: The client certificate UNKNOWN is not in")


async def test_renewed_certificate_is_used_without_restart(
    receiver: ClientCertificateReceiver,
) -> None:
    """By the next new connection, which resumes no session of the old one (B-153, B-372)."""
    ann = receiver.certificate("ANN", "ann")
    receiver.answers.append(CLOSING)
    async with knowing(ann) as sender:
        await post(sender, receiver.target("ANN"))
        ann.chain.unlink()
        ann.key.unlink()
        receiver.certificate("ANN", "anna")
        for _ in range(2):
            await post(sender, receiver.target("ANN"))
        assert sender.statistics().tls == TlsStatistics(handshakes=3, resumed=1)
    assert receiver.guests == ["ann@club.test", "anna@club.test", "anna@club.test"]


def test_end_of_reads_certificate_expiry(tmp_path: Path) -> None:
    ends = datetime(2030, 1, 2, tzinfo=UTC)
    made = trustme.CA().issue_cert("x.test", not_after=ends)
    both = tmp_path / "both.pem"
    both.write_bytes(made.private_key_and_cert_chain_pem.bytes())
    assert end_of(ClientCertificate("X", both, both)) == ends.timestamp() * 1000


def test_environment_names_client_certificates(tmp_path: Path) -> None:
    given = {"FW_CLIENT_CERT_ERP": "erp.pem", "FW_CLIENT_KEY_ERP": "/keys/erp.key",
             "FW_CLIENT_CERT_CRM": "crm.pem", "FW_CLIENT_KEY_LOST": "x"}  # fmt: skip
    env = Environment(given, Source(".env", {}))
    found = env.client_certificates(tmp_path)
    assert found == {
        "CRM": ClientCertificate("CRM", tmp_path / "crm.pem", tmp_path / "crm.pem"),
        "ERP": ClientCertificate("ERP", tmp_path / "erp.pem", Path("/keys/erp.key")),
    }
    assert [each.partition(": ")[2] for each in env.problems] == [
        "FW_CLIENT_KEY_LOST needs FW_CLIENT_CERT_LOST beside it"
    ]
    assert list(env.warnings()) == []


def test_empty_client_certificate_overrides_the_env_file(tmp_path: Path) -> None:
    """An empty variable switches off what the file names (C-51)."""
    file = Source(".env", {"FW_CLIENT_CERT_ERP": "erp.pem", "FW_CLIENT_CERT_CRM": "crm.pem"})
    env = Environment({"FW_CLIENT_CERT_ERP": ""}, file)
    assert list(env.client_certificates(tmp_path)) == ["CRM"]
    assert env.problems == []


@pytest.mark.parametrize("path", ["a\0b", "a\udcff"])
def test_client_certificate_must_be_a_path(tmp_path: Path, path: str) -> None:
    env = Environment({"FW_CLIENT_CERT_ERP": path}, Source(".env", {}))
    assert env.client_certificates(tmp_path) == {}
    assert env.problems == ["environment: FW_CLIENT_CERT_ERP must be a path"]


def with_certificates(folder: Path, *certificates: ClientCertificate) -> Config:
    return replace(
        make_config(folder), client_certificates={each.name: each for each in certificates}
    )


@asynccontextmanager
async def a_site(config: Config) -> AsyncIterator[Any]:
    clock = TrioClock(START_MS)
    async with open_site(
        config,
        clock=clock,
        entropy=SeededEntropy(1),
        inline=True,
        recorded=lambda store: lambda queue: None,
    ) as site:
        yield site


async def test_webhook_refuses_unusable_client_certificate(
    receiver: ClientCertificateReceiver,
) -> None:
    """The refusal names the field (B-371)."""
    torn, good = receiver.certificate("TORN", "torn"), receiver.certificate("GOOD", "good")
    torn.chain.write_text("no certificate")
    cases = [
        ({"client_certificate": "NONE"}, "FW_CLIENT_CERT_NONE is not in the environment"),
        ({"client_certificate": "TORN"}, "must contain a certificate and its key"),
        ({"client_certificate": "GOOD", "url": "http://127.0.0.1/"}, "needs an https URL"),
    ]
    async with a_site(with_certificates(receiver.folder, torn, good)) as site:
        for fields, sentence in cases:
            with pytest.raises(ValidationError, match=sentence) as refusal:
                await site.write(
                    "Administrator",
                    lambda fw, fields=fields: fw.new_doc("Webhook", **{**HOOK, **fields}).insert(),
                )
            assert refusal.value.extra["field"] == "client_certificate"
        await site.write(
            "Administrator",
            lambda fw: fw.new_doc("Webhook", **HOOK, client_certificate="GOOD").insert(),
        )


async def test_doctor_reports_lost_and_expiring_certificates(
    receiver: ClientCertificateReceiver,
) -> None:
    start = datetime.fromtimestamp(START_MS / 1000, UTC)
    soon = receiver.certificate("SOON", "soon", not_after=start + timedelta(days=29))
    later = receiver.certificate("LATER", "later", not_after=start + timedelta(days=31))
    gone = receiver.certificate("GONE", "gone")
    async with a_site(with_certificates(receiver.folder, soon, later, gone)) as site:
        for name in ("SOON", "LATER", "GONE"):
            hook = {**HOOK, "name": name.lower(), "client_certificate": name}
            await site.write(
                "Administrator", lambda fw, hook=hook: fw.new_doc("Webhook", **hook).insert()
            )
        gone.chain.unlink()
        facts = await webhook_facts(site)
    assert len(facts.lost_certificates) == 1
    assert facts.ending_certificates == ("SOON",)
    findings = [finding.text for finding in evaluate_webhooks(facts).findings]
    assert any("client certificate cannot be used" in text for text in findings)
