"""Receivers are reached through an egress proxy: a real one, and ones that fail (B-156)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio
import trustme

from fw_actors.http import (
    Address,
    ConnectError,
    ForbiddenAddress,
    ResponseTimeout,
    open_sender,
    parse_endpoint,
)
from fw_actors.rules.outgoing import EgressProxy, OutgoingPolicy
from tests.fw_actors.http.egress_proxy import free_port, tinyproxy
from tests.fw_actors.http.lookups import loopback
from tests.fw_actors.http.receiver import OK, ScriptedConnection, always, headers, receiving

SECONDS = 20.0


@pytest.fixture(scope="module")
def proxy_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with tinyproxy(tmp_path_factory.mktemp("proxy")) as port:
        yield port


def never(host: str, port: int) -> Sequence[Address]:
    raise AssertionError(f"{host} was looked up here")


async def test_proxy_carries_post_over_tls(proxy_port: int, tmp_path: Path) -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    proxy = EgressProxy("127.0.0.1", proxy_port, "fw:hidden-word")
    async with (
        receiving(always(OK), context=serving) as receiver,
        open_sender(context=trusting, lookup=never, proxy=proxy) as sender,
    ):
        to = receiver.target("localhost")
        for _ in range(2):
            answer = await sender.post(to, b"{}", headers, timeout=SECONDS)
            assert answer.status == 200
        assert (receiver.connections, len(receiver.requests)) == (1, 2)
        assert sender.statistics().pool.reused == 1


async def test_proxy_carries_post_without_tls(proxy_port: int) -> None:
    proxy = EgressProxy("127.0.0.1", proxy_port, "fw:hidden-word")
    async with (
        receiving(always(OK)) as receiver,
        open_sender(lookup=never, proxy=proxy) as sender,
    ):
        to = receiver.target("localhost")
        answer = await sender.post(to, b"{}", headers, timeout=SECONDS)
        assert (answer.status, answer.address) == (200, f"127.0.0.1:{proxy_port}")
        assert b"proxy-authorization" not in receiver.requests[0].lower()


@pytest.mark.parametrize("credentials", [None, "fw:wrong"])
async def test_proxy_refusing_credentials_is_connect_error(
    proxy_port: int, credentials: str | None
) -> None:
    proxy = EgressProxy("127.0.0.1", proxy_port, credentials)
    async with receiving(always(OK)) as receiver, open_sender(proxy=proxy) as sender:
        with pytest.raises(ConnectError) as caught:
            await sender.post(receiver.target("localhost"), b"{}", headers, timeout=SECONDS)
        assert receiver.connections == 0
    assert str(caught.value) == (
        "connect: The proxy 127.0.0.1 does not accept the credentials of FW_OUTGOING_PROXY_AUTH."
    )
    assert "wrong" not in repr(proxy)


async def test_proxy_unable_to_connect_is_connect_error(proxy_port: int) -> None:
    proxy = EgressProxy("127.0.0.1", proxy_port, "fw:hidden-word")
    async with open_sender(proxy=proxy) as sender:
        gone = parse_endpoint(f"http://localhost:{free_port()}/hook")
        with pytest.raises(ConnectError, match="refused to connect to localhost port"):
            await sender.post(gone, b"{}", headers, timeout=SECONDS)


async def test_proxy_does_not_carry_its_exceptions() -> None:
    proxy = EgressProxy("127.0.0.1", 1, exceptions=("localhost",))
    async with (
        receiving(always(OK)) as receiver,
        open_sender(lookup=loopback, proxy=proxy) as sender,
    ):
        to = receiver.target("localhost")
        assert (await sender.post(to, b"{}", headers, timeout=SECONDS)).status == 200


async def test_unreachable_proxy_is_connect_error() -> None:
    to = parse_endpoint("http://localhost/hook")
    async with open_sender(proxy=EgressProxy("127.0.0.1", free_port())) as sender:
        with pytest.raises(ConnectError, match=r"The proxy: 127\.0\.0\.1 port \d+ refused"):
            await sender.post(to, b"{}", headers, timeout=SECONDS)


async def test_proxy_carries_nothing_to_denied_address() -> None:
    proxy, to = EgressProxy("127.0.0.1", free_port()), parse_endpoint("http://127.0.0.1/hook")
    async with open_sender(policy=OutgoingPolicy("deny"), proxy=proxy) as sender:
        with pytest.raises(ForbiddenAddress):
            await sender.post(to, b"{}", headers, timeout=SECONDS)


NO_PROXY = [
    b"SSH-2.0-OpenSSH\r\n",
    b"",
    b"HTTP/1.1 200 OK\r\n\r\nspoken too early",
    b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("said", NO_PROXY, ids=["other protocol", "end", "early bytes", "long"])
async def test_peer_other_than_proxy_is_connect_error(said: bytes) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.until(b"\r\n\r\n")
        await connection.stream.send_all(said)
        await connection.stream.aclose()

    async with (
        receiving(script) as peer,
        open_sender(lookup=never, proxy=EgressProxy("127.0.0.1", peer.port)) as sender,
    ):
        with pytest.raises(ConnectError, match="did not answer as an HTTP proxy"):
            await sender.post(peer.target("localhost"), b"{}", headers, timeout=SECONDS)


async def test_hanging_proxy_is_timeout_error() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await trio.sleep_forever()

    async with (
        receiving(script) as peer,
        open_sender(lookup=never, proxy=EgressProxy("127.0.0.1", peer.port)) as sender,
    ):
        with pytest.raises(ResponseTimeout, match="The proxy did not connect to localhost"):
            await sender.post(peer.target("localhost"), b"{}", headers, timeout=0.2)
