"""Sends POSTs to receivers: connection, request and response under one deadline (B-140)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import trio

from fw_actors import __version__
from fw_actors.config import ClientCertificate
from fw_actors.http.dial import (
    Dialler,
    Lookup,
    Resolver,
    ResolverStatistics,
    system_lookup,
)
from fw_actors.http.exchange import (
    Connection,
    ExchangeStep,
    MakeHeaders,
    Progress,
    RequestWriter,
    StaleConnection,
    run_exchange,
)
from fw_actors.http.pool import Pool, PoolLimits, PoolStatistics
from fw_actors.http.response import (
    ConnectError,
    NetworkError,
    ReceiverResponse,
    ResponseReader,
    ResponseTimeout,
)
from fw_actors.http.tls import TlsStatistics
from fw_actors.http.url import Endpoint
from fw_actors.rules.outgoing import ALLOW_ALL, EgressProxy, OutgoingPolicy
from fw_actors.runtime.clock import Deadlines

SWEEP_SECONDS: Final = 5.0  # a connection that its receiver closed may hold a descriptor so long


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    """Statistics of the sender's connections and look-ups."""

    pool: PoolStatistics
    resolver: ResolverStatistics
    tls: TlsStatistics


class _Post(msgspec.Struct, eq=False):
    """A POST in progress; `expired`: its deadline has passed, or the sender is closed.

    The deadline closes the connection, which ends the exchange on it. A cancel scope for each POST
    would take 10 % more time.
    """

    endpoint: Endpoint
    body: bytes
    make_headers: MakeHeaders
    progress: Progress
    reader: ResponseReader
    connection: Connection | None = None
    expired: bool = False

    def expire(self) -> None:
        """End the exchange."""
        self.expired = True
        if self.connection is not None:
            self.connection.close()


class Sender:
    """Sends POSTs. Made by `open_sender`; any number may be in progress at once.

    Concurrency is bounded by the caller; the sender delays a POST only if look-ups occupy all
    threads.
    """

    def __init__(
        self, pool: Pool, resolver: Resolver, dialler: Dialler, deadlines: Deadlines, version: str
    ) -> None:
        self._pool = pool
        self._resolver = resolver
        self._dialler = dialler
        self._deadlines = deadlines
        self._writer = RequestWriter(version)
        self._is_closed = False

    def close(self) -> None:
        """Close idle connections, and end the POSTs in progress."""
        self._is_closed = True
        self._pool.close_all()
        self._deadlines.expire_all()
        self._deadlines.close()

    async def post(
        self,
        endpoint: Endpoint,
        body: bytes,
        make_headers: MakeHeaders,
        *,
        timeout: float,
        fresh: bool = False,
    ) -> ReceiverResponse:
        """Send one POST and return the response. Redirects are not followed, a failed POST is not
        repeated, and the body is not decoded.

        A reused connection that is closed before one byte of a response has arrived is replaced
        once, by a new one; `make_headers` is then called again. If the call is cancelled, the
        connection is closed; the receiver may have received the request.

        Args:
            endpoint: the receiver; from `parse_endpoint`.
            body: JSON, sent as these bytes.
            make_headers: returns this attempt's own headers; called when the connection is ready.
                Its exceptions are raised here, and nothing is sent.
            timeout: seconds for all steps together: DNS, connect, TLS, request and response.
            fresh: use a new connection, so that the duration of each step can be measured.

        Raises:
            DnsError, ConnectError, TlsError, ProtocolError: there was no response; the message has
                the reason.
            ForbiddenAddress: nothing was sent; a retry would be refused too.
            ResponseTimeout: the deadline passed before the head of a response was complete.
            ValueError: `make_headers` returned an invalid header.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # before anything is sent
        route, now = endpoint.route, self._deadlines.now()
        progress = Progress(self._deadlines.now)
        post = _Post(endpoint, body, make_headers, progress, ResponseReader())
        timer = self._deadlines.add(post, timeout, now)
        try:
            kept = None if fresh else self._pool.take(route, now)
            if kept is None and not fresh and self._pool.begin_wait(route):
                progress.enter(ExchangeStep.WAIT)
                kept = await self._pool.wait(route, timeout / 4)
            # Late after a wait: the time is over, or the sender is closed.
            ended = post.expired if kept is None else await self._exchange(kept, post, kept=True)
            if not ended:
                dialled = await self._dial(post, now + timeout, fresh=fresh)
                if dialled is not None:
                    await self._exchange(dialled, post, kept=False)
        except NetworkError as fault:
            fault.times, fault.address = progress.times, progress.address
            raise
        finally:
            timer.pop(post, None)
        if post.expired and post.reader.status is None:
            ended_by: NetworkError
            if self._is_closed:
                ended_by = ConnectError("The request was ended because the process stops.")
            else:
                ended_by = ResponseTimeout(progress.overdue(route.host, timeout))
            ended_by.times, ended_by.address = progress.times, progress.address
            raise ended_by
        return post.reader.response(progress.times, progress.address)

    def statistics(self) -> SenderStatistics:
        """Return the current counts, for the console and `/metrics`."""
        return SenderStatistics(
            self._pool.statistics(),
            self._resolver.statistics(),
            replace(self._dialler.sessions.statistics),
        )

    async def _dial(self, post: _Post, deadline: float, *, fresh: bool) -> Connection | None:
        """Return a new connection, or None after the deadline (trio's clock)."""
        with trio.CancelScope(deadline=deadline):
            connection = await self._dialler.dial(post.endpoint.route, post.progress, fresh=fresh)
            self._pool.add(connection)  # no await in between, so that it is always counted
            return connection
        post.expired = True
        return None

    async def _exchange(self, connection: Connection, post: _Post, *, kept: bool) -> bool:
        """Send over a connection; return False if the POST needs a new one."""
        post.connection, post.progress.address = connection, connection.address
        reusable = True
        try:
            if post.expired:  # the sender was closed meanwhile
                return True
            request = self._writer.write(post.endpoint, post.body, post.make_headers())
            reusable = False  # bytes may have been sent from here on
            reusable = await run_exchange(
                connection, request, post.reader, post.progress, kept=kept
            )
        except StaleConnection:
            return post.expired
        except NetworkError:
            if not post.expired:
                raise
        finally:
            if reusable:
                self._pool.release(connection)
            else:
                self._pool.discard(connection)
        return True


@asynccontextmanager
async def open_sender(
    *,
    limits: PoolLimits | None = None,
    context: ssl.SSLContext | None = None,
    lookup: Lookup = system_lookup,
    policy: OutgoingPolicy = ALLOW_ALL,
    proxy: EgressProxy | None = None,
    certificates: Mapping[str, ClientCertificate] | None = None,
    fast_path: bool = True,
) -> AsyncIterator[Sender]:
    """Open a sender; leaving the block closes idle connections and abandons look-ups.

    POSTs in progress then end at once, with ConnectError; those that are still connecting end when
    they have connected. Their connections are closed.

    Args:
        limits: the limits of idle connections.
        context: the TLS context that verifies receivers, shared by all connections of a process;
            None: `system_trust()`, created for the first receiver that needs it.
        lookup: resolves names to addresses; run in threads.
        policy: the addresses that may be connected to.
        proxy: the proxy for connections to receivers; None: connect directly.
        certificates: client certificates by name, for the endpoints that name one.
        fast_path: TLS on our own sockets; False in the tests that compare it with trio's.
    """
    deadlines = Deadlines()
    pool = Pool(limits or PoolLimits(), deadlines)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            resolver = Resolver(nursery, lookup)
            dialler = Dialler(resolver, context, policy, proxy, certificates, fast_path=fast_path)
            nursery.start_soon(_sweep, pool)
            nursery.start_soon(deadlines.run)
            sender = Sender(pool, resolver, dialler, deadlines, __version__)
            try:
                yield sender
            except Exception as error:  # raised below, outside the nursery's exception group
                failure = error
            finally:
                sender.close()
            nursery.cancel_scope.cancel()
    finally:
        pool.close_all()
    if failure is not None:
        raise failure


async def _sweep(pool: Pool) -> None:
    """Sweep the pool regularly; sleep while no connection is idle."""
    while True:
        await pool.filled()
        await trio.sleep(min(pool.limits.idle_seconds, SWEEP_SECONDS))
        pool.sweep()
