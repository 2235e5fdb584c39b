"""One POST, one deadline, and the head decides (B-120, B-140, B-141).

The module has more than 500 lines because each part of a POST may fail, and each failure is a test.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from fw_actors import __version__
from fw_actors.http import (
    Address,
    ConnectError,
    PoolLimits,
    ProtocolError,
    ResponseTimeout,
    Sender,
    open_sender,
)
from fw_actors.http.exchange import PlainConnection
from tests.fw_actors.http.lookups import loopback
from tests.fw_actors.http.receiver import (
    OK,
    Script,
    ScriptedConnection,
    SocketReceiver,
    always,
    headers,
    once,
    receiving,
    silent,
)

SHORT = 0.3  # seconds of a deadline that is meant to pass
LONG = 30.0  # seconds of one that is not
BIG = b"x" * 8_000_000  # more than loopback's buffers take


async def test_request_has_exactly_documented_headers() -> None:
    """The request has exactly these headers (B-121)."""
    async with receiving(always(OK)) as receiver, open_sender() as sender:
        await sender.post(receiver.target(path="/a?b=c"), b'{"a":1}', headers, timeout=LONG)
        assert receiver.requests == [
            b"POST /a?b=c HTTP/1.1\r\n"
            b"host: 127.0.0.1:%d\r\n"
            b"content-type: application/json\r\n"
            b"content-length: 7\r\n"
            b"user-agent: fw-webhooks/%b\r\n"
            b"accept: */*\r\n"
            b"webhook-id: msg_1\r\n"
            b"webhook-timestamp: 1\r\n"
            b"webhook-signature: v1,AA==\r\n"
            b"\r\n"
            b'{"a":1}' % (receiver.port, __version__.encode())
        ]


ANSWERS = [  # what is sent, status, body, whether the connection serves the next POST too
    (OK, 200, b"ok", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, b"", True),
    (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        200,
        b"abc",
        True,
    ),
    (b"HTTP/1.1 503 No\r\ncontent-length: 600\r\n\r\n" + b"a" * 600, 503, b"a" * 512, True),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nlink: x\r\n\r\n" + OK, 200, b"ok", True),
    (b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK, 200, b"ok", True),
    (OK + b"HTTP/1.1 200 smuggled\r\ncontent-length: 0\r\n\r\n", 200, b"ok", False),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\x00", 200, b"\xff\x00", True),
    (
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        200,
        b"a",
        False,
    ),
]


@pytest.mark.parametrize(("data", "status", "body", "kept"), ANSWERS)
async def test_answer_is_read_and_connection_kept_if_allowed(
    data: bytes, status: int, body: bytes, kept: bool
) -> None:
    """RFC 9112 6.3 and 9.3 (B-148); 1xx answers are skipped, at most 20 (B-144)."""
    async with receiving(always(data)) as receiver, open_sender() as sender:
        for _ in range(3):
            answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
            assert (answer.status, answer.body) == (status, body)
        assert receiver.connections == (1 if kept else 3)
        assert sender.statistics().pool.in_use == 0


async def test_answer_names_address_of_connection() -> None:
    """The record of an attempt has the address (B-186)."""
    async with receiving(always(OK)) as receiver, open_sender() as sender:
        answers = [
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG) for _ in range(2)
        ]
        assert [each.address for each in answers] == [f"127.0.0.1:{receiver.port}"] * 2
        assert receiver.connections == 1


async def test_failure_names_address_of_attempt() -> None:
    """The record of an attempt has the address (B-186)."""
    async with receiving(once(b"")) as receiver, open_sender() as sender:
        with pytest.raises(ProtocolError) as broken:
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        target = receiver.target()
    async with open_sender() as sender:
        with pytest.raises(ConnectError) as refused:
            await sender.post(target, b"{}", headers, timeout=LONG)
    assert broken.value.address == refused.value.address == f"127.0.0.1:{receiver.port}"


async def test_answer_without_length_ends_with_connection() -> None:
    """RFC 9112 6.3, item 8."""
    script = once(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert answer.body == b"until the end"


async def test_redirect_is_not_followed_and_location_is_stripped() -> None:
    """No redirect is followed (B-128); `error` names the Location without its query (B-168)."""
    redirect = (
        b"HTTP/1.1 302 Found\r\nlocation: https://u:p@other.example/x?token=1#f\r\n"
        b"retry-after: 7\r\ncontent-length: 0\r\n\r\n"
    )
    async with receiving(always(redirect)) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert (answer.status, answer.location) == (302, "https://other.example/x")
        assert answer.retry_after == "7"
        assert len(receiver.requests) == 1


async def test_concurrent_posts_share_pool_connections() -> None:
    async with (
        receiving(always(OK)) as receiver,
        open_sender(limits=PoolLimits(idle_per_origin=4)) as sender,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(post, sender, receiver)
        pool = sender.statistics().pool
        assert (pool.in_use, pool.idle, len(receiver.requests)) == (0, 4, 40)


async def post(sender: Sender, receiver: SocketReceiver) -> None:
    answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
    assert answer.status == 200


BAD = [
    b"garbage\r\n\r\n",
    b"\x16\x03\x01\x00\x05hello\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 21 + OK,
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-le",
    b"",
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data[:24]))
async def test_invalid_answer_is_protocol_error(data: bytes) -> None:
    """Huge heads and endless 1xx answers are protocol errors (B-143, B-144, B-168)."""
    async with receiving(once(data)) as receiver, open_sender() as sender:
        with pytest.raises(ProtocolError) as caught:
            await sender.post(receiver.target(path="/x?token=1"), b"{}", headers, timeout=LONG)
        assert "token" not in str(caught.value)
        assert "/x" not in str(caught.value)
        assert len(receiver.requests) == 1  # only a stale connection is retried


async def test_interim_answers_are_limited_to_20() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        while True:
            await connection.answer(b"HTTP/1.1 102 Processing\r\n\r\n")

    async with receiving(script) as receiver, open_sender() as sender:
        with pytest.raises(ProtocolError, match="more than 20"):
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)


async def test_reset_is_protocol_error_without_repetition() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.reset()

    async with receiving(script) as receiver, open_sender() as sender:
        with pytest.raises(ProtocolError):
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert receiver.connections == 1


async def test_closed_port_is_connect_error() -> None:
    async with receiving(silent) as receiver:
        target = receiver.target()
    async with open_sender() as sender:
        with pytest.raises(ConnectError, match="refused"):
            await sender.post(target, b"{}", headers, timeout=LONG)


async def drip(connection: ScriptedConnection) -> None:
    await connection.request()
    while True:
        await connection.answer(b"HTTP/1.1 100 C\r\nx: ")
        await connection.gone()


async def byte_by_byte(connection: ScriptedConnection) -> None:
    """Send a byte at a time, and never a whole head."""
    await connection.request()
    while True:
        for byte in b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 30_000:
            await connection.answer(bytes([byte]))
            await trio.sleep(0.01)


@pytest.mark.parametrize("script", [silent, drip, byte_by_byte])
async def test_missing_head_is_timeout_error(script: Script) -> None:
    async with receiving(script) as receiver, open_sender() as sender:
        with pytest.raises(ResponseTimeout, match=r"127\.0\.0\.1 did not answer within 0\.3 s"):
            await sender.post(receiver.target(), b"{}", headers, timeout=SHORT)


async def test_receiver_that_reads_nothing_is_timeout_error() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await trio.sleep_forever()

    async with receiving(script) as receiver, open_sender() as sender:
        with pytest.raises(ResponseTimeout, match="did not take the whole request"):
            await sender.post(receiver.target(), BIG, headers, timeout=SHORT)
        assert sender.statistics().pool.in_use == 0


async def test_stalled_body_is_only_shortened() -> None:
    """Once a whole answer head is in, its status decides (B-141, B-142)."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await connection.gone()

    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=3 * SHORT)
        assert (answer.status, answer.body) == (200, b"half")
        assert sender.statistics().pool.idle == 0


async def test_dripping_body_is_cut_at_deadline() -> None:
    """One deadline over all of it: bytes that do come do not put it off (B-140)."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 30000\r\n\r\n")
        while True:
            await connection.answer(b"a")
            await trio.sleep(0.01)

    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=3 * SHORT)
        assert answer.status == 200
        assert answer.body == b"a" * len(answer.body)
        assert len(answer.body) < 512
        assert sender.statistics().pool.idle == 0


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Set when the sender has read bytes: what is not read before a reset may go with it."""
    event = trio.Event()
    receive = PlainConnection.receive

    async def noted(connection: PlainConnection, limit: int) -> bytes:
        data = await receive(connection, limit)
        event.set()
        return data

    monkeypatch.setattr(PlainConnection, "receive", noted)
    return event


@pytest.mark.parametrize("reset", [False, True])
async def test_broken_body_is_only_shortened(received: trio.Event, reset: bool) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"
        )
        if reset:
            await received.wait()
            await connection.reset()

    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert (answer.status, answer.body) == (200, b"half")


async def test_broken_chunk_only_shortens_body() -> None:
    broken = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n"
    async with receiving(always(broken)) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert (answer.status, answer.body) == (200, b"half")
        assert sender.statistics().pool.idle == 0


ENDLESS = [  # the end of the head, and what is repeated without end
    (b"transfer-encoding: chunked\r\n", b"100\r\n" + b"a" * 256 + b"\r\n"),
    (b"content-length: 99999999999\r\n", b"a" * 256),
    (b"", b"a" * 256),
]


@pytest.mark.parametrize(("framing", "piece"), ENDLESS, ids=["chunked", "length", "until-close"])
async def test_endless_body_is_cut_at_512_bytes(framing: bytes, piece: bytes) -> None:
    """After 512 body bytes the connection is closed, unless the rest is there (B-143)."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n")
        while True:
            await connection.answer(piece)

    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert (answer.status, answer.body) == (200, b"a" * 512)
        assert sender.statistics().pool.idle == 0


async def test_closed_idle_connection_is_not_reused() -> None:
    async with receiving(once(OK)) as receiver, open_sender() as sender:
        for _ in range(3):
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert receiver.connections == 3


async def test_stale_connection_is_replaced_once() -> None:
    """A reused connection that breaks before the first answer byte is replaced once (B-147)."""
    made = 0

    def make() -> Sequence[tuple[bytes, bytes]]:
        nonlocal made
        made += 1
        return headers()

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        if connection.number < 3:
            await connection.answer()
        await connection.request()  # and die of it

    async with receiving(script) as receiver, open_sender() as sender:
        first = await sender.post(receiver.target(), b"{}", make, timeout=LONG)
        second = await sender.post(receiver.target(), b"{}", make, timeout=LONG)
        assert (first.status, second.status, receiver.connections, made) == (200, 200, 2, 3)
        with pytest.raises(ResponseTimeout):  # the third connection never answers
            await sender.post(receiver.target(), b"{}", make, timeout=SHORT)
        assert receiver.connections == 3


async def test_replaced_connection_is_not_replaced_again() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        if connection.number == 1:
            await connection.answer()
            await connection.request()

    async with receiving(script) as receiver, open_sender() as sender:
        await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        with pytest.raises(ProtocolError):
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert receiver.connections == 2


async def test_connection_broken_after_answer_byte_is_not_replaced() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()
        await connection.answer(b"H")

    async with receiving(script) as receiver, open_sender() as sender:
        await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        with pytest.raises(ProtocolError):
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert receiver.connections == 1


async def test_answer_before_whole_body_is_accepted() -> None:
    """An early answer counts (B-145); the rest of the body is not sent, and the connection is
    closed."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.until(b"\r\n\r\n")
        await connection.answer(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await trio.sleep_forever()

    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), BIG, headers, timeout=LONG)
        assert (answer.status, answer.body) == (413, b"big")
        assert sender.statistics().pool.idle == 0


async def test_answer_before_reset_is_accepted(received: trio.Event) -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.until(b"\r\n\r\n")
        await connection.answer(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await received.wait()
        # closing with bytes unread sends RST

    async with receiving(script) as receiver, open_sender() as sender:
        answer = await sender.post(receiver.target(), BIG, headers, timeout=LONG)
        assert answer.status == 413


async def test_big_body_arrives_whole_and_connection_is_kept() -> None:
    async with receiving(always(OK)) as receiver, open_sender() as sender:
        for _ in range(2):
            answer = await sender.post(receiver.target(), BIG, headers, timeout=LONG)
            assert answer.status == 200
        assert [request.endswith(BIG) for request in receiver.requests] == [True, True]
        assert receiver.connections == 1


async def test_headers_are_made_once_connection_is_ready() -> None:
    """`webhook-timestamp` is taken, and the signature made, when the connection is ready
    (B-126)."""
    seen: list[int] = []

    async with receiving(always(OK)) as receiver, open_sender() as sender:

        def make() -> Sequence[tuple[bytes, bytes]]:
            seen.append(sender.statistics().pool.opened)
            return headers()

        await sender.post(receiver.target(), b"{}", make, timeout=LONG)
        assert seen == [1]


async def test_signer_error_is_raised_and_nothing_sent() -> None:
    class Unsignable(Exception):
        pass

    def refuse() -> Sequence[tuple[bytes, bytes]]:
        raise Unsignable

    async with receiving(always(OK)) as receiver, open_sender() as sender:
        with pytest.raises(Unsignable):
            await sender.post(receiver.target(), b"{}", refuse, timeout=LONG)
        assert sender.statistics().pool.idle == 1  # nothing was sent on it
        await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        assert (receiver.connections, len(receiver.requests)) == (1, 1)


async def test_answer_reports_its_times_by_phase(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In milliseconds; a kept connection has neither a look-up nor a connect nor a handshake."""
    wait_writable = trio.lowlevel.wait_writable

    async def connecting(sock: socket.socket) -> None:
        mock_clock.jump(0.3)
        await wait_writable(sock)

    def lookup(host: str, port: int) -> Sequence[Address]:
        trio.from_thread.run_sync(mock_clock.jump, 0.2)
        return loopback(host, port)

    async def script(connection: ScriptedConnection) -> None:
        while await connection.request():
            mock_clock.jump(0.4)
            await connection.answer()

    async with receiving(script) as receiver, open_sender(lookup=lookup) as sender:
        with monkeypatch.context() as patch:
            patch.setattr(trio.lowlevel, "wait_writable", connecting)
            to = receiver.target("localhost")
            first = (await sender.post(to, b"{}", headers, timeout=LONG)).times
        second = (await sender.post(to, b"{}", headers, timeout=LONG)).times
    assert (first.dns, first.connect, first.tls, first.answer) == pytest.approx((200, 300, 0, 400))
    assert (second.dns, second.connect, second.tls, second.answer) == pytest.approx((0, 0, 0, 400))


async def test_open_sender_raises_error_of_block() -> None:
    with pytest.raises(KeyError):
        async with open_sender():
            raise KeyError


async def test_idle_connections_are_closed_after_their_time() -> None:
    limits = PoolLimits(idle_seconds=0.05)
    ended = trio.Event()

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer()
        await connection.gone()
        ended.set()

    async with receiving(script) as receiver, open_sender(limits=limits) as sender:
        await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        with trio.fail_after(LONG):
            await ended.wait()
        assert sender.statistics().pool.idle == 0


async def test_open_sender_closes_idle_connections_at_exit() -> None:
    ended = trio.Event()

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer()
        await connection.gone()
        ended.set()

    async with receiving(script) as receiver:
        async with open_sender() as sender:
            await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        with trio.fail_after(LONG):
            await ended.wait()


async def test_open_sender_ends_waiting_post_at_exit() -> None:
    """The deadline ends with the sender; no post may wait for ever."""
    reported: list[str] = []

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer(OK)
        await connection.request()
        requested.set()
        await trio.sleep_forever()

    async def post(sender: Sender, receiver: SocketReceiver) -> None:
        try:
            await sender.post(receiver.target(), b"{}", headers, timeout=600)
        except ConnectError as error:
            reported.append(str(error))
            ended.set()

    requested, ended = trio.Event(), trio.Event()
    async with receiving(script) as receiver, trio.open_nursery() as nursery:
        async with open_sender() as sender:
            await post(sender, receiver)
            nursery.start_soon(post, sender, receiver)
            await requested.wait()
        with trio.fail_after(30):
            await ended.wait()
        nursery.cancel_scope.cancel()
    assert reported == ["connect: The request was ended because the process stops."]
    assert sender.statistics().pool.in_use == 0


HALF_HEAD = b"HTTP/1.1 200 OK\r\ncontent-le"
HALF_BODY = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"


@pytest.mark.parametrize("scheme", ["http", "https", "https by trio"])
@pytest.mark.parametrize("said", [b"", HALF_HEAD])
async def test_silent_kept_connection_is_timeout_error(said: bytes, scheme: str) -> None:
    """`timeout` is one deadline over everything, on a kept connection too (B-140)."""
    async with keeping_silent(said, scheme) as (receiver, sender):
        with pytest.raises(ResponseTimeout, match="did not answer within"):
            await sender.post(receiver.target(), b"{}", headers, timeout=SHORT)
        assert receiver.connections == 1
        pool = sender.statistics().pool
        assert (pool.in_use, pool.idle) == (0, 0)


@pytest.mark.parametrize("scheme", ["http", "https", "https by trio"])
async def test_stalled_body_on_kept_connection_is_shortened(scheme: str) -> None:
    async with keeping_silent(HALF_BODY, scheme) as (receiver, sender):
        answer = await sender.post(receiver.target(), b"{}", headers, timeout=1.0)
        assert (answer.status, answer.body) == (200, b"half")
        assert (receiver.connections, sender.statistics().pool.in_use) == (1, 0)


async def test_kept_connection_that_stops_reading_is_timeout() -> None:
    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer()
        await trio.sleep_forever()

    async with receiving(script) as receiver, open_sender() as sender:
        await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        with pytest.raises(ResponseTimeout, match="did not take the whole request"):
            await sender.post(receiver.target(), BIG, headers, timeout=SHORT)
        assert sender.statistics().pool.in_use == 0


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A receiver's certificate, and a sender's trust in it."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.num_tickets = 0  # a late one has a kept connection given up
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@asynccontextmanager
async def keeping_silent(said: bytes, scheme: str) -> AsyncIterator[tuple[SocketReceiver, Sender]]:
    """A receiver that has answered one POST, and says `said` to the next, and a sender to it."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()
        if said:
            await connection.answer(said)
        await trio.sleep_forever()

    server, client = (None, None) if scheme == "http" else contexts()
    async with (
        receiving(script, context=server) as receiver,
        open_sender(context=client, fast_path=scheme != "https by trio") as sender,
    ):
        await sender.post(receiver.target(), b"{}", headers, timeout=LONG)
        yield receiver, sender
