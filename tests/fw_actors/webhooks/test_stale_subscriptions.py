"""The report of Webhooks that were changed outside the service (B-42, B-48, B-49)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from fw_actors.actors.background import SubscriptionWatch
from fw_actors.documents.handle import Fw
from fw_actors.ops.site import open_site
from fw_actors.runtime import open_runtime
from fw_actors.webhooks.subscriptions import (
    Subscription,
    Subscriptions,
    changed_webhooks,
    stale_webhooks,
)
from supervisors.children import actor_child
from supervisors.tree import open_supervisor
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.site_kit import make_config

ONE, TWO = Subscription("one", 6, "r1"), Subscription("two", 6, "r2")
NOTES = ("Note", "on_insert")


def emit(fw: Any) -> int:
    return len(fw.webhooks.emit("note.shared", {})["deliveries"])


@pytest.mark.parametrize(
    ("stored", "names"),
    [
        (Subscriptions({NOTES: (ONE,)}, {"a.b": (ONE,)}), ()),
        (Subscriptions({NOTES: (ONE, TWO)}, {"a.b": (ONE,)}), ("two",)),
        (Subscriptions({}, {}), ("one",)),
        (Subscriptions({NOTES: (ONE,)}, {}), ("one",)),
        (Subscriptions({NOTES: (ONE,)}, {"a.c": (ONE,)}), ("one",)),
        (Subscriptions({NOTES: (Subscription("one", 3, "r1"),)}, {"a.b": (ONE,)}), ("one",)),
        (Subscriptions({NOTES: (TWO,)}, {"a.b": (TWO,)}), ("one", "two")),
    ],
)
def test_changed_webhooks_lists_differing_subscriptions(
    stored: Subscriptions, names: tuple[str, ...]
) -> None:
    used = Subscriptions({NOTES: (ONE,)}, {"a.b": (ONE,)})
    assert changed_webhooks(used, stored) == names


@pytest.mark.usefixtures("on_both_stores")
async def test_stale_webhooks_lists_outside_changes(site: VirtualSite) -> None:
    hook = await site.subscribe()
    opened = site.site
    assert await stale_webhooks(opened.store, opened.subscriptions) == ()
    await site.sql("UPDATE doc_webhook SET enabled = 0 WHERE name = :n RETURNING name", n=hook)
    assert await site.do(emit) == 1  # as before, until the restart
    assert await stale_webhooks(opened.store, opened.subscriptions) == (hook,)
    await site.sql("UPDATE doc_webhook SET enabled = 1 WHERE name = :n RETURNING name", n=hook)
    assert await stale_webhooks(opened.store, opened.subscriptions) == ()


@asynccontextmanager
async def watching(site: VirtualSite, *, refresh: bool) -> AsyncIterator[LogCapture]:
    kept = LogCapture()
    log, opened = structlog.wrap_logger(None, processors=[kept]), site.site

    def watch() -> SubscriptionWatch:
        return SubscriptionWatch(opened.store, opened.subscriptions, refresh=refresh)

    async with (
        open_runtime(clock=opened.clock, entropy=opened.entropy, log=log) as runtime,
        open_supervisor(runtime, "service", [actor_child("watch", watch)], stop_seconds=1.0),
    ):
        yield kept


def logged_webhooks(kept: LogCapture) -> list[tuple[str, str, list[str]]]:
    return [(e["log_level"], e["event"], e["webhooks"]) for e in kept.entries if "webhooks" in e]


async def test_subscription_watch_logs_outside_change_once(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    hook = await site.subscribe()
    async with watching(site, refresh=False) as kept:
        await trio.sleep(60)
        assert logged_webhooks(kept) == []
        await site.sql("UPDATE doc_webhook SET enabled = 0 RETURNING name")
        await trio.sleep(60)
        assert await site.do(emit) == 1
    assert logged_webhooks(kept) == [("warning", "subscriptions.stale", [hook])]


async def test_subscription_watch_applies_outside_change_if_refresh_is_on(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """With `ops.subscriptionRefresh` a change applies within a second."""
    hook = await site.subscribe()
    async with watching(site, refresh=True) as kept:
        await trio.sleep(10)
        await site.sql("UPDATE doc_webhook SET enabled = 0 RETURNING name")
        await trio.sleep(1)
        assert await site.do(emit) == 0
        assert logged_webhooks(kept) == [("info", "subscriptions.refreshed", [hook])]
        await site.sql("UPDATE doc_webhook SET enabled = 1 RETURNING name")
        await trio.sleep(1)
        assert await site.do(emit) == 1


@pytest.mark.parametrize("refresh", [True, False])
def test_program_uses_webhook_saved_later_with_refresh(tmp_path: Path, refresh: bool) -> None:
    """A producer beside the service emits to it within a second (B-49)."""
    config = make_config(tmp_path, subscription_refresh=refresh)

    def subscribe(fw: Fw) -> None:
        fw.new_doc(
            "Webhook", event_type="Custom", custom_event="a.b", secret="s" * 32,
            url="https://example.test/",
        ).insert()  # fmt: skip

    async def produce() -> None:
        async with open_site(config) as program, open_site(config) as other:
            await other.write("Administrator", subscribe)
            await trio.sleep(1.5)
            emitted = await program.write("Administrator", lambda fw: fw.webhooks.emit("a.b", {}))
            assert len(emitted["deliveries"]) == refresh
            raise LookupError("of the program")

    with pytest.raises(LookupError, match="of the program"):  # not in a group
        trio.run(produce)  # in real time, in which the threads of the stores are
