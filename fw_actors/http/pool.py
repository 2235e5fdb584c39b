"""Connections that are kept open for the next POST to the same origin.

A connection is either with exactly one exchange (`in_use`) or idle here. All steps except `wait`
are synchronous, so that none is cancelled half-way and no count is lost.

A TLS handshake costs the processor time of several POSTs, and a connection beyond the limit takes
the place of one that another origin will need. While trio's thread is busy, the process is the
bottleneck, and not the number of connections: a POST to an origin that has a connection in use then
waits for that one (B-154). Waiting delays deliveries to a distant receiver. Therefore an origin
gets another connection after `WAITS_PER_CONNECTION` waits, or `WAITS_WHEN_SATURATED` if the thread
is saturated, when another connection would only slow down the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

import trio
from outcome import Value

from fw_actors.http.exchange import Connection
from fw_actors.http.url import Origin
from fw_actors.runtime.clock import Deadlines

MAX_WAIT_SECONDS: Final = 1.0
"""The longest wait for a connection in use."""
WAITS_PER_CONNECTION: Final = 32
"""The number of POSTs that wait at an origin before the next one opens a further connection."""
WAITS_WHEN_SATURATED: Final = 512
"""The same while the thread is saturated."""
BUSY_LOAD: Final = 0.25
"""The share of the time for which a busy thread computes. It is low, because the thread waits for
the interpreter's lock and for a processor as well, also if it has no time for its receivers."""
SATURATED_LOAD: Final = 0.6
"""The share of the time for which a saturated thread computes."""
LOAD_SECONDS: Final = 0.02
"""The shortest time for which a load is measured."""
DISPLACEABLE: Final = 64
"""The number of idle connections among which the one to displace is looked for."""


class ThreadLoad:
    """The share of the time for which the calling thread computes."""

    def __init__(self) -> None:
        self._since, self._computed = time.perf_counter(), time.thread_time()
        self._share = 0.0

    def share(self) -> float:
        """Return the share, from 0 to 1, between the last two calls at least 20 ms apart."""
        now = time.perf_counter()
        elapsed = now - self._since
        if elapsed >= LOAD_SECONDS:
            computed = time.thread_time()
            self._share = (computed - self._computed) / elapsed
            self._since, self._computed = now, computed
        return self._share


class _OriginConnections:
    """The connections to an origin, and the POSTs that wait for one of those in use."""

    __slots__ = ("idle", "in_use", "line", "waits")

    def __init__(self) -> None:
        self.idle: dict[Connection, None] = {}
        """In the order in which they became idle; a dict, because it deletes any key in O(1)."""
        self.in_use = 0
        self.waits = 0
        """The number of POSTs that have waited since one was told to open a connection."""
        self.line: dict[PendingCheckout, None] = {}


class PendingCheckout:
    """A POST that waits for a connection in use: `wait`, which one of the other methods ends."""

    __slots__ = ("_line", "_task")

    def __init__(self, line: dict[PendingCheckout, None]) -> None:
        self._line = line
        self._task = trio.lowlevel.current_task()

    async def wait(self) -> Connection | None:
        """Wait for a connection; None after the time limit."""
        self._line[self] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._line[self]
            return trio.lowlevel.Abort.SUCCEEDED

        connection: Connection | None = await trio.lowlevel.wait_task_rescheduled(abort)
        return connection

    def end(self, connection: Connection | None) -> None:
        """End the wait with a connection, or without one."""
        del self._line[self]
        trio.lowlevel.reschedule(self._task, Value(connection))

    def expire(self) -> None:
        """End the wait at its time limit, unless a connection was given at the same moment."""
        if self in self._line:
            self.end(None)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The limits of idle connections; callers limit the connections in use.

    Args:
        idle: the maximum of idle connections. Beyond it, one of an origin with more than an equal
            share is closed, otherwise the one that is idle longest.
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
        deadlines: give trio's time, and end waits.
        load: returns the share of the time for which trio's thread computes; None: `ThreadLoad`.
    """

    def __init__(
        self,
        limits: PoolLimits,
        deadlines: Deadlines,
        load: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self._deadlines, self._current_time = deadlines, deadlines.now
        self._load = load or ThreadLoad().share
        self._idle: dict[Connection, None] = {}  # of all origins, in the order as in each
        self._origins: dict[Origin, _OriginConnections] = {}
        self._in_use = self._opened = self._reused = self._closed = 0
        self._is_closed = False
        self._filled = trio.Event()

    def take(self, origin: Origin, now: float | None = None) -> Connection | None:
        """Take an idle connection that is still usable; None if a new one must be dialled.

        `now` is trio's time, if the caller has just read it.
        """
        own = self._origins.get(origin)
        if own is None:
            return None
        oldest = (self._current_time() if now is None else now) - self.limits.idle_seconds
        while own.idle:
            connection = next(reversed(own.idle))
            del own.idle[connection], self._idle[connection]
            if connection.idle_since > oldest and connection.is_reusable():
                own.in_use += 1
                self._in_use += 1
                self._reused += 1
                return connection
            self._close(connection)
        self._remove_unused(origin, own)
        return None

    def begin_wait(self, origin: Origin) -> bool:
        """Return whether a POST must `wait` for a connection in use instead of opening one.

        Each wait is counted: after a number of them an origin gets a further connection.
        """
        own = self._origins.get(origin)
        if own is None or not own.in_use:
            return False
        costs = origin.scheme == "https" or self._in_use + len(self._idle) >= self.limits.idle
        if not costs or (load := self._load()) < BUSY_LOAD:
            return False
        own.waits += 1
        if own.waits <= (WAITS_PER_CONNECTION if load < SATURATED_LOAD else WAITS_WHEN_SATURATED):
            return True
        own.waits = 0
        return False

    async def wait(self, origin: Origin, seconds: float) -> Connection | None:
        """Wait for a connection that is in use; None if a new one must be dialled.

        `begin_wait` must just have returned True. The wait takes up to `seconds`, at most 1 s.
        """
        waiting = PendingCheckout(self._origins[origin].line)
        timer = self._deadlines.add(waiting, min(seconds, MAX_WAIT_SECONDS))
        try:
            return await waiting.wait()
        finally:
            timer.pop(waiting, None)

    def add(self, connection: Connection) -> None:
        """Count a new connection, in use by its caller."""
        own = self._origins.get(connection.origin)
        if own is None:
            own = self._origins[connection.origin] = _OriginConnections()
        own.in_use += 1
        self._in_use += 1
        self._opened += 1

    def release(self, connection: Connection) -> None:
        """End the use of a connection after a whole response.

        The POST that has waited longest gets it, or its place if the receiver has closed it;
        otherwise it is kept within the limits, or closed.
        """
        own = self._origins[connection.origin]
        if own.line and not self._is_closed and connection.is_reusable():
            next(iter(own.line)).end(connection)
            self._reused += 1
            return
        full = not self.limits.idle or len(own.idle) >= self.limits.idle_per_origin
        if self._is_closed or own.line or full:
            self.discard(connection)
            return
        if len(self._idle) >= self.limits.idle:
            self._evict(self._to_displace(own))
        connection.idle_since = self._current_time()
        if not self._idle:
            self._filled.set()
        self._idle[connection] = own.idle[connection] = None
        self._end(connection.origin, own)

    def discard(self, connection: Connection) -> None:
        """End the use of a connection that cannot be used again.

        The POST that has waited longest opens another one in its place. Otherwise all POSTs to a
        receiver that closes its connections would wait for one that hangs.
        """
        own = self._origins[connection.origin]
        self._end(connection.origin, own)
        if own.line:
            next(iter(own.line)).end(None)
        self._close(connection)

    def sweep(self) -> None:
        """Close connections that are idle too long, and those on which the receiver has sent
        something, or has closed its side."""
        oldest = self._current_time() - self.limits.idle_seconds
        for connection in list(self._idle):
            if connection.idle_since <= oldest or not connection.is_reusable():
                self._evict(connection)

    async def filled(self) -> None:
        """Wait until a connection is idle."""
        if not self._idle:
            self._filled = trio.Event()
            await self._filled.wait()

    def close_all(self) -> None:
        """Close all idle connections now, and further connections when they are returned."""
        self._is_closed = True
        for connection in list(self._idle):
            self._evict(connection)

    def statistics(self) -> PoolStatistics:
        """Return the current connections, and the counters since the start."""
        return PoolStatistics(
            in_use=self._in_use,
            idle=len(self._idle),
            origins=sum(1 for own in self._origins.values() if own.idle),
            opened=self._opened,
            reused=self._reused,
            closed=self._closed,
        )

    def _end(self, origin: Origin, own: _OriginConnections) -> None:
        own.in_use -= 1
        self._in_use -= 1
        if not own.in_use:
            for waiting in list(own.line):  # there is nothing to wait for
                waiting.end(None)
            self._remove_unused(origin, own)

    def _to_displace(self, own: _OriginConnections) -> Connection:
        """Return the idle connection that makes room for one more of `own`.

        It is the oldest of an origin with more than an equal share (B-157). If all took the oldest
        of all, many origins whose turns come one after the other would always displace the one
        whose turn is next.
        """
        share = max(1, self.limits.idle // len(self._origins))
        if len(own.idle) < share:
            for connection in islice(self._idle, DISPLACEABLE):
                if len(self._origins[connection.origin].idle) > share:
                    return connection
        return next(iter(own.idle or self._idle))

    def _evict(self, connection: Connection) -> None:
        """Close an idle connection."""
        own = self._origins[connection.origin]
        del own.idle[connection], self._idle[connection]
        self._remove_unused(connection.origin, own)
        self._close(connection)

    def _remove_unused(self, origin: Origin, own: _OriginConnections) -> None:
        if not own.in_use and not own.idle:
            del self._origins[origin]

    def _close(self, connection: Connection) -> None:
        self._closed += 1
        connection.close()
