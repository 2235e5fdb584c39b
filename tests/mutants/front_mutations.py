"""Faults of the front end: of framing, of slow clients, and of the console's dialogs."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

FRONT: Final = (
    Mutation(
        "a request with a length and chunks is accepted",
        "web/http11.py",
        'if chunked and (lengths or request.http_version != b"1.1"):',
        'if chunked and request.http_version != b"1.1":',
        "tests/web/test_framing.py",
    ),
    Mutation(
        "a trailer section may have folded lines",
        "web/request.py",
        "if self._in_trailers and self._line[:1] in FOLDS:",
        "if not self._line:",
        "tests/web/test_framing.py",
    ),
    Mutation(
        "a refusal confirms a guess of a secret in the path",
        "web/request.py",
        '"client": client, "raw_path": raw_path}',
        '"client": client}',
        "tests/web/test_scrubbed_errors.py",
    ),
    Mutation(
        "idle connections are closed before what has arrived is read",
        "web/connections.py",
        "            await _read_what_has_arrived()\n            now",
        "            now",
        "tests/web/test_server.py",
    ),
    Mutation(
        "waiting connections are not closed for new ones",
        "web/connections.py",
        "limits.connections and not self.close_longest_waiting():",
        "limits.connections:",
        "tests/web/test_flood.py",
    ),
    Mutation(
        "a request continues after its client has disconnected",
        "web/disconnects.py",
        "                        disconnected()\n",
        "                        pass\n",
        "tests/web/test_http11.py",
    ),
    Mutation(
        "pipelined requests give no other task a turn",
        "web/http11.py",
        "            if self._received:  # requests",
        "            if not self._received:  # requests",
        "tests/web/test_http11.py",
    ),
    Mutation(
        "Escape confirms the question of the console",
        "fw_cli/console_dialogs.py",
        'Binding("n,escape", "answer(False)", "No")',
        'Binding("n,escape", "answer(True)", "No")',
        "tests/fw_cli/test_console_dialogs.py::test_confirm_dialog_agrees_only_by_its_key",
    ),
    Mutation(
        "Enter confirms the question of the console",
        "fw_cli/console_dialogs.py",
        """                yield Button("No (n)", id="no")
                yield Button("Yes (y)", id="yes", variant="primary")
""",
        """                yield Button("Yes (y)", id="yes", variant="primary")
                yield Button("No (n)", id="no")
""",
        "tests/fw_cli/test_console_dialogs.py::test_confirm_dialog_agrees_only_by_its_key",
    ),
    Mutation(
        "the name typed for an invitation is not sent",
        "web/pages/static/link.js",
        "  if (fullName?.value.trim()) body.fullName = fullName.value.trim();\n",
        "",
        "tests/browser/test_sign_in.py::test_invitation_sets_name_and_password",
    ),
    Mutation(
        "any action on one's own account leads to the sign-in page",
        "web/pages/static/user.js",
        'if (name === "revokeUserSessions" && section().dataset.own',
        "if (section().dataset.own",
        "tests/browser/test_users.py::test_reset_link_for_own_account_keeps_session",
    ),
    Mutation(
        "a Webhook is paused until it is resumed, whatever time was chosen",
        "web/pages/static/webhook.js",
        'seconds: Number(document.getElementById("pause-seconds").value) || null }',
        "seconds: null }",
        "tests/browser/test_webhooks.py::test_webhook_page_pauses_and_resumes_webhook",
    ),
    Mutation(
        "a System Manager with access scopes finds accounts by their state",
        "web/pages/accounts.py",
        '    if not fw.rights.administers:\n        raise PermissionDeniedError("Only',
        '    if not fw.rights.manages:\n        raise PermissionDeniedError("Only',
        "tests/web/pages/test_lists.py::test_state_filter_is_not_for_managers_with_scopes",
    ),
    Mutation(
        "a refusal of a busy service is taken for no answer",
        "web/pages/static/api.js",
        '  if (status >= 500 && error.type === "Unreachable") return',
        "  if (status >= 500) return",
        "tests/browser/test_form_values.py::test_refusal_of_a_busy_service_is_no_lost_response",
    ),
    Mutation(
        "a reload without a change leaves the message of the last trouble",
        "web/pages/static/app.js",
        "      hideProblem();\n      return;\n",
        "      return;\n",
        "tests/browser/test_delayed_responses.py::test_reloaded_part_keeps_focus_and_selection",
    ),
)
