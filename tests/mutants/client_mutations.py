"""Faults of the Python client, of its receiver, of commands, and of the costs of hashes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_CLIENT: Final = "tests/fw_client/test_client.py"
_EMITTING: Final = "tests/fw_client/test_emitting.py"
_RETRIES: Final = "tests/fw_client/test_retries.py"
_WIRE: Final = "tests/fw_client/test_wire.py"
_SEEN: Final = "tests/fw_client/test_seen.py"
_RECEIVING: Final = "tests/fw_client/test_receiving.py"
_MODELS: Final = "tests/fw_client/test_models.py"
_RESTORE: Final = "tests/fw_cli/test_restore.py"
_ROWS: Final = "tests/fw_cli/test_console_rows.py"

CLIENT: Final = (
    Mutation(
        "the client repeats a request whose answer was lost, whatever it does",
        "fw_client/retries.py",
        "return None if outcome.sent and not repeatable else wait",
        "return wait",
        f"{_RETRIES}::test_lost_response_repeats_only_repeatable_calls",
    ),
    Mutation(
        "the client takes a missing document for one that it has deleted",
        "fw_client/wire.py",
        "if repeated and error.code in call.done_if_repeated:",
        "if error.code in call.done_if_repeated:",
        f"{_RETRIES}::test_not_found_after_lost_deletion_is_success",
    ),
    Mutation(
        "the client takes a redirect for a success",
        "fw_client/wire.py",
        "    if not 200 <= answer.status < 300:\n",
        "    if not 200 <= answer.status < 400:\n",
        f"{_WIRE}::test_redirect_with_json_body_is_no_success",
    ),
    Mutation(
        "the client sends a key of its own in place of the caller's",
        "fw_client/operations.py",
        "if key is None else Event(name, data, reference, key)",
        "if True else Event(name, data, reference, key)",
        f"{_EMITTING}::test_emit_sends_given_key",
    ),
    Mutation(
        "the client returns rows twice after a page that was too large",
        "fw_client/operations.py",
        "                position = position.after_refusal(refusal)\n                continue\n",
        "                position = position.after_refusal(refusal)\n",
        f"{_CLIENT}::test_too_large_page_is_requested_again_in_halves",
    ),
    Mutation(
        "a receiver's late handler settles the claim of another",
        "fw_client/receiver/seen.py",
        "return entry is not None and entry.token == token",
        "return entry is not None",
        f"{_SEEN}::test_expired_claim_changes_nothing",
    ),
    Mutation(
        "a receiver fails with a claim that it has forgotten",
        "fw_client/receiver/seen.py",
        "return entry is not None and entry.token == token",
        "return self._claimed[name].token == token",
        f"{_SEEN}::test_seen_memory_ignores_settlement_of_forgotten_claim",
    ),
    Mutation(
        "a receiver's file claims a delivery that was handled",
        "fw_client/receiver/seen.py",
        "WHERE done_at IS NULL AND until <= :now\n",
        "WHERE until <= :now\n",
        f"{_SEEN}::test_completed_delivery_stays_done",
    ),
    Mutation(
        "a receiver reads a body of any size",
        "fw_client/receiver/receiving.py",
        "if body is None or len(body) > self.max_body:",
        "if body is None:",
        f"{_RECEIVING}::test_receiver_refuses_forged_malformed_or_large_request",
    ),
    Mutation(
        "a new API key is in the client's logs",
        "fw_client/models.py",
        "    key: str = field(repr=False)\n",
        "    key: str\n",
        f"{_MODELS}::test_model_shows_no_secret_in_logs",
    ),
    Mutation(
        "a restore ends a key in two Audit Events",
        "fw_cli/restoration.py",
        "    with site.audit.suppressed(tx):\n        for name",
        "    if True:\n        for name",
        f"{_RESTORE}::test_restore_ends_sessions_links_and_revoked_keys",
    ),
    Mutation(
        "a brief check of the lock is a running service",
        "fw_cli/exclusive.py",
        "            time.sleep(LOCK_EVERY_SECONDS)\n",
        "",
        f"{_RESTORE}::test_command_outlasts_brief_check_of_lock",
    ),
    Mutation(
        "a store is restored, and a key changed, while a worker runs",
        "fw_cli/exclusive.py",
        "if workers := running_workers(paths):",
        "if workers := running_workers(paths)[:0]:",
        f"{_RESTORE}::test_restore_and_rekey_refuse_registered_worker",
    ),
    Mutation(
        "the terminal's console cancels a job at the touch of a key",
        "fw_cli/console_screen.py",
        "        if question and not await self.push_screen_wait(ConfirmDialog(question)):\n",
        "        if question and await self.push_screen_wait(ConfirmDialog(question)) is None:\n",
        "tests/fw_cli/test_console_screen.py::test_keys_act_on_selected_job_and_cancel_asks_first",
    ),
    Mutation(
        "the terminal's console claims to reach every process",
        "fw_cli/console_rows.py",
        'here = each["name"] in view["processes"]',
        "here = True",
        f"{_ROWS}::test_row_of_process_marks_what_actions_do_not_reach",
    ),
    Mutation(
        "the list of the keys of one account has those of all",
        "fw_cli/key.py",
        "filters = [] if user is None else",
        "filters = [] if True else",
        "tests/fw_cli/test_key.py::test_key_list_has_newest_first_and_those_of_one_user",
    ),
    Mutation(
        "a read of the hashes' costs writes",
        "fw_actors/access/hash_costs.py",
        "    if tx.writable and sum(",
        "    if sum(",
        "tests/fw_actors/access/test_hash_costs.py::"
        "test_stored_costs_are_read_without_compaction_in_a_read_transaction",
    ),
)
