"""The HTTP server: accepts, serves, drains.

It has features that Hypercorn lacks: a limit of connections that closes silent clients first, a
failure of one connection that ends only that one, a deadline on sends, and a stop that ends in time
regardless of clients. docs/web.md has the figures.
"""

from __future__ import annotations

from typing import Any

import structlog
import trio

from web.app import FrontEnd
from web.connections import (
    RAISE_LIMIT,
    ClientStream,
    ConnectionLimits,
    OpenConnections,
    PatientListener,
)
from web.exchange import is_trusted
from web.http11 import DateLine, Http11Connection
from web.listening import Bound


async def serve(
    app: FrontEnd,
    bound: Bound,
    *,
    stop: trio.Event,
    drain_seconds: float,
    connections: OpenConnections | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `bound` until `stop` is set; then finish the requests in progress.

    After `stop` idle connections are closed, and new requests get 503 except for health and
    readiness; after `drain_seconds`, or when cancelled, all connections are closed. Reports the URL
    by `task_status`. Closes the socket. `connections` may contain those of an earlier server, which
    end with this one.
    """
    server = _Server(app, connections_for(app) if connections is None else connections)
    async with trio.open_nursery() as tasks:
        try:
            async with trio.open_nursery() as accepting:
                await accepting.start(server.accept, bound, tasks)
                accepting.start_soon(server.connections.close_expired)
                accepting.start_soon(server.connections.cancel_disconnected)
                task_status.started(bound.url)
                await stop.wait()
                await server.drain(drain_seconds)
                accepting.cancel_scope.cancel()
        finally:
            server.connections.close_all()
            tasks.cancel_scope.cancel()


async def serve_until_handed_over(
    app: FrontEnd,
    bound: Bound,
    connections: OpenConnections,
    *,
    handed_over: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `bound` until `handed_over` is set; then accept no more connections.

    Open connections are served until they end, or until this call is cancelled. The next server
    takes over `connections`, to limit and drain them. Closes the socket.
    """
    server = _Server(app, connections)
    async with trio.open_nursery() as tasks, trio.open_nursery() as accepting:
        await accepting.start(server.accept, bound, tasks)
        accepting.start_soon(connections.close_expired)
        accepting.start_soon(connections.cancel_disconnected)
        task_status.started()
        await handed_over.wait()
        accepting.cancel_scope.cancel()


def connections_for(app: FrontEnd, limits: ConnectionLimits | None = None) -> OpenConnections:
    """Return the connections of a server; `limits` default to those for the app's requests."""
    trust = app.trust
    return OpenConnections(
        limits or ConnectionLimits.for_requests(app.max_requests),
        lambda peer: is_trusted(peer, trust),
    )


class _Listener(trio.abc.Listener[ClientStream]):
    """Accepts a connection when there is room, or when a waiting one can be closed."""

    def __init__(self, inner: PatientListener, connections: OpenConnections) -> None:
        self._inner = inner
        self._connections = connections

    async def accept(self) -> ClientStream:
        stream = ClientStream(await self._inner.accept())
        try:
            await self._connections.make_room()
        except BaseException:
            stream.abort()
            raise
        return stream

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Server:
    """Serves the connections of one application."""

    def __init__(self, app: FrontEnd, connections: OpenConnections) -> None:
        self._front = app
        self.connections = connections
        self._date = DateLine()
        self._log = structlog.get_logger("web")

    async def accept(
        self,
        bound: Bound,
        tasks: trio.Nursery,
        task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start a task in `tasks` for each client, until cancelled; then close the socket."""
        patient = PatientListener(
            bound.socket, self.connections.close_longest_waiting, self._report_no_descriptors
        )
        listener = _Listener(patient, self.connections)
        await trio.serve_listeners(
            self._serve_connection, [listener], handler_nursery=tasks, task_status=task_status
        )

    def _report_no_descriptors(self, reason: str) -> None:
        self._log.warning("web.no_descriptors", reason=reason, hint=RAISE_LIMIT)

    async def drain(self, seconds: float) -> None:
        """Wait for requests in progress, then close connections; at most `seconds`."""
        self._front.stopping = True
        self._front.streams.end()
        with trio.move_on_after(seconds):
            await self.connections.end()

    async def _serve_connection(self, stream: ClientStream) -> None:
        """Serve one connection; a failure is logged and ends only this one."""
        peer = _peer_of(stream)
        client = self.connections.add(stream, "" if peer is None else peer[0])
        try:
            await Http11Connection(self._front, client, self._date, peer).serve()
        except* Exception as error:
            self._log.error("web.connection_failed", exc_info=error)
        finally:
            self.connections.close(client)


def _peer_of(stream: ClientStream) -> tuple[str, int] | None:
    """Return the peer's address and port, or None without an address or connection."""
    try:
        name: Any = stream.socket.getpeername()
    except OSError:
        return None
    return (name[0], name[1]) if isinstance(name, tuple) else None
