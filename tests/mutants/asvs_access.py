"""Faults of passwords, throttles, links, sessions, keys and rights."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_SIGN_IN: Final = "fw_actors/access/sign_in.py"
_ACCOUNTS: Final = "fw_actors/access/accounts.py"
_LINKS: Final = "fw_actors/access/links.py"
_SESSIONS: Final = "fw_actors/access/sessions.py"
_POLICY: Final = "fw_actors/rules/password_policy.py"
_HASHER: Final = "fw_actors/hashing/hasher.py"
_CHANGE: Final = "fw_actors/access/passwords.py"
_RIGHTS: Final = "fw_actors/documents/permissions.py"

_TEST_SIGN_IN: Final = "tests/fw_actors/access/test_sign_in.py::test_"
_TEST_LINKS: Final = "tests/access/test_links.py::test_"
_TEST_OWN: Final = "tests/access/test_self_service.py::test_"
_TEST_POLICY: Final = (
    "tests/fw_actors/rules/test_password_policy.py::"
    "test_password_policy_checks_length_blankness_and_account"
)

ASVS_ACCESS: Final = (
    Mutation(
        "an identifier has 100,000 failures more than the limit",
        _SIGN_IN,
        "Budget(policy.max_login_attempts, ",
        "Budget(policy.max_login_attempts + 100_000, ",
        _TEST_SIGN_IN + "fifth_failure_locks_and_is_answered_429",
    ),
    Mutation(
        "an address has 100,000 failures more than the limit",
        _SIGN_IN,
        "Budget(self._policy.address_attempts, ",
        "Budget(self._policy.address_attempts + 100_000, ",
        _TEST_SIGN_IN + "address_is_limited_to_50_failures_in_15_minutes",
    ),
    Mutation(
        "an unknown name is refused without a hash",
        _SIGN_IN,
        "        account = admitted.account\n        is_known = ",
        "        account = admitted.account\n        if account is None:\n"
        "            return await self._store.write(lambda tx: self._fail(tx, admitted))\n"
        "        is_known = ",
        _TEST_SIGN_IN + "sign_in_refusals_share_one_message_after_one_hash",
    ),
    Mutation(
        "an account without a hash costs no argon2 run",
        _HASHER,
        "            return self._verify(stored, password",
        "            if stored is None:\n                return PasswordCheck(False)\n"
        "            return self._verify(stored, password",
        "tests/fw_actors/hashing/test_hasher.py::"
        "test_missing_or_damaged_hash_costs_one_run_and_fails",
    ),
    Mutation(
        "an attempt is allowed when its counter cannot be written",
        _SIGN_IN,
        "        admitted = await self._store.write(work, durable=False)\n",
        "        try:\n"
        "            admitted = await self._store.write(work, durable=False)\n"
        "        except OverloadedError:\n"
        "            admitted = await self._store.read(\n"
        "                lambda tx: Admitted(\n"
        "                    identified, charge, address_charge, tx.now,\n"
        '                    self._directory.find(tx, identified.canonical or ""),\n'
        "                )\n"
        "            )\n",
        "tests/access/test_lockout.py::test_sign_in_fails_if_its_counter_cannot_be_written",
    ),
    Mutation(
        "one identifier is sent any number of recovery mails",
        "fw_actors/access/recovery.py",
        "Budget(MAILS_AN_HOUR, ",
        "Budget(MAILS_AN_HOUR * 1000, ",
        "tests/fw_actors/access/test_recovery.py::"
        "test_recovery_sends_three_mails_an_hour_per_identifier",
    ),
    Mutation(
        "an address may show any number of wrong API keys",
        "fw_actors/access/api_keys.py",
        "Budget(50, ",
        "Budget(50_000, ",
        "tests/access/test_api_keys.py::test_api_key_errors_of_an_address_are_429_after_fifty",
    ),
    Mutation(
        "wrong current passwords are not counted",
        _CHANGE,
        "            wait = attempts.charge(tx, charge, key, self._budget)\n",
        "            wait = None\n",
        _TEST_OWN + "password_change_shares_the_budget_of_sign_ins",
    ),
    Mutation(
        "a password changes without the current one",
        _CHANGE,
        "if verified.ok else None\n",
        "if verified else None\n",
        _TEST_OWN + "password_change_shares_the_budget_of_sign_ins",
    ),
    Mutation(
        "passwords of four characters are accepted by default",
        "fw_actors/config/policy.py",
        'Key("minPasswordLength", 8,',
        'Key("minPasswordLength", 4,',
        "tests/fw_actors/rules/test_site_policy.py::"
        "test_policy_gives_documented_default_for_absent_key",
    ),
    Mutation(
        "a password may be shorter than the policy says",
        _POLICY,
        "    if len(password) < minimum:\n",
        "    if len(password) < minimum - 1:\n",
        _TEST_POLICY,
    ),
    Mutation(
        "a password of 64 characters is too long",
        _POLICY,
        "MAX_RUNES: Final = 256",
        "MAX_RUNES: Final = 63",
        _TEST_POLICY,
    ),
    Mutation(
        "a password must mix letters and digits",
        _POLICY,
        "    if len(password) < minimum:\n",
        "    if len(password) < minimum or password.isalpha() or password.isdigit():\n",
        _TEST_POLICY,
    ),
    Mutation(
        "a password may equal the account name",
        _POLICY,
        "    if _same_as_account(password, name) or _same_as_account(password, email):\n",
        "    if password == minimum:\n",
        _TEST_POLICY,
    ),
    Mutation(
        "new passwords are not validated where they are hashed",
        _HASHER,
        "        validate_password(password, minimum",
        "        return\n        validate_password(password, minimum",
        _TEST_LINKS + "password_change_of_any_kind_meets_the_policy",
    ),
    Mutation(
        "a password is cut and folded before it is hashed",
        _HASHER,
        'return password.encode("utf-8", "surrogatepass")',
        'return password.strip().lower().encode("utf-8", "surrogatepass")[:72]',
        "tests/fw_actors/hashing/test_hasher.py::test_password_is_hashed_as_received",
    ),
    Mutation(
        "a password expires after a year",
        _SIGN_IN,
        "        if current is None or current.user != account.user or not current.enabled:\n",
        "        if current is None or current.user != account.user or (\n"
        "            current.password_changed or 0\n        ) < tx.now - 365 * 86_400_000:\n",
        "tests/access/test_password_lifetime.py::test_password_does_not_expire",
    ),
    Mutation(
        "an account has a hint to its password",
        "fw_actors/documents/core.py",
        "    roles = Table(HasRole, ",
        "    hint = Data()\n    roles = Table(HasRole, ",
        "tests/fw_actors/documents/core/test_account_fields.py::"
        "test_account_fields_hold_no_hint_or_secret_question",
    ),
    Mutation(
        "an account may be named Administrator",
        _ACCOUNTS,
        "    if key == canonical(ADMINISTRATOR):\n",
        "    if key is None:\n",
        "tests/fw_actors/access/test_accounts.py::"
        "test_account_refuses_hidden_reserved_and_blank_identifiers",
    ),
    Mutation(
        "an invitation never expires",
        _LINKS,
        '_T.expires > sa.bindparam("now")',
        '_T.expires + 10**12 > sa.bindparam("now")',
        _TEST_LINKS + "invitation_expires_after_its_hours",
    ),
    Mutation(
        "a link may be used twice",
        _LINKS,
        "    tx.run(_END, user=user)\n",
        "    reopen = sa.update(TOKEN).where(_T.user == _USER).values(spent=None)\n"
        "    tx.run(Statement(reopen), user=user)\n",
        _TEST_LINKS + "link_is_spent_once_by_two_submissions",
    ),
    Mutation(
        "an invitation resets a password",
        _LINKS,
        "    .where(_GOOD, _T.kind == _KIND)\n",
        "    .where(_GOOD, sa.or_(_T.kind == _KIND, _KIND.is_not(None)))\n",
        "tests/fw_actors/access/test_recovery.py::test_link_of_the_wrong_kind_is_refused_and_not_spent",
    ),
    Mutation(
        "a link contains its token in the query",
        _LINKS,
        '_BEFORE_TOKEN: Final = "#token="',
        '_BEFORE_TOKEN: Final = "?token="',
        "tests/access/test_link_fragment.py::test_link_has_its_token_in_the_fragment_only",
    ),
    Mutation(
        "accepting an invitation signs the user in",
        "web/routes/access.py",
        "    post = Operation(\n        handle,",
        "    async def signed_in(exchange: Exchange) -> Response:\n"
        "        done = await handle(exchange)\n"
        '        cookie = ("Set-Cookie", "sid=made; Path=/")\n'
        "        return Response(done.body, done.status, headers=(cookie,))\n\n"
        "    post = Operation(\n        signed_in,",
        _TEST_LINKS + "invitation_makes_no_session",
    ),
    Mutation(
        "a changed password ends no sessions",
        "fw_actors/access/passwords.py",
        "    ended = sessions.end_all(tx, user, except_session, idle_days=idle_days)",
        "    ended = 0",
        "tests/fw_actors/access/test_accounts.py::test_set_password_ends_sessions_of_its_user_only",
    ),
    Mutation(
        "a disabled account keeps its sessions",
        _ACCOUNTS,
        "            sessions.end_all(fw.tx, str(doc.name), idle_days=0)",
        "            pass\n",
        "tests/fw_actors/access/test_accounts.py::test_disabling_an_account_ends_its_sessions",
    ),
    Mutation(
        "every session has the same sid",
        _SIGN_IN,
        "sid = bearer(self._entropy.bytes(BEARER_BYTES))",
        "sid = bearer(bytes(BEARER_BYTES))",
        _TEST_SIGN_IN + "sign_in_makes_a_new_sid_of_192_bits",
    ),
    Mutation(
        "a sid has 64 bits",
        "fw_actors/rules/identifiers.py",
        "BEARER_BYTES: Final = 24",
        "BEARER_BYTES: Final = 8",
        "tests/fw_actors/rules/test_tokens.py::test_bearer_token_carries_192_bits",
    ),
    Mutation(
        "a sign-in keeps the previous session valid",
        _SIGN_IN,
        "            sessions.end(tx, attempt.old_sid)\n",
        "            pass\n",
        _TEST_SIGN_IN + "sign_in_with_a_live_sid_ends_that_session",
    ),
    Mutation(
        "a session stays valid after its days",
        _SESSIONS,
        '.where(SESSION.c.expires > sa.bindparam("now"), _USERS.c.enabled == 1)',
        '.where(SESSION.c.expires + 10**12 > sa.bindparam("now"), _USERS.c.enabled == 1)',
        "tests/fw_actors/access/test_sessions.py::test_session_ends_after_its_days",
    ),
    Mutation(
        "a sid is accepted without reading the store",
        _SESSIONS,
        "        if not rows:\n            raise session_ended()\n",
        '        if not rows:\n            return LiveSession("h", "ada", tx.now, frozenset())\n',
        "tests/fw_actors/access/test_sessions.py::test_unknown_sid_is_no_session",
    ),
    Mutation(
        "a sign-out keeps the session valid",
        _SESSIONS,
        "    tx.run(_END, sid_hash=digest(sid))\n",
        "    tx.run(_END, sid_hash=digest(sid[1:]))\n",
        "tests/fw_actors/access/test_sessions.py::test_session_end_ends_that_session_only",
    ),
    Mutation(
        "a manager ends no sessions of a user",
        "fw_actors/access/users.py",
        "return sessions.end_all(fw.tx, str(",
        "return len(str(",
        "tests/access/test_user_administration.py::test_revoke_ends_a_users_sessions",
    ),
    Mutation(
        "a session of another user may be ended by its id",
        _SESSIONS,
        "SESSION.c.id == _HANDLE,\n        SESSION.c.user == _USER,\n",
        "SESSION.c.id == _HANDLE,\n        _USER.is_not(None),\n",
        _TEST_OWN + "session_is_not_ended_by_a_sid_or_a_foreign_handle",
    ),
    Mutation(
        "users may write their own User document",
        _RIGHTS,
        '        if meta.name == "User" and name == self.user:\n',
        "        if name is self:\n",
        _TEST_OWN + "user_record_is_not_writable_by_its_user",
    ),
    Mutation(
        "a profile update accepts other fields",
        "web/routes/self_service.py",
        "class ProfileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, ",
        "class ProfileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=False, ",
        _TEST_OWN + "profile_rejects_other_fields",
    ),
    Mutation(
        "actions on documents need no role",
        _RIGHTS,
        "        if not self.allows(meta, action):\n",
        "        if not action:\n",
        "tests/fw_actors/documents/test_rest.py::"
        "test_rest_verb_without_permission_hides_existence_of_name",
    ),
    Mutation(
        "every user is a System Manager",
        _RIGHTS,
        "        return self.user == ADMINISTRATOR or SYSTEM_MANAGER in self.roles\n",
        "        return True\n",
        "tests/access/test_user_administration.py::test_user_administration_requires_a_system_manager",
    ),
    Mutation(
        "a function of an app requires no role",
        "web/routes/resource.py",
        "    if function.roles and not roles & ",
        "    if not function and not roles & ",
        "tests/web/routes/test_methods.py::test_function_requires_its_roles_or_any_user",
    ),
    Mutation(
        "scopes limit no document",
        "fw_actors/documents/permissions.py",
        "    named = scopes.get(doc.doctype)\n",
        "    return\n    named = scopes.get(doc.doctype)\n",
        "tests/fw_actors/documents/test_scopes.py::test_document_beyond_scopes_is_neither_readable_nor_writable",
    ),
    Mutation(
        "scopes limit no list",
        "fw_actors/documents/permissions.py",
        "        yield one_of(table.c.name, scopes[meta.name])\n",
        "        yield sa.true()\n",
        "tests/fw_actors/documents/test_scopes.py::test_list_of_scoped_doctype_holds_permitted_names",
    ),
    Mutation(
        "scopes do not hide Webhooks",
        _RIGHTS,
        "return self.scoped and meta.name in ",
        "return self.scoped and meta.name in () and meta.name in ",
        "tests/fw_actors/documents/test_webhook_scope.py::"
        "test_scoped_requests_are_refused_for_any_name",
    ),
    Mutation(
        "fields above the permission level are shown",
        "fw_actors/documents/rest.py",
        "        if not fw.rights.sees_level(owner, field.permlevel):\n",
        "        if fw.rights.sees_level(owner, field.permlevel) is None:\n",
        "tests/fw_actors/documents/test_rest.py::test_rest_read_omits_fields_above_permlevel",
    ),
    Mutation(
        "fields above the permission level are written",
        "fw_actors/documents/rest.py",
        'return not field.read_only and fw.rights.sees_level(owner, field.permlevel, "write")',
        "return not field.read_only",
        "tests/fw_actors/documents/test_rest.py::"
        "test_rest_save_refuses_changed_field_above_permlevel",
    ),
    Mutation(
        "a user has any number of API keys",
        "fw_actors/access/api_keys.py",
        "MAX_KEYS: Final = 100 ",
        "MAX_KEYS: Final = 10**9 ",
        "tests/access/test_api_keys.py::test_api_keys_are_limited_to_a_hundred",
    ),
    Mutation(
        "an API key may change passwords",
        "fw_actors/access/administration.py",
        "    if caller.session is None:\n",
        "    if caller is None:\n",
        _TEST_OWN + "self_service_is_closed_to_api_keys",
    ),
    Mutation(
        "sign-in attempts leave no line in the log",
        "fw_actors/actors/lockout.py",
        'self._log.info("sign_in.ended", ',
        'self._log.info("ended", ',
        "tests/access/test_try_log.py::test_attempt_log_names_no_user_of_a_failure",
    ),
    Mutation(
        "changes of passwords leave no line in the log",
        "fw_actors/actors/lockout.py",
        '            "password_change.ended",\n',
        '            "ended",\n',
        "tests/access/test_try_log.py::test_attempt_log_has_one_line_for_a_password_change",
    ),
    Mutation(
        "operations on accounts leave no Audit Event",
        "fw_actors/access/administration.py",
        "        self._audit.record(fw, Action.UNLOCK, user)\n",
        "",
        "tests/access/test_user_administration.py::"
        "test_user_administration_leaves_audit_events_of_successes",
    ),
    Mutation(
        "a wrong password hashes in any number of threads",
        "fw_actors/hashing/hasher.py",
        "queue: FairQueue(place.share(queue.value), ",
        "queue: FairQueue(queue.value * 1000, ",
        "tests/fw_actors/hashing/test_slots.py::test_hash_slots_refuse_at_once_if_the_queue_is_full",
    ),
    Mutation(
        "common passwords are accepted",
        "fw_actors/rules/password_policy.py",
        "if password.casefold() in common:",
        "if password is common:",
        "tests/access/test_self_service.py::test_password_policy_may_reject_common_ones_everywhere",
    ),
    Mutation(
        "a new site accepts common passwords",
        "fw_cli/init.py",
        '"refuseCommonPasswords": true',
        '"refuseCommonPasswords": false',
        "tests/fw_cli/test_init.py::test_init_creates_site_without_doctor_warnings",
    ),
    Mutation(
        "unknown names cost a hash of new parameters",
        "fw_actors/hashing/hasher.py",
        "self._verify(stored, password, decoy or self._cost)",
        "self._verify(stored, password, self._cost)",
        "tests/fw_actors/access/test_hash_costs.py::"
        "test_unknown_names_cost_as_the_stored_hashes_in_proportion",
    ),
    Mutation(
        "one client guesses from all networks of a /48",
        "fw_actors/rules/identifiers.py",
        "    return near, far\n",
        "    return None\n",
        "tests/security/test_floods.py::test_attempts_are_counted_by_56_and_48_prefix",
    ),
    Mutation(
        "an idle session stays valid",
        "fw_actors/access/sessions.py",
        "return now - idle_days * MS_PER_DAY if idle_days else -1",
        "return -1",
        "tests/fw_actors/access/test_sessions.py::"
        "test_idle_session_ends_if_the_policy_limits_idleness",
    ),
    Mutation(
        "a scoped manager creates a System Manager",
        "fw_actors/documents/permissions.py",
        "if fw.rights.scoped and _concerns_managers(fw, doc) and not "
        "_changes_own_profile(fw, doc):",
        "if fw is None:",
        "tests/access/test_scoped_manager.py::test_scoped_manager_cannot_use_a_puppet_account",
    ),
    Mutation(
        "a scoped manager reads the records",
        "fw_actors/documents/permissions.py",
        "(*MANAGERS_ONLY, *RECORDS)",
        "MANAGERS_ONLY",
        "tests/access/test_scoped_manager.py::test_scoped_manager_sees_no_records_of_hidden_documents",
    ),
    Mutation(
        "a changed right leaves no Audit Event",
        "fw_actors/ops/audit.py",
        "        audited = AUDITED[doc.doctype]\n        if event",
        "        return\n        audited = AUDITED[doc.doctype]\n        if event",
        "tests/access/test_rights_audit.py::test_audit_has_one_event_for_each_act_of_a_manager",
    ),
    Mutation(
        "refusals beyond the limit are not counted",
        "fw_actors/rules/lockout.py",
        "return counted + 1",
        "return counted",
        "tests/access/test_denied_events.py::test_denied_events_beyond_twenty_are_counted_in_one",
    ),
)
