"""Claims and outcomes of deliveries by hand, as processes would make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from fw_actors.rules.delivery import Backoff, DeliveryStatus, OutcomeKind
from fw_actors.rules.findings import ServiceState
from fw_actors.store import Tx
from fw_actors.webhooks.claims import NO_TURN, LeasedDelivery, Turn
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from tests.fw_actors.virtual_site_kit import VirtualSite

RUNS = ServiceState(running=True)


class EvenLimits:
    """Limits of a claim that treats all Webhooks alike and may read any number of bytes."""

    @property
    def exhausted(self) -> bool:
        return False

    def turn(self, webhook: str) -> Turn:
        return NO_TURN

    def shares(self, heads: object) -> Mapping[str, int]:
        return {}

    def may_read(self, stored: object) -> bool:
        return True

    def count_bytes(self, size: int) -> None:
        pass


class FreeSlots(EvenLimits):
    """Slots for so many deliveries of all Webhooks."""

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit

    def free(self, stored: object) -> int:
        return self.limit

    def take(self, stored: object, count: int) -> None:
        self.limit -= count


class ClaimingProcess:
    """A process that claims and settles by hand."""

    def __init__(self, site: VirtualSite) -> None:
        self._store = site.site.store
        self._deliveries = Deliveries(Backoff(0.1, 0.1))

    async def claim(self, limit: int = 100) -> list[LeasedDelivery]:
        batch = await self._store.write(
            lambda tx: self._deliveries.claim(tx, FreeSlots(limit), f"t{Random().random()}")
        )
        return batch.deliveries

    async def end(self, due: LeasedDelivery, kind: OutcomeKind = OutcomeKind.DELIVERED) -> None:
        assert await self.end_all([due], kind) != [None]

    async def end_all(
        self, dues: Sequence[LeasedDelivery], kind: OutcomeKind = OutcomeKind.DELIVERED
    ) -> Sequence[DeliveryStatus | None]:
        """End attempts in one batch; return the new statuses."""

        def work(tx: Tx) -> Sequence[DeliveryStatus | None]:
            error = "" if kind is OutcomeKind.DELIVERED else "status: 400."
            outcome = AttemptOutcome(kind, tx.now, 1, 200, b"", error)
            batch = self._deliveries.outcome_batch([(due, outcome) for due in dues])
            return self._deliveries.settle_all(tx, batch)

        return await self._store.write(work)

    async def release(self, due: LeasedDelivery) -> None:
        await self._store.write(lambda tx: self._deliveries.release(tx, due))


async def emit(site: VirtualSite, *documents: str) -> list[str]:
    """Emit one event about each document, in one transaction."""
    events = [
        {"name": "note.shared", "data": {"of": each, "n": n},
         "reference": {"doctype": "Note", "name": each}}
        for n, each in enumerate(documents)
    ]  # fmt: skip
    emitted = await site.do(lambda fw: fw.webhooks.emit_many(events))
    return [name for each in emitted for name in each["deliveries"]]


def delivery_names(dues: list[LeasedDelivery]) -> list[str]:
    return [due.delivery for due in dues]


class ScriptedDeliveries:
    """Deliveries whose attempts end as the test says."""

    def __init__(self, site: VirtualSite) -> None:
        self.site = site
        self._deliveries = Deliveries(Backoff(30.0, 3600.0))

    async def ended(self, *kinds: str, **fields: Any) -> str:
        """Make a delivery whose attempts have these endings; return its id."""
        await self.site.subscribe(**fields)
        emitted = await self.site.do(lambda fw: fw.webhooks.emit("note.shared", {"n": 1}))
        for kind in kinds:
            await self.attempt(kind)
        delivery: str = emitted["deliveries"][-1]
        return delivery

    async def attempt(self, kind: str, limit: int = 100) -> None:
        def once(tx: Any) -> None:
            for due in self._deliveries.claim(tx, UnlimitedSlots(limit), "token").deliveries:
                outcome = AttemptOutcome(
                    OutcomeKind[kind], tx.now, 3, 400, b"what it said", "status: 400."
                )
                batch = self._deliveries.outcome_batch([(due, outcome)])
                assert self._deliveries.settle_all(tx, batch) != [None]

        await self.site.site.store.write(once)

    async def replay(self, delivery: str, user: str = "boss", request_id: str = "r-1") -> Any:
        site = self.site.site
        return await site.write(user, lambda fw: site.replays.replay(fw, delivery), request_id)

    async def row(self) -> dict[str, Any]:
        return (await self.site.deliveries())[-1]

    async def audit(self) -> list[tuple[Any, ...]]:
        return await self.site.sql(
            "SELECT action, target, detail, actor, request_id FROM doc_audit_event"
            " WHERE action IN ('webhook.replay', 'Denied')"
        )


class UnlimitedSlots(EvenLimits):
    """The same number of free slots for each Webhook; claims take none."""

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit

    def free(self, stored: object) -> int:
        return self._limit

    def take(self, stored: object, count: int) -> None:
        pass
