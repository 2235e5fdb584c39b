"""Connections that are kept open for the next POST to the same origin.

A connection is either with exactly one exchange (`in_use`) or idle here. All steps except `wait`
are synchronous, so that none is cancelled half-way and no count is lost.

A TLS handshake costs the processor time of several POSTs. While trio's thread is busy, the process
is the bottleneck, and not the number of connections: a POST to an origin that has a connection in
use then waits for that one (B-154). But a wait costs something too, about a thirtieth of a
handshake, so that an origin gets a further connection after so many waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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
HIGH_LOAD: Final = 0.25
"""The share of the time for which a busy thread computes. It is low, because the thread waits for
the interpreter's lock and for a processor as well, also if it has no time for its receivers."""
LOAD_SECONDS: Final = 0.02
"""The shortest time for which a load is measured."""


class ThreadLoad:
    """The share of the time for which the calling thread computes."""

    def __init__(self) -> None:
        self._since, self._computed = time.perf_counter(), time.thread_time()
        self._high = False

    def is_high(self) -> bool:
        """Whether the thread was busy between the last two calls, at least 20 ms apart."""
        now = time.perf_counter()
        elapsed = now - self._since
        if elapsed >= LOAD_SECONDS:
            computed = time.thread_time()
            self._high = computed - self._computed > HIGH_LOAD * elapsed
            self._since, self._computed = now, computed
        return self._high


class _OriginUse:
    """The connections to an origin that are in use, and the POSTs that wait for them."""

    __slots__ = ("in_use", "line", "waits")

    def __init__(self) -> None:
        self.in_use = 0
        self.waits = 0
        """The number of POSTs that have waited since one was told to open a connection."""
        self.line: dict[PendingCheckout, None] = {}


class PendingCheckout:
    """A POST that waits for a connection in use: `wait`, which one of the other methods ends."""

    __slots__ = ("_task", "_use")

    def __init__(self, use: _OriginUse) -> None:
        self._use = use
        self._task = trio.lowlevel.current_task()

    async def wait(self) -> Connection | None:
        """Wait for a connection; None after the time limit."""
        self._use.line[self] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._use.line[self]
            return trio.lowlevel.Abort.SUCCEEDED

        connection: Connection | None = await trio.lowlevel.wait_task_rescheduled(abort)
        return connection

    def end(self, connection: Connection | None) -> None:
        """End the wait with a connection, or without one."""
        del self._use.line[self]
        trio.lowlevel.reschedule(self._task, Value(connection))

    def expire(self) -> None:
        """End the wait at its time limit, unless a connection was given at the same moment."""
        if self in self._use.line:
            self.end(None)


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
        deadlines: give trio's time, and end waits.
        is_busy: returns whether this process is the bottleneck; None: by the load of the thread.
    """

    def __init__(
        self,
        limits: PoolLimits,
        deadlines: Deadlines,
        is_busy: Callable[[], bool] | None = None,
    ) -> None:
        self.limits = limits
        self._deadlines, self._current_time = deadlines, deadlines.now
        self._is_busy = is_busy or ThreadLoad().is_high
        # Both in the order in which they became idle; dicts, because they delete any key in O(1).
        self._idle: dict[Connection, None] = {}
        self._by_origin: dict[Origin, dict[Connection, None]] = {}
        self._in_use = self._opened = self._reused = self._closed = 0
        self._is_closed = False
        self._filled = trio.Event()
        self._secure: dict[Origin, _OriginUse] = {}

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

    def should_wait(self, origin: Origin) -> bool:
        """Return whether a POST should wait for a connection in use instead of opening one."""
        use = self._secure.get(origin)
        if use is None or not self._is_busy():
            return False
        use.waits += 1
        if use.waits <= WAITS_PER_CONNECTION:
            return True
        use.waits = 0
        return False

    async def wait(self, origin: Origin, seconds: float) -> Connection | None:
        """Wait for a connection that is in use; None if a new one must be dialled.

        `should_wait` must just have returned True. The wait takes up to `seconds`, at most 1 s.
        """
        waiting = PendingCheckout(self._secure[origin])
        timer = self._deadlines.add(waiting, min(seconds, MAX_WAIT_SECONDS))
        try:
            return await waiting.wait()
        finally:
            timer.pop(waiting, None)

    def add(self, connection: Connection) -> None:
        """Count a new connection, in use by its caller."""
        self._begin(connection)
        self._opened += 1

    def give_back(self, connection: Connection) -> None:
        """End the use of a connection after a whole response.

        A waiting POST gets it; otherwise it is kept within the limits, or closed.
        """
        if connection.origin in self._secure and self._pass_on(connection):
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
            use = self._secure.get(connection.origin)
            if use is None:
                use = self._secure[connection.origin] = _OriginUse()
            use.in_use += 1

    def _end(self, connection: Connection) -> None:
        self._in_use -= 1
        use = self._secure.get(connection.origin)
        if use is not None:
            use.in_use -= 1
            if not use.in_use:  # then there is nothing to wait for
                del self._secure[connection.origin]
                for waiting in list(use.line):
                    waiting.end(None)

    def _pass_on(self, connection: Connection) -> bool:
        """Give a connection to the POST that has waited longest; return False if none waits."""
        line = self._secure[connection.origin].line
        if not line or self._is_closed or not connection.is_reusable():
            return False
        next(iter(line)).end(connection)
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
