"""Sends POSTs to receivers: connection, request and response under one deadline (B-140)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import trio

from fw_actors.config import ClientCertificate
from fw_actors.http.dial import (
    Dialler,
    Lookup,
    Resolver,
    ResolverStatistics,
    system_lookup,
)
from fw_actors.http.errors import NetworkError, ResponseTimeout
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
from fw_actors.http.response import ReceiverResponse, ResponseReader
from fw_actors.http.tls import TlsStatistics
from fw_actors.http.url import Endpoint, Origin
from fw_actors.rules.outgoing import ALLOW_ALL, EgressProxy, OutgoingPolicy
from fw_actors.runtime.timers import Deadlines
from fw_actors.version import __version__

SWEEP_SECONDS: Final = 5.0  # how long a connection that its receiver closed may hold a descriptor


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    """Statistics of the sender's connections and look-ups."""

    pool: PoolStatistics
    resolver: ResolverStatistics
    tls: TlsStatistics


class _Post(msgspec.Struct, eq=False):
    """One POST under way; survives its own deadline."""

    endpoint: Endpoint
    body: bytes
    make_headers: MakeHeaders
    progress: Progress
    reader: ResponseReader
    kept: Connection | None = None
    late: bool = False

    def expire(self) -> None:
        """Its deadline has passed while it was on a kept connection."""
        self.late = True
        if self.kept is not None:
            self.kept.close()


class Sender:
    """Sends POSTs. Made by `open_sender`; any number may be under way at once.

    How many may be is the caller's to bound: the sender makes none wait for another, but where
    look-ups have taken all threads.
    """

    def __init__(
        self, pool: Pool, resolver: Resolver, dialler: Dialler, deadlines: Deadlines, version: str
    ) -> None:
        self._pool = pool
        self._resolver = resolver
        self._dialler = dialler
        self._deadlines = deadlines
        self._writer = RequestWriter(version)

    async def post(
        self,
        endpoint: Endpoint,
        body: bytes,
        make_headers: MakeHeaders,
        *,
        timeout: float,
        anew: bool = False,
    ) -> ReceiverResponse:
        """Send one POST and return the response; no redirect is followed, nothing is retried or
        decoded.

        A kept connection that turns out dead before one byte of an answer is replaced once, by a
        new one; `make_headers` is then called again. Cancelled at any instant, the connection is
        closed and nothing is left behind; the receiver may have got the request.

        Args:
            endpoint: the receiver; from `parse_endpoint`.
            body: JSON, sent as these bytes.
            make_headers: called when the connection is ready, gives this attempt's own headers;
                what it raises is raised here, with nothing sent.
            timeout: seconds over everything: DNS, connect, TLS, sending and the answer.
            anew: over a new connection, to see how long each step takes.

        Raises:
            DnsError, ConnectError, TlsError, ProtocolError: there was no answer, and why.
            ForbiddenAddress: nothing was sent; a retry would be refused too.
            ResponseTimeout: the deadline passed before the head of an answer was in.
            ValueError: `make_headers` gave what can't be a header.
        """
        now = self._deadlines.now
        post = _Post(endpoint, body, make_headers, Progress(now), ResponseReader())
        deadline, left = now() + timeout, timeout
        await trio.lowlevel.checkpoint_if_cancelled()  # else a kept connection would be sent on
        try:
            kept = None if anew else self._pool.take(endpoint.route)
            if kept is None and not anew and self._should_wait(endpoint.route):
                post.progress.enter(ExchangeStep.WAIT)
                kept = await self._pool.wait(endpoint.route)
                left = deadline - now()
            if kept is None or not await self._over_kept(kept, post, left):
                await self._over_new(post, deadline, anew=anew)
        except NetworkError as fault:
            fault.times, fault.address = post.progress.times, post.progress.address
            raise
        if post.late and post.reader.status is None:
            late = ResponseTimeout(post.progress.overdue(endpoint.route.host, timeout))
            late.times, late.address = post.progress.times, post.progress.address
            raise late
        return post.reader.answer(post.progress.times, post.progress.address)

    def statistics(self) -> SenderStatistics:
        """Counts of now, for the console and `/metrics`."""
        return SenderStatistics(
            self._pool.statistics(),
            self._resolver.statistics(),
            replace(self._dialler.sessions.statistics),
        )

    def _should_wait(self, origin: Origin) -> bool:
        """Whether a new connection would take longer than to wait for one that is in use."""
        return self._dialler.is_busy and self._pool.is_in_use(origin)

    async def _over_kept(self, kept: Connection, post: _Post, timeout: float) -> bool:
        """Send over a kept connection; return whether that was all, and no new one is needed.

        The deadline closes it, which ends the exchange as a cancellation would, and costs a tenth
        of a POST less than a cancel scope for each.
        """
        post.kept, post.progress.address = kept, kept.address
        noted = self._deadlines.add(post, timeout)
        try:
            await self._exchange(kept, post, kept=True)
        except StaleConnection:
            return post.late
        except NetworkError:
            if not post.late:
                raise
        finally:
            noted.pop(post, None)
        return True

    async def _over_new(self, post: _Post, deadline: float, *, anew: bool) -> None:
        with trio.CancelScope(deadline=deadline) as scope:
            connection = await self._dialler.dial(post.endpoint.route, post.progress, anew=anew)
            self._pool.adopt(connection)  # no await between, so that it is always counted
            await self._exchange(connection, post, kept=False)
        post.late = scope.cancelled_caught

    async def _exchange(self, connection: Connection, post: _Post, *, kept: bool) -> None:
        reusable = True
        try:
            request = self._writer.write(post.endpoint, post.body, post.make_headers())
            reusable = False  # from here on bytes may be under way
            reusable = await run_exchange(
                connection, request, post.reader, post.progress, kept=kept
            )
        finally:
            if reusable:
                self._pool.give_back(connection)
            else:
                self._pool.discard(connection)


@asynccontextmanager
async def open_sender(
    *,
    limits: PoolLimits | None = None,
    context: ssl.SSLContext | None = None,
    lookup: Lookup = system_lookup,
    policy: OutgoingPolicy = ALLOW_ALL,
    proxy: EgressProxy | None = None,
    certificates: Mapping[str, ClientCertificate] | None = None,
    version: str = __version__,
) -> AsyncIterator[Sender]:
    """Open a sender; leaving the block closes idle connections and abandons look-ups.

    POSTs that are under way then end: those over kept connections at once, as if they were late,
    the others on their own; their connections are closed.

    Args:
        limits: how much may lie idle.
        context: how receivers are verified; by default `system_trust()`, made for the first of
            them. One for the process.
        lookup: names to addresses; run in threads.
        policy: which addresses may be connected to.
        proxy: through which receivers are reached, if any.
        certificates: client certificates by name, for the endpoints that ask for one.
        version: for the header `user-agent`.
    """
    deadlines = Deadlines()
    pool = Pool(limits or PoolLimits(), deadlines.now)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            resolver = Resolver(nursery, lookup)
            dialler = Dialler(resolver, context, policy, proxy, certificates)
            nursery.start_soon(_sweep, pool)
            nursery.start_soon(deadlines.run)
            try:
                yield Sender(pool, resolver, dialler, deadlines, version)
            except Exception as error:  # raised below, without the nursery's group around it
                failure = error
            finally:
                deadlines.expire_all()
                deadlines.close()
            nursery.cancel_scope.cancel()
    finally:
        pool.close_all()
    if failure is not None:
        raise failure


async def _sweep(pool: Pool) -> None:
    """Close what is idle too long, and what its receiver closed; asleep while nothing is idle."""
    while True:
        await pool.filled()
        await trio.sleep(min(pool.limits.idle_seconds, SWEEP_SECONDS))
        pool.sweep()
