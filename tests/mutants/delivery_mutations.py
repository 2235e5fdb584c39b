"""Faults of events, leases, attempts, replays, renames and documents."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_JOBS: Final = "fw_actors/store/jobs.py"
_NODES: Final = "tests/fw_actors/actors/test_node_liveness.py"
_GROUPS: Final = "tests/fw_actors/store/test_sqlite_groups.py"
_OUTCOME: Final = "fw_actors/rules/delivery.py"
_EVENTS: Final = "fw_actors/webhooks/events.py"
_REPLAY: Final = "fw_actors/webhooks/replay.py"
_RENAMES: Final = "fw_actors/webhooks/deliveries.py"

DELIVERY: Final = (
    Mutation(
        "an outcome is not fenced by its lease",
        _JOBS,
        "JOB.c.lease == settled.item(1, str))",
        "settled.item(1, str).is_not(None))",
        "tests/fw_actors/webhooks/test_deliveries.py",
    ),
    Mutation(
        "a lease never expires",
        _JOBS,
        'next_at=bindparam("lease_end")',
        "next_at=null()",
    ),
    Mutation(
        "a released job is not due again",
        _JOBS,
        '{"next_at": bindparam("at"), "lease": null()}',
        '{"next_at": null(), "lease": null()}',
        "tests/fw_actors/store/test_jobs.py",
    ),
    Mutation(
        "a job is leased before it is due",
        _JOBS,
        '        .where(JOB.c.next_at <= bindparam("now"))\n',
        '        .where(JOB.c.next_at <= bindparam("now") + 600)\n',
    ),
    Mutation(
        "an attempt is counted twice",
        _OUTCOME,
        "attempt = attempts_before + 1",
        "attempt = attempts_before + 2",
    ),
    Mutation(
        "max_attempts allows one more attempt",
        _OUTCOME,
        "attempt >= max_attempts",
        "attempt > max_attempts",
    ),
    Mutation(
        "the wait is not doubled", "fw_actors/rules/delivery.py", "base * 2.0**doublings", "base"
    ),
    Mutation("a redirect counts as delivered", _OUTCOME, "< 300", "< 400"),
    Mutation(
        "429 is final",
        _OUTCOME,
        "frozenset({408, 429})",
        "frozenset({408})",
        "tests/fw_actors/rules/test_delivery_outcome.py",
    ),
    Mutation(
        "an event is recorded without its job",
        _EVENTS,
        "jobs.enqueue_many(tx, QUEUE, unordered)",
        "pass",
    ),
    Mutation(
        "a batch fails as a whole when another transaction uses one of its keys",
        "fw_actors/webhooks/events.py",
        "each if isinstance(each, FwError) else self._record_in_savepoint(fw, each)",
        'each if isinstance(each, FwError) else _duplicate(fw, "")',
        "tests/fw_actors/webhooks/test_event_batches.py",
    ),
    Mutation(
        "a batch of all or nothing keeps the events before the refused one",
        "fw_actors/documents/handle.py",
        "        with self._fw.tx.savepoint():\n            return self._emit_many(",
        "        if True:\n            return self._emit_many(",
        "tests/fw_actors/webhooks/test_event_batches.py",
    ),
    Mutation(
        "an event is kept after its transaction was refused",
        "fw_actors/documents/handle.py",
        "        with self._fw.tx.savepoint():\n            return self._emit(",
        "        if True:\n            return self._emit(",
        "tests/fw_actors/webhooks/test_emit.py",
    ),
    Mutation(
        "data that JSON lacks is sent as text",
        _EVENTS,
        "if msgspec.json.decode(encoded) == data",
        "if True",
        "tests/fw_actors/webhooks/test_emit.py",
    ),
    Mutation(
        "an event whose deferred statement failed is answered as recorded",
        "fw_actors/store/sqlite_engine.py",
        "            item.answer = outcome.Error(tx.failure)",
        "            pass",
        f"{_GROUPS}::test_failed_deferred_statement_undoes_its_function_alone",
    ),
    Mutation(
        "a function that has rolled back ends the transaction of the next one",
        "fw_actors/store/sqlite_engine.py",
        "            self._begin()  # if they failed, the first of them has rolled back\n",
        "",
        f"{_GROUPS}::test_group_commits_what_its_functions_commit_one_by_one",
    ),
    Mutation(
        "a payload with an incomplete frame is sent",
        "fw_actors/store/statement.py",
        "if value[end:begin] != close:",
        "if False:",
        "tests/fw_actors/actors/test_claims.py",
    ),
    Mutation(
        "a list may hold any number of bytes",
        "fw_actors/documents/query.py",
        "        if size > max_bytes:",
        "        if False:",
        "tests/fw_actors/documents/test_rest.py",
    ),
    Mutation(
        "the body is rendered again for each attempt",
        "fw_actors/webhooks/claims.py",
        "        payload,\n        row.attempts,\n",
        '        payload.replace(b":", b": "),\n        row.attempts,\n',
    ),
    Mutation(
        "a late success ends the job of the new leaseholder",
        "fw_actors/webhooks/deliveries.py",
        " if lease not in lost]",
        "]",
        "tests/fw_actors/webhooks/test_deliveries.py",
    ),
    Mutation(
        "the signed time of an attempt is the end of its lease",
        "fw_actors/actors/delivery.py",
        "signed_headers(key, leased.delivery, now, leased.payload, old)",
        "signed_headers(key, leased.delivery, leased.lease_end, leased.payload, old)",
    ),
    Mutation(
        "an event shows secrets",
        _EVENTS,
        "elif redaction is FieldRedaction.BLANKED:",
        "elif redaction is None:",
        "tests/fw_actors/webhooks/test_events.py",
    ),
    Mutation(
        "an event shows fields above permission level 0",
        _EVENTS,
        "                del values[name]\n",
        "                pass\n",
    ),
    Mutation(
        "the end of a job is not in its transaction",
        "fw_actors/actors/app_jobs.py",
        "user = jobs.finish_as(tx, job.id, job.lease)",
        "user = job.user or None",
    ),
    Mutation(
        "a DeliveryActor does not wait until its outcome is recorded",
        "fw_actors/actors/delivery.py",
        "            self.context.ask(\n",
        "            self._deps.outcomes.tell(Record(leased, outcome))\n"
        "            (lambda *a, **k: None)(\n",
        "tests/fw_actors/actors/test_retries.py",
    ),
    Mutation(
        "slots are not released",
        "fw_actors/actors/delivery.py",
        "            self.context.stop()  # after the answer; the next attempt is a row, due later"
        "\n",
        "            pass\n",
        "tests/fw_actors/actors/test_dispatch_liveness.py",
    ),
    Mutation(
        "a new Dispatcher does not know the attempts that still run",
        "fw_actors/actors/dispatcher.py",
        "            self._receiver(origin).take(count)\n",
        "            del count\n",
        "tests/fw_actors/actors/test_receiver_slots.py",
    ),
    Mutation(
        "a Dispatcher without a free slot wakes no other process",
        "fw_actors/actors/dispatcher.py",
        "            self._unclaimed.polled(True)\n",
        "",
        f"{_NODES}::test_process_without_free_slot_wakes_another_one",
    ),
    Mutation(
        "processes without free slots wake each other",
        "fw_actors/actors/queue_worker.py",
        "self._is_new = self._is_new and remains",
        "self._is_new = remains",
        f"{_NODES}::test_processes_without_free_slots_do_not_wake_each_other",
    ),
    Mutation(
        "workers without free slots wake each other",
        "fw_actors/actors/queue_worker.py",
        "self._polls.within(rest, for_new_work=False)",
        "self._polls.within(rest)",
        "tests/fw_actors/actors/test_queue_liveness.py::"
        "test_workers_without_free_slots_do_not_wake_each_other",
    ),
    Mutation(
        "processes wake each other because slots come free",
        "fw_actors/actors/dispatcher.py",
        "self._polls.after(BATCH_SECONDS, for_new_work=False)",
        "self._polls.after(BATCH_SECONDS)",
        "tests/fw_actors/actors/test_node_liveness.py::"
        "test_process_sends_no_notice_because_a_slot_comes_free",
    ),
    Mutation(
        "a claim forgets what another transaction has locked",
        "fw_actors/store/jobs.py",
        "partition=partition, now=-1)",
        "partition=partition, now=tx.now)",
        f"{_NODES}::test_delivery_that_another_transaction_has_locked_is_claimed_soon",
    ),
    Mutation(
        "only a wake-up makes the queue workers poll",
        "fw_actors/actors/queue_worker.py",
        "        self._timer = self._context.after(seconds, PollTimer())\n",
        "        pass\n",
    ),
    Mutation(
        "a due time of a wrong clock is not repaired",
        "fw_actors/actors/queue_worker.py",
        "if trio.current_time() < self._next and back <= 0:",
        "if self._horizon_ms:",
    ),
    Mutation(
        "the sweep deletes open deliveries",
        "fw_actors/webhooks/erasure.py",
        "_OLD: Final = sa.and_(_D.status.in_(FINAL), ",
        "_OLD: Final = sa.and_(",
        "tests/fw_actors/ops/test_sweeps.py",
    ),
    Mutation(
        "a replay keeps the number of attempts",
        _REPLAY,
        "        attempts=0,\n",
        "",
    ),
    Mutation(
        "a delivery in progress is replayed",
        _REPLAY,
        "if previous not in FINAL:",
        "if False:",
    ),
    Mutation(
        "a denied operation leaves no Audit Event",
        "fw_actors/ops/audit.py",
        "            self.deny(fw, target)\n",
        "            pass\n",
    ),
    Mutation(
        "a replay keeps the old job",
        _REPLAY,
        "        tx.run(DELETE_JOB, delivery=delivery)",
        "        pass",
        "tests/fw_actors/webhooks/test_replay.py",
    ),
    Mutation(
        "deliveries do not follow a renamed document",
        _RENAMES,
        "        fw.tx.run(_MOVE_REFERENCES, doctype=doctype, old=old, new=new)\n",
        "",
    ),
    Mutation(
        "jobs do not follow a renamed Webhook",
        _RENAMES,
        "            fw.tx.run(_MOVE_JOBS, old=old, new=new)\n",
        "",
    ),
    Mutation(
        "two versions of one millisecond are not distinguished",
        "fw_actors/documents/lifecycle.py",
        "max(fw.tx.now, before + 1)",
        "fw.tx.now",
        "tests/fw_actors/documents/test_lifecycle.py",
    ),
    Mutation(
        "a response with an invalid head is ignored",
        "fw_actors/http/response.py",
        "again = rewritten(self._head) if self.status is None else None",
        "again = None",
        "tests/fw_actors/http/test_reader.py",
    ),
    Mutation(
        "an event contains unsaved values of the object",
        _EVENTS,
        "doc = self._as_stored(fw, doc)",
        "pass",
        "tests/fw_actors/webhooks/test_event_hooks.py",
    ),
    Mutation(
        "the outcome of an ordered delivery waits as long as any",
        "fw_actors/actors/outcome_writer.py",
        "ORDERED_BATCH_SECONDS if message.leased.ordered else BATCH_SECONDS",
        "BATCH_SECONDS",
        "tests/fw_actors/actors/test_outcome_writer.py::"
        "test_outcome_of_ordered_delivery_waits_for_less_time",
    ),
    Mutation(
        "a sweep of bodies waits for a replay",
        "fw_actors/webhooks/erasure.py",
        "            .limit(batch)\n            .with_for_update(skip_locked=True)\n",
        "            .limit(batch)\n            .with_for_update()\n",
        "tests/interop/test_overlapping_deliveries.py::test_sweep_skips_delivery_being_replayed",
    ),
    Mutation(
        "a replay locks its deliveries before their jobs",
        "fw_actors/webhooks/pacing.py",
        "        tx.rows(_LOCK_JOBS, names=names)\n        tx.rows(_LOCK_DELIVERIES",
        "        tx.rows(_LOCK_DELIVERIES",
        "tests/interop/test_overlapping_renames.py::test_rename_waiting_for_replay_does_not_deadlock",
    ),
    Mutation(
        "a bulk replay is shown to users whom its list is refused",
        "web/pages/replays.py",
        "    if not run or not fw.rights.administers:\n",
        "    if not run:\n",
        "tests/web/pages/test_replays.py::test_replays_are_shown_to_unlimited_managers_only",
    ),
)
