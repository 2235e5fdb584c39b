"""Notices of failing receivers, and of the end of a failure.

A notice is about one Webhook, which is also disabled if the site is configured so. The Sweeper
takes a step each minute (B-340 to B-346). A step is one action for one Webhook in one transaction:
it first marks the action in the row, so that only one of several processes takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.core import HasRole, User, UserPermission, Webhook
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import Observer
from fw_actors.documents.permissions import ADMINISTRATOR, SYSTEM_MANAGER
from fw_actors.documents.tables import table_of
from fw_actors.errors import FwError
from fw_actors.mail import FailingWebhook, Notice, Template
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.ops.mail_queue import MailQueue
from fw_actors.rules.delivery import error_without_location
from fw_actors.rules.receivers import (
    ENDED_EVENT,
    FAILING_EVENT,
    FAILURES,
    NoticePolicy,
    OutageAction,
    ReceiverOutage,
    outage_action,
)
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import WEBHOOK_HEALTH
from fw_actors.webhooks.events import CustomEvents
from fw_actors.webhooks.health import public_label

_W: Final = table_of(Webhook).table.c
_HEALTH: Final = WEBHOOK_HEALTH.c

MAX_RECIPIENTS: Final = 50
"""The maximum number of mails about one action. The owner is first; the managers follow by name."""
_REASON_CHARACTERS: Final = 300

FwFactory = Callable[[Tx], Fw]
"""Returns a handle for Administrator."""
OnOutageAction = Callable[[OutageAction, str], None]
"""Called on trio's thread after the commit of an action, with the Webhook's name."""

_WEBHOOK: Final[sa.BindParameter[Any]] = sa.bindparam("webhook_is")
_SINCE: Final[sa.BindParameter[Any]] = sa.bindparam("since_is", type_=sa.BigInteger())
_ENABLED: Final = sa.func.coalesce(_W.enabled, 0)
_COLUMNS: Final = (
    _HEALTH.webhook, _W.title, _W.url, _W.owner, _W.creation,
    _HEALTH.last_error, _HEALTH.last_success, _ENABLED, _HEALTH.failures, _HEALTH.failing_since,
    _HEALTH.last_failure, _HEALTH.noticed, _HEALTH.notice_open, _HEALTH.disabled,
)  # fmt: skip
_FAILING: Final = sa.and_(_ENABLED == 1, _HEALTH.failures >= FAILURES)
_OUTAGES: Final = sa.select(*_COLUMNS).select_from(
    WEBHOOK_HEALTH.outerjoin(_W.name.table, _W.name == _HEALTH.webhook)
)
_NOT_ENDED: Final = sa.and_(
    _HEALTH.notice_open == 1,
    sa.or_(_ENABLED == 0, _HEALTH.noticed.is_distinct_from(_HEALTH.failing_since)),
)
_TO_NOTIFY: Final = sa.and_(
    sa.bindparam("notices", type_=sa.Integer()) > 0,
    _FAILING,
    _HEALTH.failing_since <= sa.bindparam("noticed_from", type_=sa.BigInteger()),
    _HEALTH.noticed.is_distinct_from(_HEALTH.failing_since),
)
_TO_DISABLE: Final = sa.and_(
    sa.bindparam("disables", type_=sa.Integer()) > 0,
    _FAILING,
    _HEALTH.last_failure - _HEALTH.failing_since
    >= sa.bindparam("disabled_after", type_=sa.BigInteger()),
    _HEALTH.disabled.is_distinct_from(_HEALTH.failing_since),
)
_NEXT: Final = Statement(
    _OUTAGES.where(sa.or_(_NOT_ENDED, _TO_NOTIFY, _TO_DISABLE)).order_by(_HEALTH.webhook).limit(1)
)
_OPEN: Final = Statement(_OUTAGES.where(_HEALTH.webhook == _WEBHOOK, _HEALTH.notice_open == 1))


def _mark(condition: sa.ColumnElement[bool], **values: object) -> Statement:
    """Return the statement that claims an action for this process; it changes the row only once."""
    return Statement(
        sa.update(WEBHOOK_HEALTH).where(_HEALTH.webhook == _WEBHOOK, condition).values(**values)
    )


_MARKS: Final[Mapping[OutageAction, Statement]] = {
    OutageAction.END: _mark(
        sa.and_(_HEALTH.notice_open == 1, _HEALTH.noticed == _SINCE), notice_open=0
    ),
    OutageAction.NOTICE: _mark(
        sa.and_(_HEALTH.failing_since == _SINCE, _HEALTH.noticed.is_distinct_from(_SINCE)),
        noticed=_SINCE, notice_open=1,
    ),
    OutageAction.DISABLE: _mark(
        sa.and_(_HEALTH.failing_since == _SINCE, _HEALTH.disabled.is_distinct_from(_SINCE)),
        disabled=_SINCE,
    ),
}  # fmt: skip
_RESET_FAILURES: Final = Statement(
    sa.update(WEBHOOK_HEALTH)
    .where(_HEALTH.webhook == _WEBHOOK)
    .values(failures=0, failing_since=None)
)


class _OutageRow:
    """A row of `_OUTAGES`."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.name, title, url, owner, created, error, self.last_success, *state = row
        self.label = public_label(title, url)
        self.owner, self.created = owner or "", created
        self.error = error_without_location(error or "")
        enabled, failures, since, last, noticed, notice_open, disabled = state
        self.outage = ReceiverOutage(
            bool(enabled), failures, since, last, noticed, bool(notice_open), disabled
        )

    def event_data(self, since: int, **further: object) -> dict[str, object]:
        """Return `data` of the events, without the path of the URL, which may contain a token."""
        return {"webhook": self.name, "title": self.label, "since": iso(since), **further}


class ReceiverNotices:
    """Sends notices about failing Webhooks and disables them, one action in each step."""

    def __init__(
        self,
        policy: NoticePolicy,
        events: CustomEvents,
        mail_queue: MailQueue,
        audit: AuditLog,
    ) -> None:
        self._policy, self._events = policy, events
        self._mail_queue, self._audit = mail_queue, audit
        self.actions = {action.value: 0 for action in OutageAction}
        """The number of actions of this process by kind, for `/metrics`."""

    def step(self, tx: Tx, handle: FwFactory, on_action: OnOutageAction) -> int:
        """Take the action that is due for one Webhook; return 1, or 0 if none is due."""
        row = tx.one(
            _NEXT,
            notices=int(self._policy.notice_hours > 0),
            noticed_from=tx.now - self._policy.notice_ms,
            disables=int(self._policy.disable_days > 0),
            disabled_after=self._policy.disable_ms,
        )
        if row is None:
            return 0
        outage_row = _OutageRow(row)
        action = outage_action(outage_row.outage, tx.now, self._policy)
        assert action is not None  # the statement applies the same rule
        carry_out = {
            OutageAction.END: self._end,
            OutageAction.NOTICE: self._notify,
            OutageAction.DISABLE: self._disable,
        }[action]
        if carry_out(handle(tx), outage_row):
            tx.after_commit(lambda: on_action(action, outage_row.name))
        return 1

    def end_of_deleted(self, fw: Fw, webhook: str) -> None:
        """Send the notice of the end if the failing Webhook is being deleted."""
        row = fw.tx.one(_OPEN, webhook_is=webhook)
        if row is not None:
            self._end(fw, _OutageRow(row), reason="deleted")

    def _end(self, fw: Fw, outage_row: _OutageRow, reason: str = "") -> bool:
        since = outage_row.outage.noticed
        assert since is not None
        if not self._take(fw.tx, OutageAction.END, outage_row, since):
            return False
        delivered = outage_row.last_success is not None and outage_row.last_success >= since
        default_reason = "delivered" if delivered else "enabled"
        reason = reason or (default_reason if outage_row.outage.enabled else "disabled")
        data = outage_row.event_data(since, ended=iso(fw.tx.now), reason=reason)
        self._events.emit_service_event(fw, ENDED_EVENT, data, excluding=outage_row.name)
        self._record(fw, Action.NOTICE_END, outage_row, {"since": iso(since), "reason": reason})
        return True

    def _notify(self, fw: Fw, outage_row: _OutageRow) -> bool:
        since, failures = outage_row.outage.since, outage_row.outage.failures
        assert since is not None
        if not self._take(fw.tx, OutageAction.NOTICE, outage_row, since):
            return False
        data = outage_row.event_data(since, failures=failures, error=outage_row.error)
        # Not for the Webhook itself, whose receiver is failing.
        self._events.emit_service_event(fw, FAILING_EVENT, data, excluding=outage_row.name)
        self._mail(fw, Template.WEBHOOK_FAILING, outage_row, since)
        self._record(fw, Action.NOTICE, outage_row, {"since": iso(since), "failures": failures})
        return True

    def _disable(self, fw: Fw, outage_row: _OutageRow) -> bool:
        since, failures = outage_row.outage.since, outage_row.outage.failures
        assert since is not None
        # The document first, then its health: in the order in which a deletion locks them.
        doc, stored = fw.documents.load_for_save(fw, "Webhook", outage_row.name)
        if not stored.__dict__["enabled"] or not self._take(
            fw.tx, OutageAction.DISABLE, outage_row, since
        ):
            return False
        detail: dict[str, object] = {"since": iso(since), "failures": failures}
        reason = (
            f"Disabled by ops.disableAfterDays: {failures} attempts in a row have failed since "
            f"{iso(since)}. {outage_row.error}"
        )
        try:
            with fw.tx.savepoint(), self._audit.suppressed(fw.tx):
                doc.__dict__.update(enabled=0, disabled_reason=reason[:_REASON_CHARACTERS])
                fw.documents.save(fw, doc, ignore_permissions=False, stored=stored)
        except FwError as refusal:  # raw SQL has made the document invalid
            self._record(
                fw, Action.WEBHOOK_DISABLE, outage_row, {**detail, "refused": refusal.message}
            )
            return False
        self._mail(fw, Template.WEBHOOK_DISABLED, outage_row, since)
        self._record(fw, Action.WEBHOOK_DISABLE, outage_row, detail)
        return True

    def _take(self, tx: Tx, action: OutageAction, outage_row: _OutageRow, since: int) -> bool:
        """Mark an action as done; return False if another process has done it."""
        if not tx.run(_MARKS[action], webhook_is=outage_row.name, since_is=since):
            return False
        tx.after_commit(lambda: self._count(action))
        return True

    def _count(self, action: OutageAction) -> None:
        self.actions[action.value] += 1

    def _mail(self, fw: Fw, template: Template, outage_row: _OutageRow, since: int) -> None:
        failing_webhook = FailingWebhook(
            outage_row.label, outage_row.name, since, outage_row.outage.failures, outage_row.error
        )
        for (user,) in fw.tx.rows(_RECIPIENTS, owner=outage_row.owner, created=outage_row.created):
            notice = Notice(failing_webhook=failing_webhook)
            self._mail_queue.to_user(fw.tx, template, user, owner=ADMINISTRATOR, notice=notice)

    def _record(
        self, fw: Fw, action: Action, outage_row: _OutageRow, detail: Mapping[str, object]
    ) -> None:
        self._audit.record(fw, action, outage_row.name, detail)


_U: Final = table_of(User).table.c
_R: Final = table_of(HasRole).table.c
_S: Final = table_of(UserPermission).table.c
_MANAGES: Final = sa.and_(_R.parent == _U.name, _R.parenttype == "User", _R.role == SYSTEM_MANAGER)
_OWNS: Final = sa.and_(
    _U.name == sa.bindparam("owner"),
    # Not a later account of that name, after a deletion or a rename.
    _U.creation <= sa.bindparam("created", type_=sa.BigInteger()),
)
# The owner and the System Managers. Users with scopes must not learn of any Webhook (B-2).
_RECIPIENTS: Final = Statement(
    sa.select(_U.name)
    .where(
        _U.enabled == 1,
        sa.or_(_OWNS, sa.select(_R.name).where(_MANAGES).exists()),
        ~sa.select(_S.name).where(_S.user == _U.name).exists(),
    )
    .order_by(sa.case((_OWNS, 0), else_=1), _U.name)
    .limit(MAX_RECIPIENTS)
)
_CREATED: Final = sa.select(_U.creation).where(_U.name == sa.bindparam("new"))
_RENAME_OWNER: Final = Statement(
    sa.update(_W.name.table)
    .where(
        _W.owner == sa.bindparam("old"),
        _W.creation >= _CREATED.scalar_subquery(),  # not of an earlier account of that name
    )
    .values(owner=sa.bindparam("new"))
)


class WebhookOwners(Observer):
    """Updates the owner of the Webhooks of a renamed account, which gets the mails about them."""

    doctypes = frozenset({"User"})

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Write the new name of the account; a Webhook's `modified` is left."""
        fw.tx.run(_RENAME_OWNER, old=old, new=new)


class OutageEnds(Observer):
    """Resets the state of a Webhook that is enabled again, and sends the notice of the end if one
    is deleted."""

    doctypes = frozenset({"Webhook"})

    def __init__(self, notices: ReceiverNotices) -> None:
        self._notices = notices

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Clear the reason for which a Webhook was disabled, once it is enabled."""
        values = doc.__dict__
        if event != "on_trash" and values["enabled"]:
            values["disabled_reason"] = None

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Reset the failures, so that the next one begins a new count."""
        before = doc._before
        if before is not None and doc.__dict__["enabled"] and not before.__dict__["enabled"]:
            fw.tx.run(_RESET_FAILURES, webhook_is=str(doc.name))

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Send the notice of the end before the row is deleted."""
        self._notices.end_of_deleted(fw, str(doc.name))
