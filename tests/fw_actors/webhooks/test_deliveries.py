"""Deliveries in the store: leases, attempts and outcomes (B-210, B-211, B-194)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from fw_actors.rules.delivery import OutcomeKind
from fw_actors.store import statement
from fw_actors.webhooks.deliveries import AttemptOutcome, body_as_text
from tests.fw_actors.virtual_site_kit import open_virtual_site
from tests.fw_actors.webhooks.manual_dispatcher import ManualDispatcher, SlotsPerWebhook
from tests.site_kit import database_of

pytestmark = pytest.mark.usefixtures("on_both_stores")

START = 1_800_000_000_000


TABLE = [  # ending, attempts before, status, seconds to the next attempt, job left
    ("DELIVERED", 0, "Sent", None, False),
    ("DELIVERED", 2, "Sent", None, False),
    ("TRANSIENT", 0, "Retrying", 30, True),
    ("TRANSIENT", 1, "Retrying", 60, True),
    ("TRANSIENT", 2, "Failed", None, True),
    ("REFUSED", 0, "Failed", None, True),
    ("WITHDRAWN", 0, "Failed", None, True),
    ("WITHDRAWN", 1, "Failed", None, True),
    ("UNSIGNABLE", 0, "Failed", None, True),
]


@pytest.mark.parametrize(("ending", "before", "status", "wait", "job"), TABLE)
async def test_outcome_sets_status_next_attempt_and_job(
    dispatcher: ManualDispatcher, ending: str, before: int, status: str, wait: int | None, job: bool
) -> None:
    """The table of outcomes (B-162 to B-167); `max_attempts` is 3 here."""
    await dispatcher.site.subscribe(max_attempts=3)
    await dispatcher.emit()
    for attempt in range(before):
        await dispatcher.settle(await dispatcher.due(), "TRANSIENT", error="timeout: late.")
        await trio.sleep(30 * 2**attempt)
    at = dispatcher.site.site.clock.now()
    due = await dispatcher.due()
    assert await dispatcher.settle(due, ending, duration_ms=7, error="x: y.") == status
    row = await dispatcher.row()
    assert (row["status"], row["attempts"], row["last_attempt"]) == (status, before + 1, at)
    assert row["next_attempt"] == (None if wait is None else at + wait * 1000)
    assert row["sent"] == (at if status == "Sent" else None)
    jobs = await dispatcher.site.sql("SELECT next_at, lease, attempts FROM fw_job")
    assert jobs == ([(row["next_attempt"], None, before + 1)] if job else [])


async def test_settle_stores_response_status_and_body_of_2xx(dispatcher: ManualDispatcher) -> None:
    """Response status and first 512 bytes are stored (B-162, B-170)."""
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    due = await dispatcher.due()
    await dispatcher.settle(due, response_status=202, response_body=b"thanks", duration_ms=12)
    row = await dispatcher.row()
    assert (row["response_status"], row["response_body"]) == (202, "thanks")
    assert (row["error"], row["duration_ms"]) == (None, 12)


async def test_settle_stores_any_bytes_and_bounds_error(dispatcher: ManualDispatcher) -> None:
    """Half characters, NUL, gzip bytes and huge bodies can be stored (B-171)."""
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    body = b"\x1f\x8b\x00\xff\xed\xa0\x80" * 200
    error = "status: " + "é" * 2000
    await dispatcher.settle(await dispatcher.due(), "REFUSED", response_body=body, error=error)
    row = await dispatcher.row()
    assert "\x00" not in row["response_body"]
    assert len(row["error"]) == 500


async def test_settle_with_lost_lease_writes_nothing(dispatcher: ManualDispatcher) -> None:
    """If the lease's row is gone, the outcome is dropped and logged (B-211)."""
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    late = await dispatcher.due()
    await trio.sleep(41)
    await dispatcher.due()
    before = await dispatcher.row()
    for ending in ("DELIVERED", "TRANSIENT", "REFUSED"):
        assert await dispatcher.settle(late, ending) is None
    assert await dispatcher.row() == before
    store = dispatcher.site.site.store
    assert not await store.write(lambda tx: dispatcher.deliveries.release(tx, late))


ENDED = [  # one of each, with all that an outcome can hold
    AttemptOutcome(OutcomeKind.DELIVERED, START + 5, 7, 204, b"thanks \xc3\xa9\x00"),
    AttemptOutcome(OutcomeKind.TRANSIENT, START + 6, 8, None, None, "timeout: 'late' \x00 \u2028."),
    AttemptOutcome(OutcomeKind.REFUSED, START + 7, 9, 301, b"", "status: " + "é" * 600),
    AttemptOutcome(OutcomeKind.DELIVERED, START + 8),
]


async def rows_after(dispatcher: ManualDispatcher, *groups: list[int]) -> list[dict[str, Any]]:
    """Settle as many deliveries as `ENDED` has, those of a group in one call; return all rows."""
    await dispatcher.site.subscribe()
    for _ in ENDED:
        await dispatcher.emit()
    leased = (await dispatcher.claim()).deliveries
    for group in groups:
        statuses = await dispatcher.settle_all([(leased[at], ENDED[at]) for at in group])
        assert statuses == [["Sent", "Retrying", "Failed", "Sent"][at] for at in group]
    left = await dispatcher.site.sql("SELECT subject, next_at, attempts, lease, error FROM fw_job")
    return [*await dispatcher.site.deliveries(), {"jobs": left}]


@pytest.fixture
def two_databases(
    on_both_stores: None, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, str]]:
    """New databases, so that random values are the same in both."""
    if database_of(tmp_path).startswith("sqlite"):
        yield f"sqlite:///{tmp_path}/one/fw.db", f"sqlite:///{tmp_path}/two/fw.db"
    else:
        cluster = request.getfixturevalue("cluster")
        with cluster.schema() as one, cluster.schema() as two:
            yield one, two


async def test_settle_of_group_equals_single_settles(
    tmp_path: Path, two_databases: tuple[str, str]
) -> None:
    """Outcomes are written in groups (B-215)."""
    one, two = two_databases
    async with open_virtual_site(tmp_path, database=one) as site:
        alone = await rows_after(ManualDispatcher(site), [0], [1], [2], [3])
    async with open_virtual_site(tmp_path, database=two) as site:
        together = await rows_after(ManualDispatcher(site), [0, 1, 2, 3])
    assert together == alone
    assert len(together) == len(ENDED) + 1


async def test_settle_of_group_skips_only_lost_lease(dispatcher: ManualDispatcher) -> None:
    """If the lease's row is gone, the outcome is dropped and logged (B-211)."""
    await dispatcher.site.subscribe()
    for _ in range(3):
        await dispatcher.emit()
    late = (await dispatcher.claim()).deliveries
    await trio.sleep(41)
    held = (await dispatcher.claim(SlotsPerWebhook(each=2))).deliveries
    (lost,) = {due.delivery for due in late} - {due.delivery for due in held}
    attempts = [(due, ENDED[1]) for due in held]
    attempts.insert(1, (next(due for due in late if due.delivery == lost), ENDED[0]))
    await dispatcher.claim()  # the third is leased anew too
    statuses = await dispatcher.settle_all(attempts)
    assert statuses == ["Retrying", None, "Retrying"]
    states = {row["name"]: row["status"] for row in await dispatcher.site.deliveries()}
    assert states.pop(lost) == "Queued"
    assert set(states.values()) == {"Retrying"}


async def test_settle_of_group_skips_delivery_leased_again(dispatcher: ManualDispatcher) -> None:
    """Each delivery is written on condition of its own lease's token (B-211, B-215)."""
    await dispatcher.site.subscribe()
    for _ in range(3):
        await dispatcher.emit()
    ours = (await dispatcher.claim()).deliveries
    await dispatcher.site.sql("UPDATE fw_job SET next_at = 0 WHERE id = :it", it=ours[1].job.id)
    (theirs,) = (await dispatcher.claim()).deliveries
    assert theirs.delivery == ours[1].delivery
    statuses = await dispatcher.settle_all([(due, ENDED[1]) for due in ours])
    assert statuses == ["Retrying", None, "Retrying"]
    assert await dispatcher.settle(theirs) == "Sent"


async def test_late_success_keeps_job_of_new_lease(dispatcher: ManualDispatcher) -> None:
    """If the lease's row is gone, the outcome is dropped (B-211), or the event would be lost."""
    await dispatcher.site.subscribe()
    for _ in range(2):
        await dispatcher.emit()
    ours = (await dispatcher.claim()).deliveries
    await dispatcher.site.sql("UPDATE fw_job SET next_at = 0 WHERE id = :it", it=ours[0].job.id)
    (theirs,) = (await dispatcher.claim()).deliveries
    assert await dispatcher.settle_all([(due, ENDED[0]) for due in ours]) == [None, "Sent"]
    jobs = await dispatcher.site.sql("SELECT id, lease FROM fw_job")
    assert jobs == [(theirs.job.id, theirs.job.lease)]
    assert await dispatcher.settle(theirs) == "Sent"


async def test_settle_of_group_accepts_valid_lease_of_repeated_delivery(
    dispatcher: ManualDispatcher,
) -> None:
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    late = await dispatcher.due()
    await trio.sleep(41)
    due = await dispatcher.due()
    assert await dispatcher.settle_all([(late, ENDED[1]), (due, ENDED[0])]) == [None, "Sent"]
    assert (await dispatcher.row())["status"] == "Sent"
    assert await dispatcher.site.sql("SELECT id FROM fw_job") == []


async def test_warm_up_compiles_statements_and_changes_nothing(
    dispatcher: ManualDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    everything = (
        "SELECT id, next_at, lease, deaths FROM fw_job",
        "SELECT * FROM doc_webhook_delivery",
    )
    before = [await dispatcher.site.sql(text) for text in everything]
    await dispatcher.site.site.store.write(dispatcher.deliveries.warm_up)
    assert [await dispatcher.site.sql(text) for text in everything] == before
    monkeypatch.setattr(statement, "compile_form", lambda *_: pytest.fail("compiled too late"))
    assert await dispatcher.settle(await dispatcher.due()) == "Sent"


async def test_stored_webhook_reads_only_named_webhook(dispatcher: ManualDispatcher) -> None:
    """`fw webhooks test WEBHOOK` reads only that Webhook (B-270)."""
    names = {
        url: await dispatcher.site.subscribe(url=url) for url in ("https://a.x/", "https://b.x/")
    }
    store, deliveries = dispatcher.site.site.store, dispatcher.deliveries
    for url, name in names.items():
        webhook = await store.read(partial(deliveries.stored_webhook, name=name))
        assert webhook is not None
        assert (webhook.name, webhook.url) == (name, url)
    assert await store.read(partial(deliveries.stored_webhook, name="nobody's")) is None


async def test_outcome_is_written_only_once(dispatcher: ManualDispatcher) -> None:
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    due = await dispatcher.due()
    assert await dispatcher.settle(due, "TRANSIENT") == "Retrying"
    assert await dispatcher.settle(due, "TRANSIENT") is None
    assert (await dispatcher.row())["attempts"] == 1


async def test_lost_leases_are_counted_apart_until_outcome(dispatcher: ManualDispatcher) -> None:
    """Attempts are counted at the outcome: one whose process died does not count (B-194)."""
    await dispatcher.site.subscribe(timeout=10)
    await dispatcher.emit()
    deaths = []
    for _ in range(7):
        due = await dispatcher.due()
        deaths.append(due.job.expired_leases)
        await trio.sleep(40)
    assert deaths == [0, 1, 2, 3, 4, 5, 6]
    assert (await dispatcher.row())["attempts"] == 0
    await dispatcher.settle(await dispatcher.due(), "TRANSIENT")
    await trio.sleep(30)
    due = await dispatcher.due()
    assert (due.job.expired_leases, due.attempts) == (0, 1)


async def test_release_makes_delivery_due_without_counting(dispatcher: ManualDispatcher) -> None:
    """A cancelled attempt is not counted, and given back (O-31)."""
    await dispatcher.site.subscribe()
    await dispatcher.emit()
    due = await dispatcher.due()
    store = dispatcher.site.site.store
    assert await store.write(lambda tx: dispatcher.deliveries.release(tx, due))
    again = await dispatcher.due()
    assert (again.attempts, again.job.expired_leases, again.status) == (0, 0, "Queued")


CUTS = [  # body, what is kept
    (b"", ""),
    (b"plain", "plain"),
    (b"a" * 512, "a" * 512),
    (b"a" * 600, "a" * 512),
    (b"a" * 511 + "é".encode(), "a" * 511),  # no half character at the cut
    (b"a" * 509 + "\U0001f511".encode(), "a" * 509),
    (b"a" * 508 + "\U0001f511".encode(), "a" * 508 + "\U0001f511"),
    (b"a" * 511 + b"\xff" + b"b", "a" * 511 + "\ufffd"),
    (b"\xffa\x00b", "\ufffda\ufffdb"),
    (b"broken off: \xc3", "broken off: \ufffd"),
]


@pytest.mark.parametrize(("body", "kept"), CUTS)
def test_readable_keeps_first_512_bytes_as_text(body: bytes, kept: str) -> None:
    """No half character at the cut, other bad bytes and NUL replaced (B-170)."""
    assert body_as_text(body) == kept


@given(st.binary(max_size=600))
def test_readable_returns_storable_text_of_any_bytes(body: bytes) -> None:
    text = body_as_text(body)
    assert "\x00" not in text
    text.encode()
    assert len(text) <= 512


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_readable_keeps_prefix_of_text(text: str) -> None:
    kept = body_as_text(text.encode("utf-8", "replace"))
    assert text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd").startswith(kept)
    assert len(kept.encode()) >= min(512, len(text.encode("utf-8", "replace"))) - 3
