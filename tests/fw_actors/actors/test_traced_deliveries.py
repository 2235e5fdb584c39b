"""Traces of events: stored with deliveries, and sent with each attempt (B-421 to B-427)."""

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
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering
from tests.mail_kit import RecordingLog
from tests.site_kit import inline_site, keep_database_at

CALLER = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1, "congo=t61")


@asynccontextmanager
async def tracing(
    folder: Path, receiver: ScriptedReceiver, **changes: Any
) -> AsyncIterator[DeliverySite]:
    async with delivering(folder, receiver, **{"trace_context": True, **changes}) as post:
        yield post


async def emitted(post: DeliverySite, caller: TraceContext | None = CALLER) -> str:
    """Emit an event in a trace, and wait for its end; return the delivery."""
    with in_trace(caller):
        [delivery] = await post.emit()
    await post.settled(delivery)
    return delivery


def contexts(receiver: ScriptedReceiver) -> list[tuple[str, str, str]]:
    """Return trace-id, parent-id and flags of each request."""
    parents = [post.headers["traceparent"].split("-") for post in receiver.posts]
    assert all(version == "00" for version, *_ in parents)
    return [(trace, parent, flags) for _, trace, parent, flags in parents]


async def report(post: DeliverySite, delivery: str) -> dict[str, Any]:
    return await post.site.read(
        "Administrator", lambda fw: delivery_report(fw, delivery).as_json(ServiceState(True, {}))
    )


async def test_attempt_sends_trace_of_event_with_new_parent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Trace, flags and state are constant, and each attempt has a new parent (B-424)."""
    receiver = ScriptedReceiver(["503", "timeout", "204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        await emitted(post)
    sent = contexts(receiver)
    assert {(trace, flags) for trace, _, flags in sent} == {(CALLER.trace_id, "01")}
    assert len({parent for _, parent, _ in sent} | {CALLER.parent_id}) == 4
    assert [got.headers["tracestate"] for got in receiver.posts] == [CALLER.state] * 3


async def test_replay_stays_in_trace_of_event(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A replay keeps the trace (B-425)."""
    receiver = ScriptedReceiver(["204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        delivery = await emitted(post)
        with in_trace(TraceContext("1" * 32, "2" * 16)):
            await post.replay(delivery)
        await post.settled(delivery)
    (first, one, _), (second, other, _) = contexts(receiver)
    assert first == second == CALLER.trace_id
    assert one != other


async def test_event_without_request_begins_new_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """All events of a transaction share one trace, for all Webhooks (B-423)."""
    receiver = ScriptedReceiver(["204"])
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


async def test_disabled_tracing_stores_and_sends_no_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Without the setting there are no traces (B-428)."""
    receiver = ScriptedReceiver(["204"])
    async with tracing(tmp_path, receiver, trace_context=False) as post:
        await post.webhook()
        delivery = await emitted(post)
        rows = await post.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT trace_context FROM doc_webhook_delivery")
        )
        shown = await report(post, delivery)
    assert [row["trace_context"] for row in rows] == [""]
    assert "traceparent" not in receiver.posts[0].headers
    assert shown["traceId"] is None


@pytest.mark.parametrize("stored", ["", "garbage", f"00-{'0' * 32}-b7ad6b7169203331-01"])
async def test_delivery_with_unusable_trace_is_sent_without_traceparent(
    tmp_path: Path, autojump_clock: MockClock, stored: str
) -> None:
    """The delivery precedes the setting, or raw SQL has damaged the trace."""
    receiver = ScriptedReceiver(["503", "204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()

        def damaged(fw: Any) -> str:
            [delivery] = fw.webhooks.emit("invoice.paid", {})["deliveries"]
            fw.db.sql("UPDATE doc_webhook_delivery SET trace_context = :stored", {"stored": stored})
            return str(delivery)

        delivery = await post.site.write("Administrator", damaged)
        assert (await post.settled(delivery))["status"] == "Sent"
    assert not any("traceparent" in got.headers for got in receiver.posts)


async def test_trace_is_shown_in_delivery_report_only(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The report shows the trace, and the document does not (B-426)."""
    receiver = ScriptedReceiver(["503", "204"])
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        delivery = await emitted(post)
        document, explained = await post.read(delivery), await report(post, delivery)
    assert CALLER.trace_id not in str(document)
    assert explained["traceId"] == CALLER.trace_id
    requests = [each["request"] for each in reversed(explained["recorded"])]
    for request, got in zip(requests, receiver.posts, strict=True):
        assert request.headers["traceparent"] == got.headers["traceparent"]
        assert request.headers["tracestate"] == CALLER.state
        assert got.headers["traceparent"] in request.curl


async def test_delivery_ended_log_line_names_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """`delivery.attempted` has the trace id (B-427)."""
    log = RecordingLog()
    async with tracing(tmp_path, ScriptedReceiver(["204"]), log=log) as post:
        await post.webhook()
        await emitted(post)
        await log.wait("delivery.attempted", 1)
    [line] = log.of("delivery.attempted")
    assert line["trace_id"] == CALLER.trace_id


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_delivery_store_of_earlier_version_gets_trace_column(
    tmp_path: Path, autojump_clock: MockClock, store: str, request: pytest.FixtureRequest
) -> None:
    """The column of traces is added when the site is opened (B-426)."""
    if store == "postgres":
        keep_database_at(tmp_path, request.getfixturevalue("postgres_url"))
    receiver = ScriptedReceiver(["204"])
    drop = "ALTER TABLE doc_webhook_delivery DROP COLUMN trace_context"
    async with inline_site(tmp_path, seed=2) as site:
        await site.store.write(lambda tx: tx.run(sa.text(drop)))
    async with tracing(tmp_path, receiver) as post:
        await post.webhook()
        delivery = await emitted(post)
        assert (await report(post, delivery))["traceId"] == CALLER.trace_id
    assert [trace for trace, _, _ in contexts(receiver)] == [CALLER.trace_id]
