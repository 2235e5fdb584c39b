"""The events that each Webhook subscribes to (B-40 to B-45)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fw_actors.store import Tx
from fw_actors.store.transaction import AfterCommit
from fw_actors.webhooks.subscriptions import SubscriptionCache
from tests.forwarding_tx import ForwardingTx
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.fw_actors.webhooks.claim_kit import ClaimingProcess

pytestmark = pytest.mark.usefixtures("on_both_stores")


def emit(fw: Any) -> int:
    return len(fw.webhooks.emit("note.shared", {})["deliveries"])


async def change(site: VirtualSite, hook: str, **fields: Any) -> None:
    def work(fw: Any) -> None:
        doc = fw.get_doc("Webhook", hook)
        for field, value in fields.items():
            setattr(doc, field, value)
        doc.save()

    await site.do(work)


@pytest.fixture(params=["cold", "warm"])
async def counter(request: pytest.FixtureRequest, site: VirtualSite) -> VirtualSite:
    """A site whose cache of subscriptions is empty or filled."""
    if request.param == "warm":
        await site.do(emit)
    return site


async def test_webhook_applies_to_writes_after_its_commit(counter: VirtualSite) -> None:
    hook = await counter.subscribe()
    assert await counter.do(emit) == 1
    await change(counter, hook, custom_event="other.event")
    assert await counter.do(emit) == 0
    await change(counter, hook, custom_event="note.shared")
    assert await counter.do(emit) == 1


async def test_disabled_or_deleted_webhook_queues_nothing(counter: VirtualSite) -> None:
    """A disabled Webhook queues nothing (B-11)."""
    hook = await counter.subscribe()
    await change(counter, hook, enabled=0)
    assert await counter.do(emit) == 0
    await change(counter, hook, enabled=1)
    assert await counter.do(emit) == 1
    await counter.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    assert await counter.do(emit) == 0


async def test_webhook_change_skips_its_own_transaction(counter: VirtualSite) -> None:
    """The change applies to writes that start later in that process (B-41)."""

    def work(fw: Any) -> tuple[int, int]:
        fields = {"url": "https://x.test", "event_type": "Custom", "custom_event": "note.shared"}
        doc = fw.new_doc("Webhook", secret="s", **fields).insert()
        first = emit(fw)
        doc.delete()
        return first, emit(fw)

    assert await counter.do(work) == (0, 0)
    assert await counter.do(emit) == 0


async def test_rolled_back_webhook_never_applies(counter: VirtualSite) -> None:
    def work(fw: Any) -> None:
        fields = {"url": "https://x.test", "event_type": "Custom", "custom_event": "note.shared"}
        fw.new_doc("Webhook", secret="s", **fields).insert()
        emit(fw)

    await counter.site.rollback("Administrator", work)
    assert await counter.do(emit) == 0


async def test_raw_sql_change_is_unseen_until_restart(site: VirtualSite, tmp_path: Path) -> None:
    """Raw SQL is not seen by a running server until it restarts (B-42)."""
    await site.subscribe()
    assert await site.do(emit) == 1
    await site.sql("UPDATE doc_webhook SET enabled = 0")
    assert await site.do(emit) == 1
    async with open_virtual_site(tmp_path) as restarted:
        assert await restarted.do(emit) == 0


async def test_change_by_other_process_is_unseen(site: VirtualSite, tmp_path: Path) -> None:
    hook = await site.subscribe()
    assert await site.do(emit) == 1
    async with open_virtual_site(tmp_path) as other:
        await change(other, hook, enabled=0)
        assert await other.do(emit) == 0
    assert await site.do(emit) == 1


async def test_outside_change_after_start_is_unseen(tmp_path: Path) -> None:
    """A change is not seen until a restart, be it before the first write (B-40, B-42)."""
    async with open_virtual_site(tmp_path):
        pass  # creates the roles, which are documents that a Webhook may watch
    async with open_virtual_site(tmp_path) as running, open_virtual_site(tmp_path) as other:
        await other.subscribe()
        assert await running.do(emit) == 0


async def test_outside_change_after_save_is_unseen(site: VirtualSite, tmp_path: Path) -> None:
    """A save clears the cache of its process, which then holds the saved state (B-41)."""
    hook = await site.subscribe()
    await site.sql("UPDATE doc_webhook SET enabled = 0")
    assert await site.do(emit) == 1
    await change(site, hook, enabled=1)
    async with open_virtual_site(tmp_path, seed=2) as other:
        await change(other, hook, custom_event="other.event")
        await other.subscribe()
    assert await site.do(emit) == 1


@pytest.mark.parametrize("undone", [True, False])
async def test_outside_change_before_rename_is_seen_after_commit(
    site: VirtualSite, tmp_path: Path, undone: bool
) -> None:
    """A save that is rolled back clears nothing (B-43)."""
    hook = await site.subscribe()
    async with open_virtual_site(tmp_path, seed=2) as other:
        await other.subscribe()

    def rename(fw: Any) -> int:
        fw.get_doc("Webhook", hook).rename("our receiver")
        return emit(fw)

    if undone:
        assert await site.site.rollback("Administrator", rename) == 1
    else:
        assert await site.do(rename) == 1
    assert await site.do(emit) == (1 if undone else 2)


async def test_saves_in_same_transaction_are_all_seen(counter: VirtualSite) -> None:
    def work(fw: Any) -> None:
        fields = {"url": "https://x.test", "event_type": "Custom", "custom_event": "note.shared"}
        for _ in range(3):
            fw.new_doc("Webhook", secret="s", **fields).insert()

    await counter.do(work)
    assert await counter.do(emit) == 3


class OpenTx(ForwardingTx):
    """A transaction that another one overlaps: it is committed when the test says so."""

    def __init__(self, inner: Tx) -> None:
        super().__init__(inner)
        self._callbacks: list[AfterCommit] = []

    def before_statement(self, params: Mapping[str, Any]) -> None:
        pass

    def after_commit(self, callback: AfterCommit, *, once: bool = False) -> None:
        self._callbacks.append(callback)

    def commit(self) -> None:
        for callback in self._callbacks:
            callback()


async def test_rows_read_before_overlapping_save_are_not_cached(site: VirtualSite) -> None:
    """On PostgreSQL a write that has read them may be committed after the save (B-41)."""
    cache = SubscriptionCache()

    def read(tx: Tx) -> OpenTx:
        cache.of(opened := OpenTx(tx))
        return opened

    opened = await site.site.store.write(read)
    await site.subscribe()
    await site.site.store.write(cache.renew_after_commit)
    opened.commit()
    assert cache.in_use is not None
    assert list(cache.in_use.custom) == ["note.shared"]


async def test_overlapping_saves_leave_no_cached_rows(site: VirtualSite) -> None:
    """Neither may have read the other's change: the next write reads both (B-41)."""
    cache = SubscriptionCache()

    def save(tx: Tx) -> OpenTx:
        cache.renew_after_commit(opened := OpenTx(tx))
        return opened

    opened = [await site.site.store.write(save) for _ in range(2)]
    for each in opened:
        each.commit()
    assert cache.in_use is None


async def test_db_set_change_is_seen(site: VirtualSite) -> None:
    hook = await site.subscribe()
    assert await site.do(emit) == 1
    await site.do(lambda fw: fw.get_doc("Webhook", hook).db_set("enabled", 0))
    assert await site.do(emit) == 0


async def test_emit_reads_null_webhook_fields_as_defaults(
    site: VirtualSite, tmp_path: Path
) -> None:
    """Raw SQL is not checked (A-317); no Webhook may stop the documents of a site (B-44, B-28)."""
    hook = await site.subscribe("note.shared")
    blanks = "SET max_attempts = NULL, timeout = NULL, url = NULL"
    await site.sql(f"UPDATE doc_webhook {blanks} WHERE name = :it", it=hook)
    async with open_virtual_site(tmp_path) as restarted:
        await restarted.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        [delivery] = await restarted.deliveries()
    assert delivery["max_attempts"] == 6


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        ((0, -1, 0), (10, 0, 6)),
        ((61, 2_000_000, 11), (60, 10_000, 10)),
        ((2**53, 2**53, 2**53), (60, 10_000, 10)),
    ],
)
async def test_claim_limits_webhook_numbers_out_of_range(
    tmp_path: Path, stored: tuple[int, ...], used: tuple[int, ...]
) -> None:
    """Numbers that only raw SQL can store must not stop the claims for all Webhooks (B-28)."""
    async with open_virtual_site(tmp_path) as site:
        bad, good = await site.subscribe(), await site.subscribe()
        timeout, rate, max_attempts = stored
        await site.sql(
            "UPDATE doc_webhook SET timeout = :timeout, rate_limit = :rate,"
            " max_attempts = :max_attempts WHERE name = :bad",
            timeout=timeout, rate=rate, max_attempts=max_attempts, bad=bad,
        )  # fmt: skip
    async with open_virtual_site(tmp_path) as site:
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
        found = {due.job.partition: due for due in await ClaimingProcess(site).claim()}
    assert set(found) == {bad, good}
    hook = found[bad].stored
    assert hook is not None
    assert (hook.timeout, hook.rate_limit, found[bad].max_attempts) == used
