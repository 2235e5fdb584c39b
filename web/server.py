"""Hypercorn's trio server on a socket of ours: bind, accept, serve, drain.

The accept loop is ours and not Hypercorn's `worker_serve`, for what that one lacks: a bound on
connections, a connection whose failure ends that connection alone, a deadline on sends, and a
stop that is over in time whatever clients do. What is read and written on a connection is
Hypercorn's business, what is no HTTP at all too (400 and 431, bare).
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Final

import structlog
import trio
from h11 import ProtocolError
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from fw_actors.errors import ConfigurationError
from web.app import FrontEnd
from web.http11 import Http11Connection
from web.idle import IdleConnections
from web.stream import ClientStream

BACKLOG: Final = 1024
IDLE_SECONDS: Final = 15.0  # also how long the head of a request may take
MOST_HEAD_BYTES: Final = 16 * 1024
REQUESTS_PER_CONNECTION: Final = 10_000
SPARE_CONNECTIONS: Final = 1_000
DRAIN_SECONDS: Final = 10.0
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # told apart, not bound  # nosec B104


@dataclass(frozen=True)
class Bound:
    """A socket that listens, and the URL under which this machine reaches it."""

    socket: socket.socket
    url: str


def bind(host: str, port: int) -> Bound:
    """Listen at `host` and `port`; port 0 takes a free one.

    Raises: ConfigurationError when the address is taken or not this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _not_bound(host, port, error) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _not_bound(host, port, error) from None
    return Bound(listening, url_of(host, listening.getsockname()[1]))


def url_of(host: str, port: int) -> str:
    """Return the URL under which this machine reaches what listens at `host` and `port`."""
    name = WILDCARDS.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}"


def _not_bound(host: str, port: int, error: OSError) -> ConfigurationError:
    return ConfigurationError([f"FW_BIND: can't listen at {host}:{port}: {error.strerror}"])


async def serve(
    app: FrontEnd,
    bound: Bound,
    *,
    stop: trio.Event,
    drain_seconds: float = DRAIN_SECONDS,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `bound` until `stop` is set; then finish what is in hand and return.

    From `stop` on nothing is accepted and idle connections end; after `drain_seconds` the rest is
    cut off. `task_status` is told the URL. Cancelled, it cuts off at once. Closes the socket.
    """
    server = _Server(app)
    listener = _Listener(trio.SocketListener(trio.socket.from_stdlib_socket(bound.socket)), app)
    async with trio.open_nursery() as connections:
        try:
            async with trio.open_nursery() as accepting:
                await accepting.start(server.accept, listener, connections)
                accepting.start_soon(server.idle.watch)
                task_status.started(bound.url)
                await stop.wait()
                accepting.cancel_scope.cancel()
            await server.drain(drain_seconds)
        finally:
            server.cut()
            connections.cancel_scope.cancel()


class _Listener(trio.abc.Listener[ClientStream]):
    """Accepts no more connections than there are places; others wait in the kernel's backlog."""

    def __init__(self, inner: trio.SocketListener, app: FrontEnd) -> None:
        self._inner = inner
        self.places = trio.Semaphore(app.max_requests + SPARE_CONNECTIONS)

    async def accept(self) -> ClientStream:
        await self.places.acquire()
        try:
            return ClientStream(await self._inner.accept())
        except BaseException:
            self.places.release()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Server:
    """The connections of one serving application."""

    def __init__(self, app: FrontEnd) -> None:
        self._front = app
        self._app = ASGIWrapper(app)
        self._config = hypercorn_config()
        self._context = WorkerContext(None)
        self.idle = IdleConnections(IDLE_SECONDS)
        self._open: dict[ClientStream, None] = {}
        self._emptied = trio.Event()
        self._log = structlog.get_logger("web")

    async def accept(
        self,
        listener: _Listener,
        connections: trio.Nursery,
        task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start a task in `connections` for each client, until cancelled."""

        async def attend(stream: ClientStream) -> None:
            try:
                await self._attend(stream)
            finally:
                listener.places.release()

        await trio.serve_listeners(
            attend, [listener], handler_nursery=connections, task_status=task_status
        )

    async def drain(self, seconds: float) -> None:
        """Let each connection end after its request in hand, for at most `seconds`."""
        self._front.streams.end()
        await self._context.terminated.set()
        self.idle.end()
        with trio.move_on_after(seconds):
            while self._open:
                self._emptied = trio.Event()
                await self._emptied.wait()

    def cut(self) -> None:
        """End every connection now."""
        for stream in list(self._open):
            stream.cut()

    async def _attend(self, stream: ClientStream) -> None:
        """Serve one connection. A failure in it is logged and ends it alone."""
        self._open[stream] = None
        try:
            connection = Http11Connection(
                self._front,
                self._app,
                self._config,
                self._context,
                ConnectionState({}),
                stream,
            )
            connection.idle_task = self.idle.timer(stream)  # type: ignore[assignment] # the same two calls
            await connection
        except* ProtocolError:
            self._log.debug("web.client_broke_protocol")
        except* Exception as error:
            self._log.error("web.connection_failed", exc_info=error)
        finally:
            self.idle.discard(stream)
            del self._open[stream]
            self._emptied.set()
            stream.cut()


def hypercorn_config() -> HypercornConfig:
    """Return Hypercorn's settings: every limit stated, nothing told about what serves here."""
    config = HypercornConfig()
    config.include_server_header = False
    config.keep_alive_max_requests = REQUESTS_PER_CONNECTION
    config.h11_max_incomplete_size = MOST_HEAD_BYTES
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn")
    return config
