"""Deliveries of events, recorded in the writer's transaction, and the events of documents.

Rules: B-50 to B-57, B-106. Every attempt and replay signs and sends exactly the bytes that are
stored here. The events that apps emit: `custom_events`.

Renaming a document updates its deliveries (B-184). Jobs refer to Webhooks by name, so they are
updated when a Webhook is renamed (B-30).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from fw_actors.documents import rows
from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import Table, iso
from fw_actors.documents.handle import DocType, Fw, child_of
from fw_actors.documents.hooks import DELETION, Observer
from fw_actors.documents.registry import Registry
from fw_actors.errors import NotFoundError
from fw_actors.rules.identifiers import DeliveryIds
from fw_actors.rules.safe_output import FieldRedaction, redaction_of
from fw_actors.rules.trace_context import written_context
from fw_actors.store import Tx, jobs, ordered_jobs
from fw_actors.tracing import Tracer
from fw_actors.webhooks.subscriptions import UNWATCHABLE, Subscription, SubscriptionCache

QUEUE: Final = "webhook"
# The hooks after which a stored document may differ from the object in memory: those that run once
# the document has rows. `update` writes only the columns that differ from what was stored before
# the hooks, so that writes of the hooks by SQL or by another object persist.
_SAVED: Final = ("before_validate", "validate", "before_save")
_HOOKS: Final = {
    "on_insert": ("on_insert",),
    "on_update": (*_SAVED, "on_update"),
    "on_submit": (*_SAVED, "on_submit"),
    "on_cancel": ("on_cancel",),
    "on_trash": ("on_trash",),
}
_WRITTEN: Final = (
    "webhook",
    "event",
    "status",
    "attempts",
    "max_attempts",
    "next_attempt",
    "key",
    "reference_doctype",
    "reference_name",
    "payload",
)


class RecordedEvent(NamedTuple):
    """An event and the Webhooks that subscribe to it.

    `payload` is the body that every attempt sends; `reference` is a DocType and a name.
    """

    wanted: Sequence[Subscription]
    event: str
    payload: str
    reference: tuple[str | None, str | None]
    key: str | None = None


class DeliveryRecorder:
    """Writes the deliveries of events, and a job for each of them."""

    def __init__(
        self,
        registry: Registry,
        subscriptions: SubscriptionCache,
        ids: DeliveryIds,
        recorded: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        """`recorded` is called after each commit that holds a delivery, on trio's thread. With a
        `tracer` deliveries keep where their events stand in a trace.
        """
        written = _WRITTEN if tracer is None else (*_WRITTEN, "trace_context")
        self._rows = rows.RowInserter(registry, "Webhook Delivery", written)
        self._tracer = tracer
        self._subscriptions = subscriptions
        self._ids = ids
        self._recorded = recorded

    def record(self, fw: Fw, events: Sequence[RecordedEvent]) -> list[list[str]]:
        """Write the deliveries of `events`; return the ids of each event's.

        Raises: UniqueViolation if a Webhook has received one of the keys.
        """
        tx = fw.tx
        names: dict[Subscription, str] = {}
        written: list[tuple[str, dict[str, Any]]] = []
        unordered: list[tuple[str, str]] = []
        ordered: list[tuple[str, str, str | None]] = []
        ids: list[list[str]] = []
        for event in events:
            ids.append([])
            for subscription in event.wanted:
                webhook = names.get(subscription)
                if webhook is None:
                    webhook = names[subscription] = self._subscriptions.name_now(tx, subscription)
                delivery = self._ids.new(tx.now)
                ids[-1].append(delivery)
                written.append((delivery, _columns_of(event, subscription, webhook, tx.now)))
                if subscription.ordered:
                    ordered.append((webhook, delivery, ordering_key_of(*event.reference)))
                else:
                    unordered.append((webhook, delivery))
        if written:
            if self._tracer is not None:
                context = written_context(self._tracer.context_of(tx))
                for _, columns in written:
                    columns["trace_context"] = context
            self._rows.insert_many(tx, fw.rights.user, written)
            jobs.enqueue_many(tx, QUEUE, unordered)
            if ordered:
                ordered_jobs.enqueue_ordered(tx, QUEUE, ordered)
            tx.after_commit(self._recorded)
        return ids


def ordering_key_of(doctype: str | None, name: str | None) -> str | None:
    """Return the ordering key of deliveries about a document; None for those about none."""
    return None if doctype is None or name is None else f"{doctype}\n{name}"


def _columns_of(
    event: RecordedEvent, subscription: Subscription, webhook: str, now: int
) -> dict[str, Any]:
    return {
        "webhook": webhook,
        "event": event.event,
        "status": "Queued",
        "attempts": 0,
        "max_attempts": subscription.max_attempts,
        "next_attempt": now,
        "key": event.key,
        "reference_doctype": event.reference[0],
        "reference_name": event.reference[1],
        "payload": event.payload,
    }


class EventRecorder(Observer):
    """Records the events of documents."""

    events = frozenset(_HOOKS) - {DELETION}  # `deleting` records that one

    def __init__(
        self,
        registry: Registry,
        subscriptions: SubscriptionCache,
        deliveries: DeliveryRecorder,
        *,
        off: bool,
    ) -> None:
        """`off`: FW_WEBHOOKS=off, nothing is queued."""
        self._subscriptions = subscriptions
        self._deliveries = deliveries
        self._off = off
        self._redactions = {m.name: _redactions(m) for m in registry.metas.values()}
        self._new_names: WeakKeyDictionary[Tx, dict[tuple[str, str], str]] = WeakKeyDictionary()

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Record the deletion of a document while its stored rows can still be read."""
        self._record_document(fw, DELETION, doc)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Record a document's event for every subscribed Webhook."""
        self._record_document(fw, event, doc)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Remember a rename until the transaction ends: a hook may rename its own document."""
        self._new_names.setdefault(fw.tx, {})[doctype, old] = new

    def _record_document(self, fw: Fw, event: str, doc: DocType) -> None:
        doctype = doc.meta.name
        if self._off or doctype in UNWATCHABLE:
            return
        wanted = self._subscriptions.of(fw.tx).documents.get((doctype, event))
        if not wanted:
            return
        if not doc.meta.hooks.isdisjoint(_HOOKS[event]):
            doc = self._as_stored(fw, doc)
        redacted = self._redacted(doctype, doc.as_dict())
        shown = {"doc": redacted, "name": doc.name, "doctype": doctype}
        name = f"doc.{event}"
        payload = msgspec.json.encode(
            {"type": name, "timestamp": iso(fw.tx.now), "data": shown}
        ).decode()
        event_of_it = RecordedEvent(wanted, name, payload, (doctype, doc.name))
        self._deliveries.record(fw, [event_of_it])

    def _as_stored(self, fw: Fw, doc: DocType) -> DocType:
        """Return the document as stored by this transaction, or the object if it is not stored.

        A hook may set unstored values on the object, write by SQL or by another object, and
        rename or delete its own document. A document that it deleted is shown as the object.
        """
        names, name = self._new_names.get(fw.tx, {}), str(doc.name)
        for _ in range(len(names) + 1):
            try:
                return rows.load(fw.documents, fw, doc.doctype, name)
            except NotFoundError:
                name = names.get((doc.doctype, name), name)
        return doc

    def _redacted(self, doctype: str, shown: dict[str, Any]) -> dict[str, Any]:
        """Redact a document's dict, child rows included."""
        for name, how, child in self._redactions[doctype]:
            if how is FieldRedaction.REMOVED:
                del shown[name]
            elif how is FieldRedaction.BLANKED:
                shown[name] = None
            elif child:
                for row in shown[name]:
                    self._redacted(child, row)
        return shown


def _redactions(meta: Meta) -> tuple[tuple[str, FieldRedaction, str], ...]:
    """Return the fields of a DocType that events redact or omit, and its child tables."""
    redactions = []
    for field in meta.fields.values():
        how = redaction_of(field.name, field.type, field.permlevel)
        child = child_of(field).meta.name if isinstance(field, Table) else ""
        if how in (FieldRedaction.REMOVED, FieldRedaction.BLANKED) or child:
            redactions.append((field.name, how, child))
    return tuple(redactions)
