"""Jobs that wait in the store (C-118)."""

from __future__ import annotations

from functools import partial

import trio
from sqlalchemy.sql import ClauseElement

from fw_actors.ops.console_facts import backlog
from fw_actors.ops.site import Site
from fw_actors.store import QueueStats, Tx, jobs
from fw_actors.store.schema import LOGIN_ATTEMPT
from tests.fw_actors.virtual_site_kit import VirtualSite

BUILT_IN = ("webhook", "mail", "app")


def _run(statement: ClauseElement, tx: Tx) -> None:
    tx.run(statement)


async def test_backlog_lists_known_queues_even_if_empty(site: VirtualSite) -> None:
    store = site.site.store
    await store.write(lambda tx: jobs.enqueue(tx, queue="a later one"))
    found = await store.read(backlog)
    assert found.queues[:3] == tuple(QueueStats(n, 0, 0, 0, 0, 0.0) for n in BUILT_IN)
    assert [(row.queue, row.ready) for row in found.queues] == [
        ("webhook", 0), ("mail", 0), ("app", 0), ("a later one", 1),
    ]  # fmt: skip


async def test_backlog_leaves_the_wait_of_paused_webhooks_out(site: VirtualSite) -> None:
    """A planned pause is no reason for an alert, and hides no other wait (B-305)."""
    paused = await site.subscribe()
    opened = site.site

    async def oldest() -> float:
        return (await opened.store.read(backlog)).queues[0].oldest_seconds

    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await trio.sleep(100)
    assert await oldest() == 100
    await site.do(lambda fw: opened.pauses.pause(fw, paused, None))
    assert await oldest() == 0
    await site.subscribe("note.other")
    await site.do(lambda fw: fw.webhooks.emit("note.other", {}))
    await trio.sleep(10)
    assert await oldest() == 10


async def test_backlog_counts_a_locked_identifier_once_until_its_end(site: VirtualSite) -> None:
    opened: Site = site.site
    until = opened.clock.now() + 1
    for name in ("a", "b"):
        lock = LOGIN_ATTEMPT.insert().values(id=name, key=b"k", at=0, state=1, until=until)
        await opened.store.write(partial(_run, lock))
    assert (await opened.store.read(backlog)).locked == 1
    await opened.store.write(partial(_run, LOGIN_ATTEMPT.update().values(until=until - 1)))
    assert (await opened.store.read(backlog)).locked == 0
