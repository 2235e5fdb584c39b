"""Renames and deletions of Webhooks that overlap outcomes, replays and sweeps on PostgreSQL.

As in `test_overlapping_writes`: the first transaction is held until the second one waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.actors.sweeper import webhook_batches
from fw_actors.errors import ConflictError
from fw_actors.ops.audit import AuditLog
from fw_actors.rules.delivery import DeliveryStatus, OutcomeKind
from fw_actors.store import Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.pacing import lock_claim_rows
from fw_actors.webhooks.replay import Replayed
from tests.interop.delivery_transitions import DeliveryTransitions, rename_webhook
from tests.interop.overlap_kit import Overlap, as_administrator


def halfway(
    transitions: DeliveryTransitions, overlap: Overlap, dues: list[LeasedDelivery]
) -> Callable[[Tx], Any]:
    """Write outcomes, with a pause behind the first lock that they take."""

    def work(tx: Tx) -> Any:
        if dues[0].ordered:
            lock_claim_rows(tx, [dues[0].job.partition])
        else:
            tx.raw("SELECT id FROM fw_job WHERE id = :id FOR UPDATE", {"id": dues[0].job.id})
        overlap.meet()
        return transitions.settle(dues, OutcomeKind.DELIVERED, tx)

    return work


@pytest.mark.parametrize("ordering", ["none", "document"])
@pytest.mark.parametrize("doctype", ["Customer", "Webhook"])
async def test_rename_waiting_for_outcome_does_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap, doctype: str, ordering: str
) -> None:
    """Jobs are locked before deliveries, and turns before both (B-430)."""
    await transitions.site.write(
        "Administrator", lambda fw: fw.new_doc("Customer", title="Ada").insert()
    )
    dues = await transitions.lease_new(3, ordering=ordering)
    name = "Ada" if doctype == "Customer" else dues[0].job.partition

    def rename(fw: Any) -> None:
        fw.get_doc(doctype, name).rename("Lovelace")

    result, refusal = await overlap(
        halfway(transitions, overlap, dues),
        partial(transitions.site.write, "Administrator", rename),
    )
    assert (result, refusal) == ([DeliveryStatus.SENT] * len(dues), None)
    column = "reference_name" if doctype == "Customer" else "webhook"
    found = await transitions.rows(f"SELECT DISTINCT {column} AS name FROM doc_webhook_delivery")
    assert found == [{"name": "Lovelace"}]


@pytest.mark.parametrize("doctype", ["Customer", "Webhook"])
async def test_rename_waiting_for_replay_does_not_deadlock(
    transitions: DeliveryTransitions,
    overlap: Overlap,
    monkeypatch: pytest.MonkeyPatch,
    doctype: str,
) -> None:
    """A replay locks all its jobs before a delivery (B-430), and its jobs follow the rename."""
    await transitions.site.write(
        "Administrator", lambda fw: fw.new_doc("Customer", title="Ada").insert()
    )
    dues = await transitions.lease_new(2)
    await transitions.site.store.write(partial(transitions.settle, dues, OutcomeKind.REFUSED))
    record, met = AuditLog.record, threading.Event()

    def recorded(audit: AuditLog, *event: Any) -> None:
        record(audit, *event)
        if not met.is_set():
            met.set()
            overlap.meet()

    def replay(fw: Any) -> Any:
        return transitions.site.replays.replay_many(fw, [due.delivery for due in dues[::-1]])

    name = "Ada" if doctype == "Customer" else dues[0].job.partition

    def rename(fw: Any) -> None:
        fw.get_doc(doctype, name).rename("Lovelace")

    monkeypatch.setattr(AuditLog, "record", recorded)
    result, refusal = await overlap(
        as_administrator(transitions.site, replay),
        partial(transitions.site.write, "Administrator", rename),
    )
    assert (result, refusal) == ([Replayed(due.delivery) for due in dues[::-1]], None)
    rows = await transitions.rows(
        "SELECT DISTINCT reference_name, partition FROM doc_webhook_delivery AS d"
        " JOIN fw_job ON subject = d.name AND partition = d.webhook"
    )
    moved = ("Lovelace", dues[0].job.partition) if doctype == "Customer" else ("Ada", "Lovelace")
    assert [tuple(row.values()) for row in rows] == [moved]


async def test_batch_of_replay_waiting_for_rename_does_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """Both lock the deliveries before the run (B-430), and the run continues (B-257)."""
    [due] = await transitions.lease_new()
    await transitions.site.store.write(partial(transitions.settle, [due], OutcomeKind.REFUSED))
    webhook, bulk = due.job.partition, transitions.site.bulk
    run: Any = await transitions.site.write(
        "Administrator", lambda fw: bulk.begin(fw, [["webhook", "=", webhook]])
    )

    def rename(fw: Any) -> None:
        fw.db.sql("SELECT name FROM doc_webhook WHERE name = :name FOR UPDATE", {"name": webhook})
        overlap.meet()
        rename_webhook(webhook, "Lovelace", fw)

    def batch(fw: Any) -> None:
        bulk.carry_out(fw, run, [due.delivery])

    assert await overlap(
        as_administrator(transitions.site, rename),
        partial(transitions.site.write, "Administrator", batch),
    ) == (None, None)
    assert await transitions.states() == [("Failed", 1)]  # the batch was selected by the old name
    again: Any = await transitions.site.store.read(bulk.running)
    found = await transitions.site.read("Administrator", lambda fw: bulk.batch(fw, again))
    assert found == [due.delivery]


async def test_bulk_replay_follows_simultaneous_renames_of_two_webhooks(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """Neither rename undoes the other one in the filters of the run (B-257)."""
    first = (await transitions.lease_new())[0].job.partition
    second = next(
        name for due in await transitions.lease_new() if (name := due.job.partition) != first
    )
    bulk = transitions.site.bulk
    await transitions.site.write(
        "Administrator", lambda fw: bulk.begin(fw, [["webhook", "in", [first, second]]])
    )
    renames = [partial(rename_webhook, first, "Ada"), partial(rename_webhook, second, "Lovelace")]
    await overlap(
        as_administrator(transitions.site, renames[0]),
        partial(transitions.site.write, "Administrator", renames[1]),
    )
    run = await transitions.site.store.read(bulk.running)
    assert run is not None
    assert run.filters == '[["webhook", "in", ["Ada", "Lovelace"]]]'


async def test_rename_is_followed_by_a_replay_that_waits_for_it(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A renamed Webhook keeps its deliveries and jobs (B-30); none is taken for a deleted one's."""
    [due] = await transitions.lease_new()
    await transitions.site.store.write(partial(transitions.settle, [due], OutcomeKind.REFUSED))
    rename = partial(rename_webhook, due.job.partition, "Lovelace")
    replay = partial(
        transitions.site.write, "Administrator", partial(transitions.replay, due.delivery)
    )
    _, result = await overlap(as_administrator(transitions.site, rename), replay)
    assert result == Replayed(due.delivery)
    assert await transitions.rows("SELECT partition FROM fw_job WHERE next_at IS NOT NULL") == [
        {"partition": "Lovelace"}
    ]


@pytest.mark.parametrize(
    ("act", "pause_at", "expected"),
    [
        ("replay", (AuditLog, "denial"), "Queued"),
        ("cancel", (Deliveries, "outcome_batch"), "Failed"),
    ],
)
async def test_webhook_renamed_meanwhile_is_locked(
    transitions: DeliveryTransitions,
    overlap: Overlap,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    pause_at: tuple[type, str],
    expected: str,
) -> None:
    """Its next rename waits for the replay or the cancellation, and these never for it (B-430)."""
    dues = await transitions.lease_new(ordering="document")
    kind = OutcomeKind.REFUSED if act == "replay" else OutcomeKind.DELIVERED
    await transitions.site.store.write(partial(transitions.settle, dues, kind))
    if act == "cancel":
        await transitions.site.write("Administrator", transitions.emit)
    [row] = await transitions.rows("SELECT subject, partition FROM fw_job")
    read, renamed, locked = threading.Event(), threading.Event(), threading.Event()
    before: Callable[..., Any] = getattr(*pause_at)

    def work(tx: Tx) -> Any:
        fw, patched = transitions.site.handle(tx, "Administrator"), tx.__dict__
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
            return transitions.replay(row["subject"], fw).status
        return transitions.site.cancellations.cancel(fw, row["subject"])

    def paused_again(*given: Any, **more: Any) -> Any:
        locked.set()
        overlap.meet()
        return before(*given, **more)

    found: list[Any] = []

    async def first() -> None:
        found.append(await transitions.site.store.write(work))

    monkeypatch.setattr(*pause_at, paused_again)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.to_thread.run_sync(read.wait, 30)
        write = partial(transitions.site.write, "Administrator")
        await write(partial(rename_webhook, row["partition"], "once"))
        renamed.set()
        await trio.to_thread.run_sync(locked.wait, 30)
        await write(partial(rename_webhook, "once", "twice"))
    assert found == [expected]
    assert await transitions.rows("SELECT partition FROM fw_job") == [{"partition": "twice"}]


async def test_rename_waiting_for_sweep_does_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A sweep locks jobs before their deliveries, and skips what is locked (B-430)."""
    dues = await transitions.lease_new(2)
    await transitions.site.store.write(partial(transitions.settle, dues, OutcomeKind.REFUSED))
    await transitions.age_attempts()
    sweep = webhook_batches(1, 0)[0]

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

    found = await overlap(swept, partial(transitions.site.write, "Administrator", rename))
    assert found == (2, None)
    assert (await transitions.states(), await transitions.rows("SELECT id FROM fw_job")) == ([], [])


async def test_outcome_waiting_for_rename_releases_moved_deliveries(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """Of an ordered Webhook under another name by now (B-430)."""
    [due] = await transitions.lease_new(2, ordering="document")

    def rename(fw: Any) -> None:
        fw.get_doc("Webhook", due.job.partition).rename("Lovelace")

    outcome = partial(transitions.settle, [due], OutcomeKind.DELIVERED)
    _, result = await overlap(
        as_administrator(transitions.site, rename), partial(transitions.site.store.write, outcome)
    )
    assert result == [DeliveryStatus.SENT]
    [following] = await transitions.site.store.write(transitions.claim)
    assert following.job.partition == "Lovelace"


async def test_replay_never_waits_for_new_webhook_of_deleted_name(
    transitions: DeliveryTransitions, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made after the replay looked for the Webhook, and its rename waits (B-430)."""
    name = await transitions.make_failed()
    [row] = await transitions.rows("SELECT webhook FROM doc_webhook_delivery")
    webhook = row["webhook"]
    await transitions.site.write(
        "Administrator", lambda fw: fw.get_doc("Webhook", webhook).delete()
    )
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
        await transitions.site.write("Administrator", create)
        await transitions.site.write("Administrator", partial(rename_webhook, webhook, "Lovelace"))

    monkeypatch.setattr(AuditLog, "denial", paused)
    refusal, failure = await overlap(
        as_administrator(transitions.site, partial(transitions.replay, name)), meanwhile
    )
    assert isinstance(refusal, ConflictError)
    assert (failure, await transitions.states()) == (None, [("Failed", 1)])


async def test_deletion_waiting_for_outcome_does_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """The turn of a Webhook is locked before its counts (B-430)."""
    [before] = await transitions.lease_new(2, ordering="document")
    await transitions.site.store.write(partial(transitions.settle, [before], OutcomeKind.DELIVERED))
    dues = await transitions.site.store.write(transitions.claim)
    webhook = dues[0].job.partition

    def delete(fw: Any) -> None:
        fw.get_doc("Webhook", webhook).delete()

    found = await overlap(
        halfway(transitions, overlap, dues),
        partial(transitions.site.write, "Administrator", delete),
    )
    assert found == ([DeliveryStatus.SENT], None)
