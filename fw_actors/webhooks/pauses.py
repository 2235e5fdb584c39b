"""Pauses of Webhooks: kept in their rows, so that they hold in all processes (B-300 to B-305).

A claim reads them with the Webhook; nothing else starts an attempt. They are no change of the
document: its form may be open meanwhile, and its versions do not show them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import Webhook
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import Rights
from fw_actors.documents.tables import table_of
from fw_actors.errors import NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules.pacing import NOT_PAUSED, UNTIL_RESUMED, pause_end
from fw_actors.runtime.clock import MS_PER_SECOND, SECONDS_PER_DAY
from fw_actors.store import Statement, Tx

MAX_SECONDS: Final = 366 * SECONDS_PER_DAY

_TABLE: Final = table_of(Webhook).table
_HOOK: Final = _TABLE.c
_NAME: Final[sa.BindParameter[Any]] = sa.bindparam("webhook")
_READ: Final = Statement(
    sa.select(_HOOK.paused_since, _HOOK.paused_until)
    .where(_HOOK.name == _NAME)
    .with_for_update(key_share=True)  # one of two users at once sees what the other has done
)
_WRITE: Final = Statement(
    sa.update(_TABLE)
    .where(_HOOK.name == _NAME)
    .values(paused_since=sa.bindparam("since"), paused_until=sa.bindparam("until"))
)
_PAUSED: Final = Statement(
    sa.select(_HOOK.name, _HOOK.paused_since, _HOOK.paused_until)
    .where(
        _HOOK.enabled == 1,
        _HOOK.paused_since.is_not(None),
        sa.func.coalesce(_HOOK.paused_until, UNTIL_RESUMED) > sa.bindparam("now"),
    )
    .order_by(_HOOK.paused_since, _HOOK.name)
)


class WebhookPause(msgspec.Struct, frozen=True):
    """Whether a Webhook is paused, since when and until when (ms); `until` None: until resumed."""

    webhook: str
    since: int | None = None
    until: int | None = None

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.since is not None


class Pauses:
    """Pauses and resumes Webhooks in the caller's transactions.

    `recorded` is called after each commit that resumes one: deliveries may be due.
    """

    def __init__(self, audit: AuditLog, recorded: Callable[[], None]) -> None:
        self._audit, self._recorded = audit, recorded

    def pause(
        self, fw: Fw, webhook: str, seconds: int | None
    ) -> WebhookPause | PermissionDeniedError:
        """Pause a Webhook, or set another end of its pause; write the Audit Event.

        A missing permission is recorded too, which requires a commit: the error is returned, for
        the caller to raise after the commit.

        Args:
            seconds: how long, 1 to `MAX_SECONDS`; None: until it is resumed.

        Raises: ValidationError; NotFoundError.
        """
        if seconds is not None and not 1 <= seconds <= MAX_SECONDS:
            raise ValidationError(
                f"seconds must be between 1 and {MAX_SECONDS:,}.", field="seconds"
            )
        error = permission_error(fw.rights)
        if error is not None:
            self._audit.deny(fw, webhook)
            return error
        before = _pause_of(fw.tx, webhook)
        until = None if seconds is None else fw.tx.now + seconds * MS_PER_SECOND
        pause = WebhookPause(webhook, before.since or fw.tx.now, until)
        _write(fw.tx, pause)
        detail = {"until": None if until is None else iso(until)}
        self._audit.record(fw, Action.WEBHOOK_PAUSE, webhook, detail)
        return pause

    def resume(self, fw: Fw, webhook: str) -> WebhookPause | PermissionDeniedError:
        """End the pause of a Webhook, if there is one; write the Audit Event.

        A missing permission is returned as by `pause`. Raises: NotFoundError.
        """
        error = permission_error(fw.rights)
        if error is not None:
            self._audit.deny(fw, webhook)
            return error
        before = _pause_of(fw.tx, webhook)
        if before.since is not None:
            self._audit.record(fw, Action.WEBHOOK_RESUME, webhook, {"since": iso(before.since)})
            fw.tx.after_commit(self._recorded)
        _write(fw.tx, WebhookPause(webhook))
        return WebhookPause(webhook)


def paused_webhooks(tx: Tx) -> list[WebhookPause]:
    """Return the enabled Webhooks that are paused, those first that have been for longest."""
    return [WebhookPause(*row) for row in tx.rows(_PAUSED, now=tx.now)]


def permission_error(rights: Rights) -> PermissionDeniedError | None:
    """Return an error unless the user is a System Manager without access scopes."""
    if not rights.manages:
        return PermissionDeniedError("Pausing a Webhook requires the role System Manager.")
    if rights.scoped:
        return PermissionDeniedError("Your access scopes don't include Webhook.")
    return None


def _pause_of(tx: Tx, webhook: str) -> WebhookPause:
    """Return the pause of a Webhook; one that is over is none. Raises: NotFoundError."""
    row = tx.one(_READ, webhook=webhook)
    if row is None:
        raise NotFoundError(f"There is no Webhook {webhook[:140]}.")
    since, until = row
    if pause_end(since, until, tx.now) == NOT_PAUSED:
        return WebhookPause(webhook)
    return WebhookPause(webhook, since, until)


def _write(tx: Tx, pause: WebhookPause) -> None:
    tx.run(_WRITE, webhook=pause.webhook, since=pause.since, until=pause.until)
