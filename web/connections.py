"""The open connections: how many, of which clients, and which of them keep the server waiting.

A connection keeps the server waiting while its client has sent no whole request, or does not read
its response. Only such a connection may be closed to make room for another one, and the one that
has done so longest is closed first; a connection with a whole request in hand is never closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import trio

from fw_actors.rules.addresses import counted_address
from web.body import MIB
from web.stream import ClientStream

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
    and of one address. `request_seconds`: from the last response, or from the beginning, until the
    head of a request is whole.
    """

    connections: int = 2_000
    by_address: int = 250
    body_bytes: int = 64 * MIB
    body_bytes_by_address: int = 8 * MIB
    request_seconds: float = REQUEST_SECONDS

    @classmethod
    def for_requests(cls, most: int) -> ConnectionLimits:
        """Return the limits for a server that serves at most `most` requests at once."""
        connections = most + SPARE_CONNECTIONS
        return cls(connections, connections // ADDRESS_SHARE)


class ClientConnection:
    """One open connection as its server counts it."""

    __slots__ = ("address", "awaited", "body_bytes", "opened", "since", "stream")

    def __init__(self, opened: OpenConnections, stream: ClientStream, address: str | None) -> None:
        self.opened = opened
        self.stream = stream
        self.address = address
        self.awaited: Awaited | None = None
        self.since = 0.0
        self.body_bytes = 0

    def wait_for(self, awaited: Awaited) -> None:
        """Note that from now on the client keeps the server waiting for `awaited`."""
        self.opened.begin_wait(self, awaited)

    def end_wait(self) -> None:
        """Note that the client does not keep the server waiting any more."""
        self.opened.end_wait(self)

    def hold(self, body_bytes: int) -> None:
        """Note how many bytes of its unfinished body are kept."""
        self.opened.hold(self, body_bytes)


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
        self._body_bytes = 0
        self._changed: trio.Event | None = None
        self.ending = False
        """Whether connections are to be closed after their response."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def body_bytes(self) -> int:
        """How many bytes of unfinished bodies are kept."""
        return self._body_bytes

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
        if connection.body_bytes:
            self._body_bytes -= connection.body_bytes
            connection.body_bytes = 0
        del self._waiting[connection.awaited][connection]
        connection.awaited = None
        if connection.address is not None:
            same = self._by_address[connection.address]
            del same[connection]
            if not same:
                del self._by_address[connection.address]

    def hold(self, connection: ClientConnection, body_bytes: int) -> None:
        """Note how much of an unfinished body is kept.

        Beyond a limit the connection of the oldest unfinished body is closed: of the same address,
        or of all.
        """
        if connection.awaited is not Awaited.BODY:
            return
        self._body_bytes += body_bytes - connection.body_bytes
        connection.body_bytes = body_bytes
        while self._body_bytes > self._limits.body_bytes:
            self.close(next(each for each in self._waiting[Awaited.BODY] if each.body_bytes))
        if connection.address is None:
            return
        same = [each for each in self._by_address.get(connection.address, ()) if each.body_bytes]
        kept = sum(each.body_bytes for each in same)
        for each in same:
            if kept <= self._limits.body_bytes_by_address:
                break
            kept -= each.body_bytes
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
