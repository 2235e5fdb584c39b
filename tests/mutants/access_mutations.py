"""Faults of sign-in, links, sessions, API keys and access scopes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_ATTEMPTS: Final = "fw_actors/access/attempts.py"
_ACCOUNTS: Final = "fw_actors/access/accounts.py"
_LINKS: Final = "fw_actors/access/links.py"
_SIGN_IN: Final = "fw_actors/access/sign_in.py"
_REPLAY: Final = "fw_actors/webhooks/replay.py"
_KEYS: Final = "fw_actors/access/api_keys.py"

ACCESS: Final = (
    Mutation(
        "the first device of an account is reported by mail",
        "fw_actors/access/known_origins.py",
        "        return bool(seen_by_key)\n",
        "        return True\n",
        "tests/fw_actors/access/test_known_devices.py",
    ),
    Mutation(
        "a breached password is accepted",
        "fw_actors/hashing/breached.py",
        "            if line_hash == cut:\n",
        "            if line_hash == digest + cut:\n",
        "tests/fw_actors/hashing/test_breached.py",
    ),
    Mutation(
        "the Sweeper begins no sweep",
        "fw_actors/actors/sweeper.py",
        "            self.context.after(FIRST_AFTER_SECONDS, Sweep(name))\n",
        "            pass\n",
        "tests/access/test_background_actors.py",
    ),
    Mutation(
        "the Mailer passes no message to the transport",
        "fw_actors/actors/mailer.py",
        "                await self._transport.send(message)\n",
        "                pass\n",
        "tests/access/test_background_actors.py",
    ),
    Mutation(
        "a delivery bypasses its DeliveryActor",
        "fw_actors/actors/dispatcher.py",
        "            if self._actors.tell(leased.delivery, attempt):\n",
        "            import trio\n"
        "            from fw_actors.rules.delivery import OutcomeKind\n"
        "            from fw_actors.webhooks.deliveries import AttemptOutcome\n"
        "            ended = AttemptOutcome(OutcomeKind.DELIVERED, leased.job.created)\n"
        "            batch = self._deliveries.outcome_batch([(leased, ended)])\n"
        "            trio.lowlevel.spawn_system_task(\n"
        "                self._store.write, lambda tx: self._deliveries.settle_all(tx, batch)\n"
        "            )\n"
        "            if batch:\n",
        "tests/access/test_background_actors.py",
    ),
    Mutation(
        "a sign-in bypasses its LockoutActor",
        "fw_actors/actors/gateway.py",
        "return await self._ask(identified.key, AttemptSignIn(attempt, identified))",
        "begun = await self._sign_in.admit(identified)\n"
        '                if not hasattr(begun, "charge"):\n'
        "                    raise TooManyRequestsError(begun.wait)\n"
        "                answer = await self._sign_in.verify(attempt, begun)\n"
        "                if isinstance(answer, FwError):\n"
        "                    raise answer\n"
        "                return answer",
        "tests/access/test_lockout.py",
    ),
    Mutation(
        "a cached lock is used without the store",
        "fw_actors/access/sign_in.py",
        "            lambda tx: attempts.wait_of(tx, key, self._budget), reserved=True\n",
        "            lambda tx: 60.0, reserved=True\n",
        "tests/access/test_lockout.py",
    ),
    Mutation(
        "attempts in flight are not charged",
        _ATTEMPTS,
        ".where(_T.key == _KEY, _T.at > _SINCE)\n        .scalar_subquery()\n    )\n    locked",
        ".where(_T.key == _KEY, _T.at > _SINCE, _T.state == FAILED)\n"
        "        .scalar_subquery()\n    )\n    locked",
    ),
    Mutation(
        "a sign-in attempt reads every counter of the window",
        _ATTEMPTS,
        ".where(_T.key == _KEY, _T.at > _SINCE)\n",
        ".where(sa.func.coalesce(_T.key, _T.key) == _KEY, _T.at > _SINCE)\n",
        "tests/fw_actors/ops/test_plans.py",
    ),
    Mutation(
        "a session is read by the executor of searches",
        "fw_actors/actors/gateway.py",
        "lambda tx: (self._sessions.live(tx, sid), tx.now), reserved=True",
        "lambda tx: (self._sessions.live(tx, sid), tx.now)",
        "tests/security/test_searches.py",
    ),
    Mutation(
        "a charge is made only after the hash",
        _SIGN_IN,
        "wait = attempts.charge(tx, charge, identified.key, self._budget)",
        "wait = None",
    ),
    Mutation(
        "a failure is refunded",
        _SIGN_IN,
        "        locked = attempts.settle_failure(tx, admitted.charge, ",
        "        attempts.release(tx, admitted.charge)\n"
        "        locked = attempts.settle_failure(tx, admitted.charge, ",
    ),
    Mutation(
        "an attempt refused by the full hash queue is not refunded",
        _SIGN_IN,
        "await self._store.write(lambda tx: self._release(tx, admitted))",
        "pass",
        "tests/fw_actors/access/test_sign_in.py",
    ),
    Mutation(
        "a decoy hash has the cost of new hashes instead of stored ones",
        _SIGN_IN,
        "                decoy=admitted.decoy,\n",
        "",
        "tests/fw_actors/access/test_hash_costs.py",
    ),
    Mutation(
        "an IPv6 client has a budget per /64",
        "fw_actors/access/attempts.py",
        "counters.key, self._budget, counters.networks)\n\n    def wait_of",
        "counters.key, self._budget)\n\n    def wait_of",
        "tests/security/test_floods.py",
    ),
    Mutation(
        "the hash queue evicts no flooding address",
        "fw_actors/rules/fair_queue.py",
        "largest = self._requester_to_displace(requester)",
        "largest = None",
        "tests/security/test_floods.py",
    ),
    Mutation(
        "an unlock forgives the attempts in flight",
        _ATTEMPTS,
        "where(_T.key == _KEY, _COUNTS_AS_FAILURE))",
        "where(_T.key == _KEY, sa.or_(_COUNTS_AS_FAILURE, _T.state == IN_FLIGHT)))",
        "tests/fw_actors/access/test_attempts.py",
    ),
    Mutation(
        "the lockout is not checked",
        _ATTEMPTS,
        'sa.bindparam("limit"), ~locked, *further)',
        'sa.bindparam("limit"), *further)',
        "tests/fw_actors/access/test_attempts.py",
    ),
    Mutation(
        "sessions stay valid after a new password",
        "fw_actors/access/passwords.py",
        "ended = sessions.end_all(tx, user, except_session, idle_days=idle_days)",
        "ended = 0",
    ),
    Mutation(
        "links stay valid after a new password",
        "fw_actors/access/passwords.py",
        "    links.end(tx, user)\n    ended = ",
        "    ended = ",
    ),
    Mutation(
        "sessions stay valid after their user is disabled",
        _ACCOUNTS,
        'if event == "on_trash" or not getattr(doc, "enabled", 1):\n            sessions.end_all',
        'if event == "on_trash":\n            sessions.end_all',
        "tests/fw_actors/access/test_accounts.py",
    ),
    Mutation(
        "a new link keeps older links valid",
        _LINKS,
        "        tx.run(_END_OLDER, user=user, kind=kind.value)\n",
        "",
    ),
    Mutation(
        "a link never expires",
        _LINKS,
        '_T.expires > sa.bindparam("now")',
        'sa.bindparam("now") > 0',
        "tests/fw_actors/access/test_recovery.py",
    ),
    Mutation(
        "a session never expires",
        "fw_actors/access/sessions.py",
        '.where(SESSION.c.expires > sa.bindparam("now"), _USERS',
        '.where(sa.bindparam("now") > 0, _USERS',
        "tests/fw_actors/access/test_sessions.py",
    ),
    Mutation(
        "two passwords set in one millisecond count as one",
        "fw_actors/access/passwords.py",
        "max(tx.now, before + 1)",
        "tx.now",
        "tests/fw_actors/access/test_sign_in.py",
    ),
    Mutation(
        "a password change ends the current session",
        "fw_actors/access/passwords.py",
        "except_session=change.session, ",
        'except_session="", ',
    ),
    Mutation(
        "API keys stay valid after their user is disabled",
        _KEYS,
        'elif event == "on_trash" or not doc.__dict__["enabled"]:',
        'elif event == "on_trash":',
    ),
    Mutation(
        "API keys stay valid after a recovery",
        "fw_actors/access/passwords.py",
        "keys = self._keys.end_all(fw, user)",
        "keys = self._keys.end_all(fw, user) if fw.user != user else []",
        "tests/access/test_api_keys.py",
    ),
    Mutation(
        "a user revokes an API key of another user",
        _KEYS,
        'if fw.get_value(DOCTYPE, name, "user") != fw.user:',
        'if fw.get_value(DOCTYPE, name, "user") is None:',
    ),
    Mutation(
        "a new password leaves no Audit Event",
        "fw_actors/access/passwords.py",
        "        self._audit.record(fw, action, user, detail)\n",
        "",
        "tests/access/test_rights_audit.py",
    ),
    Mutation(
        "a change of roles leaves no Audit Event",
        "fw_actors/ops/audit.py",
        '    roles = {"roles"} if old != new else set()\n',
        "    roles = set[str]()\n",
        "tests/access/test_rights_audit.py",
    ),
    Mutation(
        "an API key may create API keys",
        "fw_actors/access/administration.py",
        "    if caller.session is None:\n",
        "    if caller.session is None and caller.api_key is None:\n",
    ),
    Mutation(
        "a scoped user may replay",
        _REPLAY,
        "        error = self._audit.denial(fw, _OPERATION, delivery)\n",
        "        error = None if fw.rights.manages else "
        "self._audit.denial(fw, _OPERATION, delivery)\n",
    ),
    Mutation(
        "a scoped user may create an unscoped System Manager",
        "fw_actors/documents/permissions.py",
        "        if self.scoped:\n            raise PermissionDeniedError(\n",
        "        if False:\n            raise PermissionDeniedError(\n",
        "tests/fw_actors/documents/test_manager_guard.py",
    ),
    Mutation(
        "Versions show documents hidden by scopes",
        "fw_actors/documents/permissions.py",
        "return self.scoped and meta.name in (*MANAGERS_ONLY, *RECORDS)",
        "return self.scoped and meta.name in MANAGERS_ONLY",
        "tests/access/test_scoped_manager.py",
    ),
    Mutation(
        "ignorePermissions lifts the scope of Webhook",
        "fw_actors/documents/query.py",
        "        if self._fw.rights.excludes(self._meta):\n            return []\n        with ",
        "        with ",
    ),
    Mutation(
        "the stored error of a job contains a secret",
        "fw_actors/actors/queue_worker.py",
        "self._scrubber.scrub_known(str(failure))",
        "str(failure)",
        "tests/security/test_log_scan.py",
    ),
    Mutation(
        "the environment still shows secrets that were read",
        "fw_cli/own_environment.py",
        "                    memory.write(bytes(len(value)))\n",
        "",
        "tests/security/test_environment.py",
    ),
    Mutation(
        "a site opens during an unfinished rekeying",
        "fw_actors/ops/stored_secrets.py",
        "    if not rotation.done:\n",
        "    if False:\n",
        "tests/fw_actors/ops/test_rekeying.py",
    ),
    Mutation(
        "a defect of one sign-in ends the others of its identifier",
        "fw_actors/actors/lockout.py",
        "        except Exception as defect:\n            reply.fail(defect)\n",
        "        except ZeroDivisionError as defect:\n            reply.fail(defect)\n",
        "tests/access/test_lockout.py::test_defect_of_an_attempt_ends_no_other_one",
    ),
    Mutation(
        "a password change shows the password in its repr",
        "fw_actors/access/passwords.py",
        "    password: str = field(repr=False)\n",
        "    password: str\n",
        "tests/fw_actors/access/test_sign_in.py::test_values_of_access_hide_secrets_in_repr",
    ),
    Mutation(
        "a full address may go on to send sign-ins without a name",
        "web/routes/access.py",
        "            await self.check_address(exchange)\n            raise BadRequestError",
        "            raise BadRequestError",
        "tests/web/routes/test_access.py::test_sign_in_without_a_name_from_a_full_address_is_429",
    ),
    Mutation(
        "each link from a full address is refused by a write",
        "web/routes/access.py",
        "        await self.check_address(exchange)\n        body: ResetPasswordRequest",
        "        body: ResetPasswordRequest",
        "tests/web/routes/test_recovery.py::test_link_from_a_full_address_is_refused_by_a_read",
    ),
    Mutation(
        "sweeps of Audit Events wait for each other",
        "fw_actors/ops/audit.py",
        ".with_for_update(skip_locked=True)  # two",
        ".with_for_update()  # two",
        "tests/interop/test_overlapping_sweeps.py::"
        "test_sweeps_of_audit_events_at_once_delete_different_ones",
    ),
)
