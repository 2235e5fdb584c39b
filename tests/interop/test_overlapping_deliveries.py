"""Outcomes, take-overs, replays and sweeps of one delivery that overlap on PostgreSQL.

As in `test_overlapping_writes`: the first transaction is held until the second one waits for it.
On SQLite there is one writer, and `tests/fw_actors/webhooks` says the same of what follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import msgspec
import pytest
import trio

from fw_actors.actors.sweeper import webhook_batches
from fw_actors.errors import ConflictError, DuplicateError, NotFoundError
from fw_actors.ops.audit import AuditLog
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff, DeliveryStatus, Ending
from fw_actors.store import Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from fw_actors.webhooks.health import add_tallies, drop_states_of_deleted, tallies_of
from fw_actors.webhooks.pacing import lock_claim_rows
from fw_actors.webhooks.replay import Replayed
from tests.fw_actors.webhooks.claim_kit import UnlimitedSlots
from tests.interop.overlap_kit import Overlap, as_administrator

TOKENS = count()
ADA = {"doctype": "Customer", "name": "Ada"}


class OverlapDepot:
    """A Webhook for the event `a.b`, and the transitions of its deliveries."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.deliveries = Deliveries(site.registry, Backoff(30.0, 3600.0))

    async def owe(self, events: int = 1, **more: Any) -> list[LeasedDelivery]:
        """Make a Webhook and deliveries about one Customer, and lease them."""
        fields = {"event_type": "Custom", "custom_event": "a.b", "secret": "a secret", **more}
        url = "https://receiver.test/"

        def work(fw: Any) -> None:
            fw.new_doc("Webhook", url=url, **fields).insert()

        await self.site.write("Administrator", work)
        for _ in range(events):
            await self.site.write("Administrator", self.emit)
        return await self.site.store.write(self.claim)

    def emit(self, fw: Any) -> Any:
        return fw.webhooks.emit("a.b", {}, reference=ADA)

    def claim(self, tx: Tx) -> list[LeasedDelivery]:
        return self.deliveries.claim(tx, UnlimitedSlots(), f"token {next(TOKENS)}").due

    def settle(
        self, dues: list[LeasedDelivery], ending: Ending, tx: Tx
    ) -> list[DeliveryStatus | None]:
        at = tx.now
        batch = self.deliveries.outcome_batch([(due, AttemptOutcome(ending, at)) for due in dues])
        return list(self.deliveries.settle_all(tx, batch))

    def take_over(self, tx: Tx, most: int = 100) -> list[LeasedDelivery]:
        """Lease the oldest leased jobs again, as if their leases had expired."""
        tx.raw("UPDATE fw_job SET next_at = 0 WHERE id <= :most", {"most": most})
        return self.claim(tx)

    async def failed(self) -> str:
        """Make a delivery that has failed; its name."""
        [due] = await self.owe()
        await self.site.store.write(partial(self.settle, [due], Ending.REFUSED))
        return due.delivery

    def replay(self, delivery: str, fw: Any) -> Any:
        return self.site.replays.replay(fw, delivery)

    async def rows(self, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.site.read(
            "Administrator", lambda fw: fw.db.sql(text)
        )
        return found

    async def states(self) -> list[tuple[str, int]]:
        rows = await self.rows("SELECT status, attempts FROM doc_webhook_delivery ORDER BY name")
        return [(row["status"], row["attempts"]) for row in rows]


@pytest.fixture
def depot(site: Site) -> OverlapDepot:
    return OverlapDepot(site)


@pytest.mark.parametrize("ending", [Ending.DELIVERED, Ending.TRANSIENT, Ending.REFUSED])
@pytest.mark.parametrize("events", [1, 3])
async def test_outcome_after_overlapping_takeover_is_dropped(
    depot: OverlapDepot, overlap: Overlap, ending: Ending, events: int
) -> None:
    """The outcome is dropped, by the state of the row at that time (B-211)."""
    dues = await depot.owe(events)
    late = partial(depot.settle, dues, ending)
    taken, told = await overlap(depot.take_over, partial(depot.site.store.write, late))
    assert told == [None] * events
    assert await depot.states() == [("Queued", 0)] * events
    jobs = await depot.rows("SELECT lease, attempts, deaths FROM fw_job ORDER BY id")
    held = [{"lease": due.job.lease, "attempts": 0, "deaths": 1} for due in taken]
    assert jobs == held
    told = await depot.site.store.write(partial(depot.settle, taken, ending))
    assert None not in told


async def test_outcome_group_drops_only_jobs_taken_over(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    dues = await depot.owe(3)
    late = partial(depot.settle, dues, Ending.DELIVERED)
    first = partial(depot.take_over, most=dues[0].job.id)
    _, told = await overlap(first, partial(depot.site.store.write, late))
    assert told == [None, DeliveryStatus.SENT, DeliveryStatus.SENT]
    assert await depot.states() == [("Queued", 0), ("Sent", 1), ("Sent", 1)]


async def test_claim_skips_job_whose_outcome_is_written(depot: OverlapDepot) -> None:
    """A claim waits for no outcome, and takes over no job whose outcome is written."""
    [due] = await depot.owe()
    settled, claimed = threading.Event(), threading.Event()

    def settle(tx: Tx) -> None:
        tx.raw("UPDATE fw_job SET next_at = 0")
        depot.settle([due], Ending.DELIVERED, tx)
        settled.set()
        assert claimed.wait(30), "the claim waits for the outcome"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(depot.site.store.write, settle)
        await trio.to_thread.run_sync(settled.wait, 30)
        assert await depot.site.store.write(depot.claim) == []
        claimed.set()
    assert await depot.states() == [("Sent", 1)]
    assert await depot.rows("SELECT id FROM fw_job") == []


async def test_overlapping_replays_begin_once(depot: OverlapDepot, overlap: Overlap) -> None:
    """States as one compare-and-set; one job, one Audit Event (B-252, O-80)."""
    name = await depot.failed()
    work = partial(depot.replay, name)
    first, refusal = await overlap(
        as_administrator(depot.site, work), partial(depot.site.write, "Administrator", work)
    )
    assert first == Replayed(name)
    assert isinstance(refusal, ConflictError)
    assert await depot.states() == [("Queued", 0)]
    assert len(await depot.rows("SELECT id FROM fw_job")) == 1
    told = "SELECT name FROM doc_audit_event WHERE action = 'webhook.replay'"
    assert len(await depot.rows(told)) == 1


async def test_sweep_skips_delivery_being_replayed(depot: OverlapDepot) -> None:
    """Retention applies to Sent and Failed: fresh attempts that have begun are not swept away."""
    name = await depot.failed()
    [sweep] = webhook_batches(depot.site.registry, 1)
    replayed, swept = threading.Event(), threading.Event()

    def replay(fw: Any) -> None:
        depot.replay(name, fw)
        replayed.set()
        assert swept.wait(30), "the sweep waits for the replay"

    await age(depot)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(depot.site.write, "Administrator", replay)
        await trio.to_thread.run_sync(replayed.wait, 30)
        assert await depot.site.store.write(sweep) == 0
        swept.set()
    assert await depot.states() == [("Queued", 0)]
    assert len(await depot.rows("SELECT id FROM fw_job")) == 1


async def test_replay_of_delivery_being_swept_is_refused(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    name = await depot.failed()
    [sweep] = webhook_batches(depot.site.registry, 1)
    await age(depot)
    work = partial(depot.replay, name)
    _, refusal = await overlap(sweep, partial(depot.site.write, "Administrator", work))
    assert isinstance(refusal, ConflictError | NotFoundError)
    assert (await depot.states(), await depot.rows("SELECT id FROM fw_job")) == ([], [])


async def test_overlapping_emit_with_same_key_is_refused(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    """A key is unique per Webhook (B-78)."""
    await depot.owe(0)

    def emit(fw: Any) -> Any:
        return fw.webhooks.emit("a.b", {}, key="once")

    _, refusal = await overlap(
        as_administrator(depot.site, emit), partial(depot.site.write, "Administrator", emit)
    )
    assert isinstance(refusal, DuplicateError)
    assert await depot.states() == [("Queued", 0)]


async def test_overlapping_batches_with_same_keys_do_not_deadlock(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    """A key that another transaction uses refuses only its own event (B-85), in any order."""
    await depot.owe(0)

    def batch(*keys: str) -> list[dict[str, Any]]:
        return [{"name": "a.b", "data": {}, "key": key} for key in keys]

    def first(fw: Any) -> Any:
        made = fw.webhooks.emit("a.b", {}, key="a")
        overlap.meet()
        return [made, *fw.webhooks.emit_many(batch("b"))]

    def second(fw: Any) -> Any:
        return fw.webhooks.emit_many(batch("c", "b", "a"))

    told, results = await overlap(
        as_administrator(depot.site, first), partial(depot.site.write, "Administrator", second)
    )
    assert [list(each) for each in told] == [["deliveries"]] * 2
    assert [list(each) for each in results] == [["deliveries"], ["error"], ["error"]]
    assert {each["error"]["type"] for each in results[1:]} == {"DuplicateError"}
    assert await depot.states() == [("Queued", 0)] * 3


async def test_emit_key_is_free_after_rollback(depot: OverlapDepot) -> None:
    """A key whose emit was rolled back is free (B-81)."""
    await depot.owe(0)

    def emit(fw: Any) -> Any:
        return fw.webhooks.emit("a.b", {}, key="once")

    async with trio.open_nursery() as nursery:
        begun, done = threading.Event(), threading.Event()

        def undone(fw: Any) -> None:
            emit(fw)
            begun.set()
            done.wait(30)
            raise ConflictError("It changes its mind.")

        async def first() -> None:
            with pytest.raises(ConflictError, match="changes its mind"):
                await depot.site.write("Administrator", undone)

        nursery.start_soon(first)
        await trio.to_thread.run_sync(begun.wait, 30)
        done.set()
        told = await depot.site.write("Administrator", emit)
    assert len(told["deliveries"]) == 1
    assert await depot.states() == [("Queued", 0)]


async def test_overlapping_bulk_replay_is_refused(depot: OverlapDepot, overlap: Overlap) -> None:
    """Decisions, Console: "There is one at a time (409)"."""
    await depot.failed()

    def begin(fw: Any) -> Any:
        return depot.site.bulk.begin(fw, [["status", "=", "Failed"]])

    run, refusal = await overlap(
        as_administrator(depot.site, begin), partial(depot.site.write, "Administrator", begin)
    )
    assert isinstance(refusal, ConflictError)
    assert await depot.rows("SELECT id FROM fw_bulk_replay") == [{"id": run.id}]


async def age(depot: OverlapDepot) -> None:
    """Have every attempt been two days ago."""
    day = 86_400_000

    def work(tx: Tx) -> None:
        text = "UPDATE doc_webhook_delivery SET last_attempt = last_attempt - :days"
        tx.raw(text, {"days": 2 * day})

    await depot.site.store.write(work)


ORDERINGS = ["none", "document"]


def halfway(
    depot: OverlapDepot, overlap: Overlap, dues: list[LeasedDelivery]
) -> Callable[[Tx], Any]:
    """Write outcomes, with a pause behind the first lock that they take."""

    def work(tx: Tx) -> Any:
        if dues[0].ordered:
            lock_claim_rows(tx, [dues[0].job.partition])
        else:
            tx.raw("SELECT id FROM fw_job WHERE id = :id FOR UPDATE", {"id": dues[0].job.id})
        overlap.meet()
        return depot.settle(dues, Ending.DELIVERED, tx)

    return work


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("doctype", ["Customer", "Webhook"])
async def test_rename_waiting_for_outcome_does_not_deadlock(
    depot: OverlapDepot, overlap: Overlap, doctype: str, ordering: str
) -> None:
    """Jobs are locked before deliveries, and turns before both (B-430)."""
    await depot.site.write("Administrator", lambda fw: fw.new_doc("Customer", title="Ada").insert())
    dues = await depot.owe(3, ordering=ordering)
    name = "Ada" if doctype == "Customer" else dues[0].job.partition

    def rename(fw: Any) -> None:
        fw.get_doc(doctype, name).rename("Lovelace")

    told, refusal = await overlap(
        halfway(depot, overlap, dues), partial(depot.site.write, "Administrator", rename)
    )
    assert (told, refusal) == ([DeliveryStatus.SENT] * len(dues), None)
    column = "reference_name" if doctype == "Customer" else "webhook"
    found = await depot.rows(f"SELECT DISTINCT {column} AS name FROM doc_webhook_delivery")
    assert found == [{"name": "Lovelace"}]


async def test_rename_waiting_for_replay_does_not_deadlock(
    depot: OverlapDepot, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay locks all its jobs before a delivery (B-430), and its jobs follow the rename."""
    dues = await depot.owe(2)
    await depot.site.store.write(partial(depot.settle, dues, Ending.REFUSED))
    record, met = AuditLog.record, threading.Event()

    def recorded(audit: AuditLog, *event: Any) -> None:
        record(audit, *event)
        if not met.is_set():
            met.set()
            overlap.meet()

    def replay(fw: Any) -> Any:
        return depot.site.replays.replay_many(fw, [due.delivery for due in dues[::-1]])

    def rename(fw: Any) -> None:
        fw.get_doc("Webhook", dues[0].job.partition).rename("Lovelace")

    monkeypatch.setattr(AuditLog, "record", recorded)
    told, refusal = await overlap(
        as_administrator(depot.site, replay), partial(depot.site.write, "Administrator", rename)
    )
    assert (told, refusal) == ([Replayed(due.delivery) for due in dues[::-1]], None)
    rows = await depot.rows("SELECT DISTINCT partition FROM fw_job")
    assert rows == [{"partition": "Lovelace"}]


async def test_replay_never_waits_for_new_webhook_of_deleted_name(
    depot: OverlapDepot, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made after the replay looked for the Webhook, and its rename waits (B-430)."""
    name = await depot.failed()
    [row] = await depot.rows("SELECT webhook FROM doc_webhook_delivery")
    webhook = row["webhook"]
    await depot.site.write("Administrator", lambda fw: fw.get_doc("Webhook", webhook).delete())
    denial = AuditLog.denial

    def paused(*given: Any) -> Any:
        monkeypatch.setattr(AuditLog, "denial", denial)
        overlap.meet()
        return denial(*given)

    def create(fw: Any) -> None:
        fw.new_doc(
            "Webhook", name=webhook, url="https://new.test/", event_type="Custom",
            custom_event="c.d", secret="a secret",
        ).insert()  # fmt: skip

    async def meanwhile() -> None:
        await depot.site.write("Administrator", create)
        await depot.site.write("Administrator", partial(rename_webhook, webhook, "Lovelace"))

    monkeypatch.setattr(AuditLog, "denial", paused)
    refusal, failure = await overlap(
        as_administrator(depot.site, partial(depot.replay, name)), meanwhile
    )
    assert isinstance(refusal, ConflictError)
    assert (failure, await depot.states()) == (None, [("Failed", 1)])


@pytest.mark.parametrize(
    ("act", "pause_at", "told"),
    [
        ("replay", (AuditLog, "denial"), "Queued"),
        ("cancel", (Deliveries, "outcome_batch"), "Failed"),
    ],
)
async def test_webhook_renamed_meanwhile_is_locked(
    depot: OverlapDepot,
    overlap: Overlap,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    pause_at: tuple[type, str],
    told: str,
) -> None:
    """Its next rename waits for the replay or the cancellation, and these never for it (B-430)."""
    dues = await depot.owe(ordering="document")
    ending = Ending.REFUSED if act == "replay" else Ending.DELIVERED
    await depot.site.store.write(partial(depot.settle, dues, ending))
    if act == "cancel":
        await depot.site.write("Administrator", depot.emit)
    [row] = await depot.rows("SELECT subject, partition FROM fw_job")
    read, renamed, locked = threading.Event(), threading.Event(), threading.Event()
    before: Callable[..., Any] = getattr(*pause_at)

    def work(tx: Tx) -> Any:
        fw, patched = depot.site.handle(tx, "Administrator"), tx.__dict__
        reads = ("rows", "one", "scalar")

        def paused(method: Callable[..., Any]) -> Callable[..., Any]:
            def first(*given: Any, **params: Any) -> Any:
                found = method(*given, **params)
                for name in reads:
                    del patched[name]
                read.set()
                assert renamed.wait(30)
                return found

            return first

        patched.update({name: paused(getattr(tx, name)) for name in reads})
        if act == "replay":
            return depot.replay(row["subject"], fw).status
        return depot.site.cancellations.cancel(fw, row["subject"])

    def paused_again(*given: Any, **more: Any) -> Any:
        locked.set()
        overlap.meet()
        return before(*given, **more)

    found: list[Any] = []

    async def first() -> None:
        found.append(await depot.site.store.write(work))

    monkeypatch.setattr(*pause_at, paused_again)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.to_thread.run_sync(read.wait, 30)
        write = partial(depot.site.write, "Administrator")
        await write(partial(rename_webhook, row["partition"], "once"))
        renamed.set()
        await trio.to_thread.run_sync(locked.wait, 30)
        await write(partial(rename_webhook, "once", "twice"))
    assert found == [told]
    assert await depot.rows("SELECT partition FROM fw_job") == [{"partition": "twice"}]


def rename_webhook(old: str, new: str, fw: Any) -> None:
    fw.get_doc("Webhook", old).rename(new)


async def test_rename_waiting_for_sweep_does_not_deadlock(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    """A sweep locks jobs before their deliveries, and skips what is locked (B-430)."""
    dues = await depot.owe(2)
    await depot.site.store.write(partial(depot.settle, dues, Ending.REFUSED))
    await age(depot)
    [sweep] = webhook_batches(depot.site.registry, 1)

    def swept(tx: Tx) -> int:
        """Sweep, with a pause before the first deletion."""
        patched: Any = tx
        run_many = tx.run_many

        def paused(*given: Any) -> None:
            patched.run_many = run_many
            overlap.meet()
            run_many(*given)

        patched.run_many = paused
        return sweep(tx)

    def rename(fw: Any) -> None:
        fw.get_doc("Webhook", dues[0].job.partition).rename("Lovelace")

    found = await overlap(swept, partial(depot.site.write, "Administrator", rename))
    assert found == (2, None)
    assert (await depot.states(), await depot.rows("SELECT id FROM fw_job")) == ([], [])


async def test_cancellation_locks_claim_row_that_was_missing(
    depot: OverlapDepot, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim could create it after the cancellation has locked the job (B-430)."""
    await depot.owe(0, ordering="document")
    await depot.site.write("Administrator", depot.emit)
    [row] = await depot.rows("SELECT subject, partition FROM fw_job")
    before = Deliveries.outcome_batch

    def paused(*given: Any, **more: Any) -> Any:
        overlap.meet()
        return before(*given, **more)

    def cancel(fw: Any) -> Any:
        return depot.site.cancellations.cancel(fw, row["subject"])

    def create(tx: Tx) -> Any:
        text = "INSERT INTO fw_webhook_claim (webhook) VALUES (:name) ON CONFLICT DO NOTHING"
        return tx.raw(text, {"name": row["partition"]})

    def lock(tx: Tx) -> Any:
        lock_claim_rows(tx, [row["partition"]])
        return tx.raw("SELECT lease FROM fw_job FOR UPDATE")

    async def meanwhile() -> Any:
        await depot.site.store.write(create)
        return await depot.site.store.write(lock)

    monkeypatch.setattr(Deliveries, "outcome_batch", paused)
    told = await overlap(as_administrator(depot.site, cancel), meanwhile)
    assert told == ("Failed", [{"lease": None}])


async def test_sweep_of_counts_waiting_for_outcome_does_not_deadlock(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    """It locks the claim rows of all deleted Webhooks before the counts of any (B-430)."""

    def count(*webhooks: str) -> Callable[[Tx], bool]:
        outcomes = [(name, DeliveryStatus.SENT, 1, "") for name in webhooks]
        return lambda tx: add_tallies(tx, tallies_of(outcomes))

    def outcome(tx: Tx) -> bool:
        lock_claim_rows(tx, ["b"])
        overlap.meet()
        return count("a")(tx)

    def claimed(tx: Tx) -> Any:
        return tx.raw("INSERT INTO fw_webhook_claim (webhook) VALUES ('b')")

    await depot.site.store.write(count("a", "b"))
    await depot.site.store.write(claimed)
    sweep = partial(drop_states_of_deleted, most=10)
    told = await overlap(outcome, partial(depot.site.store.write, sweep))
    assert told == (True, 2)
    assert await depot.rows("SELECT webhook FROM fw_webhook_hour") == []


async def test_outcome_waiting_for_rename_releases_moved_deliveries(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    """Of an ordered Webhook under another name by now (B-430)."""
    [due] = await depot.owe(2, ordering="document")

    def rename(fw: Any) -> None:
        fw.get_doc("Webhook", due.job.partition).rename("Lovelace")

    outcome = partial(depot.settle, [due], Ending.DELIVERED)
    _, told = await overlap(
        as_administrator(depot.site, rename), partial(depot.site.store.write, outcome)
    )
    assert told == [DeliveryStatus.SENT]
    [following] = await depot.site.store.write(depot.claim)
    assert following.job.partition == "Lovelace"


async def test_deletion_waiting_for_outcome_does_not_deadlock(
    depot: OverlapDepot, overlap: Overlap
) -> None:
    """The turn of a Webhook is locked before its counts (B-430)."""
    [before] = await depot.owe(2, ordering="document")
    await depot.site.store.write(partial(depot.settle, [before], Ending.DELIVERED))
    dues = await depot.site.store.write(depot.claim)
    webhook = dues[0].job.partition

    def delete(fw: Any) -> None:
        fw.get_doc("Webhook", webhook).delete()

    found = await overlap(
        halfway(depot, overlap, dues), partial(depot.site.write, "Administrator", delete)
    )
    assert found == ([DeliveryStatus.SENT], None)


@pytest.mark.parametrize("tried", [(), (2,), (0, 1, 2)])
async def test_outcomes_lock_their_jobs_by_id(
    depot: OverlapDepot, overlap: Overlap, tried: tuple[int, ...]
) -> None:
    """In any order, and after any earlier attempts (B-430)."""
    dues = await depot.owe(3)
    ids = [due.job.id for due in dues]
    dues = [msgspec.structs.replace(due, attempts=int(at in tried)) for at, due in enumerate(dues)][
        ::-1
    ]

    def one_by_one(tx: Tx) -> None:
        tx.raw("SELECT id FROM fw_job WHERE id = :id FOR UPDATE", {"id": ids[0]})
        overlap.meet()
        tx.raw("SELECT id FROM fw_job WHERE id = :id FOR UPDATE", {"id": ids[2]})

    late = partial(depot.settle, dues, Ending.DELIVERED)
    found = await overlap(one_by_one, partial(depot.site.store.write, late))
    assert found == (None, [DeliveryStatus.SENT] * 3)
