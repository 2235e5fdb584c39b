"""Leases and settles the deliveries of a site step by step, as a Dispatcher and its actors do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fw_actors.rules.delivery import Backoff, DeliveryStatus, OutcomeKind
from fw_actors.webhooks.claims import (
    NO_TURN,
    ClaimedBatch,
    ClaimLimits,
    LeasedDelivery,
    StoredWebhook,
    Turn,
)
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import EvenLimits


class SlotsPerWebhook(EvenLimits):
    """`each` slots for each Webhook, for at most `limit` Webhooks; records which took some."""

    def __init__(
        self,
        each: int = 100,
        closed: tuple[str | None, ...] = (),
        limit: int = 1000,
        turns: Mapping[str, Turn] = MappingProxyType({}),
    ) -> None:
        self._each, self._closed, self._limit, self._turns = each, closed, limit, turns
        self.taken: list[tuple[str | None, int]] = []

    @property
    def exhausted(self) -> bool:
        return len(self.taken) >= self._limit

    def turn(self, webhook: str) -> Turn:
        return self._turns.get(webhook, NO_TURN)

    def free(self, hook: StoredWebhook | None) -> int:
        if self.exhausted:
            return 0
        return 0 if (hook and hook.name) in self._closed else self._each

    def take(self, hook: StoredWebhook | None, count: int) -> None:
        self.taken.append((hook.name if hook is not None else None, count))


class ManualDispatcher:
    """Leases and settles the deliveries of a site when the test says."""

    def __init__(self, site: VirtualSite, *, packed: bool = True) -> None:
        self.site = site
        self.deliveries = Deliveries(Backoff(30.0, 3600.0), packed=packed)
        self._tokens = 0

    async def emit(self, name: str = "note.shared") -> str:
        emitted = await self.site.do(lambda fw: fw.webhooks.emit(name, {"a": "ü"}))
        delivery: str = emitted["deliveries"][0]
        return delivery

    async def claim(self, slots: ClaimLimits | None = None) -> ClaimedBatch:
        free, token = slots or SlotsPerWebhook(), self._token()
        return await self.site.site.store.write(lambda tx: self.deliveries.claim(tx, free, token))

    async def due(self) -> LeasedDelivery:
        (due,) = (await self.claim()).deliveries
        return due

    async def settle(
        self, due: LeasedDelivery, kind: str = "DELIVERED", **ended: Any
    ) -> DeliveryStatus | None:
        at = self.site.site.clock.now()
        outcome = AttemptOutcome(OutcomeKind[kind], at, **ended)
        return await self.site.site.store.write(
            lambda tx: self.deliveries.settle_all(
                tx, self.deliveries.outcome_batch([(due, outcome)])
            )[0]
        )

    async def settle_all(
        self, attempts: list[tuple[LeasedDelivery, AttemptOutcome]]
    ) -> Sequence[DeliveryStatus | None]:
        return await self.site.site.store.write(
            lambda tx: self.deliveries.settle_all(tx, self.deliveries.outcome_batch(attempts))
        )

    async def row(self) -> dict[str, Any]:
        (row,) = await self.site.deliveries()
        return row

    def _token(self) -> str:
        self._tokens += 1
        return f"lease {self._tokens}"
