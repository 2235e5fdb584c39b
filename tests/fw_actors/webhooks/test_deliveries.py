"""Deliveries in the store: leases, attempts and outcomes (B-210, B-211, B-194)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from fw_actors.rules.delivery import Backoff, DeliveryStatus, Ending
from fw_actors.store import StatementError, Tx, statement
from fw_actors.webhooks.claims import (
    READ_AT_ONCE,
    SHORT,
    ClaimedBatch,
    Head,
    Lease,
    Leased,
    LeasedDelivery,
    StoredWebhook,
)
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries, readable
from tests.fw_actors.office import Office, open_office
from tests.fw_actors.webhooks.claim_kit import EvenLimits
from tests.site_kit import database_of

pytestmark = pytest.mark.usefixtures("on_both_stores")

START = 1_800_000_000_000


class SlotsPerWebhook(EvenLimits):
    """So many slots for each Webhook, and for `most` of them; it records which took some."""

    def __init__(
        self,
        each: int = 100,
        closed: tuple[str | None, ...] = (),
        most: int = 1000,
        turns: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._each, self._closed, self._most, self._turns = each, closed, most, turns
        self.taken: list[tuple[str | None, int]] = []

    @property
    def exhausted(self) -> bool:
        return len(self.taken) >= self._most

    def turn(self, webhook: str) -> int:
        return self._turns.get(webhook, 0)

    def free(self, hook: StoredWebhook | None) -> int:
        if self.exhausted:
            return 0
        return 0 if (hook and hook.name) in self._closed else self._each

    def take(self, hook: StoredWebhook | None, count: int) -> None:
        self.taken.append((hook.name if hook is not None else None, count))


class LeaseDepot:
    """A site with a Webhook whose deliveries are leased and settled by hand."""

    def __init__(self, office: Office, *, packed: bool = True) -> None:
        self.office = office
        self.deliveries = Deliveries(office.site.registry, Backoff(30.0, 3600.0), packed=packed)
        self._tokens = 0

    async def emit(self, name: str = "note.shared") -> str:
        told = await self.office.do(lambda fw: fw.webhooks.emit(name, {"a": "ü"}))
        delivery: str = told["deliveries"][0]
        return delivery

    async def claim(self, slots: SlotsPerWebhook | None = None) -> ClaimedBatch:
        free, token = slots or SlotsPerWebhook(), self._token()
        return await self.office.site.store.write(lambda tx: self.deliveries.claim(tx, free, token))

    async def due(self) -> LeasedDelivery:
        (due,) = (await self.claim()).due
        return due

    async def settle(
        self, due: LeasedDelivery, ending: str = "DELIVERED", **ended: Any
    ) -> DeliveryStatus | None:
        at = self.office.site.clock.now()
        outcome = AttemptOutcome(Ending[ending], at, **ended)
        return await self.office.site.store.write(
            lambda tx: self.deliveries.settle_all(
                tx, self.deliveries.outcome_batch([(due, outcome)])
            )[0]
        )

    async def settle_all(
        self, attempts: list[tuple[LeasedDelivery, AttemptOutcome]]
    ) -> Sequence[DeliveryStatus | None]:
        return await self.office.site.store.write(
            lambda tx: self.deliveries.settle_all(tx, self.deliveries.outcome_batch(attempts))
        )

    async def row(self) -> dict[str, Any]:
        (row,) = await self.office.deliveries()
        return row

    def _token(self) -> str:
        self._tokens += 1
        return f"lease {self._tokens}"


@pytest.fixture(params=[True, False], ids=["packed", "row by row"])
async def depot(office: Office, request: pytest.FixtureRequest) -> LeaseDepot:
    return LeaseDepot(office, packed=request.param)


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
    depot: LeaseDepot, ending: str, before: int, status: str, wait: int | None, job: bool
) -> None:
    """The table of outcomes (B-162 to B-167); `max_attempts` is 3 here."""
    await depot.office.subscribe(max_attempts=3)
    await depot.emit()
    for attempt in range(before):
        await depot.settle(await depot.due(), "TRANSIENT", error="timeout: late.")
        await trio.sleep(30 * 2**attempt)
    at = depot.office.site.clock.now()
    due = await depot.due()
    assert await depot.settle(due, ending, duration_ms=7, error="x: y.") == status
    row = await depot.row()
    assert (row["status"], row["attempts"], row["last_attempt"]) == (status, before + 1, at)
    assert row["next_attempt"] == (None if wait is None else at + wait * 1000)
    assert row["sent"] == (at if status == "Sent" else None)
    jobs = await depot.office.sql("SELECT next_at, lease, attempts FROM fw_job")
    assert jobs == ([(row["next_attempt"], None, before + 1)] if job else [])


async def test_settle_stores_response_status_and_body_of_2xx(depot: LeaseDepot) -> None:
    """Response status and first 512 bytes are stored (B-162, B-170)."""
    await depot.office.subscribe()
    await depot.emit()
    due = await depot.due()
    await depot.settle(due, response_status=202, response_body=b"thanks", duration_ms=12)
    row = await depot.row()
    assert (row["response_status"], row["response_body"]) == (202, "thanks")
    assert (row["error"], row["duration_ms"]) == (None, 12)


async def test_settle_stores_any_bytes_and_bounds_error(depot: LeaseDepot) -> None:
    """Half characters, NUL, gzip bytes and huge bodies can be stored (B-171)."""
    await depot.office.subscribe()
    await depot.emit()
    body = b"\x1f\x8b\x00\xff\xed\xa0\x80" * 200
    error = "status: " + "é" * 2000
    await depot.settle(await depot.due(), "REFUSED", response_body=body, error=error)
    row = await depot.row()
    assert "\x00" not in row["response_body"]
    assert len(row["error"]) == 500


async def test_settle_with_lost_lease_writes_nothing(depot: LeaseDepot) -> None:
    """If the lease's row is gone, the outcome is dropped and logged (B-211)."""
    await depot.office.subscribe()
    await depot.emit()
    late = await depot.due()
    await trio.sleep(41)
    await depot.due()
    before = await depot.row()
    for ending in ("DELIVERED", "TRANSIENT", "REFUSED"):
        assert await depot.settle(late, ending) is None
    assert await depot.row() == before
    store = depot.office.site.store
    assert not await store.write(lambda tx: depot.deliveries.give_back(tx, late))


ENDED = [  # one of each, with all that an outcome can hold
    AttemptOutcome(Ending.DELIVERED, START + 5, 7, 204, b"thanks \xc3\xa9\x00"),
    AttemptOutcome(Ending.TRANSIENT, START + 6, 8, None, None, "timeout: 'late' \x00 \u2028."),
    AttemptOutcome(Ending.REFUSED, START + 7, 9, 301, b"", "status: " + "é" * 600),
    AttemptOutcome(Ending.DELIVERED, START + 8),
]


async def rows_after(depot: LeaseDepot, *groups: list[int]) -> list[dict[str, Any]]:
    """Settle as many deliveries as `ENDED` has, those of a group in one call; return all rows."""
    await depot.office.subscribe()
    for _ in ENDED:
        await depot.emit()
    leased = (await depot.claim()).due
    for group in groups:
        told = await depot.settle_all([(leased[at], ENDED[at]) for at in group])
        assert told == [["Sent", "Retrying", "Failed", "Sent"][at] for at in group]
    left = await depot.office.sql("SELECT subject, next_at, attempts, lease, error FROM fw_job")
    return [*await depot.office.deliveries(), {"jobs": left}]


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
    async with open_office(tmp_path, database=one) as office:
        alone = await rows_after(LeaseDepot(office), [0], [1], [2], [3])
    async with open_office(tmp_path, database=two) as office:
        together = await rows_after(LeaseDepot(office), [0, 1, 2, 3])
    assert together == alone
    assert len(together) == len(ENDED) + 1


async def test_settle_of_group_skips_only_lost_lease(depot: LeaseDepot) -> None:
    """If the lease's row is gone, the outcome is dropped and logged (B-211)."""
    await depot.office.subscribe()
    for _ in range(3):
        await depot.emit()
    late = (await depot.claim()).due
    await trio.sleep(41)
    held = (await depot.claim(SlotsPerWebhook(each=2))).due
    (lost,) = {due.delivery for due in late} - {due.delivery for due in held}
    attempts = [(due, ENDED[1]) for due in held]
    attempts.insert(1, (next(due for due in late if due.delivery == lost), ENDED[0]))
    await depot.claim()  # the third is leased anew too
    told = await depot.settle_all(attempts)
    assert told == ["Retrying", None, "Retrying"]
    states = {row["name"]: row["status"] for row in await depot.office.deliveries()}
    assert states.pop(lost) == "Queued"
    assert set(states.values()) == {"Retrying"}


async def test_settle_of_group_skips_delivery_leased_again(depot: LeaseDepot) -> None:
    """Each delivery is written on condition of its own lease's token (B-211, B-215)."""
    await depot.office.subscribe()
    for _ in range(3):
        await depot.emit()
    ours = (await depot.claim()).due
    await depot.office.sql("UPDATE fw_job SET next_at = 0 WHERE id = :it", it=ours[1].job.id)
    (theirs,) = (await depot.claim()).due
    assert theirs.delivery == ours[1].delivery
    told = await depot.settle_all([(due, ENDED[1]) for due in ours])
    assert told == ["Retrying", None, "Retrying"]
    assert await depot.settle(theirs) == "Sent"


async def test_late_success_keeps_job_of_new_lease(depot: LeaseDepot) -> None:
    """If the lease's row is gone, the outcome is dropped (B-211), or the event would be lost."""
    await depot.office.subscribe()
    for _ in range(2):
        await depot.emit()
    ours = (await depot.claim()).due
    await depot.office.sql("UPDATE fw_job SET next_at = 0 WHERE id = :it", it=ours[0].job.id)
    (theirs,) = (await depot.claim()).due
    assert await depot.settle_all([(due, ENDED[0]) for due in ours]) == [None, "Sent"]
    jobs = await depot.office.sql("SELECT id, lease FROM fw_job")
    assert jobs == [(theirs.job.id, theirs.job.lease)]
    assert await depot.settle(theirs) == "Sent"


async def test_settle_of_group_accepts_valid_lease_of_repeated_delivery(
    depot: LeaseDepot,
) -> None:
    await depot.office.subscribe()
    await depot.emit()
    late = await depot.due()
    await trio.sleep(41)
    due = await depot.due()
    assert await depot.settle_all([(late, ENDED[1]), (due, ENDED[0])]) == [None, "Sent"]
    assert (await depot.row())["status"] == "Sent"
    assert await depot.office.sql("SELECT id FROM fw_job") == []


async def test_warm_up_compiles_statements_and_changes_nothing(
    depot: LeaseDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await depot.office.subscribe()
    await depot.emit()
    everything = (
        "SELECT id, next_at, lease, deaths FROM fw_job",
        "SELECT * FROM doc_webhook_delivery",
    )
    before = [await depot.office.sql(text) for text in everything]
    await depot.office.site.store.write(depot.deliveries.warm_up)
    assert [await depot.office.sql(text) for text in everything] == before
    monkeypatch.setattr(statement, "compile_form", lambda *_: pytest.fail("compiled too late"))
    assert await depot.settle(await depot.due()) == "Sent"


async def test_stored_webhook_reads_only_named_webhook(depot: LeaseDepot) -> None:
    """`fw webhooks test WEBHOOK` reads only that Webhook (B-270)."""
    names = {url: await depot.office.subscribe(url=url) for url in ("https://a.x/", "https://b.x/")}
    store, deliveries = depot.office.site.store, depot.deliveries
    for url, name in names.items():
        webhook = await store.read(partial(deliveries.stored_webhook, name=name))
        assert webhook is not None
        assert (webhook.name, webhook.url) == (name, url)
    assert await store.read(partial(deliveries.stored_webhook, name="nobody's")) is None


async def test_outcome_is_written_only_once(depot: LeaseDepot) -> None:
    await depot.office.subscribe()
    await depot.emit()
    due = await depot.due()
    assert await depot.settle(due, "TRANSIENT") == "Retrying"
    assert await depot.settle(due, "TRANSIENT") is None
    assert (await depot.row())["attempts"] == 1


@pytest.mark.parametrize("timeout", [1, 60])
async def test_lease_lasts_timeout_plus_30_seconds(depot: LeaseDepot, timeout: int) -> None:
    """A lease lasts `timeout` + 30 s (B-210)."""
    await depot.office.subscribe(timeout=timeout)
    await depot.emit()
    assert (await depot.due()).lease_end == START + (timeout + 30) * 1000
    await trio.sleep(timeout + 29.999)
    assert (await depot.claim()).due == []
    await trio.sleep(0.001)
    assert (await depot.due()).job.deaths == 1


async def test_lost_leases_are_counted_apart_until_outcome(depot: LeaseDepot) -> None:
    """Attempts are counted at the outcome: one whose process died does not count (B-194)."""
    await depot.office.subscribe(timeout=10)
    await depot.emit()
    deaths = []
    for _ in range(7):
        due = await depot.due()
        deaths.append(due.job.deaths)
        await trio.sleep(40)
    assert deaths == [0, 1, 2, 3, 4, 5, 6]
    assert (await depot.row())["attempts"] == 0
    await depot.settle(await depot.due(), "TRANSIENT")
    await trio.sleep(30)
    due = await depot.due()
    assert (due.job.deaths, due.attempts) == (0, 1)


async def test_give_back_makes_delivery_due_without_counting(depot: LeaseDepot) -> None:
    """A cancelled attempt is not counted, and given back (O-31)."""
    await depot.office.subscribe()
    await depot.emit()
    due = await depot.due()
    store = depot.office.site.store
    assert await store.write(lambda tx: depot.deliveries.give_back(tx, due))
    again = await depot.due()
    assert (again.attempts, again.job.deaths, again.status) == (0, 0, "Queued")


async def test_claim_returns_exact_payload_and_current_webhook(depot: LeaseDepot) -> None:
    """Each attempt uses the Webhook's url, secret and timeout of that moment (B-127)."""
    hook = await depot.office.subscribe(max_attempts=4)
    delivery = await depot.emit()

    def change(fw: Any) -> None:
        doc = fw.get_doc("Webhook", hook)
        doc.url, doc.timeout, doc.max_attempts, doc.enabled = "https://new.test/", 33, 9, 0
        doc.save()

    await depot.office.do(change)
    due = await depot.due()
    assert due.payload == (
        b'{"type":"note.shared","timestamp":"2027-01-15T08:00:00.000Z","data":{"a":"\xc3\xbc"}}'
    )
    assert due.stored is not None
    assert (due.stored.url, due.stored.timeout, due.stored.enabled) == (
        "https://new.test/",
        33,
        False,
    )
    assert (due.delivery, due.max_attempts, due.attempts, due.status) == (delivery, 4, 0, "Queued")
    site = depot.office.site
    secret = site.vault.open(str(due.stored.secret), "Webhook", "secret", due.stored.row_id)
    assert secret == "a signing secret"


async def test_claim_returns_no_hook_for_deleted_webhook(depot: LeaseDepot) -> None:
    """The deliveries of a deleted Webhook stay (B-29)."""
    hook = await depot.office.subscribe()
    await depot.emit()
    await depot.office.do(lambda fw: fw.get_doc("Webhook", hook).delete())
    due = await depot.due()
    assert (due.stored, due.lease_end) == (None, START + 40_000)
    assert await depot.settle(due, "WITHDRAWN") == "Failed"


async def test_claim_leases_no_more_than_free_slots(depot: LeaseDepot) -> None:
    hook = await depot.office.subscribe()
    for _ in range(5):
        await depot.emit()
    slots = SlotsPerWebhook(each=2)
    batches = [len((await depot.claim(slots)).due) for _ in range(4)]
    assert batches == [2, 2, 1, 0]
    assert slots.taken == [(hook, 2), (hook, 2), (hook, 1)]


async def test_claim_reports_whether_more_may_be_due(depot: LeaseDepot) -> None:
    full = await depot.office.subscribe()
    for _ in range(3):
        await depot.emit()
    offered = [
        SlotsPerWebhook(closed=(full,)),
        SlotsPerWebhook(each=2),
        SlotsPerWebhook(each=2),
        SlotsPerWebhook(each=2),
    ]
    assert [(await depot.claim(slots)).more for slots in offered] == [True, True, False, False]


async def test_claim_serves_longest_waiting_webhook_first(depot: LeaseDepot) -> None:
    names = []
    for event in ("b.c", "a.b", "c.d"):
        names.append(await depot.office.subscribe(event))
        await depot.emit(event)
        await trio.sleep(1)
    slots = SlotsPerWebhook()
    await depot.claim(slots)
    assert [name for name, _ in slots.taken] == names


async def test_claim_passes_over_webhook_without_slot(depot: LeaseDepot) -> None:
    """Deliveries are claimed per receiver that has a free slot (B-237)."""
    full, open_ = await depot.office.subscribe("a.b"), await depot.office.subscribe("c.d")
    await depot.emit("a.b")
    await depot.emit("c.d")
    batch = await depot.claim(SlotsPerWebhook(closed=(full,)))
    assert [due.job.partition for due in batch.due] == [open_]


@pytest.mark.parametrize("packed", [True, False])
async def test_claim_serves_webhooks_that_are_not_read_with_the_first_ones(
    office: Office, packed: bool
) -> None:
    """Of thousands with pending deliveries, a claim reads those that it has slots for (B-237)."""
    hooks = sorted([await office.subscribe() for _ in range(READ_AT_ONCE + 3)])
    depot = LeaseDepot(office, packed=packed)
    await depot.emit()
    *first, paused, deleted, last = hooks
    await office.sql("UPDATE doc_webhook SET paused_since = 1 WHERE name = :it", it=paused)
    await office.sql("DELETE FROM doc_webhook WHERE name = :it", it=deleted)
    all_but_last = SlotsPerWebhook(turns={last: -1})  # served first
    batch = await depot.claim(all_but_last)
    assert [name for name, _ in all_but_last.taken] == [last, *first, None]
    assert sorted(due.job.partition for due in batch.due) == sorted([*first, deleted, last])
    assert {due.stored and due.stored.name for due in batch.due} == {*first, None, last}
    assert not batch.more


async def test_claim_without_any_slot_left_stops(office: Office) -> None:
    hooks = sorted([await office.subscribe() for _ in range(3)])
    depot = LeaseDepot(office)
    await depot.emit()
    slots = SlotsPerWebhook(most=2)
    batch = await depot.claim(slots)
    assert ([name for name, _ in slots.taken], batch.more) == (hooks[:2], True)
    slots = SlotsPerWebhook(most=2)
    batch = await depot.claim(slots)
    assert ([name for name, _ in slots.taken], batch.more) == (hooks[2:], False)
    assert not (await depot.claim(SlotsPerWebhook(most=0))).more


async def test_claim_reports_time_of_next_due_delivery(depot: LeaseDepot) -> None:
    await depot.office.subscribe()
    assert (await depot.claim()).next_at is None
    await depot.emit()
    await depot.settle(await depot.due(), "TRANSIENT")
    batch = await depot.claim()
    assert (batch.due, batch.next_at) == ([], START + 30_000)
    await depot.emit()  # what is due now stands before it
    batch = await depot.claim()
    assert (len(batch.due), batch.next_at) == (1, START + 30_000)


async def test_claim_drops_job_of_deleted_delivery(depot: LeaseDepot) -> None:
    await depot.office.subscribe()
    await depot.emit()
    await depot.office.sql("DELETE FROM doc_webhook_delivery")
    assert (await depot.claim()).due == []
    assert await depot.office.sql("SELECT count(*) FROM fw_job") == [(0,)]


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
    assert readable(body) == kept


@given(st.binary(max_size=600))
def test_readable_returns_storable_text_of_any_bytes(body: bytes) -> None:
    text = readable(body)
    assert "\x00" not in text
    text.encode()
    assert len(text) <= 512


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_readable_keeps_prefix_of_text(text: str) -> None:
    kept = readable(text.encode("utf-8", "replace"))
    assert text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd").startswith(kept)
    assert len(kept.encode()) >= min(512, len(text.encode("utf-8", "replace"))) - 3


async def test_claim_returns_stored_payload_of_any_length(depot: LeaseDepot) -> None:
    """The stored bytes are signed and sent (B-106)."""
    await depot.office.subscribe()
    texts = ['short "quoted" \\ \u2028 \U0001f511', "long é" * 20_000, "longer" * 100_000]
    for text in texts:
        await depot.office.do(lambda fw, text=text: fw.webhooks.emit("note.shared", {"a": text}))  # type: ignore[misc]
    stored = dict(await depot.office.sql("SELECT name, payload FROM doc_webhook_delivery"))
    due = (await depot.claim()).due
    assert {one.delivery: one.payload.decode() for one in due} == stored
    assert [one.delivery for one in due] == sorted(stored)  # in the order of their jobs


async def test_leased_rows_are_equal_packed_and_row_by_row(office: Office) -> None:
    """The packed rows are the fast path of the plain ones."""
    await office.subscribe()
    await office.subscribe(ordering="document")
    for size in (1, SHORT - 100, SHORT, SHORT + 1, 10 * SHORT):
        await office.do(partial(emit_text, text="é" * size))
    packed = LeaseDepot(office)
    leased = (await packed.claim()).leased
    assert leased is not None
    names = [due.delivery for due in leased.due()]
    await office.sql("UPDATE doc_webhook_delivery SET payload = NULL WHERE name = :it", it=names[0])
    await office.sql("DELETE FROM doc_webhook_delivery WHERE name = :it", it=names[1])

    def read(tx: Tx, deliveries: Deliveries) -> tuple[list[Head], list[LeasedDelivery], list[int]]:
        found = deliveries.leased(tx, leased.leases, leased.token)
        return deliveries.heads(tx), found.due(), found.orphans

    plain = Deliveries(office.site.registry, Backoff(30.0, 3600.0), packed=False)
    store = office.site.store
    one = await store.read(partial(read, deliveries=packed.deliveries))
    assert one == await store.read(partial(read, deliveries=plain))
    assert [len(part) for part in one] == [2, len(names) - 1, 1]


def emit_text(fw: Any, text: str) -> None:
    fw.webhooks.emit("note.shared", {"a": text})


async def test_claim_returns_empty_payload_for_null(depot: LeaseDepot) -> None:
    """Raw SQL is not checked (A-317); what is claimed beside it stays whole (B-217)."""
    await depot.office.subscribe()
    names = [await depot.emit() for _ in range(3)]
    await depot.office.sql("UPDATE doc_webhook_delivery SET payload = NULL WHERE name = :it",
                           it=names[1])  # fmt: skip
    stored = dict(await depot.office.sql("SELECT name, payload FROM doc_webhook_delivery"))
    due = (await depot.claim()).due
    assert [one.payload.decode() or None for one in due] == [stored[name] for name in names]


def test_leased_batch_refuses_missing_long_payload() -> None:
    frame = b'[1,null,"w",0,0,0,"msg_1",0,8,"Queued",0]\n\n1\n'
    with pytest.raises(StatementError, match="could not be read"):
        Leased([Lease("w", None, START)], "t", frame, [], {}).due()


def test_leased_batch_refuses_payloads_of_wrong_size() -> None:
    """The stored bytes are sent (B-106), and never those of another delivery (B-217)."""
    lease = Lease("w", None, START)

    def frame(key: int, size: int, payload: str) -> bytes:
        return f'[{key},{size},"w",0,0,0,"msg_{key}",0,8,"Queued",0]\n{payload}\n{key}\n'.encode()

    def due(*frames: bytes) -> list[tuple[str, bytes]]:
        made = Leased([lease], "t", b"".join(frames), [], {}).due()
        return [(each.delivery, each.payload) for each in made]

    second = frame(2, 4, "[22]")
    whole = [("msg_1", b"{}"), ("msg_2", b"[22]")]
    assert due(frame(1, 2, "{}"), second) == due(second, frame(1, 2, "{}")) == whole
    swallowed = 2 + len(b"\n1\n") + len(second) - len(b"\n2\n")  # ends where the second frame does
    for size in (0, 1, 3, 5, swallowed, 10_000):
        with pytest.raises(StatementError, match="fit together"):
            due(frame(1, size, "{}"), second)
    with pytest.raises(StatementError, match="fit together"):
        due(second, frame(1, 3, "{}"))
