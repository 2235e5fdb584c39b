"""Deliveries follow when the document that they are about, or their Webhook, is renamed.

Source: spec, Webhook Delivery: "renaming the document is followed". Jobs are kept by Webhook, so
they follow as well.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.documents.registry import Registry
from fw_actors.errors import DuplicateError
from fw_actors.services.events import QUEUE
from fw_actors.services.subscriptions import SubscriptionCache
from fw_actors.store import Statement
from fw_actors.store.schema import JOB

_OLD: Final[sa.BindParameter[Any]] = sa.bindparam("old")
_NEW: Final[sa.BindParameter[Any]] = sa.bindparam("new")
_MOVE_JOBS: Final = Statement(
    sa.update(JOB).where(JOB.c.queue == QUEUE, JOB.c.partition == _OLD).values(partition=_NEW)
)


class DeliveryRenames(Observer):
    """Observes renames."""

    def __init__(self, registry: Registry, subscriptions: SubscriptionCache) -> None:
        table = registry.tables["Webhook Delivery"].table
        about = sa.and_(
            table.c.reference_doctype == sa.bindparam("doctype"), table.c.reference_name == _OLD
        )
        self._subscriptions = subscriptions
        self._move_references = Statement(sa.update(table).where(about).values(reference_name=_NEW))
        self._move_deliveries = Statement(
            sa.update(table).where(table.c.webhook == _OLD).values(webhook=_NEW)
        )
        self._named = Statement(sa.select(table.c.name).where(table.c.webhook == _NEW).limit(1))

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """See the module. Raises: DuplicateError for a Webhook, where the name has deliveries: one
        that was deleted left them, and they are no other's."""
        fw.tx.run(self._move_references, doctype=doctype, old=old, new=new)
        if doctype == "Webhook":
            if fw.tx.one(self._named, new=new) is not None:
                raise DuplicateError(f"Deliveries of a deleted Webhook name {new}.", field="name")
            fw.tx.run(self._move_deliveries, old=old, new=new)
            fw.tx.run(_MOVE_JOBS, old=old, new=new)
            self._subscriptions.renew_after_commit(fw.tx)
