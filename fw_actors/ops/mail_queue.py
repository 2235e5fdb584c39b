"""The mail queue: enqueued in the writer's transaction, composed when sent.

A message and its job are written in the request's transaction (O-51). A job holds user and
template; the link is made where it is first needed, and rests nowhere (O-52).

Plain functions inside the Mailer's transactions. Mail goes to the stored address, never to what
was typed (A-217); a link is made for each try, and ends the one before (O-62).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.access.links import Links
from fw_actors.access.types import LinkKind
from fw_actors.documents.naming import random_name
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import RowInserter
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
from fw_actors.rules.delivery import DeliveryStatus, Verdict
from fw_actors.runtime import Entropy
from fw_actors.store import LeasedJob, Statement, Tx, jobs
from fw_actors.store.schema import IDENTIFIER, PASSWORD

QUEUE: Final = "mail"
_WRITTEN: Final = ("recipient", "template", "subject", "status", "attempts", "sent")


class Outbox:
    """Writes what is to be mailed. `owner` is whose request asks for it."""

    def __init__(
        self, registry: Registry, entropy: Entropy, site: str, queued: Callable[[], None]
    ) -> None:
        """`site` is the site's name. `queued` is called after each commit that holds a message,
        on trio's thread."""
        users = registry.tables["User"].table
        user: sa.BindParameter[Any] = sa.bindparam("user")
        self._entropy, self._site, self._queued = entropy, site, queued
        self._address = Statement(sa.select(users.c.email).where(users.c.name == user))
        self._deliveries = RowInserter(registry, "Email Delivery", _WRITTEN)

    def to_user(
        self, tx: Tx, template: Template, user: str, *, owner: str, notice: Notice | None = None
    ) -> None:
        """Queue a message to an account's stored address; `notice` is what it tells besides."""
        delivery = self._record(tx, template, self._stored_address(tx, user), owner)
        told = "" if notice is None else msgspec.json.encode(notice).decode()
        self._enqueue(tx, delivery, template, user=user, arguments=told)

    def to_identifier(self, tx: Tx, template: Template, identifier: str, *, owner: str) -> None:
        """Queue a message to whoever a canonical identifier belongs to, or to nobody.

        The same two rows are written in either case; whose it is, the Mailer looks up.
        """
        delivery = self._record(tx, template, None, owner)
        self._enqueue(tx, delivery, template, arguments=identifier)

    def by_hand(
        self, tx: Tx, log: LogTransport, template: Template, user: str, link: str, *, owner: str
    ) -> None:
        """Note a message whose link the request hands back itself: the log's line follows the
        commit, and there is no job (A-196)."""
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
        jobs.enqueue(
            tx,
            queue=QUEUE,
            subject=delivery,
            function=template.value,
            arguments=arguments,
            user=user,
        )
        tx.after_commit(self._queued)


ERROR_CHARACTERS: Final = 500
_OUTCOME: Final = ("status", "attempts", "error", "sent", "modified")
_KINDS: Final = {Template.RECOVERY: LinkKind.RECOVERY, Template.INVITATION: LinkKind.INVITATION}


@dataclass(frozen=True, slots=True)
class _Addressee:
    user: str
    email: str
    full_name: str
    has_password: bool

    def gets(self, template: Template) -> bool:
        """A recovery is for who has a password, an invitation for who has none yet."""
        return self.has_password is not (template is Template.INVITATION)


class Letters:
    """The statements over Email Delivery and whom it goes to."""

    def __init__(self, registry: Registry, links: Links, site: str) -> None:
        """`site` is the site's name."""
        users = registry.tables["User"].table
        u = users.c
        deliveries = registry.tables["Email Delivery"].table
        d = deliveries.c
        key: sa.BindParameter[Any] = sa.bindparam("key")
        self._links, self._site = links, site
        known = users.outerjoin(PASSWORD, PASSWORD.c.user == u.name)
        # Held: a link must not go to an address that is just being replaced.
        account = sa.select(
            u.name, u.email, u.fullName, PASSWORD.c.hash.is_not(None)
        ).with_for_update(key_share=True, of=users)
        self._by_user = Statement(account.select_from(known).where(u.name == key, u.enabled == 1))
        self._by_identifier = Statement(
            account.select_from(known.join(IDENTIFIER, IDENTIFIER.c.user == u.name)).where(
                IDENTIFIER.c.key == key, u.enabled == 1
            )
        )
        self._recipient = Statement(sa.select(d.recipient).where(d.name == key))
        self._address = Statement(
            sa.update(deliveries).where(d.name == key).values(recipient=sa.bindparam("email"))
        )
        self._forget = Statement(sa.delete(deliveries).where(d.name == key))
        outcome: dict[str, Any] = {n: sa.bindparam(n) for n in _OUTCOME}
        self._settle = Statement(sa.update(deliveries).where(d.name == key).values(outcome))

    def prepare(self, tx: Tx, job: LeasedJob) -> MailMessage | None:
        """Return the message to send now, its link made; None when it was meant for nobody.

        Raises: MailRefused when its account may not get it any more, or has no usable address.
        """
        template = Template(job.function)
        addressee = self._addressee(tx, job)
        if addressee is None or not addressee.gets(template):
            self._withdraw(tx, job)
            return None
        tx.run(self._address, key=job.subject, email=addressee.email)
        try:
            return render(template, self._values(tx, template, addressee, _notice(job)))
        except UnsafeHeaderError:
            raise MailRefused("recipient: the account's address is no mail address.") from None

    def sent(self, tx: Tx, job: LeasedJob) -> bool:
        """Write that a message went out. False when the lease is lost."""
        if not jobs.finish(tx, job.id, job.lease):
            return False
        self._note(tx, job, DeliveryStatus.SENT, job.attempts + 1, "", sent=tx.now)
        return True

    def failed(self, tx: Tx, job: LeasedJob, verdict: Verdict, error: str) -> bool:
        """Write what a failed try makes of a message. False when the lease is lost."""
        if verdict.next_attempt is not None:
            held = jobs.retry(tx, job.id, job.lease, verdict.next_attempt, error)
        else:
            held = jobs.fail(tx, job.id, job.lease, error)
        if held:
            self._note(tx, job, verdict.status, verdict.attempts, error, sent=None)
        return held

    def _addressee(self, tx: Tx, job: LeasedJob) -> _Addressee | None:
        by_user = bool(job.user)
        row = tx.one(
            self._by_user if by_user else self._by_identifier,
            key=job.user if by_user else job.arguments,
        )
        return None if row is None else _Addressee(row[0], row[1], row[2] or "", bool(row[3]))

    def _withdraw(self, tx: Tx, job: LeasedJob) -> None:
        """One that never had a recipient goes without a trace."""
        if tx.scalar(self._recipient, key=job.subject):
            raise MailRefused("withdrawn: the account may not get this message any more.")
        if jobs.finish(tx, job.id, job.lease):
            tx.run(self._forget, key=job.subject)

    def _values(
        self, tx: Tx, template: Template, addressee: _Addressee, notice: Notice
    ) -> TemplateValues:
        kind = _KINDS.get(template)
        return TemplateValues(
            site=self._site,
            user=addressee.user,
            full_name=addressee.full_name,
            recipient=addressee.email,
            link=None if kind is None else self._links.mint(tx, kind, addressee.user).url,
            minutes=0 if kind is None else self._links.minutes(kind),
            notice=notice,
        )

    def _note(
        self,
        tx: Tx,
        job: LeasedJob,
        status: DeliveryStatus,
        attempts: int,
        error: str,
        sent: int | None,
    ) -> None:
        tx.run(
            self._settle,
            key=job.subject,
            status=status.value,
            attempts=attempts,
            error=error[:ERROR_CHARACTERS] or None,
            sent=sent,
            modified=tx.now,
        )


def _notice(job: LeasedJob) -> Notice:
    """Return what a job's message tells besides its account. Where no user is named, `arguments`
    is the identifier that a recovery was asked for."""
    if not job.user or not job.arguments:
        return Notice()
    return msgspec.json.decode(job.arguments, type=Notice)
