"""Audit Events: who did what, or was refused it. Source: spec, Audit events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.records import Records
from fw_actors.documents.registry import Registry
from fw_actors.rules.denied_limit import RECORDED_PER_MINUTE, minute_of, more_refused
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx

DOCTYPE: Final = "Audit Event"
TARGET_CHARACTERS: Final = 140
MORE: Final = "more"
"""The key, in the detail of a Denied event, of how many refusals it counts."""


class Action(StrEnum):
    """What an Audit Event tells of: `<subject>.<verb>`, in lower case with underscores.

    The subject is a DocType, or `console`; the verbs create, change, rename and delete are those
    of a document, any other is an operation. `Denied`, the spec's name, is the one exception.
    """

    REPLAY = "webhook.replay"
    DENIED = "Denied"
    CONSOLE_PAUSE = "console.pause"
    CONSOLE_RESUME = "console.resume"
    CONSOLE_RESTART = "console.restart"
    CONSOLE_TRACE = "console.trace"
    CONSOLE_UNLOCK = "console.unlock"
    INVITE = "user.invite"
    RESEND_INVITE = "user.resend_invite"
    SEND_RESET = "user.send_password_reset"
    REVOKE_SESSIONS = "user.revoke_sessions"
    REVOKE_KEYS = "user.revoke_keys"
    UNLOCK = "user.unlock"
    SET_PASSWORD = "user.set_password"
    CHANGE_PASSWORD = "user.change_password"
    RESET_PASSWORD = "user.reset_password"
    ACCEPT_INVITE = "user.accept_invite"
    USER_CREATE = "user.create"
    USER_CHANGE = "user.change"
    USER_RENAME = "user.rename"
    USER_DELETE = "user.delete"
    ROLE_CREATE = "role.create"
    ROLE_RENAME = "role.rename"
    ROLE_DELETE = "role.delete"
    SCOPE_CREATE = "user_permission.create"
    SCOPE_CHANGE = "user_permission.change"
    SCOPE_RENAME = "user_permission.rename"
    SCOPE_DELETE = "user_permission.delete"
    KEY_CREATE = "api_key.create"
    KEY_CHANGE = "api_key.change"
    KEY_DELETE = "api_key.delete"
    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_CHANGE = "webhook.change"
    WEBHOOK_RENAME = "webhook.rename"
    WEBHOOK_DELETE = "webhook.delete"


class AuditLog:
    """Writes Audit Events in the transaction of what they tell of.

    One that tells of a refusal is written by a transaction of its own, since that of the refusal
    rolls back.
    """

    def __init__(self, registry: Registry, entropy: Entropy) -> None:
        table = registry.tables[DOCTYPE].table
        c = table.c
        self._records = Records(registry, DOCTYPE, entropy)
        self._suppressed: set[Tx] = set()
        # As many as a minute can have; the index over these three columns finds them.
        self.denied = Statement(
            sa.select(c.name, c.detail)
            .where(c.action == Action.DENIED.value, c.actor == sa.bindparam("actor"))
            .where(c.creation >= sa.bindparam("begin"), c.creation < sa.bindparam("end"))
            .limit(RECORDED_PER_MINUTE + 1)
        )
        self._count = Statement(
            sa.update(table)
            .where(c.name == sa.bindparam("event"))
            .values(detail=sa.bindparam("content"), modified=sa.bindparam("now"))
        )

    def record(
        self, fw: Fw, action: Action, target: str, detail: Mapping[str, object] | None = None
    ) -> None:
        """Write one event, with the handle's user as actor and its request id.

        `target` is kept as it was asked for, cut to 140 characters; `detail` is JSON, and holds
        neither payload nor secret. Inside `suppressed` nothing is written.
        """
        self.record_by(fw.tx, fw.user, fw.request_id, action, target, detail)

    def record_by(
        self,
        tx: Tx,
        actor: str,
        request_id: str,
        action: Action,
        target: str,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Write one event for an actor who has no handle; otherwise as `record`."""
        if tx not in self._suppressed:
            self._add(tx, actor, request_id, action, target, detail)

    @contextmanager
    def suppressed(self, tx: Tx) -> Iterator[None]:
        """Write no event for what happens inside: it is a part of an act that has its own event.

        Refusals are recorded all the same. Of nested uses the outermost one counts.
        """
        if tx in self._suppressed:
            yield
            return
        self._suppressed.add(tx)
        try:
            yield
        finally:
            self._suppressed.discard(tx)

    def deny(self, fw: Fw, target: str) -> None:
        """Record that the handle's user was refused an act on `target`: no detail (spec).

        Beyond 20 in a minute of the clock one event without a target counts the others in its
        detail: `{"more": n}`. What is stored decides, so that restarts and other processes change
        nothing. The cost is the same for each: one look-up, one row written.
        """
        tx, actor = fw.tx, fw.user
        tx.lock(f"fw.denied.{actor}")
        begin, end = minute_of(tx.now)
        found = tx.rows(self.denied, actor=actor, begin=begin, end=end)
        counting = next((row for row in found if row[1] is not None), None)
        before = None if counting is None else int(json.loads(counting[1])[MORE])
        more = more_refused(len(found), before)
        if more is None:
            self._add(tx, actor, fw.request_id, Action.DENIED, target, None)
        elif counting is None:
            self._add(tx, actor, "", Action.DENIED, None, {MORE: more})
        else:
            tx.run(self._count, event=counting[0], content=json.dumps({MORE: more}), now=tx.now)

    def _add(
        self,
        tx: Tx,
        actor: str,
        request_id: str,
        action: Action,
        target: str | None,
        detail: Mapping[str, Any] | None,
    ) -> None:
        self._records.add(
            tx,
            actor,
            action=action.value,
            target=None if target is None else target[:TARGET_CHARACTERS],
            detail=None if detail is None else dict(detail),
            actor=actor,
            request_id=request_id or None,
        )
