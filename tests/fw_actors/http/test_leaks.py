"""After many attempts that were cut off at any instant, descriptors, tasks and slots are as at
the start (B-152)."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.lowlevel
import trio.testing
import trustme

from fw_actors.http import NetworkError, ResponseTimeout, Sender, open_sender
from tests.fw_actors.http.lookups import loopback
from tests.fw_actors.http.receiver import (
    OK,
    Script,
    ScriptedConnection,
    SocketReceiver,
    always,
    headers,
    receiving,
    silent,
)

ATTEMPTS = 500
TIMEOUTS = 10_000
AT_ONCE = 200


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def slow(connection: ScriptedConnection) -> None:
    """Answer at random: at once, in pieces, late, or by closing the connection."""
    chance = random.Random(connection.number)
    while await connection.request():
        if chance.random() < 0.1:
            return
        await trio.sleep(chance.choice([0, 0, 0.001, 0.004]))
        for piece in (OK[:20], OK[20:]) if chance.random() < 0.5 else (OK,):
            await connection.answer(piece)
            await trio.lowlevel.checkpoint()


async def settled(tasks: int, fds: int) -> None:
    """Wait until the receiver's side has noticed that its connections are closed."""
    with trio.fail_after(30):
        while trio.lowlevel.current_statistics().tasks_living > tasks or descriptors() > fds:  # noqa: ASYNC110 - no event
            await trio.sleep(0.005)


async def cut_off(sender: Sender, receiver: SocketReceiver, body: bytes, seconds: float) -> None:
    """One attempt with a tiny deadline, its own or one around it."""
    host = "localhost" if receiver.scheme == "http" else "127.0.0.1"
    try:
        if seconds < 0.002:
            with trio.move_on_after(seconds):
                await sender.post(receiver.target(host), body, headers, timeout=5)
        else:
            await sender.post(receiver.target(host), body, headers, timeout=seconds)
    except NetworkError:
        pass


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("script", [slow, silent])
@pytest.mark.parametrize("body", [b"{}", b"x" * 300_000], ids=["small", "big"])
async def test_attempts_cut_off_at_any_time_leak_nothing(
    secure: bool, script: Script, body: bytes
) -> None:
    server, client = contexts() if secure else (None, None)
    chance = random.Random(7)
    longest = 0.1 if secure else 0.012  # seconds; 25 handshakes at once take their time
    async with receiving(script, context=server) as receiver:
        async with open_sender(context=client):  # whatever is made once is made now
            await trio.testing.wait_all_tasks_blocked(0.01)
        tasks, fds = trio.lowlevel.current_statistics().tasks_living, descriptors()
        async with open_sender(context=client, lookup=loopback) as sender:
            for _ in range(ATTEMPTS // 25 if not secure and body == b"{}" else 8):
                async with trio.open_nursery() as nursery:
                    for number in range(25):
                        seconds = chance.uniform(0, longest)
                        if script is slow and number % 5 == 0:
                            seconds = 5.0  # some come through, and their connections are kept
                        nursery.start_soon(cut_off, sender, receiver, body, seconds)
            now = sender.statistics()
            assert (now.pool.in_use, now.resolver.waiting) == (0, 0)
            assert now.pool.opened - now.pool.closed == now.pool.idle
        assert sender.statistics().pool.idle == 0
        await settled(tasks, fds)
        assert receiver.requests or script is silent


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A receiver's certificate, and a sender's trust in it."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def test_attempts_that_time_out_leak_nothing() -> None:
    """Descriptors, tasks and slots are as at the start (B-152)."""
    timeouts = 0

    async def attempts(sender: Sender, receiver: SocketReceiver) -> None:
        nonlocal timeouts
        for number in range(TIMEOUTS // AT_ONCE):
            seconds = (number % 5) * 0.01  # none at all is one, too
            with pytest.raises(ResponseTimeout):
                await sender.post(receiver.target(), b"{}", headers, timeout=seconds)
            timeouts += 1

    async with receiving(silent) as receiver:
        await trio.testing.wait_all_tasks_blocked(0.01)
        tasks, fds = trio.lowlevel.current_statistics().tasks_living, descriptors()
        async with open_sender() as sender:
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(attempts, sender, receiver)
            assert timeouts == TIMEOUTS
            now = sender.statistics()
            assert (now.pool.in_use, now.pool.idle, now.pool.origins) == (0, 0, 0)
            assert now.pool.opened == now.pool.closed
            assert (now.resolver.threads, now.resolver.waiting, now.resolver.hosts) == (0, 0, 0)
        await settled(tasks, fds)


async def test_post_cancelled_at_any_step_leaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cancel the n-th wait for a socket, for every n."""
    async with receiving(slow) as receiver, open_sender() as sender:
        for kept in (False, True):
            for nth in range(4):
                if kept:
                    while not sender.statistics().pool.idle:
                        await sender.post(receiver.target(), b"{}", headers, timeout=5)
                with trio.CancelScope() as scope, monkeypatch.context() as patch:
                    for name in ("wait_readable", "wait_writable"):
                        patch.setattr(trio.lowlevel, name, cancelling(scope, name, nth))
                    await sender.post(receiver.target(), b"{}", headers, timeout=5)
                pool = sender.statistics().pool
                assert (pool.in_use, pool.opened - pool.closed) == (0, pool.idle)


def cancelling(scope: trio.CancelScope, name: str, nth: int) -> Callable[[int], Awaitable[None]]:
    """A wait for a socket that cancels `scope` when `nth` waits went before."""
    wait = getattr(trio.lowlevel, name)
    count = 0

    async def waiting(sock: int) -> None:
        nonlocal count
        if count == nth:
            scope.cancel()
        count += 1
        await wait(sock)

    return waiting


async def test_post_cancelled_at_start_does_nothing() -> None:
    made: list[Sequence[tuple[bytes, bytes]]] = []

    def make() -> Sequence[tuple[bytes, bytes]]:
        made.append(headers())
        return made[-1]

    async with receiving(always(OK)) as receiver, open_sender() as sender:
        await sender.post(receiver.target(), b"{}", headers, timeout=5)
        with trio.CancelScope() as scope:
            scope.cancel()
            await sender.post(receiver.target(), b"{}", make, timeout=5)
        assert scope.cancelled_caught
        assert (made, sender.statistics().pool.idle, len(receiver.requests)) == ([], 1, 1)
