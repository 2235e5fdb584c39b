"""Any address of a name may serve (B-146), and TLS is verified (B-129)."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from fw_actors.http import (
    Address,
    ConnectError,
    DnsError,
    ForbiddenAddress,
    ResponseTimeout,
    Sender,
    TlsError,
    open_sender,
    parse_endpoint,
    system_trust,
)
from fw_actors.http.dial import MAX_ADDRESSES
from fw_actors.rules.outgoing import OutgoingPolicy
from tests.fw_actors.http.lookups import found, loopback, v4, v6
from tests.fw_actors.http.receiver import OK, ScriptedConnection, always, headers, once, receiving

LONG, SHORT = 30.0, 0.3
UNSUPPORTED = 200  # no address family


async def test_dial_connects_to_ipv6_address() -> None:
    async with receiving(always(OK), host="::1") as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target("[::1]"), b"{}", headers, timeout=LONG)
        assert answer.status == 200
        assert b"host: [::1]:%d\r\n" % receiver.port in receiver.requests[0]


async def test_dial_never_looks_up_address() -> None:
    def never(host: str, port: int) -> Sequence[Address]:
        raise AssertionError(host)

    async with receiving(always(OK)) as receiver, open_sender(lookup=never) as sender:
        await sender.post(receiver.target("127.0.0.1"), b"{}", headers, timeout=LONG)


async def test_dial_skips_refusing_address() -> None:
    async with receiving(always(OK)) as receiver:
        port = receiver.port
        lookup = found(v6("::1", port), v4("127.0.0.2", port), v4("127.0.0.1", port))
        async with open_sender(lookup=lookup) as sender:
            answer = await sender.post(receiver.target("localhost"), b"{}", headers, timeout=LONG)
            assert answer.status == 200


async def test_dial_skips_address_of_unsupported_family() -> None:
    """Of IPv6, on a machine without it (B-146)."""
    async with receiving(always(OK)) as receiver:
        unsupported: Any = (UNSUPPORTED, ("127.0.0.1", receiver.port))
        lookup = found(unsupported, v4("127.0.0.1", receiver.port))
        async with open_sender(lookup=lookup) as sender:
            answer = await sender.post(receiver.target("localhost"), b"{}", headers, timeout=LONG)
            assert answer.status == 200


@contextmanager
def silent_port() -> Iterator[int]:
    """Give a port of 127.0.0.2 that neither accepts nor refuses: its backlog is full."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.2", port))
        yield port


async def test_dial_skips_silent_address() -> None:
    """RFC 8305 5: the next address is dialled before the first one fails."""
    with silent_port() as port:
        async with receiving(always(OK)) as receiver:
            lookup = found(v4("127.0.0.2", port), v4("127.0.0.1", receiver.port))
            async with open_sender(lookup=lookup) as sender:
                answer = await sender.post(
                    receiver.target("localhost"), b"{}", headers, timeout=LONG
                )
                assert answer.status == 200
                with pytest.raises(ResponseTimeout, match="did not take the connection"):
                    await sender.post(
                        parse_endpoint(f"http://127.0.0.2:{port}"), b"{}", headers, timeout=SHORT
                    )


@pytest.mark.parametrize("silent", [12, MAX_ADDRESSES - 1])
async def test_dial_tries_last_of_many_silent_addresses(silent: int) -> None:
    """B-146: within the deadline, which is shorter than 250 ms for each."""
    with silent_port() as port:
        async with receiving(always(OK)) as receiver:
            addresses = [v4("127.0.0.2", port)] * silent
            lookup = found(*addresses, v4("127.0.0.1", receiver.port))
            async with open_sender(lookup=lookup) as sender:
                answer = await sender.post(receiver.target("localhost"), b"{}", headers, timeout=2)
                assert answer.status == 200


async def test_dial_tries_limited_number_of_addresses() -> None:
    """B-146: a name with more keeps no more descriptors."""
    async with receiving(always(OK)) as receiver:
        refusing = [v4("127.0.0.2", 1)] * MAX_ADDRESSES
        lookup = found(*refusing, v4("127.0.0.1", receiver.port))
        async with open_sender(lookup=lookup) as sender:
            with pytest.raises(ConnectError, match=f"and {MAX_ADDRESSES - 1} more"):
                await sender.post(receiver.target("localhost"), b"{}", headers, timeout=LONG)


async def test_dial_reports_single_error_if_all_refuse() -> None:
    lookup = found(v4("127.0.0.2", 1), v4("127.0.0.3", 1))
    async with open_sender(lookup=lookup) as sender:
        with pytest.raises(ConnectError, match=r"localhost port 1 .* refused"):
            await sender.post(parse_endpoint("http://localhost:1"), b"{}", headers, timeout=LONG)


async def test_dial_reports_unknown_name_as_dns_error() -> None:
    def unknown(host: str, port: int) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    async with open_sender(lookup=unknown) as sender:
        with pytest.raises(DnsError, match=r"nowhere\.example"):
            await sender.post(
                parse_endpoint("https://nowhere.example/x"), b"{}", headers, timeout=LONG
            )


@pytest.mark.parametrize(
    "host",
    [
        "169.254.0.0",
        "169.254.169.254",
        "169.254.255.255",
        "[fe80::1]",
        "[febf::1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::169.254.169.254]",
        "[2002:a9fe:a9fe::1]",
    ],
)
async def test_dial_refuses_link_local_address_in_url(host: str) -> None:
    """Clouds serve the machine's credentials at such an address."""
    async with open_sender() as sender:
        with pytest.raises(ConnectError) as caught:
            await sender.post(parse_endpoint(f"https://{host}/x"), b"{}", headers, timeout=LONG)
    parsed = parse_endpoint(f"https://{host}").origin.host
    assert str(caught.value) == (
        f"connect: {parsed} is a link-local address, which is never connected to."
    )


async def test_dial_refuses_name_rebound_to_link_local_address() -> None:
    """DNS rebinding: each look-up is checked, not only the first."""
    async with receiving(once(OK)) as receiver:
        answers = [
            [v4("127.0.0.1", receiver.port)],
            [v4("169.254.169.254", receiver.port)],
            [v6("::ffff:169.254.169.254", receiver.port), (socket.AF_INET6, ("fe80::1", 1, 0, 2))],
            [v4("169.254.169.254", receiver.port), v4("127.0.0.1", receiver.port)],
        ]

        def rebinding(host: str, port: int) -> Sequence[Address]:
            return answers.pop(0)

        async with open_sender(lookup=rebinding) as sender:
            target = receiver.target("localhost")
            assert (await sender.post(target, b"{}", headers, timeout=LONG)).status == 200
            for _ in range(2):
                with pytest.raises(ConnectError, match="localhost is a link-local address"):
                    await sender.post(target, b"{}", headers, timeout=LONG)
            answer = await sender.post(target, b"{}", headers, timeout=LONG)
            assert answer.status == 200, "the addresses beside it are used"
            assert len(receiver.requests) == 2


class Authority:
    """Certificates of its own, and a sender that trusts it, over either kind of connection."""

    def __init__(self, *, fast_path: bool) -> None:
        self.fast_path = fast_path
        self._ca = trustme.CA()
        self.trusting = ssl.create_default_context()
        self._ca.configure_trust(self.trusting)

    def sender(self) -> AbstractAsyncContextManager[Sender]:
        return open_sender(context=self.trusting, lookup=loopback, fast_path=self.fast_path)

    def server(self, *names: str, not_after: datetime.datetime | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names, not_after=not_after).configure_cert(context)
        return context


@pytest.fixture(scope="module", params=[True, False], ids=["own sockets", "trio's stream"])
def authority(request: pytest.FixtureRequest) -> Authority:
    return Authority(fast_path=request.param)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_tls_connection_to_trusted_receiver_is_kept(authority: Authority, name: str) -> None:
    async with (
        receiving(always(OK), context=authority.server(name)) as receiver,
        authority.sender() as sender,
    ):
        first = await sender.post(receiver.target(name), b"{}", headers, timeout=LONG)
        second = await sender.post(receiver.target(name), b"{}", headers, timeout=LONG)
        assert (first.status, second.status, receiver.connections) == (200, 200, 1)
        assert first.times.tls > 0
        assert second.times.tls == 0


async def test_tls_sends_big_body_whole(authority: Authority) -> None:
    body = b"x" * 3_000_000
    async with (
        receiving(always(OK), context=authority.server("127.0.0.1")) as receiver,
        authority.sender() as sender,
    ):
        answer = await sender.post(receiver.target(), body, headers, timeout=LONG)
        assert answer.status == 200
        assert receiver.requests[0].endswith(body)
        assert sender.statistics().pool.idle == 1


async def test_tls_early_answer_is_accepted(authority: Authority) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.until(b"\r\n\r\n")
        await connection.answer(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await trio.sleep_forever()

    async with (
        receiving(script, context=authority.server("127.0.0.1")) as receiver,
        authority.sender() as sender,
    ):
        answer = await sender.post(receiver.target(), b"x" * 8_000_000, headers, timeout=LONG)
        assert (answer.status, answer.body) == (413, b"big")


async def refused(authority: Authority, receiver_context: ssl.SSLContext) -> TlsError:
    """Post to a receiver that is not to be trusted; nothing may be sent."""
    async with (
        receiving(always(OK), context=receiver_context) as receiver,
        authority.sender() as sender,
    ):
        with pytest.raises(TlsError) as caught:
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert receiver.requests == []
        assert sender.statistics().pool.in_use == 0
    return caught.value


def self_signed() -> ssl.SSLContext:
    """Return the context of a receiver with a self-signed certificate."""
    alone = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with alone.cert_pem.tempfile() as certificate, alone.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


async def test_tls_refuses_self_signed_certificate(authority: Authority) -> None:
    error = await refused(authority, self_signed())
    assert str(error).startswith("tls: The certificate of 127.0.0.1 cannot be trusted: ")
    assert "self-signed" in error.sentence.replace("self signed", "self-signed")


async def test_tls_names_expected_host_on_mismatch(authority: Authority) -> None:
    async with (
        receiving(always(OK), context=authority.server("elsewhere.example")) as receiver,
        authority.sender() as sender,
    ):
        with pytest.raises(TlsError, match=r"mismatch.* 'localhost'") as caught:
            await sender.post(receiver.target("localhost"), b"{}", headers, timeout=LONG)
        assert receiver.requests == []
        assert caught.value.kind == "tls"


async def test_tls_refuses_unknown_authority(authority: Authority) -> None:
    error = await refused(Authority(fast_path=authority.fast_path), authority.server("127.0.0.1"))
    assert "cannot be trusted" in error.sentence
    assert "\n" not in error.sentence


async def test_tls_refuses_certificate_of_other_host(authority: Authority) -> None:
    error = await refused(authority, authority.server("elsewhere.example"))
    assert "127.0.0.1" in error.sentence


async def test_tls_refuses_expired_certificate(authority: Authority) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    server = authority.server("127.0.0.1", not_after=yesterday)
    assert "expired" in (await refused(authority, server)).sentence


async def test_tls_reports_plain_receiver_as_error(authority: Authority) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.gone()

    async with receiving(script) as receiver, authority.sender() as sender:
        target = parse_endpoint(f"https://127.0.0.1:{receiver.port}/hook")
        with pytest.raises(TlsError):
            await sender.post(target, b"{}", headers, timeout=LONG)


@pytest.mark.parametrize("reset", [False, True])
async def test_tls_reports_broken_handshake_as_error(authority: Authority, reset: bool) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.stream.receive_some(1)
        if reset:
            await connection.reset()

    async with receiving(script) as receiver, authority.sender() as sender:
        target = parse_endpoint(f"https://127.0.0.1:{receiver.port}/hook")
        with pytest.raises(TlsError):
            await sender.post(target, b"{}", headers, timeout=LONG)


async def test_tls_reports_silent_handshake_as_timeout(authority: Authority) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.gone()

    async with receiving(script) as receiver, authority.sender() as sender:
        target = parse_endpoint(f"https://127.0.0.1:{receiver.port}/hook")
        with pytest.raises(ResponseTimeout, match="TLS handshake"):
            await sender.post(target, b"{}", headers, timeout=SHORT)


async def test_dial_reports_silent_name_server_as_timeout() -> None:
    held = threading.Event()

    def hang(host: str, port: int) -> Sequence[Address]:
        held.wait(5)
        return []

    async with open_sender(lookup=hang) as sender:
        with pytest.raises(ResponseTimeout, match="was not resolved"):
            await sender.post(parse_endpoint("https://slow.example"), b"{}", headers, timeout=SHORT)
        held.set()


@pytest.mark.parametrize("answered", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
async def test_tls_break_ends_answer_like_closed_connection(
    authority: Authority, answered: bytes
) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer(answered)
        assert isinstance(connection.stream, trio.SSLStream)
        await connection.stream.transport_stream.send_all(b"no record of TLS")
        await connection.gone()

    async with (
        receiving(script, context=authority.server("127.0.0.1")) as receiver,
        authority.sender() as sender,
    ):
        if answered:
            answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
            assert (answer.status, answer.body) == (200, b"half")
        else:
            with pytest.raises(TlsError):
                await sender.post(receiver.target(), b"{}", headers, timeout=LONG)


def test_system_trust_verifies_certificate_and_name() -> None:
    context = system_trust()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_system_trust_adds_file_of_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`SSL_CERT_FILE` adds to the system's trust store (B-129)."""
    before = system_trust().cert_store_stats()["x509_ca"]
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert system_trust().cert_store_stats()["x509_ca"] == before + 1


async def test_tls_record_after_answer_is_not_next_answer(
    authority: Authority,
) -> None:
    """The record came with the answer; TLS buffers it, so the socket looks empty."""

    async def script(connection: ScriptedConnection) -> None:
        assert isinstance(connection.stream, trio.SSLStream)
        sock = connection.stream.transport_stream.socket
        while await connection.request():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # both in one segment
            await connection.answer(OK)
            await connection.answer(b"HTTP/1.1 500 Unasked\r\ncontent-length: 0\r\n\r\n")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    async with (
        receiving(script, context=authority.server("127.0.0.1")) as receiver,
        authority.sender() as sender,
    ):
        for _ in range(3):
            answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
            assert answer.status == 200


DENY = OutgoingPolicy("deny")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.1"])
async def test_dial_refuses_private_address_under_deny_policy(host: str) -> None:
    target = parse_endpoint(f"https://{host}/hook")
    async with open_sender(policy=DENY) as sender:
        with pytest.raises(ForbiddenAddress) as caught:
            await sender.post(target, b"{}", headers, timeout=LONG)
    assert str(caught.value) == (
        f"connect: {host.strip('[]')} is not a public address, and ops.outgoing.private is deny."
    )


async def test_dial_uses_public_address_beside_refused_private_address() -> None:
    async with receiving(always(OK)) as receiver:
        lookup = found(v4("10.0.0.1", receiver.port), v4("127.0.0.1", receiver.port))
        policy = OutgoingPolicy("deny", (ip_network("127.0.0.0/8"),))
        async with open_sender(lookup=lookup, policy=policy) as sender:
            answer = await sender.post(receiver.target("localhost"), b"{}", headers, timeout=LONG)
    assert answer.status == 200


async def test_dial_refuses_name_rebound_to_private_address() -> None:
    async with receiving(
        once(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    ) as receiver:
        addresses = [v4("127.0.0.1", receiver.port), v4("127.0.0.2", receiver.port)]

        def rebinding(host: str, port: int) -> Sequence[Address]:
            return [addresses.pop(0)]

        policy = OutgoingPolicy("deny", (ip_network("127.0.0.1/32"),))
        async with open_sender(lookup=rebinding, policy=policy) as sender:
            to = receiver.target("localhost")
            await sender.post(to, b"{}", headers, timeout=LONG)
            with pytest.raises(ForbiddenAddress, match="is not a public address"):
                await sender.post(to, b"{}", headers, timeout=LONG)
        assert len(receiver.requests) == 1


async def test_dial_refuses_own_machine_by_public_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B-155: a public address of this machine, which a test cannot have, is one that counts as
    public and as no loopback address."""
    monkeypatch.setattr("fw_actors.rules.outgoing.is_public", lambda address: True)
    monkeypatch.setattr("fw_actors.http.dial.leads_to_loopback", lambda address: False)
    async with receiving(always(OK)) as receiver, open_sender(policy=DENY) as sender:
        with pytest.raises(ForbiddenAddress, match=r"127\.0\.0\.1 is this machine"):
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert receiver.requests == []


@pytest.mark.parametrize("address", ["127.0.0.2", "::ffff:127.0.0.2"])
async def test_dial_refuses_own_port_in_listed_network(address: str) -> None:
    """The port of the service itself, by any loopback address and in any form of it (B-155)."""
    with socket.create_server(("0.0.0.0", 0)) as service:
        service.setblocking(False)
        port = service.getsockname()[1]
        policy = OutgoingPolicy("deny", (ip_network("127.0.0.0/8"),), own_port=port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        at = (address, port, 0, 0) if ":" in address else (address, port)
        async with open_sender(lookup=lambda *_: [(family, at)], policy=policy) as sender:
            to = parse_endpoint(f"http://localhost:{port}/")
            with pytest.raises(ForbiddenAddress, match="localhost is this machine"):
                await sender.post(to, b"{}", headers, timeout=LONG)
