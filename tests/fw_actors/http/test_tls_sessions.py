"""A new connection resumes the session of an earlier one, where its certificate was verified."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme

from fw_actors.http import Endpoint, NetworkError, Sender, TlsError, open_sender
from fw_actors.http.tls import VERIFIED_SECONDS, SessionCache, TlsStatistics
from fw_actors.http.url import Origin
from tests.fw_actors.http.lookups import loopback
from tests.fw_actors.http.receiver import OK, ScriptedConnection, headers, once, receiving

CLOSING = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
AUTHORITY = trustme.CA()


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def serving(*names: str, authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@asynccontextmanager
async def sender() -> AsyncIterator[Sender]:
    async with open_sender(context=trusting(), lookup=loopback) as opened:
        yield opened


async def post(opened: Sender, to: Endpoint, **options: Any) -> int:
    response = await opened.post(to, b"{}", headers, timeout=20.0, **options)
    return response.status


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_session_is_resumed_by_second_connection(
    version: ssl.TLSVersion,
) -> None:
    """A verified origin's session is resumed (B-153)."""
    context = serving("hook.test")
    context.maximum_version = version
    async with receiving(once(CLOSING), context=context) as receiver, sender() as opened:
        for _ in range(3):
            assert await post(opened, receiver.target("hook.test")) == 200
        assert receiver.connections == 3
        assert opened.statistics().tls == TlsStatistics(handshakes=3, resumed=2)


async def test_tls_session_belongs_to_single_origin() -> None:
    """A session belongs to one origin (B-153)."""
    context = serving("one.test", "other.test")
    async with (
        receiving(once(CLOSING), context=context) as first,
        receiving(once(CLOSING), context=context) as second,
        sender() as opened,
    ):
        for to in (first.target("one.test"), first.target("other.test"), second.target("one.test")):
            assert await post(opened, to) == 200
        assert opened.statistics().tls == TlsStatistics(handshakes=3, resumed=0)


async def test_post_over_new_connection_does_full_handshake() -> None:
    """A test event shows the whole handshake, and verifies the certificate (B-153, B-270)."""
    async with (
        receiving(once(CLOSING), context=serving("hook.test")) as receiver,
        sender() as opened,
    ):
        for _ in range(2):
            assert await post(opened, receiver.target("hook.test"), fresh=True) == 200
        assert opened.statistics().tls.resumed == 0


async def test_tls_session_does_not_skip_changed_certificate() -> None:
    """A receiver that does not resume the session is verified (B-153, B-129)."""
    forged = serving("hook.test", authority=trustme.CA())
    async with sender() as opened:
        async with receiving(once(CLOSING), context=serving("hook.test")) as receiver:
            to = receiver.target("hook.test")
            assert await post(opened, to) == 200
        async with receiving(once(CLOSING), port=receiver.port, context=forged):
            with pytest.raises(TlsError, match="cannot be trusted"):
                await post(opened, to)


async def test_tls_session_is_dropped_after_failure() -> None:
    """No session outlives a failed handshake (B-153)."""
    accepted: list[bool] = []

    async def script(connection: ScriptedConnection) -> None:
        if len(accepted) == 1:
            accepted.append(False)
            await connection.reset()
            return
        accepted.append(True)
        await once(CLOSING)(connection)

    async with receiving(script, context=serving("hook.test")) as receiver, sender() as opened:
        to = receiver.target("hook.test")
        assert await post(opened, to) == 200
        with pytest.raises(TlsError):
            await post(opened, to)
        assert await post(opened, to) == 200
        assert opened.statistics().tls == TlsStatistics(handshakes=2, resumed=0)


async def reset(connection: ScriptedConnection) -> None:
    await connection.reset()


async def end_without_notice(connection: ScriptedConnection) -> None:
    await connection.stream.transport_stream.aclose()  # type: ignore[union-attr]


async def end_within_answer(connection: ScriptedConnection) -> None:
    await connection.stream.send_all(CLOSING[:12])
    await connection.reset()


@pytest.mark.parametrize("fail", [reset, end_without_notice, end_within_answer])
async def test_session_is_dropped_when_connection_ends_before_answer(
    fail: Callable[[ScriptedConnection], Awaitable[None]],
) -> None:
    """A receiver that fails with resumed connections is reached by a full handshake (B-153)."""
    resumed: list[bool] = []

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        resumed.append(connection.stream._ssl_object.session_reused)  # type: ignore[union-attr]
        if resumed[-1]:
            await fail(connection)
        else:
            await connection.stream.send_all(CLOSING)

    async with receiving(script, context=serving("hook.test")) as receiver, sender() as opened:
        to = receiver.target("hook.test")
        for _ in range(2):
            assert await post(opened, to) == 200
            with pytest.raises(NetworkError):
                await post(opened, to)
    assert resumed == [False, True, False, True]


async def test_tls_connects_to_receiver_without_tickets() -> None:
    """Each handshake is a full one if the receiver sends no tickets (B-153)."""
    context = serving("hook.test")
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    async with receiving(once(CLOSING), context=context) as receiver, sender() as opened:
        for _ in range(2):
            assert await post(opened, receiver.target("hook.test")) == 200
        assert opened.statistics().tls.resumed == 0


def session_of(cache: SessionCache, origin: Origin, verified_at: float) -> None:
    tls = SimpleNamespace(session=SimpleNamespace(has_ticket=True), context=CONTEXT)
    cache.keep(origin, cast(ssl.SSLObject, tls), verified_at)


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ORIGINS = [Origin("https", f"h{n}", 443) for n in range(4)]


def test_tls_session_expires_hour_after_verification() -> None:
    """However often it was resumed, a certificate is verified once an hour (B-153)."""
    now = 0.0
    cache = SessionCache(lambda: now)
    session_of(cache, ORIGINS[0], 0.0)
    resumed = cast(ssl.SSLObject, SimpleNamespace(session_reused=True))
    now = VERIFIED_SECONDS - 1
    known = cache.get(ORIGINS[0], CONTEXT)
    assert known is not None
    assert cache.begin(known, resumed) == 0.0
    session_of(cache, ORIGINS[0], 0.0)
    now = VERIFIED_SECONDS
    assert cache.get(ORIGINS[0], CONTEXT) is None


def test_session_cache_forgets_least_recently_used() -> None:
    """The sessions kept are bounded."""
    cache = SessionCache(lambda: 0.0, capacity=2)
    session_of(cache, ORIGINS[0], 0.0)
    session_of(cache, ORIGINS[1], 0.0)
    assert cache.get(ORIGINS[0], CONTEXT)
    session_of(cache, ORIGINS[2], 0.0)
    assert [cache.get(origin, CONTEXT) is not None for origin in ORIGINS] == [
        True,
        False,
        True,
        False,
    ]


def test_session_cache_ignores_session_without_ticket() -> None:
    cache = SessionCache(lambda: 0.0)
    for session in (None, SimpleNamespace(has_ticket=False)):
        cache.keep(
            ORIGINS[0], cast(ssl.SSLObject, SimpleNamespace(session=session, context=CONTEXT)), 0.0
        )
    assert cache.get(ORIGINS[0], CONTEXT) is None
