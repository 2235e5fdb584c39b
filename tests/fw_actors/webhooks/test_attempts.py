"""The attempts of deliveries on record (B-185 to B-189)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from fw_actors.actors.sweeper import webhook_batches
from fw_actors.http import Times
from fw_actors.rules.delivery import Backoff, OutcomeKind
from fw_actors.store import Tx
from fw_actors.webhooks.attempts import (
    MAX_KEPT_ATTEMPTS,
    AttemptHistory,
    AttemptTrace,
    RecordedAttempt,
    attempts_of,
    attempts_of_each,
    decode_trace,
    encode_trace,
    url_without_query,
)
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from fw_actors.webhooks.signing_keys import rotate
from tests.fw_actors.actors.delivery_kit import DeliverySite, delivering
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver as Receiver
from tests.fw_actors.webhooks.claim_kit import UnlimitedSlots
from tests.plans import statements_of

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400_000


async def history(post: DeliverySite, delivery: str) -> AttemptHistory:
    return await post.site.store.read(lambda tx: attempts_of(tx, delivery))


async def test_attempt_history_records_each_answer_and_error(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt has number, trigger, time, duration, status, error and answer (B-185)."""
    receiver = Receiver(["503", "timeout", "200"], busy=0.25)
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        [delivery] = await post.emit()
        before = await history(post, delivery)
        await post.settled(delivery)
        run, attempts, _ = await history(post, delivery)
    assert (before.run, before.attempts) == (run, [])
    last, late, first = attempts
    assert [(each.number, each.trigger) for each in attempts] == [
        (3, "retry"), (2, "retry"), (1, "event"),
    ]  # fmt: skip
    assert [each.status for each in attempts] == ["Sent", "Retrying", "Retrying"]
    assert [each.duration_ms for each in attempts] == [250, 10_000, 250]
    assert (first.response_status, first.response_body) == (503, "what the receiver said")
    assert first.error == "status: the receiver answered 503."
    assert first.next_attempt == first.ended + 30_000
    assert (late.response_status, late.error) == (None, "timeout: no answer within 10 s.")
    assert (last.response_status, last.error, last.next_attempt) == (200, None, None)
    assert [round(post.at * 1000) for post in receiver.posts] == [
        each.began - run.at for each in reversed(attempts)
    ]
    assert {each.run for each in attempts} == {run}
    assert run.user == ""


async def test_attempts_of_each_delivery_are_read_in_two_statements(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """However many deliveries are listed, they are those of each delivery alone (B-185)."""
    async with delivering(tmp_path, Receiver(["503", "timeout", "500", "503", "200"])) as post:
        await post.webhook()
        names = [*await post.emit(), *await post.emit()]
        for name in names:
            await post.settled(name)
        names += await post.emit()
        single = {name: (await history(post, name)).attempts for name in names}
        each: dict[str, list[RecordedAttempt]] = {}

        def read(tx: Tx) -> int:
            return len(statements_of(tx, lambda: each.update(attempts_of_each(tx, names))))

        count = await post.site.store.read(read)
        many = [*(f"deleted {number}" for number in range(499)), *names]
        beyond_one_part = await post.site.store.read(lambda tx: attempts_of_each(tx, many))
    assert each == single
    assert beyond_one_part == single
    assert min(len(found) for found in each.values()) == 0
    assert max(len(found) for found in each.values()) > 2
    assert count == 2


async def test_attempt_trace_has_sent_headers_and_url_without_query(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The trace has signature and timestamp, and the URL without its query (B-186)."""
    receiver = Receiver(["500", "200"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook("https://receiver.example/hook?token=hunter2")
        [delivery] = await post.emit()
        await post.settled(delivery)
        found = await history(post, delivery)
    sent = [(got.headers["webhook-timestamp"], got.headers["webhook-signature"])
            for got in reversed(receiver.posts)]  # fmt: skip
    traces = [each.trace for each in found.attempts]
    assert [(str(each.timestamp), each.signature) for each in traces] == sent
    assert {each.url for each in traces} == {"https://receiver.example/hook?…"}


async def test_attempt_trace_during_rotation_has_both_signatures(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The record of an attempt is the same as without a rotation (B-186)."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name, site = await post.webhook(), post.site
        await site.write("Administrator", lambda fw: rotate(fw, site.audit, name, "another", 2))
        [delivery] = await post.emit()
        await post.settled(delivery)
        [attempt] = (await history(post, delivery)).attempts
    trace = attempt.trace
    assert trace.signature == receiver.posts[0].headers["webhook-signature"]
    assert trace.signature.count(" ") == 1
    assert (trace.url, trace.address, trace.parent_id) == ("https://receiver.example/hook", "", "")


async def test_attempt_trace_of_unsent_request_has_no_headers(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        await post.change(name, enabled=0)
        await post.replay(delivery)
        await post.settled(delivery)
        last = (await history(post, delivery)).attempts[0]
    assert (last.error or "").startswith("disabled:")
    assert (last.trace.timestamp, last.trace.signature) == (None, "")


async def test_replay_begins_new_run_and_keeps_earlier_attempts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The history names the user and time of each replay (B-187)."""
    async with delivering(tmp_path, Receiver(["404", "503", "200"])) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        await post.replay(delivery)
        at = post.site.clock.now()
        waiting = await history(post, delivery)
        await post.settled(delivery)
        run, attempts, _ = await history(post, delivery)
    assert waiting.run == run == ("Administrator", at)
    assert [each.status for each in waiting.attempts] == ["Failed"]
    assert [(each.run.user, each.number, each.trigger, each.status) for each in attempts] == [
        ("Administrator", 2, "retry", "Sent"),
        ("Administrator", 1, "replay", "Retrying"),
        ("", 1, "event", "Failed"),
    ]


async def test_attempt_history_keeps_newest_30_attempts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """At most 30 attempts are kept (B-188)."""
    async with delivering(tmp_path, Receiver(["404"])) as post:
        await post.webhook(max_attempts=4)
        [delivery] = await post.emit()
        for _ in range(MAX_KEPT_ATTEMPTS + 2):
            await post.settled(delivery)
            await post.replay(delivery)
        await post.settled(delivery)
        rows = await post.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT position FROM fw_delivery_attempt")
        )
        found = await history(post, delivery)
    assert len(rows) == MAX_KEPT_ATTEMPTS - 4
    assert len(found.attempts) == MAX_KEPT_ATTEMPTS - 4 + 1
    assert max(row["position"] for row in rows) == MAX_KEPT_ATTEMPTS + 2


async def test_outcome_with_lost_lease_records_no_attempt(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The outcome is dropped with all that it would have written (B-211)."""
    async with delivering(tmp_path, Receiver(["200"])) as post:
        await post.webhook()
        deliveries = Deliveries(Backoff(30.0, 3600.0))

        def settle_too_late(fw: Any) -> Any:
            fw.webhooks.emit("invoice.paid", {})
            fw.db.sql("UPDATE doc_webhook_delivery SET attempts = 1, status = 'Retrying'")
            [due] = deliveries.claim(fw.tx, UnlimitedSlots(), "ours").deliveries
            fw.db.sql("UPDATE fw_job SET lease = 'theirs'")
            outcome = AttemptOutcome(OutcomeKind.TRANSIENT, fw.tx.now, error="timeout: late.")
            return deliveries.settle_all(fw.tx, deliveries.outcome_batch([(due, outcome)]))

        assert await post.site.write("Administrator", settle_too_late) == [None]
        earlier = await post.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT * FROM fw_delivery_attempt")
        )
    assert earlier == []


async def test_sweep_deletes_attempts_with_their_delivery(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Attempts are kept as long as their delivery (B-188)."""
    async with delivering(tmp_path, Receiver(["404"])) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        await post.replay(delivery)
        await post.settled(delivery)

        def age(fw: Any) -> None:
            old = fw.tx.now - 31 * DAY
            fw.db.sql("UPDATE doc_webhook_delivery SET last_attempt = :old", {"old": old})

        await post.site.write("Administrator", age)
        batch = webhook_batches(30, 0)[0]
        assert await post.site.store.write(batch) == 1
        left = await post.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT * FROM fw_delivery_attempt")
        )
    assert left == []


async def test_attempt_history_shows_delivery_fields_without_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with delivering(tmp_path, Receiver(["404"])) as post:
        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        await post.site.write(
            "Administrator", lambda fw: fw.db.sql("UPDATE doc_webhook_delivery SET trace = NULL")
        )
        (attempt,) = (await history(post, delivery)).attempts
    assert (attempt.response_status, attempt.trace) == (404, AttemptTrace())


SIGNED = ((b"webhook-id", b"msg_1"), (b"webhook-timestamp", b"17"), (b"webhook-signature", b"v1,x"))
OVERLAPPING = (*SIGNED[:2], (b"webhook-signature", b"v1,x v1,y"))
PARENT = (b"traceparent", b"00-%b-%b-01" % (b"a" * 32, b"b" * 16))
TRACES = [
    ((None, (), "", ""), AttemptTrace(worker="w:1")),
    ((Times(0, 0, 0, 1.5), SIGNED, "[::1]:80", "http://[::1]/"),
     AttemptTrace(0, 0, 0, 1500, 17, "v1,x", "[::1]:80", "http://[::1]/", "w:1")),
    ((Times(2.0, 1.25, 3.0, 0.0), (), "10.0.0.1:443", "https://x/"),
     AttemptTrace(2000, 1250, 3000, 0, None, "", "10.0.0.1:443", "https://x/", "w:1")),
    ((Times(7.0), (), "", "https://x/"), AttemptTrace(7000, url="https://x/", worker="w:1")),
    ((Times(0, 0, 0, 1.0), (*SIGNED, PARENT, (b"tracestate", b"x=1")), "", "https://x/"),
     AttemptTrace(0, 0, 0, 1000, 17, "v1,x", "", "https://x/", "w:1", "b" * 16)),
    ((None, OVERLAPPING, "10.0.0.1:443", "https://x/"),
     AttemptTrace(0, 0, 0, 0, 17, "v1,x v1,y", "10.0.0.1:443", "https://x/", "w:1")),
    ((None, (*OVERLAPPING, PARENT), "", ""),
     AttemptTrace(0, 0, 0, 0, 17, "v1,x v1,y", "", "", "w:1", "b" * 16)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "trace"), TRACES)
def test_attempt_trace_survives_write_and_read(given: Any, trace: AttemptTrace) -> None:
    assert decode_trace(f"{encode_trace(*given)} w:1") == trace


@pytest.mark.parametrize("parent", ["", "b" * 16])
def test_read_trace_repairs_trace_with_separate_signatures(parent: str) -> None:
    """Until the signatures of a rotation became one item, each was one."""
    stored = f"0 0 0 9 17 v1,x v1,y 10.0.0.1:443 https://x/ {parent} w:1".replace("  ", " ")
    assert decode_trace(stored) == AttemptTrace(
        0, 0, 0, 9, 17, "v1,x v1,y", "10.0.0.1:443", "https://x/", "w:1", parent
    )


@pytest.mark.parametrize("text", [None, "", " " * 140, "1 2 3", "a b c d e f g h i"])
def test_read_trace_returns_empty_trace_for_malformed_text(text: str | None) -> None:
    assert decode_trace(text) == AttemptTrace()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://X.test/a", "https://x.test/a"),
        ("https://x.test:8443/?key=secret", "https://x.test:8443/?…"),
        ("no url", ""),
    ],
)
def test_shown_url_omits_query_string(url: str, shown: str) -> None:
    """The query may hold a token (B-186)."""
    assert url_without_query(url) == shown
