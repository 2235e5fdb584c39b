"""The query plan of a claim on SQLite (O-21, B-237)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fw_actors.webhooks.claims import DeliveryClaims, Lease
from tests.fw_actors.virtual_site_kit import open_virtual_site
from tests.plans import Access, accesses, unsought


async def test_claim_reads_leased_rows_by_indexes(tmp_path: Path) -> None:
    """A claim reads only its leased rows among any number of finished or due ones."""

    def seen(fw: Any) -> list[Access]:
        return accesses(fw.tx, lambda: claims.leased(fw.tx, [Lease("w", None, 1, 1)], "token"))

    async with open_virtual_site(tmp_path) as site:
        claims = DeliveryClaims()
        found = await site.do(seen)
    assert unsought(found, fw_job="partition", doc_webhook_delivery="name") == []
    assert all({"queue", "next_at"} <= each.sought for each in found if each.table == "fw_job")
