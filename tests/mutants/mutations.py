"""The faults: one line of the service each, and who has to find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SIMULATION: Final = "simulation"


@dataclass(frozen=True)
class Mutation:
    """Replaces `old`, which stands in `file` once, by `new`.

    `found_by`: the simulation, or the tests of a path.
    """

    name: str
    file: str
    old: str
    new: str
    found_by: str = SIMULATION


_ATTEMPTS: Final = "fw_actors/services/attempts.py"
_JOBS: Final = "fw_actors/store/job_statements.py"
_ACCOUNTS: Final = "fw_actors/services/accounts.py"
_LINKS: Final = "fw_actors/services/links.py"
_OUTCOME: Final = "fw_actors/rules/delivery_outcome.py"
_EVENTS: Final = "fw_actors/services/events.py"
_SIGN_IN: Final = "fw_actors/services/sign_in.py"
_REPLAY: Final = "fw_actors/services/replay.py"
_KEYS: Final = "fw_actors/services/api_keys.py"
_RENAMES: Final = "fw_actors/services/delivery_renames.py"

MUTATIONS: Final = (
    Mutation(
        "tries in flight are not charged: parallel guesses are all hashed",
        _ATTEMPTS,
        ".where(_T.key == _KEY, _T.at > _SINCE)\n        .scalar_subquery()\n    )\n    locked",
        ".where(_T.key == _KEY, _T.at > _SINCE, _T.state == FAILED)\n"
        "        .scalar_subquery()\n    )\n    locked",
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
        "        attempts.take_back(tx, admitted.charge)\n"
        "        locked = attempts.settle_failure(tx, admitted.charge, ",
    ),
    Mutation(
        "a refused try for want of a hash place is not refunded",
        _SIGN_IN,
        "await self._store.write(lambda tx: self._take_back(tx, admitted))",
        "pass",
        "tests/fw_actors/services/test_sign_in.py",
    ),
    Mutation(
        "the lock is not asked",
        _ATTEMPTS,
        'sa.bindparam("limit"), ~locked)',
        'sa.bindparam("limit"))',
        "tests/fw_actors/services/test_attempts.py",
    ),
    Mutation(
        "an outcome is not fenced by its lease",
        _JOBS,
        'JOB.c.lease == bindparam("token"))',
        'bindparam("token").is_not(None))',
    ),
    Mutation(
        "a lease has no end: the jobs of a dead worker are forgotten",
        _JOBS,
        'next_at=bindparam("lease_end")',
        "next_at=null()",
    ),
    Mutation(
        "a job that is given back is due no more",
        _JOBS,
        'values(next_at=bindparam("at"), lease=null())',
        "values(next_at=null(), lease=null())",
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
        "one attempt more than max_attempts",
        _OUTCOME,
        "attempt >= max_attempts",
        "attempt > max_attempts",
    ),
    Mutation(
        "the wait is not doubled", "fw_actors/rules/backoff.py", "base * 2.0**doublings", "base"
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
        "jobs.enqueue(tx, queue=QUEUE, partition=subscription.webhook, subject=delivery)",
        "pass",
    ),
    Mutation(
        "an event outlives the refusal that it was part of",
        "fw_actors/documents/handle.py",
        "        with self._fw.tx.savepoint():\n            return self._publisher.emit(",
        "        if True:\n            return self._publisher.emit(",
        "tests/fw_actors/services/test_events.py",
    ),
    Mutation(
        "the body is made anew for each attempt",
        "fw_actors/services/deliveries.py",
        "row[0].encode()",
        'row[0].replace(":", ": ").encode()',
    ),
    Mutation(
        "the time of an attempt is that of its lease",
        "fw_actors/actors/delivery.py",
        "signed_headers(key, due.delivery, self._clock.now(), due.payload)",
        "signed_headers(key, due.delivery, due.lease_end, due.payload)",
    ),
    Mutation(
        "an event shows secrets",
        _EVENTS,
        "elif how is Treatment.BLANKED:",
        "elif how is None:",
        "tests/fw_actors/services/test_events.py",
    ),
    Mutation(
        "an event shows fields above permission level 0",
        _EVENTS,
        "                del shown[name]\n",
        "                pass\n",
    ),
    Mutation(
        "sessions outlive a new password",
        _ACCOUNTS,
        "sessions.end_all(tx, user, spare))",
        "0)",
    ),
    Mutation(
        "links outlive a new password",
        _ACCOUNTS,
        "    links.end(tx, user)\n    return PasswordSet",
        "    return PasswordSet",
    ),
    Mutation(
        "sessions outlive being disabled",
        _ACCOUNTS,
        'if event == "on_trash" or not getattr(doc, "enabled", 1):\n            sessions.end_all',
        'if event == "on_trash":\n            sessions.end_all',
        "tests/fw_actors/services/test_accounts.py",
    ),
    Mutation(
        "a new link leaves the old ones",
        _LINKS,
        "        tx.run(_END_OLDER, user=user, kind=kind.value)\n",
        "",
    ),
    Mutation(
        "a link never expires",
        _LINKS,
        '_T.expires > sa.bindparam("now")',
        'sa.bindparam("now") > 0',
        "tests/fw_actors/services/test_recovery.py",
    ),
    Mutation(
        "a session never expires",
        "fw_actors/services/sessions.py",
        '.where(SESSION.c.expires > sa.bindparam("now"), users',
        '.where(sa.bindparam("now") > 0, users',
    ),
    Mutation(
        "a job's end is not part of what it writes",
        "fw_actors/actors/app_jobs.py",
        "if not jobs.finish(tx, job.id, job.lease):",
        "if tx is None:",
    ),
    Mutation(
        "places are not given back",
        "fw_actors/actors/outcomes.py",
        "                self._dispatcher.tell(Settled(len(group)))\n",
        "                pass\n",
    ),
    Mutation(
        "only a nudge makes the Dispatcher look",
        "fw_actors/actors/dispatcher.py",
        "            self._timer = self.context.after(seconds, Nudge())\n",
        "            pass\n",
    ),
    Mutation(
        "a time that a wrong clock gave is waited for",
        "fw_actors/actors/recall.py",
        "if trio.current_time() < self._next and not went_back:",
        "if self._far_ms:",
    ),
    Mutation(
        "the sweep takes what is still open",
        "fw_actors/services/sweeps.py",
        "table.c.status.in_(_FINAL), ",
        "",
        "tests/fw_actors/services/test_sweeps.py",
    ),
    Mutation(
        "a replay goes on with the attempts of before",
        _REPLAY,
        "                attempts=0,\n",
        "",
    ),
    Mutation(
        "a delivery that is under way is replayed",
        _REPLAY,
        "if previous not in FINAL or not tx.run(",
        "if not tx.run(",
    ),
    Mutation(
        "a replay that was denied leaves no Audit Event",
        _REPLAY,
        "            self._audit.record(fw, Action.DENIED, delivery)\n",
        "",
    ),
    Mutation(
        "a replay keeps the job of before",
        _REPLAY,
        "        tx.run(_FORGET_JOB, delivery=delivery)",
        "        pass",
        "tests/fw_actors/services/test_replay.py",
    ),
    Mutation(
        "who has access scopes may replay",
        _REPLAY,
        "    if rights.scoped:\n",
        "    if False:\n",
    ),
    Mutation(
        "ignorePermissions lifts the scope of Webhook",
        "fw_actors/documents/query.py",
        "        if self._fw.rights.shut_out(self._meta):\n            return []\n",
        "",
    ),
    Mutation(
        "API keys outlive being disabled",
        _KEYS,
        'event == "on_trash" or not doc.__dict__["enabled"]):',
        'event == "on_trash"):',
    ),
    Mutation(
        "another user's API key is ended",
        _KEYS,
        'if fw.get_value(DOCTYPE, name, "user") != fw.user:',
        'if fw.get_value(DOCTYPE, name, "user") is None:',
    ),
    Mutation(
        "an API key makes API keys",
        "fw_actors/services/self_service.py",
        "    if caller.session is None:\n",
        "    if caller.session is None and caller.api_key is None:\n",
    ),
    Mutation(
        "deliveries do not follow a renamed document",
        _RENAMES,
        "        fw.tx.run(self._move_references, doctype=doctype, old=old, new=new)\n",
        "",
    ),
    Mutation(
        "jobs do not follow a renamed Webhook",
        _RENAMES,
        "            fw.tx.run(_MOVE_JOBS, old=old, new=new)\n",
        "",
    ),
    Mutation(
        "two passwords of one millisecond are one",
        _ACCOUNTS,
        "max(tx.now, before + 1)",
        "tx.now",
        "tests/fw_actors/services/test_sign_in.py",
    ),
    Mutation(
        "two versions of one millisecond are one",
        "fw_actors/documents/lifecycle.py",
        "max(fw.tx.now, before + 1)",
        "fw.tx.now",
        "tests/fw_actors/documents/test_lifecycle.py",
    ),
    Mutation(
        "the own session ends with the old password",
        "fw_actors/services/password_change.py",
        "owner=account.user, spare=change.session)",
        "owner=account.user)",
    ),
)
