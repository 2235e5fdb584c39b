"""Faults of versions, data migrations, traces, the start of a service, and the order of locks."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_MIGRATIONS: Final = "tests/fw_actors/ops/test_data_migrations.py"
_TRACES: Final = "tests/fw_actors/actors/test_traced_deliveries.py"
_TRACED_JOBS: Final = "tests/fw_actors/actors/test_traced_jobs.py"
_START: Final = "tests/supervisors/service/test_front.py"

PLATFORM: Final = (
    Mutation(
        "a document is deleted, though its caller has read another version",
        "fw_actors/documents/rest.py",
        "    if doc.modified is None or version != ",
        "    if doc.modified is None and version != ",
        "tests/access/test_versions.py::test_version_changed_by_another_session_is_refused",
    ),
    Mutation(
        "earlier attempts get the Webhook of another delivery in a migration",
        "fw_actors/store/migrations.py",
        " FROM doc_webhook_delivery d WHERE d.name = fw_delivery_attempt.delivery)",
        " FROM doc_webhook_delivery d WHERE d.name <> '')",
        "tests/fw_actors/store/test_migrations.py::test_migrate_writes_webhook_of_earlier_attempts",
    ),
    Mutation(
        "a migration of an app runs at each start",
        "fw_actors/ops/data_migrations.py",
        "        done = fw.tx.now if cursor is None else None\n",
        "        done = None\n",
        f"{_MIGRATIONS}::test_data_migrations_run_once_each_in_order",
    ),
    Mutation(
        "a migration done by another process is run again",
        "fw_actors/ops/data_migrations.py",
        "        elif record.done is not None:  # by another process\n            return True\n",
        "",
        f"{_MIGRATIONS}::test_parallel_migration_runs_do_the_work_once",
    ),
    Mutation(
        "an app may be older than its migrations",
        "fw_actors/ops/data_migrations.py",
        "if max(recorded, default=0) > len(migrations):",
        "if False:",
        f"{_MIGRATIONS}::test_app_version_older_than_its_data_is_refused",
    ),
    Mutation(
        "a migration with a repeated cursor runs without end",
        "fw_actors/ops/data_migrations.py",
        "    if text == cursor:\n",
        "    if False:\n",
        f"{_MIGRATIONS}::test_migration_cursor_must_be_new_short_json",
    ),
    Mutation(
        "all events of a process are in one trace",
        "fw_actors/tracing.py",
        "context = self._begun[tx] = self.root()",
        "context = self._first = getattr(self, '_first', None) or self.root()",
        f"{_TRACES}::test_event_without_request_begins_new_trace",
    ),
    Mutation(
        "a job is stored without the trace of its transaction",
        "fw_actors/ops/queued_jobs.py",
        "None if tracer is None else encode_context(tracer.context_of(fw.tx))",
        "None",
        f"{_TRACED_JOBS}::test_job_runs_in_trace_of_enqueuing_request",
    ),
    Mutation(
        "a failed attempt of a job is logged outside of its trace",
        "fw_actors/actors/queue_worker.py",
        "with nullcontext() if span is None else in_trace(span.context):",
        "with nullcontext():",
        f"{_TRACED_JOBS}::test_job_attempts_keep_trace_of_job",
    ),
    Mutation(
        "all attempts of a delivery have one parent-id",
        "fw_actors/actors/delivery.py",
        "(*signed, *self._span.context.headers)",
        "(*signed, *(decode_context(leased.trace) or self._span.context).headers)",
        f"{_TRACES}::test_attempt_sends_trace_of_event_with_new_parent",
    ),
    Mutation(
        "a trace of an untrusted peer is accepted",
        "web/exchange.py",
        "if not trust.is_off and not is_trusted(peer_of(request), trust):\n        return None\n"
        "    return read_context",
        "if False:\n        return None\n    return read_context",
        "tests/web/routes/test_trace_context.py::test_trace_is_accepted_only_from_trusted_proxy",
    ),
    Mutation(
        "requests during a start are refused at once",
        "supervisors/service/front.py",
        "            await self._started.wait()\n",
        "            pass\n",
        f"{_START}::test_early_request_is_served_after_the_start",
    ),
    Mutation(
        "the number of requests waiting for a start is unlimited",
        "supervisors/service/front.py",
        "max_requests=min(STARTING_REQUESTS, config.web.max_requests)",
        "max_requests=config.web.max_requests",
        f"{_START}::test_early_requests_are_limited_to_a_hundred",
    ),
    Mutation(
        "outcomes lock their jobs in any order",
        "fw_actors/webhooks/deliveries.py",
        "    if 0 < len(batch.reattempted) < len(batch.leases):\n",
        "    if False:\n",
        "tests/interop/test_overlapping_deliveries.py::test_outcomes_lock_their_jobs_by_id",
    ),
    Mutation(
        "a part of a pattern is searched before the end of the former one",
        "fw_actors/store/query_limits.py",
        "found + self.length",
        "found - self.length",
        "tests/fw_actors/store/test_like_patterns.py::test_like_long_matches_each_short_pattern_like_sqlite",
    ),
    Mutation(
        "reads of a restored store have a time limit",
        "fw_cli/restore.py",
        "open_site(config, limited=False, restoring=True)",
        "open_site(config, restoring=True)",
        "tests/fw_cli/test_restore.py::test_restored_store_is_read_without_time_limit",
    ),
    Mutation(
        "a job that is being claimed is cancelled with others",
        "fw_actors/ops/queued_jobs.py",
        "query.with_for_update(key_share=True, skip_locked=True)",
        "query",
        "tests/interop/test_overlapping_jobs.py::test_cancellation_of_many_skips_job_being_claimed",
    ),
    Mutation(
        "a link counts for every document of its name",
        "fw_actors/documents/validation.py",
        "if isinstance(field, Link) and field.options == doctype:",
        "if isinstance(field, Link):",
        "tests/fw_actors/documents/test_rename.py::"
        "test_rename_leaves_links_to_document_of_another_doctype",
    ),
    Mutation(
        "a submitted table has changed when all of its rows have",
        "fw_actors/documents/validation.py",
        "!= [row.name for row in after] or any(",
        "!= [row.name for row in after] or all(",
        "tests/fw_actors/documents/test_changes.py::test_submitted_table_accepts_change_of_one_row",
    ),
    Mutation(
        "a cancel writes what a save would refuse",
        "fw_actors/documents/lifecycle.py",
        "                check_values(self, fw.tx, doc, ignore_permissions)\n            check_st",
        "            check_st",
        "tests/fw_actors/documents/test_lifecycle.py::test_cancel_checks_the_changes_that_it_writes",
    ),
    Mutation(
        "a hook sees what the hook before it has written unchecked",
        "fw_actors/documents/validation.py",
        '        run_hook(fw, doc, "validate")\n        _settle(doc, stored)\n',
        '        run_hook(fw, doc, "validate")\n',
        "tests/fw_actors/documents/test_hook_writes.py::"
        "test_value_that_validate_writes_is_checked_before_the_next_hook",
    ),
)
