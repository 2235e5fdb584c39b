"""Outcomes, take-overs, replays and sweeps of one delivery that overlap on PostgreSQL.

As in `test_overlapping_writes`: the first transaction is held until the second one waits for it.
On SQLite there is one writer, and `tests/fw_actors/webhooks` says the same of what follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from fw_actors.actors.sweeper import webhook_batches
from fw_actors.errors import ConflictError, DuplicateError, NotFoundError
from fw_actors.ops.audit import AuditLog
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import DeliveryStatus, OutcomeKind
from fw_actors.store import Tx, jobs
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.erasure import delete_old, erase, erase_many
from fw_actors.webhooks.health import add_tallies, drop_states_of_deleted, tallies_of
from fw_actors.webhooks.pacing import lock_claim_rows
from fw_actors.webhooks.replay import Replayed
from tests.interop.delivery_transitions import DeliveryTransitions
from tests.interop.overlap_kit import Overlap, as_administrator


@pytest.mark.parametrize(
    "kind", [OutcomeKind.DELIVERED, OutcomeKind.TRANSIENT, OutcomeKind.REFUSED]
)
@pytest.mark.parametrize("events", [1, 3])
async def test_outcome_after_overlapping_takeover_is_dropped(
    transitions: DeliveryTransitions, overlap: Overlap, kind: OutcomeKind, events: int
) -> None:
    """The outcome is dropped, by the state of the row at that time (B-211)."""
    dues = await transitions.lease_new(events)
    late = partial(transitions.settle, dues, kind)
    taken, result = await overlap(
        transitions.take_over, partial(transitions.site.store.write, late)
    )
    assert result == [None] * events
    assert await transitions.states() == [("Queued", 0)] * events
    jobs = await transitions.rows("SELECT lease, attempts, deaths FROM fw_job ORDER BY id")
    held = [{"lease": due.job.lease, "attempts": 0, "deaths": 1} for due in taken]
    assert jobs == held
    result = await transitions.site.store.write(partial(transitions.settle, taken, kind))
    assert None not in result


async def test_outcome_group_drops_only_jobs_taken_over(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    dues = await transitions.lease_new(3)
    late = partial(transitions.settle, dues, OutcomeKind.DELIVERED)
    first = partial(transitions.take_over, limit=dues[0].job.id)
    _, result = await overlap(first, partial(transitions.site.store.write, late))
    assert result == [None, DeliveryStatus.SENT, DeliveryStatus.SENT]
    assert await transitions.states() == [("Queued", 0), ("Sent", 1), ("Sent", 1)]


async def test_claim_skips_job_whose_outcome_is_written(transitions: DeliveryTransitions) -> None:
    """A claim waits for no outcome, and takes over no job whose outcome is written."""
    [due] = await transitions.lease_new()
    settled, claimed = threading.Event(), threading.Event()

    def settle(tx: Tx) -> None:
        tx.raw("UPDATE fw_job SET next_at = 0")
        transitions.settle([due], OutcomeKind.DELIVERED, tx)
        settled.set()
        assert claimed.wait(30), "the claim waits for the outcome"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(transitions.site.store.write, settle)
        await trio.to_thread.run_sync(settled.wait, 30)
        assert await transitions.site.store.write(transitions.claim) == []
        claimed.set()
    assert await transitions.states() == [("Sent", 1)]
    assert await transitions.rows("SELECT id FROM fw_job") == []


async def test_claim_skips_limited_webhook_of_overlapping_claim(
    transitions: DeliveryTransitions,
) -> None:
    """Claims together keep the rate limit (B-310), and skip what another has locked (B-430)."""
    await transitions.lease_new(0, rate_limit=1)
    for _ in range(2):
        await transitions.site.write("Administrator", transitions.emit)
    make = "INSERT INTO fw_webhook_claim (webhook) SELECT name FROM doc_webhook"
    await transitions.site.store.write(lambda tx: tx.raw(make))
    other = DeliveryTransitions(transitions.site)
    leased, skipped = threading.Event(), threading.Event()

    def claim(tx: Tx) -> None:
        assert len(transitions.claim(tx)) == 1
        leased.set()
        assert skipped.wait(30), "the other claim waits"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(transitions.site.store.write, claim)
        await trio.to_thread.run_sync(leased.wait, 30)
        assert await transitions.site.store.write(other.claim) == []
        skipped.set()


async def test_overlapping_replays_begin_once(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """States as one compare-and-set; one job, one Audit Event (B-252, O-80)."""
    name = await transitions.make_failed()
    work = partial(transitions.replay, name)
    first, refusal = await overlap(
        as_administrator(transitions.site, work),
        partial(transitions.site.write, "Administrator", work),
    )
    assert first == Replayed(name)
    assert isinstance(refusal, ConflictError)
    assert await transitions.states() == [("Queued", 0)]
    assert len(await transitions.rows("SELECT id FROM fw_job")) == 1
    query = "SELECT name FROM doc_audit_event WHERE action = 'webhook.replay'"
    assert len(await transitions.rows(query)) == 1


async def test_overlapping_replays_in_different_orders_do_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent deliveries have no jobs: they are locked by name themselves (B-430)."""
    dues = await transitions.lease_new(2)
    names = sorted(due.delivery for due in dues)
    await transitions.site.store.write(partial(transitions.settle, dues, OutcomeKind.DELIVERED))
    record, met = AuditLog.record, threading.Event()

    def recorded(audit: AuditLog, *event: Any) -> None:
        record(audit, *event)
        if not met.is_set():
            met.set()
            overlap.meet()

    monkeypatch.setattr(AuditLog, "record", recorded)
    replay = transitions.site.replays.replay_many
    first, second = await overlap(
        as_administrator(transitions.site, lambda fw: replay(fw, names[::-1])),
        partial(transitions.site.write, "Administrator", lambda fw: replay(fw, names)),
    )
    assert first == [Replayed(name) for name in names[::-1]]
    assert [type(refusal) for refusal in second] == [ConflictError] * 2


@pytest.mark.parametrize("days", [(1, 0), (0, 1)])
async def test_sweep_skips_delivery_being_replayed(
    transitions: DeliveryTransitions, days: tuple[int, int]
) -> None:
    """Retention applies to Sent and Failed: fresh attempts that have begun are not swept away, and
    what they send is not erased."""
    name = await transitions.make_failed()
    sweeps = webhook_batches(*days)
    replayed, swept = threading.Event(), threading.Event()

    def replay(fw: Any) -> None:
        transitions.replay(name, fw)
        replayed.set()
        assert swept.wait(30), "the sweep waits for the replay"

    await transitions.age_attempts()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transitions.site.write, "Administrator", replay)
        await trio.to_thread.run_sync(replayed.wait, 30)
        for sweep in sweeps:
            assert await transitions.site.store.write(sweep) == 0
        swept.set()
    assert await transitions.states() == [("Queued", 0)]
    assert len(await transitions.rows("SELECT id FROM fw_job")) == 1


@pytest.mark.parametrize("table", ["doc_webhook_delivery", "fw_job"])
async def test_sweep_fills_its_batch_beside_locked_delivery(
    transitions: DeliveryTransitions, table: str
) -> None:
    """A batch that is not full ends the sweep until the next day (O-71, B-430): further deliveries
    take the place of one whose row or job another transaction has locked."""
    dues = await transitions.lease_new(4)
    await transitions.site.store.write(partial(transitions.settle, dues, OutcomeKind.REFUSED))
    await transitions.age_attempts()
    locked, swept = threading.Event(), threading.Event()
    column = "subject" if table == "fw_job" else "name"

    def lock(tx: Tx) -> None:
        tx.raw(
            f"SELECT 1 FROM {table} WHERE {column} = :name FOR UPDATE", {"name": dues[0].delivery}
        )
        locked.set()
        assert swept.wait(30), "the sweep waits for the lock"

    sweep = partial(delete_old, retention_days=1, limit=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transitions.site.store.write, lock)
        await trio.to_thread.run_sync(locked.wait, 30)
        assert await transitions.site.store.write(sweep) == 2
        assert await transitions.site.store.write(sweep) == 1
        swept.set()
    left = [{"name": dues[0].delivery}]
    assert await transitions.rows("SELECT name FROM doc_webhook_delivery") == left
    assert await transitions.rows("SELECT subject AS name FROM fw_job") == left


async def test_replay_of_delivery_being_swept_is_refused(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    name = await transitions.make_failed()
    sweep = webhook_batches(1, 0)[0]
    await transitions.age_attempts()
    work = partial(transitions.replay, name)
    _, refusal = await overlap(sweep, partial(transitions.site.write, "Administrator", work))
    assert isinstance(refusal, ConflictError | NotFoundError)
    assert (await transitions.states(), await transitions.rows("SELECT id FROM fw_job")) == ([], [])


async def test_erasure_of_delivery_being_replayed_is_refused(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A Queued delivery is not erased (B-362); the answer says so, and nothing is audited."""
    name, audit = await transitions.make_failed(), transitions.site.audit
    replay = as_administrator(transitions.site, partial(transitions.replay, name))
    _, refusal = await overlap(
        replay, partial(transitions.site.write, "Administrator", lambda fw: erase(fw, audit, name))
    )
    assert isinstance(refusal, ConflictError)
    assert (
        await transitions.rows("SELECT name FROM doc_audit_event WHERE action = 'webhook.erase'")
        == []
    )


async def test_erasure_of_many_skips_delivery_being_replayed(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A Queued delivery is skipped, and not reported as erased (B-362)."""
    name, audit = await transitions.make_failed(), transitions.site.audit
    replay = as_administrator(transitions.site, partial(transitions.replay, name))
    _, erased = await overlap(
        replay,
        partial(transitions.site.write, "Administrator", lambda fw: erase_many(fw, audit, [name])),
    )
    assert erased == []
    assert await transitions.rows("SELECT erased FROM doc_webhook_delivery") == [{"erased": None}]


async def test_overlapping_emit_with_same_key_is_refused(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A key is unique per Webhook (B-78)."""
    await transitions.lease_new(0)

    def emit(fw: Any) -> Any:
        return fw.webhooks.emit("a.b", {}, key="once")

    _, refusal = await overlap(
        as_administrator(transitions.site, emit),
        partial(transitions.site.write, "Administrator", emit),
    )
    assert isinstance(refusal, DuplicateError)
    assert await transitions.states() == [("Queued", 0)]


async def test_overlapping_batches_with_same_keys_do_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A key that another transaction uses refuses only its own event (B-85), in any order."""
    await transitions.lease_new(0)

    def batch(*keys: str) -> list[dict[str, Any]]:
        return [{"name": "a.b", "data": {}, "key": key} for key in keys]

    def first(fw: Any) -> Any:
        made = fw.webhooks.emit("a.b", {}, key="a")
        overlap.meet()
        return [made, *fw.webhooks.emit_many(batch("b"))]

    def second(fw: Any) -> Any:
        return fw.webhooks.emit_many(batch("c", "b", "a"))

    result, results = await overlap(
        as_administrator(transitions.site, first),
        partial(transitions.site.write, "Administrator", second),
    )
    assert [list(each) for each in result] == [["deliveries"]] * 2
    assert [list(each) for each in results] == [["deliveries"], ["error"], ["error"]]
    assert {each["error"]["type"] for each in results[1:]} == {"DuplicateError"}
    assert await transitions.states() == [("Queued", 0)] * 3


async def test_emit_key_is_free_after_rollback(transitions: DeliveryTransitions) -> None:
    """A key whose emit was rolled back is free (B-81)."""
    await transitions.lease_new(0)

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
                await transitions.site.write("Administrator", undone)

        nursery.start_soon(first)
        await trio.to_thread.run_sync(begun.wait, 30)
        done.set()
        emitted = await transitions.site.write("Administrator", emit)
    assert len(emitted["deliveries"]) == 1
    assert await transitions.states() == [("Queued", 0)]


async def test_overlapping_bulk_replay_is_refused(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """Decisions, Console: "There is one at a time (409)"."""
    await transitions.make_failed()

    def begin(fw: Any) -> Any:
        return transitions.site.bulk.begin(fw, [["status", "=", "Failed"]])

    run, refusal = await overlap(
        as_administrator(transitions.site, begin),
        partial(transitions.site.write, "Administrator", begin),
    )
    assert isinstance(refusal, ConflictError)
    assert await transitions.rows("SELECT id FROM fw_bulk_replay") == [{"id": run.id}]


async def test_cancellation_of_delivery_being_claimed_is_refused(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """A delivery that is being sent is refused (B-366), and keeps its lease."""
    await transitions.lease_new(0)
    [name] = (await transitions.site.write("Administrator", transitions.emit))["deliveries"]
    cancel = partial(transitions.site.cancellations.cancel, delivery=name)
    [due], refusal = await overlap(
        transitions.claim, partial(transitions.site.write, "Administrator", cancel)
    )
    assert isinstance(refusal, ConflictError)
    statuses = await transitions.site.store.write(
        partial(transitions.settle, [due], OutcomeKind.DELIVERED)
    )
    assert statuses == [DeliveryStatus.SENT]


async def test_cancellation_locks_claim_row_that_was_missing(
    transitions: DeliveryTransitions, overlap: Overlap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim could create it after the cancellation has locked the job (B-430)."""
    await transitions.lease_new(0, ordering="document")
    await transitions.site.write("Administrator", transitions.emit)
    [row] = await transitions.rows("SELECT subject, partition FROM fw_job")
    before = Deliveries.outcome_batch

    def paused(*given: Any, **more: Any) -> Any:
        overlap.meet()
        return before(*given, **more)

    def cancel(fw: Any) -> Any:
        return transitions.site.cancellations.cancel(fw, row["subject"])

    def create(tx: Tx) -> Any:
        text = "INSERT INTO fw_webhook_claim (webhook) VALUES (:name) ON CONFLICT DO NOTHING"
        return tx.raw(text, {"name": row["partition"]})

    def lock(tx: Tx) -> Any:
        lock_claim_rows(tx, [row["partition"]])
        return tx.raw("SELECT lease FROM fw_job FOR UPDATE")

    async def meanwhile() -> Any:
        await transitions.site.store.write(create)
        return await transitions.site.store.write(lock)

    monkeypatch.setattr(Deliveries, "outcome_batch", paused)
    results = await overlap(as_administrator(transitions.site, cancel), meanwhile)
    assert results == ("Failed", [{"lease": None}])


async def test_sweep_of_counts_waiting_for_outcome_does_not_deadlock(
    transitions: DeliveryTransitions, overlap: Overlap
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

    await transitions.site.store.write(count("a", "b"))
    await transitions.site.store.write(claimed)
    sweep = partial(drop_states_of_deleted, limit=10)
    results = await overlap(outcome, partial(transitions.site.store.write, sweep))
    assert results == (True, 2)
    assert await transitions.rows("SELECT webhook FROM fw_webhook_hour") == []


@pytest.mark.parametrize("tried", [(), (2,), (0, 1, 2)])
async def test_outcomes_lock_their_jobs_by_id(
    transitions: DeliveryTransitions, overlap: Overlap, tried: tuple[int, ...]
) -> None:
    """In any order, and after any earlier attempts (B-430)."""
    dues = await transitions.lease_new(3)
    ids = [due.job.id for due in dues]
    dues = [msgspec.structs.replace(due, attempts=int(at in tried)) for at, due in enumerate(dues)][
        ::-1
    ]

    def one_by_one(tx: Tx) -> None:
        tx.raw("SELECT id FROM fw_job WHERE id = :id FOR UPDATE", {"id": ids[0]})
        overlap.meet()
        tx.raw("SELECT id FROM fw_job WHERE id = :id FOR UPDATE", {"id": ids[2]})

    late = partial(transitions.settle, dues, OutcomeKind.DELIVERED)
    found = await overlap(one_by_one, partial(transitions.site.store.write, late))
    assert found == (None, [DeliveryStatus.SENT] * 3)


async def test_cancellation_of_job_being_claimed_is_refused(site: Site, overlap: Overlap) -> None:
    """A job that a worker holds is not changed (O-222): it would be run, and told as cancelled."""
    enqueue = partial(jobs.enqueue_numbered, queue="app", function="notes.report", user="ada")
    number = await site.store.write(enqueue)
    claim = partial(jobs.claim, queue="app", partition="", limit=1, lease_ms=60_000, token="ours")
    cancel = partial(site.write, "Administrator", partial(site.jobs.cancel, number=number))
    [held], refusal = await overlap(claim, cancel)
    assert held.id == number
    assert isinstance(refusal, ConflictError)


async def test_resume_of_webhook_being_paused_ends_its_pause(
    transitions: DeliveryTransitions, overlap: Overlap
) -> None:
    """Each end of a pause by `resume` writes an Audit Event (B-304)."""
    await transitions.lease_new(0)
    [hook] = await transitions.rows("SELECT name FROM doc_webhook")
    pauses, name = transitions.site.pauses, hook["name"]
    await overlap(
        as_administrator(transitions.site, lambda fw: pauses.pause(fw, name, None)),
        partial(transitions.site.write, "Administrator", lambda fw: pauses.resume(fw, name)),
    )
    assert await transitions.rows("SELECT paused_since FROM doc_webhook") == [
        {"paused_since": None}
    ]
    query = "SELECT target FROM doc_audit_event WHERE action = 'webhook.resume'"
    assert await transitions.rows(query) == [{"target": name}]
