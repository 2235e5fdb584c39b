"""Subscriptions that the processes of one service share (B-46, B-47).

Two sites on one store stand for two processes; they share memory as processes do.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fw_actors.config import ProcessPlace
from fw_actors.webhooks.subscriptions import (
    SharedSubscriptions,
    Subscription,
    Subscriptions,
)
from supervisors.service.processes import shared_memory
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site

stores = pytest.mark.usefixtures("on_both_stores")
EMPTY = Subscriptions({}, {})


def subscribed(*names: str) -> Subscriptions:
    hooks = tuple(Subscription(name, 6, None) for name in names)
    return Subscriptions({("Note", "on_insert"): hooks}, {"note.shared": hooks})


@pytest.fixture
def pair() -> tuple[SharedSubscriptions, SharedSubscriptions]:
    """Two views of one memory; their processes end with the test."""
    memory = shared_memory()
    first = SharedSubscriptions(os.dup(memory), ProcessPlace(1, 2))
    return first, SharedSubscriptions(memory, ProcessPlace(2, 2))


def test_shared_snapshot_is_visible_to_other_process(
    pair: tuple[SharedSubscriptions, SharedSubscriptions],
) -> None:
    one, other = pair
    one.publish(one.stamp(), subscribed("a hook", "another"))
    assert other.newest(other.stamps()) == subscribed("a hook", "another")


def test_shared_snapshot_with_highest_stamp_wins(
    pair: tuple[SharedSubscriptions, SharedSubscriptions],
) -> None:
    one, other = pair
    earlier, later = one.stamp(), other.stamp()
    other.publish(later, subscribed("later"))
    one.publish(earlier, subscribed("earlier"))
    assert one.newest(one.stamps()) == subscribed("later")
    other.publish(earlier, EMPTY)
    assert one.newest(one.stamps()) == subscribed("later")


def test_shared_stamps_change_with_each_publication(
    pair: tuple[SharedSubscriptions, SharedSubscriptions],
) -> None:
    one, other = pair
    seen = {other.stamps()}
    for count in range(3):
        one.publish(one.stamp(), EMPTY)
        seen.add(other.stamps())
        assert len(seen) == count + 2


def test_shared_snapshot_is_dropped_if_write_fails(
    pair: tuple[SharedSubscriptions, SharedSubscriptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.publish(one.stamp(), subscribed("a hook"))

    def no_memory(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "pwrite", no_memory)
    one.publish(one.stamp(), EMPTY)
    assert other.newest(other.stamps()) is None


def test_shared_snapshot_is_ignored_if_damaged() -> None:
    """The writer was killed between writing the snapshot and recording its position."""
    memory = shared_memory()
    one = SharedSubscriptions(os.dup(memory), ProcessPlace(1, 1))
    one.publish(one.stamp(), subscribed("a hook"))
    size = os.fstat(memory).st_size
    os.pwrite(memory, b"?", size - 1)
    assert one.newest(one.stamps()) is None
    os.close(memory)


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[tuple[VirtualSite, VirtualSite]]:
    """Two processes of one service."""
    memory = shared_memory()
    async with AsyncExitStack() as stack:
        made = []
        for number in (1, 2):
            shared = SharedSubscriptions(os.dup(memory), ProcessPlace(number, 2))
            opened = open_virtual_site(tmp_path, seed=number, shared=shared)
            made.append(await stack.enter_async_context(opened))
        os.close(memory)
        yield made[0], made[1]


def emit(fw: Any) -> int:
    return len(fw.webhooks.emit("note.shared", {})["deliveries"])


@stores
async def test_saved_webhook_applies_in_other_process(
    sites: tuple[VirtualSite, VirtualSite],
) -> None:
    one, other = sites
    assert await other.do(emit) == 0
    hook = await one.subscribe()
    assert [await other.do(emit), await one.do(emit)] == [1, 1]
    await other.do(lambda fw: fw.get_doc("Webhook", hook).db_set("enabled", 0))
    assert [await one.do(emit), await other.do(emit)] == [0, 0]


@stores
async def test_rolled_back_save_changes_no_other_process(
    sites: tuple[VirtualSite, VirtualSite],
) -> None:
    one, other = sites
    fields = {"url": "https://x.test", "event_type": "Custom", "custom_event": "note.shared"}
    new = fields | {"secret": "s"}
    await one.site.rollback("Administrator", lambda fw: fw.new_doc("Webhook", **new).insert())
    assert await other.do(emit) == 0


@stores
async def test_outside_change_after_save_is_not_seen(
    sites: tuple[VirtualSite, VirtualSite], tmp_path: Path
) -> None:
    """After the commit all processes use the state that the save has read (B-42)."""
    one, other = sites
    await one.subscribe()
    async with open_virtual_site(tmp_path, seed=3) as command:
        await command.subscribe()
    assert [await other.do(emit), await one.do(emit)] == [1, 1]


@stores
async def test_restart_publishes_subscriptions_to_other_processes(
    sites: tuple[VirtualSite, VirtualSite], tmp_path: Path
) -> None:
    one, other = sites
    async with open_virtual_site(tmp_path, seed=3) as command:
        await command.subscribe()
    assert await other.do(emit) == 0
    await one.site.subscriptions.read_at_start(one.site.store)
    assert await other.do(emit) == 1


@stores
async def test_webhook_change_skips_its_own_transaction_if_snapshot_is_lost(
    sites: tuple[VirtualSite, VirtualSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write then reads the stored Webhooks: not its own change (B-41)."""

    def no_memory(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "pwrite", no_memory)
    one, _ = sites
    hook = await one.subscribe()

    def work(fw: Any) -> int:
        doc = fw.get_doc("Webhook", hook)
        doc.custom_event = "other.event"
        doc.save()
        return emit(fw)

    assert await one.do(work) == 1
    assert await one.do(emit) == 0
