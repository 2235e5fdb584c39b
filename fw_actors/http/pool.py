"""Connections that are kept open for the next POST to the same origin.

A connection is either with exactly one exchange (`in_use`) or idle here. All steps except `wait`
are synchronous, so that none is cancelled half-way and no count is lost.

A TLS handshake costs the processor time of several POSTs. While several wait for their turn to
compute, this process is the bottleneck, and not the number of connections: a POST to an origin
that has a connection in use then waits for that one (B-154).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from fw_actors.http.exchange import Connection
from fw_actors.http.url import Origin

WAIT_SECONDS: Final = 0.25
"""The longest wait for a connection in use before a further one is dialled."""


@dataclass(slots=True, eq=False)
class PendingCheckout:
    """A POST that waits for a connection in use, and the connection that it has received."""

    given: trio.Event = field(default_factory=trio.Event)
    connection: Connection | None = None


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The limits of idle connections; callers limit the connections in use.

    Args:
        idle: the maximum of idle connections; beyond it, the one that is idle longest is closed.
        idle_per_origin: the maximum to one origin; further ones are closed when they are returned.
        idle_seconds: the time after which an idle connection is closed.
    """

    idle: int = 512
    idle_per_origin: int = 16
    idle_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The current connections, and counters since the start.

    Args:
        in_use: connections with an exchange in progress.
        idle: connections without one.
        origins: origins with idle connections.
        opened: connections that were dialled.
        reused: exchanges on a connection that was used before.
        closed: connections that were closed, for any reason.
    """

    in_use: int
    idle: int
    origins: int
    opened: int
    reused: int
    closed: int


class Pool:
    """The idle connections by origin; the most recently used one is reused first.

    Args:
        limits: the limits of idle connections.
        current_time: returns trio's time.
    """

    def __init__(
        self, limits: PoolLimits, current_time: Callable[[], float] = trio.current_time
    ) -> None:
        self.limits = limits
        self._current_time = current_time
        # Both in the order in which they became idle; dicts, because they delete any key in O(1).
        self._idle: dict[Connection, None] = {}
        self._by_origin: dict[Origin, dict[Connection, None]] = {}
        self._in_use = self._opened = self._reused = self._closed = 0
        self._is_closed = False
        self._filled = trio.Event()
        self._secure_in_use: Counter[Origin] = Counter()
        self._waiting: dict[Origin, deque[PendingCheckout]] = {}

    def take(self, origin: Origin, now: float | None = None) -> Connection | None:
        """Take an idle connection that is still usable; None if a new one must be dialled.

        `now` is trio's time, if the caller has just read it.
        """
        oldest = (self._current_time() if now is None else now) - self.limits.idle_seconds
        while (own := self._by_origin.get(origin)) is not None:
            connection = next(reversed(own))
            self._forget(connection)
            if connection.idle_since > oldest and connection.is_reusable():
                self._begin(connection)
                self._reused += 1
                return connection
            self._close(connection)
        return None

    def is_in_use(self, origin: Origin) -> bool:
        """Return whether a TLS connection to the origin is in use, and may be free soon."""
        return origin in self._secure_in_use

    async def wait(self, origin: Origin) -> Connection | None:
        """Wait up to 0.25 s for a connection that is in use; None if a new one must be dialled."""
        waiter = PendingCheckout()
        line = self._waiting.setdefault(origin, deque())
        line.append(waiter)
        try:
            with trio.move_on_after(WAIT_SECONDS):
                await waiter.given.wait()
        except BaseException:
            if waiter.connection is not None:
                self.give_back(waiter.connection)
            raise
        finally:
            if waiter.connection is None:
                line.remove(waiter)
            if not line and self._waiting.get(origin) is line:
                del self._waiting[origin]
        return waiter.connection

    def add(self, connection: Connection) -> None:
        """Count a new connection, in use by its caller."""
        self._begin(connection)
        self._opened += 1

    def give_back(self, connection: Connection) -> None:
        """End the use of a connection after a whole response.

        A waiting POST gets it; otherwise it is kept within the limits, or closed.
        """
        if self._waiting and self._pass_on(connection):
            return
        self._end(connection)
        own = self._by_origin.get(connection.origin)
        full = own is not None and len(own) >= self.limits.idle_per_origin
        if full or self._is_closed or not self.limits.idle or not self.limits.idle_per_origin:
            self._close(connection)
            return
        if len(self._idle) >= self.limits.idle:
            oldest = next(iter(self._idle))
            self._forget(oldest)
            self._close(oldest)
        connection.idle_since = self._current_time()
        if not self._idle:
            self._filled.set()
        self._idle[connection] = None
        # Not `own`: the oldest may have been this origin's only connection.
        self._by_origin.setdefault(connection.origin, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        """End the use of a connection that cannot be used again."""
        self._end(connection)
        self._close(connection)

    def sweep(self) -> None:
        """Close connections that are idle too long, and those on which the receiver has sent
        something, or has closed its side."""
        oldest = self._current_time() - self.limits.idle_seconds
        for connection in list(self._idle):
            if connection.idle_since <= oldest or not connection.is_reusable():
                self._forget(connection)
                self._close(connection)

    async def filled(self) -> None:
        """Wait until a connection is idle."""
        if not self._idle:
            self._filled = trio.Event()
            await self._filled.wait()

    def close_all(self) -> None:
        """Close all idle connections now, and further connections when they are returned."""
        self._is_closed = True
        for connection in list(self._idle):
            self._forget(connection)
            self._close(connection)

    def statistics(self) -> PoolStatistics:
        """Return the current connections, and the counters since the start."""
        return PoolStatistics(
            in_use=self._in_use,
            idle=len(self._idle),
            origins=len(self._by_origin),
            opened=self._opened,
            reused=self._reused,
            closed=self._closed,
        )

    def _begin(self, connection: Connection) -> None:
        self._in_use += 1
        if connection.origin.scheme == "https":
            self._secure_in_use[connection.origin] += 1

    def _end(self, connection: Connection) -> None:
        self._in_use -= 1
        if connection.origin.scheme == "https":
            self._secure_in_use[connection.origin] -= 1
            if not self._secure_in_use[connection.origin]:
                del self._secure_in_use[connection.origin]

    def _pass_on(self, connection: Connection) -> bool:
        """Give a connection to the POST that has waited longest; return False if none waits."""
        line = self._waiting.get(connection.origin)
        if not line or self._is_closed or not connection.is_reusable():
            return False
        waiter = line.popleft()
        waiter.connection = connection
        waiter.given.set()
        self._reused += 1
        return True

    def _forget(self, connection: Connection) -> None:
        del self._idle[connection]
        own = self._by_origin[connection.origin]
        del own[connection]
        if not own:
            del self._by_origin[connection.origin]

    def _close(self, connection: Connection) -> None:
        self._closed += 1
        connection.close()
