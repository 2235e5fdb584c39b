"""The mail queue: messages are enqueued in the writer's transaction and composed when sent.

A message and its job are written in the request's transaction (O-51). A job contains user and
template; the link is created when first needed and stored nowhere (O-52). It keeps the trace of
its cause (B-429).

Plain functions inside the Mailer's transactions. Mail goes to the stored address, never to a typed
one (A-217); each attempt creates a link, which ends the previous one (O-62).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.access.accounts import has_password
from fw_actors.access.links import LinkKind, Links
from fw_actors.documents.core import EmailDelivery, Webhook
from fw_actors.documents.naming import random_name
from fw_actors.documents.permissions import SYSTEM_MANAGER, USER_PERMISSION
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import RowInserter
from fw_actors.documents.tables import table_of
from fw_actors.mail import (
    LogTransport,
    MailMessage,
    MailRefused,
    Notice,
    Template,
    TemplateValues,
    render,
    subject_of,
)
from fw_actors.mail.message import UnsafeHeaderError
from fw_actors.rules.delivery import DeliveryStatus, Transition
from fw_actors.runtime import Entropy
from fw_actors.store import LeasedJob, Statement, Tx, jobs
from fw_actors.store.schema import IDENTIFIER
from fw_actors.store.statement import STATEMENT_CACHE_SIZE
from fw_actors.tracing import Tracer, encode_context

QUEUE: Final = "mail"
_WRITTEN: Final = ("recipient", "template", "subject", "status", "attempts", "sent")


_ACCOUNT: Final = Statement(
    sa.select(IDENTIFIER.c.user).where(IDENTIFIER.c.key == sa.bindparam("key"))
)


@lru_cache(STATEMENT_CACHE_SIZE)
def _address(users: sa.Table) -> Statement:
    user: sa.BindParameter[Any] = sa.bindparam("user")
    return Statement(sa.select(users.c.email).where(users.c.name == user))


class MailQueue:
    """Enqueues messages. `owner` is the user whose request causes the message."""

    def __init__(
        self,
        registry: Registry,
        entropy: Entropy,
        site: str,
        queued: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        """`site` is the site's name.

        `queued` is called on trio's thread after each commit that contains a message. With a
        `tracer` messages keep the trace context in which they were queued.
        """
        self._entropy, self._site, self._queued, self._tracer = entropy, site, queued, tracer
        self._address = _address(registry.tables["User"].table)
        self._deliveries = RowInserter(table_of(EmailDelivery).table, _WRITTEN)

    def to_user(
        self, tx: Tx, template: Template, user: str, *, owner: str, notice: Notice | None = None
    ) -> None:
        """Queue a message to an account's stored address; `notice` holds additional facts."""
        delivery = self._record(tx, template, self._stored_address(tx, user), owner)
        arguments = "" if notice is None else msgspec.json.encode(notice).decode()
        self._enqueue(tx, delivery, template, user=user, arguments=arguments)

    def to_identifier(self, tx: Tx, template: Template, identifier: str, *, owner: str) -> None:
        """Queue a message to the account of a canonical identifier, if there is one.

        The same two rows are written in either case, of which the Mailer deletes those without an
        account. The identifier is not stored: users type passwords into this field, too.
        """
        delivery = self._record(tx, template, None, owner)
        self._enqueue(tx, delivery, template, user=tx.scalar(_ACCOUNT, key=identifier) or "")

    def by_hand(
        self, tx: Tx, log: LogTransport, template: Template, user: str, link: str, *, owner: str
    ) -> None:
        """Record a message whose link the request returns itself, without a job (A-196).

        The log line follows the commit."""
        recipient = self._stored_address(tx, user)
        self._record(tx, template, recipient, owner, sent=tx.now)
        tx.after_commit(lambda: log.write(recipient, template.value, link))

    def _stored_address(self, tx: Tx, user: str) -> str:
        return str(tx.scalar(self._address, user=user) or "")

    def _record(
        self, tx: Tx, template: Template, recipient: str | None, owner: str, sent: int | None = None
    ) -> str:
        name = random_name(self._entropy)
        self._deliveries.insert(
            tx,
            name,
            owner,
            recipient=recipient,
            template=template.value,
            subject=subject_of(template, self._site),
            status=DeliveryStatus.QUEUED.value if sent is None else DeliveryStatus.SENT.value,
            attempts=0 if sent is None else 1,
            sent=sent,
        )
        return name

    def _enqueue(
        self, tx: Tx, delivery: str, template: Template, *, user: str = "", arguments: str = ""
    ) -> None:
        job: jobs.JobFields = {
            "queue": QUEUE,
            "subject": delivery,
            "function": template.value,
            "arguments": arguments,
            "user": user,
        }
        if self._tracer is not None:
            job["trace_context"] = encode_context(self._tracer.context_of(tx))
        jobs.enqueue(tx, **job)
        tx.after_commit(self._queued, once=True)


_OUTCOME: Final = ("status", "attempts", "error", "sent", "modified")
_KINDS: Final = {Template.RECOVERY: LinkKind.RECOVERY, Template.INVITATION: LinkKind.INVITATION}
_ABOUT_WEBHOOKS: Final = frozenset({Template.WEBHOOK_FAILING, Template.WEBHOOK_DISABLED})


@dataclass(frozen=True, slots=True)
class _Recipient:
    user: str
    email: str
    full_name: str
    has_password: bool

    def gets(self, template: Template) -> bool:
        """Return whether a template applies: invitations only without a password, others only with
        one."""
        return not self.has_password if template is Template.INVITATION else self.has_password


class _MailStatements(NamedTuple):
    by_user: Statement
    hears_of_webhooks: Statement
    recipient: Statement
    address: Statement
    delete: Statement
    settle: Statement


@lru_cache(STATEMENT_CACHE_SIZE)
def _statements(
    users: sa.Table, roles: sa.Table, scopes: sa.Table, deliveries: sa.Table
) -> _MailStatements:
    u = users.c
    d = deliveries.c
    key: sa.BindParameter[Any] = sa.bindparam("key")
    # Locked: a link must not go to an address that is just being replaced.
    account = sa.select(u.name, u.email, u.fullName).with_for_update(key_share=True, of=users)
    by_user = Statement(account.where(u.name == key, u.enabled == 1))
    about_webhooks = _may_hear_of_webhooks(users, roles, scopes)
    hears_of_webhooks = Statement(sa.select(u.name).where(u.name == key, about_webhooks))
    recipient = Statement(sa.select(d.recipient).where(d.name == key))
    address = Statement(
        sa.update(deliveries).where(d.name == key).values(recipient=sa.bindparam("email"))
    )
    delete = Statement(sa.delete(deliveries).where(d.name == key))
    outcome: dict[str, Any] = {n: sa.bindparam(n) for n in _OUTCOME}
    settle = Statement(sa.update(deliveries).where(d.name == key).values(outcome))
    return _MailStatements(by_user, hears_of_webhooks, recipient, address, delete, settle)


def _may_hear_of_webhooks(
    users: sa.Table, roles: sa.Table, scopes: sa.Table
) -> sa.ColumnElement[bool]:
    """Return the condition for accounts that get mails about Webhooks (B-340): System Managers and
    owners of Webhooks, without access scopes."""
    name, r, webhooks = users.c.name, roles.c, table_of(Webhook).table.c
    manages = sa.exists().where(r.parent == name, r.parenttype == "User", r.role == SYSTEM_MANAGER)
    owns = sa.exists().where(webhooks.owner == name)
    return sa.and_(~sa.exists().where(scopes.c.user == name), sa.or_(manages, owns))


class MailComposer:
    """Composes messages from their jobs and records their results."""

    def __init__(self, registry: Registry, links: Links, site: str) -> None:
        """`site` is the site's name."""
        self._links, self._site = links, site
        names = ("User", "Has Role", USER_PERMISSION, "Email Delivery")
        self._sql = _statements(*(registry.tables[name].table for name in names))

    def prepare(self, tx: Tx, job: LeasedJob) -> MailMessage | None:
        """Return the message to send, with its link; None if it has no recipient.

        Raises: MailRefused if its account may no longer receive it or has no usable address.
        """
        template = Template(job.function)
        recipient = self._find_recipient(tx, job)
        if recipient is None or not self._gets(tx, recipient, template):
            self._withdraw(tx, job)
            return None
        tx.run(self._sql.address, key=job.subject, email=recipient.email)
        try:
            return render(template, self._values(tx, template, recipient, _notice(job)))
        except UnsafeHeaderError:
            raise MailRefused(
                "recipient: the account's address is not a valid mail address."
            ) from None

    def sent(self, tx: Tx, job: LeasedJob) -> bool:
        """Record a sent message. Returns False if the lease is lost."""
        if not jobs.finish(tx, job.id, job.lease):
            return False
        self._record_outcome(tx, job, DeliveryStatus.SENT, job.attempts + 1, "", sent=tx.now)
        return True

    def failed(self, tx: Tx, job: LeasedJob, transition: Transition, error: str) -> bool:
        """Record a failed attempt. Returns False if the lease is lost."""
        if transition.next_attempt is not None:
            recorded = jobs.retry(tx, job.id, job.lease, transition.next_attempt, error)
        else:
            recorded = jobs.fail(tx, job.id, job.lease, error)
        if recorded:
            self._record_outcome(tx, job, transition.status, transition.attempts, error, sent=None)
        return recorded

    def _find_recipient(self, tx: Tx, job: LeasedJob) -> _Recipient | None:
        row = tx.one(self._sql.by_user, key=job.user)
        if row is None:
            return None
        # After the lock, in a statement of its own: PostgreSQL reads other tables of a statement
        # that waits for a lock as they were before the wait.
        return _Recipient(row[0], row[1], row[2] or "", has_password(tx, row[0]))

    def _gets(self, tx: Tx, recipient: _Recipient, template: Template) -> bool:
        """Return whether a message may still be sent to its account.

        It may have been given access scopes since, or have lost its role (B-340).
        """
        if not recipient.gets(template):
            return False
        if template not in _ABOUT_WEBHOOKS:
            return True
        return tx.one(self._sql.hears_of_webhooks, key=recipient.user) is not None

    def _withdraw(self, tx: Tx, job: LeasedJob) -> None:
        """Reject a message; one that never had a recipient is dropped silently."""
        if tx.scalar(self._sql.recipient, key=job.subject):
            raise MailRefused("withdrawn: the account may no longer receive this message.")
        if jobs.finish(tx, job.id, job.lease):
            tx.run(self._sql.delete, key=job.subject)

    def _values(
        self, tx: Tx, template: Template, recipient: _Recipient, notice: Notice
    ) -> TemplateValues:
        kind = _KINDS.get(template)
        return TemplateValues(
            site=self._site,
            user=recipient.user,
            full_name=recipient.full_name,
            recipient=recipient.email,
            link=None if kind is None else self._links.mint(tx, kind, recipient.user).url,
            minutes=0 if kind is None else self._links.minutes(kind),
            notice=notice,
        )

    def _record_outcome(
        self,
        tx: Tx,
        job: LeasedJob,
        status: DeliveryStatus,
        attempts: int,
        error: str,
        sent: int | None,
    ) -> None:
        tx.run(
            self._sql.settle,
            key=job.subject,
            status=status.value,
            attempts=attempts,
            error=error[: jobs.ERROR_CHARACTERS] or None,
            sent=sent,
            modified=tx.now,
        )


def _notice(job: LeasedJob) -> Notice:
    """Return the additional facts of a job's message."""
    if not job.arguments:
        return Notice()
    return msgspec.json.decode(job.arguments, type=Notice)
