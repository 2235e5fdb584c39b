"""Counters of attempts under test."""

from __future__ import annotations

from functools import partial

from fw_actors.access import attempts
from fw_actors.rules.lockout import Budget
from tests.fw_actors.virtual_site_kit import VirtualSite

MINUTE = 60
FIVE = Budget(limit=5, window=15 * MINUTE * 1000)
KEY = b"k" * 32


class AttemptCounter:
    """One counter, charged and settled by number; `first`: the number before the first one."""

    def __init__(
        self, site: VirtualSite, budget: Budget = FIVE, key: bytes = KEY, first: int = 0
    ) -> None:
        self._store, self._budget, self._key = site.site.store, budget, key
        self._made = first

    async def charge(self) -> float | str:
        """Charge an attempt: its id, or the seconds to wait."""
        self._made += 1
        made = f"{self._key.hex()}-{self._made}"
        wait = await self._store.write(
            partial(attempts.charge, charge_id=made, key=self._key, budget=self._budget)
        )
        return made if wait is None else wait

    async def fail(self, made: float | str) -> float | None:
        settle = partial(
            attempts.settle_failure, charge_id=str(made), key=self._key, budget=self._budget
        )
        return await self._store.write(settle)

    async def failure(self) -> float | None:
        """Fail an attempt: the seconds of the lock that it began."""
        return await self.fail(await self.charge())

    async def success(self, made: float | str) -> None:
        await self._store.write(partial(attempts.clear, charge_id=str(made), key=self._key))

    async def take_back(self, made: float | str) -> None:
        await self._store.write(partial(attempts.release, charge_id=str(made)))
