"""The real store of one process, with a disk that fails, a lock that is held, and a kill anywhere.

A fault may inject before a transaction, at any of its statements, at its commit, or between the
commit and the answer. The guarantees of the store hold nevertheless: nothing or all of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import trio

from fw_actors.errors import OverloadedError, store_refusal
from fw_actors.store import Store, StoreStatistics, Tx
from tests.forwarding_tx import ForwardingTx
from tests.simulation.incarnation import Incarnation

T = TypeVar("T")


class InjectedDefect(Exception):
    """Raised instead of a result: a defect, which crashes a caller that does not expect it."""


@dataclass
class StoreFaults:
    """The failure rates of the stores of a site, as shares of all transactions."""

    refused: float = 0.0  # before it begins: locked by another writer
    torn: float = 0.0  # at one of its statements, or at the commit: the disk is full
    defect: float = 0.0  # an unexpected exception
    slow: float = 0.0  # waits for the lock, up to two seconds
    struck_at: float = float("-inf")
    """The time of the last failure, on trio's clock."""

    def clear(self) -> None:
        """End all failures."""
        self.refused = self.torn = self.defect = self.slow = 0.0


class FaultyStore(Store):
    """See `Store`. `committed` is called after each write, before its caller is resumed."""

    def __init__(
        self,
        inner: Store,
        incarnation: Incarnation,
        store_faults: StoreFaults,
        rng: random.Random,
        committed: Callable[[Incarnation], None],
    ) -> None:
        self.readers, self.writers = inner.readers, inner.writers
        self._inner, self._incarnation, self._store_faults = inner, incarnation, store_faults
        self._rng, self._committed = rng, committed

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        """See `Store.write`."""
        await self._before()
        if self._happens(self._store_faults.torn):
            fn = self._torn(fn)
        try:
            result = await self._inner.write(fn, durable=durable)
        finally:
            self._committed(self._incarnation)
        if self._rng.random() < 0.1:
            await self._uncancelled_step()
        return result

    async def read(self, fn: Callable[[Tx], T], *, reserved: bool = False) -> T:
        """See `Store.read`."""
        await self._before()
        return await self._inner.read(fn, reserved=reserved)

    async def _before(self) -> None:
        await self._incarnation.step()
        if self._happens(self._store_faults.slow):
            await trio.sleep(self._rng.uniform(0.0, 2.0))
            await self._incarnation.step()
        if self._happens(self._store_faults.refused):
            raise OverloadedError("The database is locked by another process.")
        if self._happens(self._store_faults.defect):
            raise InjectedDefect("a defect of the simulation")

    async def _uncancelled_step(self) -> None:
        """Between commit and answer a process may die, but no caller may be cancelled."""
        with trio.CancelScope(shield=True):
            await self._incarnation.step()

    def _torn(self, fn: Callable[[Tx], T]) -> Callable[[Tx], T]:
        at = self._rng.randrange(8)

        def torn(tx: Tx) -> T:
            faulty = _TornTx(tx, at)
            fn(faulty)
            faulty.fail()

        return torn

    def _happens(self, share: float) -> bool:
        happens = share > 0.0 and self._rng.random() < share
        if happens:
            self._store_faults.struck_at = trio.current_time()
        return happens

    def on_external_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Store.on_external_commit`."""
        return self._inner.on_external_commit(callback)

    def notify_others(self) -> None:
        """See `Store.notify_others`."""
        self._inner.notify_others()

    def poll(self) -> None:
        """See `Store.poll`."""
        self._inner.poll()

    def statistics(self) -> StoreStatistics:
        """See `Store.statistics`."""
        return self._inner.statistics()


class _TornTx(ForwardingTx):
    """A transaction whose disk is full from its `at`th statement on, at the latest at its end."""

    def __init__(self, inner: Tx, at: int) -> None:
        super().__init__(inner)
        self._left = at

    def before_statement(self, params: Mapping[str, Any]) -> None:
        self._left -= 1
        if self._left < 0:
            self.fail()

    def fail(self) -> NoReturn:
        raise store_refusal("The database or its disk is full; nothing was changed.")
