"""Traces of events: stored with deliveries, and sent on with each attempt (B-421 to B-427)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from trio.testing import MockClock

from fw_actors.rules.findings import ServiceState
from fw_actors.tracing import TraceContext, in_trace
from fw_actors.webhooks.diagnostics import delivery_report
from tests.fw_actors.actors.delivery_kit import Post, Receiver, delivering
from tests.mail_kit import RecordingLog
from tests.site_kit import inline_site, keep_database_at

CALLER = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1, "congo=t61")


@asynccontextmanager
async def tracing(folder: Path, receiver: Receiver, **changes: Any) -> AsyncIterator[Post]:
    async with delivering(folder, receiver, **{"trace_context": True, **changes}) as post:
        yield post


async def emitted(post: Post, caller: TraceContext | None = CALLER) -> str:
    """Emit an event in a trace, and wait for its end; return the delivery."""
    with in_trace(caller):
        [delivery] = await post.emit()
    await post.settled(delivery)
    return delivery


def contexts(receiver: Receiver) -> list[tuple[str, str, str]]:
    """Return trace-id, parent-id and flags of each request."""
    parents = [post.headers["traceparent"].split("-") for post in receiver.posts]
    assert all(version == "00" for version, *_ in parents)
    return [(trace, parent, flags) for _, trace, parent, flags in parents]


async def report(post: Post, delivery: str) -> dict[str, Any]:
    return await post.site.read(
        "Administrator", lambda fw: delivery_report(fw, delivery).as_json(ServiceState(True, {}))
    )


async def test_each_attempt_sends_the_trace_of_its_event(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The trace, its flags and the state stay, the parent is another one each time (B-424)."""
    receiver = Receiver(["503", "timeout", "204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        await emitted(post)
    sent = contexts(receiver)
    assert {(trace, flags) for trace, _, flags in sent} == {(CALLER.trace_id, "01")}
    assert len({parent for _, parent, _ in sent} | {CALLER.parent_id}) == 4
    assert [got.headers["tracestate"] for got in receiver.posts] == [CALLER.state] * 3


async def test_a_replay_stays_in_the_trace_of_its_event(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """B-425."""
    receiver = Receiver(["204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        delivery = await emitted(post)
        with in_trace(TraceContext("1" * 32, "2" * 16)):
            await post.replay(delivery)
        await post.settled(delivery)
    (first, one, _), (second, other, _) = contexts(receiver)
    assert first == second == CALLER.trace_id
    assert one != other


async def test_events_that_no_request_caused_begin_a_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """One for all events of a transaction, and for all Webhooks (B-423)."""
    receiver = Receiver(["204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        await post.webhook()
        for _ in range(2):
            for delivery in await post.emit():
                await post.settled(delivery)
    traces = [trace for trace, _, _ in contexts(receiver)]
    assert len(traces) == 4
    assert len(set(traces)) == 2
    assert {flags for _, _, flags in contexts(receiver)} == {"00"}
    assert not any("tracestate" in got.headers for got in receiver.posts)


async def test_without_the_setting_nothing_is_stored_or_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """B-428."""
    receiver = Receiver(["204"])
    async with tracing(tmp_path, receiver, trace_context=False) as post:
        await post.webhook()
        delivery = await emitted(post)
        rows = await post.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT trace_context FROM doc_webhook_delivery")
        )
        told = await report(post, delivery)
    assert [row["trace_context"] for row in rows] == [""]
    assert "traceparent" not in receiver.posts[0].headers
    assert told["traceId"] is None


@pytest.mark.parametrize("stored", ["", "garbage", f"00-{'0' * 32}-b7ad6b7169203331-01"])
async def test_a_delivery_without_a_usable_trace_is_sent_without_one(
    tmp_path: Path, autojump_clock: MockClock, stored: str
) -> None:
    """It was recorded before the setting was on, or raw SQL has damaged it."""
    receiver = Receiver(["503", "204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()

        def damaged(fw: Any) -> str:
            [delivery] = fw.webhooks.emit("invoice.paid", {})["deliveries"]
            fw.db.sql("UPDATE doc_webhook_delivery SET trace_context = :stored", {"stored": stored})
            return str(delivery)

        delivery = await post.site.write("Administrator", damaged)
        assert (await post.settled(delivery))["status"] == "Sent"
    assert not any("traceparent" in got.headers for got in receiver.posts)


async def test_explain_shows_what_was_sent_and_documents_do_not(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """B-426."""
    receiver = Receiver(["503", "204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        delivery = await emitted(post)
        shown, told = await post.read(delivery), await report(post, delivery)
    assert CALLER.trace_id not in str(shown)
    assert told["traceId"] == CALLER.trace_id
    requests = [each["request"] for each in reversed(told["recorded"])]
    for request, got in zip(requests, receiver.posts, strict=True):
        assert request.headers["traceparent"] == got.headers["traceparent"]
        assert request.headers["tracestate"] == CALLER.state
        assert got.headers["traceparent"] in request.curl


async def test_the_line_of_an_ended_delivery_names_its_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """B-427."""
    log = RecordingLog()
    async with tracing(tmp_path, Receiver(["204"]), log=log) as post:
        await post.webhook()
        await emitted(post)
        await log.wait("delivery.ended", 1)
    [line] = log.of("delivery.ended")
    assert line["trace_id"] == CALLER.trace_id


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_store_of_an_earlier_version_gets_the_column(
    tmp_path: Path, autojump_clock: MockClock, store: str, request: pytest.FixtureRequest
) -> None:
    """The column of traces is added when the site is opened (B-426)."""
    if store == "postgres":
        keep_database_at(tmp_path, request.getfixturevalue("postgres_url"))
    receiver = Receiver(["204"])
    drop = "ALTER TABLE doc_webhook_delivery DROP COLUMN trace_context"
    async with inline_site(tmp_path, seed=2) as site:
        await site.store.write(lambda tx: tx.run(sa.text(drop)))
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        delivery = await emitted(post)
        assert (await report(post, delivery))["traceId"] == CALLER.trace_id
    assert [trace for trace, _, _ in contexts(receiver)] == [CALLER.trace_id]
