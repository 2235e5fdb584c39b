"""Open connections: their bounds, their clients, their sockets.

A connection keeps the server waiting while its client has sent no whole request, or does not read
its response. Only such a connection may be closed to make room for another one, and the one that
has done so longest is closed first; a connection with a whole request in hand is never closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import trio

from fw_actors.rules.identifiers import counted_address
from web.request import MIB

SEND_SECONDS: Final = 30.0
PART_BYTES: Final = 256 * 1024


class ClientStream(trio.abc.HalfCloseableStream):
    """A socket stream whose sends and reads all have an end.

    Sends are shielded from cancellation: without a deadline, a client that stops reading would
    hold its connection for ever, and the stop of the service too. So each part of an answer has
    `SEND_SECONDS`, and `cut` ends whatever is under way.
    """

    def __init__(self, inner: trio.SocketStream) -> None:
        self._inner = inner
        self.socket = inner.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, whatever cancels its sender: who is answered gets all of it.

        No checkpoint where all of it goes at once.

        Raises: BrokenResourceError when the client takes none of it.
        """
        await self.send_rest(data, self.send_now(data))

    async def send_rest(self, data: bytes | bytearray | memoryview, sent: int) -> None:
        """Send what is left of `data` after its first `sent` bytes.

        Raises: BrokenResourceError when the client takes none of it.
        """
        with memoryview(data) as whole:
            for start in range(sent, len(whole), PART_BYTES):
                deadline = trio.current_time() + SEND_SECONDS
                with trio.CancelScope(deadline=deadline, shield=True) as scope:
                    await self._send(whole[start : start + PART_BYTES])
                if scope.cancelled_caught:
                    raise trio.BrokenResourceError("The client does not read.")

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send what goes without waiting: nearly always all of it; return how many bytes that were.

        By way of trio's stream an answer waits for a pass of the scheduler, and costs several
        times as much.
        """
        try:
            return os.write(self.socket.fileno(), data)
        except OSError:
            return 0  # no room, or gone: found out below

    async def _send(self, part: memoryview) -> None:
        try:
            await self._inner.send_all(part)
        except trio.BusyResourceError:  # nothing more will come: it is just being said
            raise trio.BrokenResourceError("The connection is closing.") from None

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room to send."""
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what has arrived. Raises: ClosedResourceError while and after it closes.

        Waits first: a client sends its next request when it has the answer to the last one.
        """
        while self.socket.fileno() >= 0:
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return os.read(self.socket.fileno(), max_bytes or PART_BYTES)
            except BlockingIOError:
                continue  # epoll may be wrong: a segment with a bad checksum, say
            except OSError:
                break
        raise trio.ClosedResourceError

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close. Unread bytes make it a reset: read what the client still sends before."""
        await self._inner.aclose()

    def cut(self) -> None:
        """Close at once; whoever waits on it, shielded or not, gets ClosedResourceError."""
        self.socket.close()


REQUEST_SECONDS: Final = 15.0
SPARE_CONNECTIONS: Final = 1_000
ADDRESS_SHARE: Final = 8


class Awaited(Enum):
    """What a client keeps the server waiting for."""

    REQUEST = auto()
    BODY = auto()
    READING = auto()


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of one server.

    `connections`: open at once. `by_address`: of these, how many of one client address may keep
    the server waiting. `body_bytes`, `body_bytes_by_address`: of unfinished request bodies, in all
    and of one address. `unread_bytes`, `unread_bytes_by_address`: of responses whose clients are
    slow to read them. `request_seconds`: from the last response, or from the beginning, until the
    head of a request is whole.
    """

    connections: int = 2_000
    by_address: int = 250
    body_bytes: int = 64 * MIB
    body_bytes_by_address: int = 8 * MIB
    unread_bytes: int = 256 * MIB
    unread_bytes_by_address: int = 64 * MIB
    request_seconds: float = REQUEST_SECONDS

    @classmethod
    def for_requests(cls, most: int) -> ConnectionLimits:
        """Return the limits for a server that serves at most `most` requests at once."""
        connections = most + SPARE_CONNECTIONS
        return cls(connections, connections // ADDRESS_SHARE)

    def bytes_held(self, awaited: Awaited) -> tuple[int, int]:
        """Return how many bytes may be kept while clients are waited for: in all, of an address."""
        if awaited is Awaited.READING:
            return self.unread_bytes, self.unread_bytes_by_address
        return self.body_bytes, self.body_bytes_by_address


class ClientConnection:
    """One open connection as its server counts it."""

    __slots__ = ("address", "awaited", "held_bytes", "opened", "since", "stream")

    def __init__(self, opened: OpenConnections, stream: ClientStream, address: str | None) -> None:
        self.opened = opened
        self.stream = stream
        self.address = address
        self.awaited: Awaited | None = None
        self.since = 0.0
        self.held_bytes = 0

    def wait_for(self, awaited: Awaited) -> None:
        """Note that from now on the client keeps the server waiting for `awaited`."""
        self.opened.begin_wait(self, awaited)

    def end_wait(self) -> None:
        """Note that the client does not keep the server waiting any more."""
        self.opened.end_wait(self)

    def hold(self, count: int) -> None:
        """Note how many bytes of its unfinished body, or of its response, are kept."""
        self.opened.hold(self, count)


class OpenConnections:
    """All open connections of a server, within `limits`.

    `is_exempt` says of a peer's address whether it is a trusted proxy, which speaks for many
    clients: limits by address are not applied to it.
    """

    def __init__(self, limits: ConnectionLimits, is_exempt: Callable[[str], bool]) -> None:
        self._limits = limits
        self._is_exempt = is_exempt
        self._open: dict[ClientConnection, None] = {}
        self._waiting: dict[Awaited, dict[ClientConnection, None]] = {each: {} for each in Awaited}
        self._by_address: dict[str, dict[ClientConnection, None]] = {}
        self._held_bytes = dict.fromkeys(Awaited, 0)
        self._changed: trio.Event | None = None
        self.ending = False
        """Whether connections are to be closed after their response."""

    def __len__(self) -> int:
        return len(self._open)

    def held_bytes(self, awaited: Awaited) -> int:
        """Return how many bytes are kept while clients keep the server waiting for `awaited`."""
        return self._held_bytes[awaited]

    def count(self, awaited: Awaited) -> int:
        """Return how many connections keep the server waiting for `awaited`."""
        return len(self._waiting[awaited])

    def add(self, stream: ClientStream, peer: str) -> ClientConnection:
        """Count a new connection, which waits for its first request."""
        address = None if self._is_exempt(peer) else counted_address(peer)
        connection = ClientConnection(self, stream, address)
        self._open[connection] = None
        self.begin_wait(connection, Awaited.REQUEST)
        return connection

    def discard(self, connection: ClientConnection) -> None:
        """Count a connection no more; one that is not counted is no error."""
        if connection.awaited is not None:
            self.end_wait(connection)
        self._open.pop(connection, None)
        self._tell_change()

    def begin_wait(self, connection: ClientConnection, awaited: Awaited) -> None:
        """Note that a client keeps the server waiting.

        Where too many of its address do, the oldest of them is closed.
        """
        if connection not in self._open:
            return  # closed meanwhile
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
            self._tell_change()

    def end_wait(self, connection: ClientConnection) -> None:
        """Note that a client keeps the server waiting no longer."""
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
        """Note how many bytes are kept of an unfinished body, or of a response that is not read.

        Beyond a limit the connection that has waited longest with such bytes is closed: of the
        same address, or of all. One that is left alone stays: an app may answer with more.
        """
        awaited = connection.awaited
        if awaited is None:
            return  # closed meanwhile
        most, most_of_address = self._limits.bytes_held(awaited)
        self._held_bytes[awaited] += count - connection.held_bytes
        connection.held_bytes = count
        while (kept := self._held_bytes[awaited]) > most:
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
            if kept <= most_of_address or each.held_bytes == kept:
                break
            kept -= each.held_bytes
            self.close(each)

    def close(self, connection: ClientConnection) -> None:
        """Close a connection at once, and count it no more."""
        self.discard(connection)
        connection.stream.cut()

    def close_longest_waiting(self) -> bool:
        """Close the connection that has kept the server waiting longest; say whether one has."""
        first = [next(iter(waiting)) for waiting in self._waiting.values() if waiting]
        if not first:
            return False
        self.close(min(first, key=lambda each: each.since))
        return True

    async def make_room(self) -> None:
        """Return when there is room for one more connection; close one that waits, if need be."""
        while len(self._open) >= self._limits.connections and not self.close_longest_waiting():
            await self._change()

    async def close_late(self) -> None:
        """Close connections that wait too long for a request, until cancelled."""
        waiting, seconds = self._waiting[Awaited.REQUEST], self._limits.request_seconds
        while True:
            # One that begins to wait later is due later: nothing is missed in the meantime.
            first = next((each.since for each in waiting), trio.current_time())
            await trio.sleep_until(first + seconds)
            now = trio.current_time()
            for connection in list(_late(waiting, now - seconds)):
                self.close(connection)

    async def end(self) -> None:
        """Close those that wait for a request; return when all others of this moment are closed.

        `ending` tells them to close after their response. Connections that come meanwhile are
        taken, and are not waited for.
        """
        self.ending = True
        for connection in list(self._waiting[Awaited.REQUEST]):
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

    def _tell_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _late(waiting: dict[ClientConnection, None], since: float) -> Iterator[ClientConnection]:
    """Yield the connections, the longest waiting first, that wait since `since` or longer."""
    for connection in waiting:
        if connection.since > since:
            return
        yield connection
