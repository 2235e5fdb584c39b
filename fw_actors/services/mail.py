"""Messages in the writer's transaction: an Email Delivery and its job, or neither.

Source: spec, Authentication 9; interface §8, Links and mail. A job holds user and template; the
link is made where it is first needed, and rests nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.mail import LogTransport, Notice, Template, subject_of
from fw_actors.rules.delivery_outcome import Status
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx, jobs

QUEUE: Final = "mail"
_NAME_BYTES: Final = 9
_WRITTEN: Final = (
    "name", "owner", "creation", "modified", "modified_by", "docstatus", "idx",
    "recipient", "template", "subject", "status", "attempts", "sent",
)  # fmt: skip


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
        self._insert = Statement(
            sa.insert(registry.tables["Email Delivery"].table).values(
                {name: sa.bindparam(name) for name in _WRITTEN}
            )
        )

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
        commit, and there is no job (interface §8, Links and mail)."""
        recipient = self._stored_address(tx, user)
        self._record(tx, template, recipient, owner, sent=tx.now)
        tx.after_commit(lambda: log.write(recipient, template.value, link))

    def _stored_address(self, tx: Tx, user: str) -> str:
        return str(tx.scalar(self._address, user=user) or "")

    def _record(
        self, tx: Tx, template: Template, recipient: str | None, owner: str, sent: int | None = None
    ) -> str:
        name = record_id(self._entropy.bytes(_NAME_BYTES))
        tx.run(
            self._insert,
            name=name,
            owner=owner,
            creation=tx.now,
            modified=tx.now,
            modified_by=owner,
            docstatus=0,
            idx=0,
            recipient=recipient,
            template=template.value,
            subject=subject_of(template, self._site),
            status=Status.QUEUED.value if sent is None else Status.SENT.value,
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
