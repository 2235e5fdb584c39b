"""Jobs that wait in the store (C-118)."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from sqlalchemy.sql import ClauseElement

from fw_actors.ops.console_facts import locked_identifiers, longest_waits, queues
from fw_actors.ops.doctor.delivery import receiver_backlogs
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
    found = await store.read(queues)
    assert found[:3] == [QueueStats(n, 0, 0, 0, 0, 0.0) for n in BUILT_IN]
    assert [(row.queue, row.ready) for row in found] == [
        ("webhook", 0), ("mail", 0), ("app", 0), ("a later one", 1),
    ]  # fmt: skip


async def test_backlog_leaves_the_wait_of_paused_webhooks_out(site: VirtualSite) -> None:
    """A planned pause is no reason for an alert, and hides no other wait (B-305)."""
    paused = await site.subscribe()
    opened = site.site

    async def oldest() -> float:
        return (await opened.store.read(longest_waits))["webhook"]

    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    await trio.sleep(100)
    assert await oldest() == 100
    await site.do(lambda fw: opened.pauses.pause(fw, paused, None))
    assert await oldest() == 0
    await site.subscribe("note.other")
    await site.do(lambda fw: fw.webhooks.emit("note.other", {}))
    await trio.sleep(10)
    assert await oldest() == 10


@pytest.mark.parametrize("queue", BUILT_IN)
async def test_backlog_has_the_wait_of_each_queue(site: VirtualSite, queue: str) -> None:
    """A job that is due later, such as after a failed attempt, has not begun to wait."""
    store = site.site.store
    now = site.site.clock.now()
    for at in (now + 60_000, now + 10_000):
        await store.write(partial(jobs.enqueue, queue=queue, next_at=at))
    assert (await store.read(longest_waits))[queue] == 0
    await trio.sleep(30)
    assert await store.read(longest_waits) == {**dict.fromkeys(BUILT_IN, 0.0), queue: 20.0}


@pytest.mark.usefixtures("on_both_stores")
async def test_backlog_of_a_receiver_has_any_number_of_webhooks(site: VirtualSite) -> None:
    """A statement may bind 65,535 values on PostgreSQL, and 32,766 on SQLite."""
    numbers = (
        "WITH RECURSIVE each (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < 66000) "
    )
    await site.sql(
        f"INSERT INTO doc_webhook (name, url) {numbers}"
        "SELECT 'hook-' || n, 'https://receiver.test/' FROM each"
    )
    await site.sql(
        f"INSERT INTO fw_job (queue, partition, next_at, created) {numbers}"
        "SELECT 'webhook', 'hook-' || n, 1, 1 FROM each"
    )
    await site.sql(
        "INSERT INTO fw_webhook_health (webhook, last_error, last_failure) "
        "VALUES ('hook-66000', 'status: 503', 5)"
    )
    (found,) = await site.site.store.read(receiver_backlogs)
    assert (found.due, len(found.webhooks), found.last_error) == (66_000, 66_000, "status: 503")


async def test_backlog_counts_a_locked_identifier_once_until_its_end(site: VirtualSite) -> None:
    opened: Site = site.site
    until = opened.clock.now() + 1
    for name in ("a", "b"):
        lock = LOGIN_ATTEMPT.insert().values(id=name, key=b"k", at=0, state=1, until=until)
        await opened.store.write(partial(_run, lock))
    assert await opened.store.read(locked_identifiers) == 1
    await opened.store.write(partial(_run, LOGIN_ATTEMPT.update().values(until=until - 1)))
    assert await opened.store.read(locked_identifiers) == 0
