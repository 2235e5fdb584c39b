"""The store as services see it: two lanes, one clock, and who listens for others' commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from fw_actors.runtime.clock import Clock
from fw_actors.store.calls import Counts
from fw_actors.store.contract import StoreStatistics
from fw_actors.store.lanes import Lane
from fw_actors.store.transaction import Tx

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)


class Listeners:
    """Callbacks for commits of other processes; called on trio's thread."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[], None]] = {}

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Add a callback; return what removes it."""
        key = object()
        self._callbacks[key] = callback

        def end() -> None:
            self._callbacks.pop(key, None)

        return end

    def tell(self) -> None:
        """Call all of them, in the order in which they came."""
        for callback in tuple(self._callbacks.values()):
            try:
                callback()
            except Exception:
                _log.exception("a listener for commits of other processes failed")


class Lanes(NamedTuple):
    """The ways to a store's engines. `lookups` is reserved for short reads; `ended` is called when
    all are closed."""

    writes: Lane
    reads: Lane
    lookups: Lane
    ended: Callable[[], None] = lambda: None


class LaneStore:
    """See `Store`.

    Args:
        counts: those of its engines, each written by a thread of its own.
        look: looks for commits of other processes now.
    """

    def __init__(
        self,
        clock: Clock,
        lanes: Lanes,
        listeners: Listeners,
        counts: Sequence[Counts],
        *,
        look: Callable[[], None],
        max_waiting_writes: int,
        max_waiting_reads: int,
    ) -> None:
        self._clock, self._lanes = clock, lanes
        self._writes, self._reads = lanes.writes, lanes.reads
        self._listeners, self._counts, self._look = listeners, tuple(counts), look
        self._max_writes, self._max_reads = max_waiting_writes, max_waiting_reads

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        """See `Store.write`."""
        result: T = await self._writes.call(fn, self._clock.now(), durable=durable)
        return result

    async def read(self, fn: Callable[[Tx], T], *, reserved: bool = False) -> T:
        """See `Store.read`."""
        lane = self._lanes.lookups if reserved else self._reads
        result: T = await lane.call(fn, self._clock.now())
        return result

    def on_foreign_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Store.on_foreign_commit`."""
        return self._listeners.add(callback)

    def look_now(self) -> None:
        """See `Store.look_now`."""
        self._look()

    def statistics(self) -> StoreStatistics:
        """See `Store.statistics`."""
        counts = self._counts
        return StoreStatistics(
            waiting_writes=self._writes.waiting,
            waiting_reads=self._reads.waiting + self._lanes.lookups.waiting,
            max_waiting_writes=self._max_writes,
            max_waiting_reads=self._max_reads,
            commits=sum(each.commits for each in counts),
            committed=sum(each.committed for each in counts),
            rolled_back=sum(each.rolled_back for each in counts),
            refused=sum(each.refused for each in counts) + self._writes.refused,
            skipped=sum(lane.skipped for lane in self._lanes[:-1]),
            reads=sum(each.reads for each in counts),
            largest_group=max(each.largest_group for each in counts),
            foreign_commits=sum(each.foreign_commits for each in counts),
        )

    async def close(self) -> None:
        """Answer what waits, then close the connections; the writers are last to go."""
        await self._lanes.lookups.close()
        await self._reads.close()
        await self._writes.close()
        self._lanes.ended()
