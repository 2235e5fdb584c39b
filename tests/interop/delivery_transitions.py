"""A Webhook whose deliveries overlapping transactions lease, settle and replay."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff, DeliveryStatus, OutcomeKind
from fw_actors.store import Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from tests.fw_actors.webhooks.claim_kit import UnlimitedSlots

TOKENS = count()
ADA = {"doctype": "Customer", "name": "Ada"}


class DeliveryTransitions:
    """A Webhook for the event `a.b`, and the transitions of its deliveries."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.deliveries = Deliveries(Backoff(30.0, 3600.0))

    async def lease_new(self, events: int = 1, **more: Any) -> list[LeasedDelivery]:
        """Make a Webhook and deliveries about one Customer, and lease them."""
        fields = {"event_type": "Custom", "custom_event": "a.b", "secret": "a secret", **more}
        url = "https://receiver.test/"

        def work(fw: Any) -> None:
            fw.new_doc("Webhook", url=url, **fields).insert()

        await self.site.write("Administrator", work)
        for _ in range(events):
            await self.site.write("Administrator", self.emit)
        return await self.site.store.write(self.claim)

    def emit(self, fw: Any) -> Any:
        return fw.webhooks.emit("a.b", {}, reference=ADA)

    def claim(self, tx: Tx) -> list[LeasedDelivery]:
        return self.deliveries.claim(tx, UnlimitedSlots(), f"token {next(TOKENS)}").deliveries

    def settle(
        self, dues: list[LeasedDelivery], kind: OutcomeKind, tx: Tx
    ) -> list[DeliveryStatus | None]:
        at = tx.now
        batch = self.deliveries.outcome_batch([(due, AttemptOutcome(kind, at)) for due in dues])
        return list(self.deliveries.settle_all(tx, batch))

    def take_over(self, tx: Tx, limit: int = 100) -> list[LeasedDelivery]:
        """Lease the oldest leased jobs again, as if their leases had expired."""
        tx.raw("UPDATE fw_job SET next_at = 0 WHERE id <= :limit", {"limit": limit})
        return self.claim(tx)

    async def make_failed(self) -> str:
        """Make a failed delivery; return its name."""
        [due] = await self.lease_new()
        await self.site.store.write(partial(self.settle, [due], OutcomeKind.REFUSED))
        return due.delivery

    def replay(self, delivery: str, fw: Any) -> Any:
        return self.site.replays.replay(fw, delivery)

    async def rows(self, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.site.read(
            "Administrator", lambda fw: fw.db.sql(text)
        )
        return found

    async def states(self) -> list[tuple[str, int]]:
        rows = await self.rows("SELECT status, attempts FROM doc_webhook_delivery ORDER BY name")
        return [(row["status"], row["attempts"]) for row in rows]

    async def age_attempts(self) -> None:
        """Move the time of every attempt back by two days."""
        day = 86_400_000

        def work(tx: Tx) -> None:
            text = "UPDATE doc_webhook_delivery SET last_attempt = last_attempt - :days"
            tx.raw(text, {"days": 2 * day})

        await self.site.store.write(work)


def rename_webhook(old: str, new: str, fw: Any) -> None:
    fw.get_doc("Webhook", old).rename(new)
