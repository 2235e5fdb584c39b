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
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.access.accounts import email_of, has_password
from fw_actors.access.links import LinkKind, Links
from fw_actors.documents.core import EmailDelivery, HasRole, User, UserPermission, Webhook
from fw_actors.documents.naming import random_name
from fw_actors.documents.permissions import SYSTEM_MANAGER
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
from fw_actors.tracing import Tracer, encode_context

QUEUE: Final = "mail"
_WRITTEN: Final = ("recipient", "template", "subject", "status", "attempts", "sent")


_ACCOUNT: Final = Statement(
    sa.select(IDENTIFIER.c.user).where(IDENTIFIER.c.key == sa.bindparam("key"))
)


class MailQueue:
    """Enqueues messages. `owner` is the user whose request causes the message."""

    def __init__(
        self,
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
        self._deliveries = RowInserter(table_of(EmailDelivery).table, _WRITTEN)

    def to_user(
        self, tx: Tx, template: Template, user: str, *, owner: str, notice: Notice | None = None
    ) -> None:
        """Queue a message to an account's stored address; `notice` holds additional facts."""
        delivery = self._record(tx, template, email_of(tx, user), owner)
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
        recipient = email_of(tx, user)
        self._record(tx, template, recipient, owner, sent=tx.now)
        tx.after_commit(lambda: log.write(recipient, template.value, link))

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


_USERS: Final = table_of(User).table
_U: Final = _USERS.c
_R: Final = table_of(HasRole).table.c
_S: Final = table_of(UserPermission).table.c
_W: Final = table_of(Webhook).table.c
_MAILS: Final = table_of(EmailDelivery).table
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_IS_MAIL: Final = _MAILS.c.name == _KEY
# Locked: a link must not go to an address that is just being replaced.
_RECIPIENT: Final = Statement(
    sa.select(_U.name, _U.email, _U.fullName)
    .where(_U.name == _KEY, _U.enabled == 1)
    .with_for_update(key_share=True, of=_USERS)
)
_MANAGES: Final = sa.exists().where(
    _R.parent == _U.name, _R.parenttype == "User", _R.role == SYSTEM_MANAGER
)
_OWNS_A_WEBHOOK: Final = sa.exists().where(_W.owner == _U.name)
# B-340: System Managers and owners of Webhooks, without access scopes.
_HEARS_OF_WEBHOOKS: Final = Statement(
    sa.select(_U.name).where(
        _U.name == _KEY,
        ~sa.exists().where(_S.user == _U.name),
        sa.or_(_MANAGES, _OWNS_A_WEBHOOK),
    )
)
_STORED_RECIPIENT: Final = Statement(sa.select(_MAILS.c.recipient).where(_IS_MAIL))
_SET_RECIPIENT: Final = Statement(
    sa.update(_MAILS).where(_IS_MAIL).values(recipient=sa.bindparam("email"))
)
_DELETE: Final = Statement(sa.delete(_MAILS).where(_IS_MAIL))
_SETTLE: Final = Statement(
    sa.update(_MAILS).where(_IS_MAIL).values({n: sa.bindparam(n) for n in _OUTCOME})
)


class MailComposer:
    """Composes messages from their jobs and records their results."""

    def __init__(self, links: Links, site: str) -> None:
        """`site` is the site's name."""
        self._links, self._site = links, site

    def prepare(self, tx: Tx, job: LeasedJob) -> MailMessage | None:
        """Return the message to send, with its link; None if it has no recipient.

        Raises: MailRefused if its account may no longer receive it or has no usable address.
        """
        template = Template(job.function)
        recipient = self._find_recipient(tx, job)
        if recipient is None or not self._gets(tx, recipient, template):
            self._withdraw(tx, job)
            return None
        tx.run(_SET_RECIPIENT, key=job.subject, email=recipient.email)
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
        row = tx.one(_RECIPIENT, key=job.user)
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
        return tx.one(_HEARS_OF_WEBHOOKS, key=recipient.user) is not None

    def _withdraw(self, tx: Tx, job: LeasedJob) -> None:
        """Reject a message; one that never had a recipient is dropped silently."""
        if tx.scalar(_STORED_RECIPIENT, key=job.subject):
            raise MailRefused("withdrawn: the account may no longer receive this message.")
        if jobs.finish(tx, job.id, job.lease):
            tx.run(_DELETE, key=job.subject)

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
            _SETTLE,
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
