"""Rows in which raw SQL has stored bytes, or text for numbers, do not stop others (B-28, B-44).

SQLite stores any kind of value in any column.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fw_actors.config import ProcessPlace
from fw_actors.ops.console_facts import stored_receivers
from fw_actors.ops.doctor import examine
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import ServiceState
from fw_actors.webhooks.health import health_of
from fw_actors.webhooks.subscriptions import SharedSubscriptions
from supervisors.service.processes import shared_memory
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.fw_actors.webhooks.claim_kit import ClaimingProcess, delivery_names, emit

BYTES = "X'00FF7B'"
TEXT_COLUMNS = (
    "url", "secret", "old_secret", "row_id", "client_certificate", "title", "description",
    "disabled_reason", "event_type", "webhook_doctype", "custom_event", "ordering", "owner", "name",
)  # fmt: skip
NUMBER_COLUMNS = (
    "enabled", "timeout", "max_attempts", "rate_limit", "paused_since", "paused_until",
    "old_secret_until", "on_insert",
)  # fmt: skip
RUNS = ServiceState(running=True)


@pytest.mark.parametrize("column", [*TEXT_COLUMNS, *NUMBER_COLUMNS])
async def test_bytes_in_webhook_column_stop_no_other_webhook(tmp_path: Path, column: str) -> None:
    """The service starts; the other Webhook gets its events; lists and doctor answer."""
    async with open_virtual_site(tmp_path) as site:
        bad, good = await site.subscribe(), await site.subscribe()
        await emit(site, "N-1")
        await site.sql(f"UPDATE doc_webhook SET {column} = {BYTES} WHERE name = :bad", bad=bad)
    async with open_virtual_site(tmp_path) as site:
        await emit(site, "N-2")
        process = ClaimingProcess(site)
        found = [due for due in await process.claim() if due.job.partition == good]
        assert len(found) == 2
        assert await process.end_all(found) == [DeliveryStatus.SENT] * 2
        assert await site.site.store.read(lambda tx: good in health_of(tx, [bad, good], RUNS))
        receivers = await site.site.store.read(stored_receivers)
        assert "https://receiver.test:443" in {each.origin for each in receivers}
        names = [section.name for section in await examine(site.site, RUNS)]
    assert "webhooks" in names


@pytest.mark.parametrize("column", ["url", "secret", "old_secret", "client_certificate"])
async def test_text_that_is_not_utf8_stops_no_claim(site: VirtualSite, column: str) -> None:
    bad, good = await site.subscribe(), await site.subscribe()
    await emit(site, "N-1")
    await site.sql(
        f"UPDATE doc_webhook SET {column} = CAST({BYTES} AS TEXT) WHERE name = :bad", bad=bad
    )
    found = await ClaimingProcess(site).claim()
    assert sorted(due.job.partition for due in found) == sorted([bad, good])


@pytest.mark.parametrize("column", ["row_id", "name"])
async def test_bytes_in_webhook_column_stop_no_process_of_service(
    tmp_path: Path, column: str
) -> None:
    """The processes of a service share their subscriptions in memory (B-46)."""
    async with open_virtual_site(tmp_path) as site:
        bad = await site.subscribe()
        await site.subscribe()
        await site.sql(f"UPDATE doc_webhook SET {column} = {BYTES} WHERE name = :bad", bad=bad)
    memory = shared_memory()
    shared = SharedSubscriptions(os.dup(memory), ProcessPlace(1, 2))
    other = SharedSubscriptions(memory, ProcessPlace(2, 2))
    async with (
        open_virtual_site(tmp_path, shared=shared),
        open_virtual_site(tmp_path, shared=other) as second,
    ):
        assert len(await emit(second, "N-1")) == 1


DELIVERY_COLUMNS = {
    "payload": BYTES, "status": BYTES, "trace_context": BYTES, "attempts": BYTES,
    "max_attempts": "'many'", "event": BYTES, "reference_name": BYTES,
}  # fmt: skip


@pytest.mark.parametrize("column", DELIVERY_COLUMNS)
async def test_unusual_value_in_delivery_stops_no_other_delivery(
    site: VirtualSite, column: str
) -> None:
    await site.subscribe()
    bad, good = [*await emit(site, "N-1"), *await emit(site, "N-2")]
    await site.sql(
        f"UPDATE doc_webhook_delivery SET {column} = {DELIVERY_COLUMNS[column]} WHERE name = :bad",
        bad=bad,
    )
    process = ClaimingProcess(site)
    found = await process.claim()
    assert delivery_names(found) == [bad, good]
    assert None not in await process.end_all(found)


async def test_bytes_of_long_payload_are_sent_as_stored(site: VirtualSite) -> None:
    await site.subscribe()
    (bad,) = await emit(site, "N-1")

    def damage(fw: Any) -> None:
        fw.db.sql(
            "UPDATE doc_webhook_delivery SET payload = CAST(:text AS BLOB) WHERE name = :bad",
            {"text": "long" * 10_000, "bad": bad},
        )

    await site.do(damage)
    (due,) = await ClaimingProcess(site).claim()
    assert due.payload == b"long" * 10_000
