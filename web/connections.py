"""Connections: how they are accepted, their limits, clients and sockets.

A connection keeps the server waiting while its client has not sent a complete request, or does not
read its response. Only such a connection may be closed to make room for another one, the longest
waiting first; a connection whose request is being served is never closed.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final

import trio

from fw_actors.rules.identifiers import counted_address
from web.disconnects import DisconnectWatch
from web.request import MIB

SEND_SECONDS: Final = 30.0
PART_BYTES: Final = 256 * 1024


class ClientStream(trio.abc.HalfCloseableStream):
    """A socket stream with a deadline on sends.

    Sends are shielded from cancellation: without a deadline, a client that stops reading would
    block its connection, and the stop of the service, forever. Each part of a response has
    `SEND_SECONDS`, and `abort` ends all sends and reads.
    """

    def __init__(self, inner: trio.SocketStream) -> None:
        self._inner = inner
        self.socket = inner.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, even if the sender is cancelled.

        Without a checkpoint if the socket takes all of it at once.

        Raises: BrokenResourceError when the client does not read.
        """
        await self.send_rest(data, self.send_now(data))

    async def send_rest(self, data: bytes | bytearray | memoryview, sent: int) -> None:
        """Send the rest of `data` after its first `sent` bytes.

        Raises: BrokenResourceError when the client does not read.
        """
        with memoryview(data) as whole:
            for start in range(sent, len(whole), PART_BYTES):
                deadline = trio.current_time() + SEND_SECONDS
                with trio.CancelScope(deadline=deadline, shield=True) as scope:
                    await self._send(whole[start : start + PART_BYTES])
                if scope.cancelled_caught:
                    raise trio.BrokenResourceError("The client does not read.")

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send without waiting, and return the number of sent bytes, nearly always all.

        trio's stream waits for a pass of the scheduler, which costs several times as much.
        """
        try:
            return os.write(self.socket.fileno(), data)
        except OSError:
            return 0  # no room, or closed: `send_rest` waits or raises

    async def _send(self, part: memoryview) -> None:
        try:
            await self._inner.send_all(part)
        except trio.BusyResourceError:  # a half-close is under way
            raise trio.BrokenResourceError("The connection is closing.") from None

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket may take more."""
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return received bytes. Raises: ClosedResourceError once it is closed.

        Waits before the first attempt, because a client sends its next request after the response.
        """
        while self.socket.fileno() >= 0:
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return os.read(self.socket.fileno(), max_bytes or PART_BYTES)
            except BlockingIOError:
                continue  # epoll may report a segment with a bad checksum
            except OSError:
                break
        raise trio.ClosedResourceError

    async def send_eof(self) -> None:
        """Half-close: nothing more will be sent."""
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close. Read all bytes before: with unread bytes TCP resets the connection."""
        await self._inner.aclose()

    def abort(self) -> None:
        """Close at once; pending operations, shielded or not, raise ClosedResourceError."""
        self.socket.close()


REQUEST_SECONDS: Final = 15.0
SPARE_CONNECTIONS: Final = 1_000
ADDRESS_SHARE: Final = 8


class WaitState(Enum):
    """The states in which the server waits: for a request, a body, or the client's reading."""

    REQUEST = auto()
    BODY = auto()
    READING = auto()


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of one server.

    `connections`: open at once. `by_address`: those of one client address that keep the server
    waiting. `body_bytes`, `body_bytes_by_address`: incomplete request bodies, in all and of one
    address. `unread_bytes`, `unread_bytes_by_address`: responses that clients are slow to read.
    `request_seconds`: from the last response, or the start, to the end of a request's head.
    """

    connections: int = 2_000
    by_address: int = 250
    body_bytes: int = 64 * MIB
    body_bytes_by_address: int = 32 * MIB
    unread_bytes: int = 256 * MIB
    unread_bytes_by_address: int = 64 * MIB
    request_seconds: float = REQUEST_SECONDS

    @classmethod
    def for_requests(cls, max_requests: int) -> ConnectionLimits:
        """Return the limits for a server of at most `max_requests` concurrent requests."""
        connections = max_requests + SPARE_CONNECTIONS
        return cls(connections, connections // ADDRESS_SHARE)

    def bytes_held(self, awaited: WaitState) -> tuple[int, int]:
        """Return the limits of bytes held while waiting for clients: in all, of one address."""
        if awaited is WaitState.READING:
            return self.unread_bytes, self.unread_bytes_by_address
        return self.body_bytes, self.body_bytes_by_address


class ClientConnection:
    """One open connection and what its client keeps the server waiting for."""

    __slots__ = (
        "_disconnected",
        "_request_scope",
        "address",
        "awaited",
        "held_bytes",
        "opened",
        "since",
        "stream",
    )

    def __init__(self, opened: OpenConnections, stream: ClientStream, address: str | None) -> None:
        self.opened = opened
        self.stream = stream
        self.address = address
        self.awaited: WaitState | None = None
        self.since = 0.0
        self.held_bytes = 0
        self._request_scope: trio.CancelScope | None = None
        self._disconnected = False

    def begin_request(self, scope: trio.CancelScope) -> None:
        """Note that a request is served in `scope`, which is cancelled when the connection ends.

        The client does not keep the server waiting meanwhile.
        """
        self.opened.end_wait(self)
        self._request_scope = scope
        if self._disconnected:
            scope.cancel()

    def cancel_request(self) -> None:
        """Cancel the request in progress, if there is one: its client cannot get a response."""
        if self._request_scope is not None:
            self._request_scope.cancel()

    def disconnected(self) -> None:
        """Note that the connection is closed, or its client's sending half."""
        self._disconnected = True
        self.cancel_request()

    def wait_for(self, awaited: WaitState) -> None:
        """Note that the client keeps the server waiting for `awaited` from now on."""
        self.opened.begin_wait(self, awaited)

    def end_wait(self) -> None:
        """Note that the client no longer keeps the server waiting."""
        self.opened.end_wait(self)

    def hold(self, count: int) -> None:
        """Record the number of bytes held of its incomplete body, or of its response."""
        self.opened.hold(self, count)


class OpenConnections:
    """All open connections of a server, within `limits`.

    `is_exempt` returns whether an address is a trusted proxy, which serves many clients: limits by
    address do not apply to it.
    """

    def __init__(self, limits: ConnectionLimits, is_exempt: Callable[[str], bool]) -> None:
        self._limits = limits
        self._is_exempt = is_exempt
        self._open: dict[ClientConnection, None] = {}
        self._waiting: dict[WaitState, dict[ClientConnection, None]] = {
            each: {} for each in WaitState
        }
        self._by_address: dict[str, dict[ClientConnection, None]] = {}
        self._held_bytes = dict.fromkeys(WaitState, 0)
        self._changed: trio.Event | None = None
        self._disconnects = DisconnectWatch()
        self.ending = False
        """Whether connections are closed after their response."""

    def __len__(self) -> int:
        return len(self._open)

    def held_bytes(self, awaited: WaitState) -> int:
        """Return the number of bytes held while waiting for `awaited`."""
        return self._held_bytes[awaited]

    def count(self, awaited: WaitState) -> int:
        """Return the number of connections that keep the server waiting for `awaited`."""
        return len(self._waiting[awaited])

    def add(self, stream: ClientStream, peer: str) -> ClientConnection:
        """Add a new connection, which waits for its first request."""
        address = None if self._is_exempt(peer) else counted_address(peer)
        connection = ClientConnection(self, stream, address)
        self._open[connection] = None
        self._disconnects.add(stream.socket, connection.disconnected)
        self.begin_wait(connection, WaitState.REQUEST)
        return connection

    def discard(self, connection: ClientConnection) -> None:
        """Remove a connection; an unknown one is not an error."""
        if connection.awaited is not None:
            self.end_wait(connection)
        if connection in self._open:
            del self._open[connection]
            self._disconnects.discard(connection.stream.socket)
        self._notify_change()

    def begin_wait(self, connection: ClientConnection, awaited: WaitState) -> None:
        """Note that a client keeps the server waiting.

        Beyond the limit of its address, the longest waiting one of these is closed.
        """
        if connection not in self._open:
            return  # already closed
        if connection.awaited is not None:
            self.end_wait(connection)
        connection.awaited = awaited
        connection.since = trio.current_time()
        self._waiting[awaited][connection] = None
        if connection.address is not None:
            same = self._by_address.setdefault(connection.address, {})
            same[connection] = None
            if len(same) > self._limits.by_address:
                self.close(next(iter(same)))
        if self._changed is not None:
            self._notify_change()

    def end_wait(self, connection: ClientConnection) -> None:
        """Note that a client no longer keeps the server waiting."""
        if connection.awaited is None:
            return
        if connection.held_bytes:
            self._held_bytes[connection.awaited] -= connection.held_bytes
            connection.held_bytes = 0
        del self._waiting[connection.awaited][connection]
        connection.awaited = None
        if connection.address is not None:
            same = self._by_address[connection.address]
            del same[connection]
            if not same:
                del self._by_address[connection.address]

    def hold(self, connection: ClientConnection, count: int) -> None:
        """Record the number of bytes held of an incomplete body, or of an unread response.

        Beyond a limit the connection that has waited longest with such bytes is closed: of the
        same address, or of all. The last one stays: an app's response may exceed every limit.
        """
        awaited = connection.awaited
        if awaited is None:
            return  # already closed
        max_bytes, max_bytes_of_address = self._limits.bytes_held(awaited)
        self._held_bytes[awaited] += count - connection.held_bytes
        connection.held_bytes = count
        while (kept := self._held_bytes[awaited]) > max_bytes:
            oldest = next(each for each in self._waiting[awaited] if each.held_bytes)
            if oldest.held_bytes == kept:
                break
            self.close(oldest)
        if connection.address is None:
            return
        waiting = self._by_address.get(connection.address, ())
        same = [each for each in waiting if each.awaited is awaited and each.held_bytes]
        kept = sum(each.held_bytes for each in same)
        for each in same:
            if kept <= max_bytes_of_address or each.held_bytes == kept:
                break
            kept -= each.held_bytes
            self.close(each)

    def close(self, connection: ClientConnection) -> None:
        """Close a connection at once, remove it, and cancel its request."""
        self.discard(connection)
        connection.stream.abort()
        connection.disconnected()

    def close_longest_waiting(self) -> bool:
        """Close the longest waiting connection; return whether there was one."""
        first = [next(iter(waiting)) for waiting in self._waiting.values() if waiting]
        if not first:
            return False
        self.close(min(first, key=lambda each: each.since))
        return True

    async def make_room(self) -> None:
        """Return when there is room for one more connection; close a waiting one if necessary."""
        while len(self._open) >= self._limits.connections and not self.close_longest_waiting():
            await self._change()

    async def close_expired(self) -> None:
        """Close connections that wait too long for a request, until cancelled."""
        waiting, seconds = self._waiting[WaitState.REQUEST], self._limits.request_seconds
        while True:
            # Connections that begin to wait later expire later, so none is missed.
            first = next((each.since for each in waiting), trio.current_time())
            await trio.sleep_until(first + seconds)
            await _read_what_has_arrived()
            now = trio.current_time()
            for connection in list(_expired(waiting, now - seconds)):
                self.close(connection)

    async def cancel_disconnected(self) -> None:
        """Cancel the requests of clients that disconnect, until cancelled."""
        await self._disconnects.run()

    async def end(self) -> None:
        """Close connections that wait for a request; return when all other current ones are closed.

        `ending` makes them close after their response. Connections that arrive meanwhile are
        served, but this call does not wait for them.
        """
        self.ending = True
        idle = list(self._waiting[WaitState.REQUEST])
        await _read_what_has_arrived()
        for connection in idle:
            if connection.awaited is WaitState.REQUEST:
                self.close(connection)
        for connection in list(self._open):
            while connection in self._open:
                await self._change()

    def close_all(self) -> None:
        """Close every connection now."""
        for connection in list(self._open):
            self.close(connection)

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _notify_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


async def _read_what_has_arrived() -> None:
    """Let other tasks read requests that have arrived before their connections are closed.

    A proxy that has sent a POST on a connection which is then closed cannot know whether it was
    carried out, and must not repeat it: its client gets 502. In the first pass the sockets are
    found to be readable, in the second they have been read.
    """
    for _ in range(2):
        await trio.lowlevel.checkpoint()


def _expired(waiting: dict[ClientConnection, None], since: float) -> Iterator[ClientConnection]:
    """Yield the connections that have waited since `since` or longer, longest first."""
    for connection in waiting:
        if connection.since > since:
            return
        yield connection


NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Errors of accept(2) for a connection that failed in the queue; the next one may be fine.
DISCONNECT_ERRNOS: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EPROTO,
    }
)
RAISE_LIMIT: Final = "raise the limit of open files: LimitNOFILE= in the unit, or ulimit -n"
AGAIN_SECONDS: Final = 0.1
"""The time between two attempts to accept a connection without a descriptor for it."""
REPORT_SECONDS: Final = 60.0
"""The time for which the log does not repeat that there is none."""


class PatientListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts connections, also while no file descriptor is left.

    Args:
        listening: the bound socket.
        make_room: closes a connection to free a descriptor; returns whether there was one.
        report: logs the reason for which a connection cannot be accepted, at most once a minute.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_room: Callable[[], bool],
        report: Callable[[str], object],
    ) -> None:
        self._inner = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        self._queue = select.poll()
        self._queue.register(listening, select.POLLIN)
        self._make_room, self._report = make_room, report
        self._reported = -inf

    async def accept(self) -> trio.SocketStream:
        """Return the next connection."""
        while True:
            try:
                return await self._inner.accept()
            except OSError as error:
                if error.errno in DISCONNECT_ERRNOS:
                    continue
                if error.errno not in NO_ROOM:
                    raise
                reason = os.strerror(error.errno)
            # Without a descriptor accept(2) fails even if no connection waits.
            if not self._queue.poll(0):
                await trio.lowlevel.wait_readable(self._inner.socket)
                continue
            now = trio.current_time()
            if now - self._reported >= REPORT_SECONDS:
                self._reported = now
                self._report(reason)
            if not self._make_room():
                await trio.sleep(AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Close the socket."""
        await self._inner.aclose()
