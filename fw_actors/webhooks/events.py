"""Events of documents and of apps, recorded as deliveries in the writer's transaction.

Rules: B-50 to B-57, B-70 to B-87, B-106. Every attempt and replay signs and sends exactly the bytes
that are stored here.

A batch of an app's events is one transaction. Keys are looked up first; then two statements write
all deliveries. A single event takes one statement on PostgreSQL, where each statement is a round
trip; if the transaction does nothing else, BEGIN and COMMIT are left out. If another transaction
has used a key meanwhile, PostgreSQL refuses the statement. Then the keys are looked up again; after
three refusals the events are recorded one by one.

The module has more than 500 lines because both kinds of events share everything except their
origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import sqlalchemy as sa

from fw_actors.documents import rows
from fw_actors.documents.core import Webhook, WebhookDelivery
from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import CONTROLS_AND_BREAKS, Table, iso
from fw_actors.documents.handle import DocType, Fw, child_of
from fw_actors.documents.hooks import DELETION, Observer
from fw_actors.documents.registry import Registry
from fw_actors.documents.tables import table_of
from fw_actors.errors import DuplicateError, FwError, NotFoundError, ValidationError
from fw_actors.rules.identifiers import DeliveryIds
from fw_actors.rules.safe_output import FieldRedaction, redaction_of
from fw_actors.rules.signing import UnusableEventNameError, validate_event_name
from fw_actors.store import (
    JsonRows,
    Statement,
    Tx,
    UniqueViolation,
    jobs,
    ordered_jobs,
    rows_as_json,
)
from fw_actors.store.schema import JOB
from fw_actors.tracing import Tracer, encode_context
from fw_actors.webhooks.subscriptions import (
    UNWATCHABLE,
    Subscription,
    SubscriptionCache,
    select_known,
)

QUEUE: Final = "webhook"
DELETE_JOB: Final = Statement(
    sa.delete(JOB).where(JOB.c.queue == QUEUE, JOB.c.subject == sa.bindparam("delivery"))
)
"""Deletes the job of a delivery."""
_WRITTEN: Final = (
    "webhook", "event", "status", "attempts", "max_attempts", "next_attempt", "key",
    "reference_doctype", "reference_name", "payload",
)  # fmt: skip
_LONG_PAYLOAD: Final = 16 * 1024
"""The characters beyond which SQLite writes a payload at once, instead of keeping many of them."""
_NOTHING: Final[Set[str]] = frozenset()


class PreparedEvent(NamedTuple):
    """An event and the Webhooks that subscribe to it.

    `payload` is the body that every attempt sends; `reference` is a DocType and a name.
    """

    subscriptions: Sequence[Subscription]
    event: str
    payload: str
    reference: tuple[str | None, str | None]
    key: str | None = None


class _NewDelivery(NamedTuple):
    """A delivery to be written."""

    delivery: str
    event: PreparedEvent
    subscription: Subscription


_DELIVERIES: Final = table_of(WebhookDelivery).table


class _Insertions(NamedTuple):
    """The statements that write deliveries.

    `inserter` writes any deliveries. `known` writes one to a Webhook that still has its known name,
    and `known_with_job` also writes the job, on a store that inserts in queries.
    """

    inserter: rows.RowInserter
    known: Statement
    known_with_job: Statement


@lru_cache(2)  # with and without trace contexts
def _insertions(written: tuple[str, ...]) -> _Insertions:
    """Return the statements; `written` are the columns of a delivery that they write."""
    inserter = rows.RowInserter(_DELIVERIES, written)
    insert = inserter.reading(select_known, webhook=table_of(Webhook).table.c.name)
    c = _DELIVERIES.c
    made = insert.returning(c.webhook, c.name, c.creation).cte("made").c
    enqueued = jobs.enqueued(
        sa.literal_column(f"'{QUEUE}'"), made.webhook, made.name, made.creation
    )
    return _Insertions(inserter, Statement(insert), Statement(enqueued))


class DeliveryRecorder:
    """Writes the deliveries of events, and a job for each of them."""

    def __init__(
        self,
        subscriptions: SubscriptionCache,
        ids: DeliveryIds,
        recorded: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        """`recorded` is called on trio's thread after each commit with a delivery. With a `tracer`,
        deliveries store the trace contexts of their events.
        """
        written = _WRITTEN if tracer is None else (*_WRITTEN, "trace_context")
        self._statements = _insertions(written)
        self._tracer = tracer
        self._subscriptions = subscriptions
        self._ids = ids
        self._recorded = recorded

    def record(self, fw: Fw, events: Sequence[PreparedEvent]) -> list[list[str]]:
        """Write the deliveries of `events`; return the ids of each event's.

        Nothing is written for a Webhook that was deleted if another one has its name by now. Its
        ids are left out; the id of a delivery that PostgreSQL writes at the end of the transaction
        is then removed from the returned list.

        Raises: UniqueViolation if a Webhook has received one of the keys.
        """
        tx = fw.tx
        ids = [[self._ids.new(tx.now) for _ in event.subscriptions] for event in events]
        new_deliveries = [
            _NewDelivery(delivery, event, subscription)
            for event, ids_of_event in zip(events, ids, strict=True)
            for subscription, delivery in zip(event.subscriptions, ids_of_event, strict=True)
        ]
        if len(new_deliveries) == 1:
            (ids_of_event,) = filter(None, ids)
            self._write_one(fw, new_deliveries[0], ids_of_event)
        elif new_deliveries:
            unwritten = self._write(fw, new_deliveries)
            if unwritten:
                ids = [
                    [delivery_id for delivery_id in ids_of_event if delivery_id not in unwritten]
                    for ids_of_event in ids
                ]
            tx.after_commit(self._recorded, once=True)
        return ids

    def record_one(self, fw: Fw, event: PreparedEvent, subscription: Subscription) -> list[str]:
        """Write the delivery of an event to one Webhook; return its id as `record` does.

        Raises: UniqueViolation if the Webhook has received the key.
        """
        ids = [self._ids.new(fw.tx.now)]
        self._write_one(fw, _NewDelivery(ids[0], event, subscription), ids)
        return ids

    def _write_one(self, fw: Fw, new_delivery: _NewDelivery, ids: list[str]) -> None:
        """Write a single delivery; empty `ids` if no Webhook is left for it."""
        if new_delivery.subscription.ordered:
            unwritten = self._write(fw, [new_delivery])
        else:
            unwritten = self._write_alone(fw, new_delivery, ids)
        if unwritten:
            ids.clear()
        fw.tx.after_commit(self._recorded, once=True)

    def _write(self, fw: Fw, new_deliveries: Sequence[_NewDelivery]) -> Set[str]:
        """Write deliveries and their jobs; return those that no Webhook is left for."""
        tx = fw.tx
        names: dict[Subscription, str | None] = {}
        unwritten: set[str] = set()
        delivery_rows: list[tuple[str, dict[str, Any]]] = []
        unordered: list[tuple[str, str]] = []
        ordered: list[tuple[str, str, str | None]] = []
        trace = self._trace_of(tx)
        for delivery, event, subscription in new_deliveries:
            if subscription not in names:
                names[subscription] = self._subscriptions.current_name(tx, subscription)
            webhook = names[subscription]
            if webhook is None:
                unwritten.add(delivery)
                continue
            columns = _columns_of(event, subscription, webhook, tx.now)
            delivery_rows.append((delivery, {**columns, **trace}))
            if subscription.ordered:
                ordered.append((webhook, delivery, ordering_key_of(*event.reference)))
            else:
                unordered.append((webhook, delivery))
        if delivery_rows:
            # In the order of keys: two batches that use the same ones must not deadlock.
            delivery_rows.sort(key=lambda row: row[1]["key"] or "")
            self._statements.inserter.insert_many(tx, fw.rights.user, delivery_rows)
        jobs.enqueue_many(tx, QUEUE, unordered)
        if ordered:
            ordered_jobs.enqueue_ordered(tx, QUEUE, ordered)
        return unwritten

    def _write_alone(self, fw: Fw, new_delivery: _NewDelivery, ids: list[str]) -> Set[str]:
        """Write a single delivery and its job by two statements, or by one if the store can.

        The statement writes nothing if the Webhook is not known by its present name. Returns as
        `_write`; a later write that finds no Webhook empties `ids`.
        """
        tx = fw.tx
        delivery, event, subscription = new_delivery
        values = _columns_of(event, subscription, subscription.webhook, tx.now)
        values.update(self._trace_of(tx))
        values["known_name"] = values.pop("webhook")
        values["known_row"] = subscription.row_id
        values.update(rows.standard_columns(tx, fw.rights.user), name=delivery)
        write = partial(self._write, fw, [new_delivery])

        def write_late() -> None:
            if write():
                ids.clear()

        if tx.inserts_in_queries:
            insert, followers = self._statements.known_with_job, []
        else:
            enqueuing = jobs.enqueuing(
                tx, queue=QUEUE, partition=subscription.webhook, subject=delivery
            )
            insert, followers = self._statements.known, [enqueuing]
        is_short = len(event.payload) <= _LONG_PAYLOAD
        if event.key is None and (is_short or tx.inserts_in_queries):
            tx.defer(insert, write_late, followers, **values)
            return _NOTHING
        if not tx.run(insert, **values):  # at once: a used key is raised
            return write()
        for statement, parameters in followers:
            tx.run(statement, **parameters)
        return _NOTHING

    def _trace_of(self, tx: Tx) -> dict[str, str]:
        """Return the column that says where the transaction stands in a trace, if it has one."""
        if self._tracer is None:
            return {}
        return {"trace_context": encode_context(self._tracer.context_of(tx))}


def ordering_key_of(doctype: str | None, name: str | None) -> str | None:
    """Return the ordering key of deliveries about a document; None without a document."""
    return None if doctype is None or name is None else f"{doctype}\n{name}"


def _columns_of(
    event: PreparedEvent, subscription: Subscription, webhook: str, now: int
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


class EventRecorder(Observer):
    """Records the events of documents."""

    events = frozenset(_HOOKS) - {DELETION}  # which `deleting` records

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
        subscriptions = self._subscriptions.of(fw.tx).documents.get((doctype, event))
        if not subscriptions:
            return
        if not doc.meta.hooks.isdisjoint(_HOOKS[event]):
            doc = self._as_stored(fw, doc)
        redacted = self._redacted(doctype, doc.as_dict())
        data = {"doc": redacted, "name": doc.name, "doctype": doctype}
        name = f"doc.{event}"
        body = {"type": name, "timestamp": iso(fw.tx.now), "data": data}
        payload = msgspec.json.encode(body).decode()
        prepared = PreparedEvent(subscriptions, name, payload, (doctype, doc.name))
        self._deliveries.record(fw, [prepared])

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

    def _redacted(self, doctype: str, values: dict[str, Any]) -> dict[str, Any]:
        """Redact a document's dict, child rows included."""
        for name, redaction, child in self._redactions[doctype]:
            if redaction is FieldRedaction.REMOVED:
                del values[name]
            elif redaction is FieldRedaction.BLANKED:
                values[name] = None
            elif child:
                for row in values[name]:
                    self._redacted(child, row)
        return values


def _redactions(meta: Meta) -> tuple[tuple[str, FieldRedaction, str], ...]:
    """Return the fields of a DocType that events redact or omit, and its child tables."""
    redactions = []
    for field in meta.fields.values():
        redaction = redaction_of(field.name, field.type, field.permlevel)
        child = child_of(field).meta.name if isinstance(field, Table) else ""
        if redaction in (FieldRedaction.REMOVED, FieldRedaction.BLANKED) or child:
            redactions.append((field.name, redaction, child))
    return tuple(redactions)


KEY_CHARACTERS: Final = 140
MAX_EVENTS: Final = 1000
MAX_DELIVERIES: Final = 20_000
MAX_RECORDED_BYTES: Final = 64 * 1024 * 1024
"""The limits of a batch: other processes wait for its transaction."""
MAX_BATCH_TRIES: Final = 3
"""How often a batch is recorded as a whole before its events are recorded one by one."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CONTAINERS: Final = (dict, list, tuple)
_REQUIRED: Final = {"name", "data"}
_ALLOWED: Final = {*_REQUIRED, "reference", "key"}

Emitted = dict[str, Any]
"""`{"deliveries": [id, …]}`, or `{"error": {"type", "message", "extra"}}` as in a response."""


_PAIRS: Final = JsonRows("given")
_USED_KEYS: Final = Statement(
    sa.select(_DELIVERIES.c.webhook, _DELIVERIES.c.key)
    .select_from(_PAIRS.table)
    .where(_DELIVERIES.c.webhook == _PAIRS.item(0, str), _DELIVERIES.c.key == _PAIRS.item(1, str))
)


class CustomEvents:
    """Records the events that apps emit."""

    def __init__(
        self,
        subscriptions: SubscriptionCache,
        deliveries: DeliveryRecorder,
        *,
        off: bool,
    ) -> None:
        """`off`: FW_WEBHOOKS=off, nothing is queued."""
        self._subscriptions = subscriptions
        self._deliveries = deliveries
        self._off = off

    def emit(
        self, fw: Fw, name: object, data: object, reference: object, key: object
    ) -> dict[str, list[str]]:
        """Record an event. Raises: ValidationError; DuplicateError for a used key."""
        return {"deliveries": self._record_one(fw, self._event(fw, name, data, reference, key))}

    def emit_service_event(
        self, fw: Fw, name: str, data: Mapping[str, object], *, excluding: str
    ) -> list[str]:
        """Record an event of the service for all Webhooks except `excluding`; return the ids.

        Webhooks are compared by their rows: another process may have renamed one (B-42).
        """
        event = self._event(fw, name, data, None, None)
        row = self._subscriptions.row_of(fw.tx, excluding)
        subscriptions = [each for each in event.subscriptions if each.row_id != row]
        return self._record_one(fw, event._replace(subscriptions=subscriptions))

    def emit_many(self, fw: Fw, events: object, all_or_nothing: bool) -> list[Emitted]:
        """Record up to 1,000 events; return a result for each, in order.

        Args:
            events: mappings with `name`, `data` and, if wanted, `reference` and `key`; an FwError
                in place of one is its result.
            all_or_nothing: raise the first refusal. The caller undoes what was written before it.

        Raises: ValidationError for anything but a list of 1 to 1,000 events, and for a batch that
            would record more than `MAX_DELIVERIES` or `MAX_RECORDED_BYTES`.
        """
        if isinstance(events, str | bytes) or not isinstance(events, Sequence):
            raise ValidationError("events must be a list.", field="events")
        if not 1 <= len(events) <= MAX_EVENTS:
            raise ValidationError(
                f"events must contain 1 to {MAX_EVENTS:,} events.", field="events"
            )
        prepared = self._without_used_keys(fw, [self._prepared(fw, each) for each in events])
        if all_or_nothing:
            _raise_first_of(prepared)
        _check_size(prepared)
        results = self._record_all(fw, prepared)
        if all_or_nothing:
            _raise_first_of(results)
        return [
            {"error": result.details} if isinstance(result, FwError) else {"deliveries": result}
            for result in results
        ]

    def _prepared(self, fw: Fw, event: object) -> PreparedEvent | FwError:
        if isinstance(event, FwError):
            return event
        if not isinstance(event, Mapping) or not _REQUIRED <= set(event) <= _ALLOWED:
            return ValidationError("An event must be {name, data, reference?, key?}.")
        try:
            return self._event(
                fw, event["name"], event["data"], event.get("reference"), event.get("key")
            )
        except ValidationError as refusal:
            return refusal

    def _event(
        self, fw: Fw, name: object, data: object, reference: object, key: object
    ) -> PreparedEvent:
        """Return a valid event with its subscriptions. Raises: ValidationError."""
        event = _event_name(name)
        json_data = _json_object(data)
        document = _reference(reference)
        valid_key = _key(key)
        subscriptions = () if self._off else self._subscriptions.of(fw.tx).custom.get(event, ())
        payload = f'{{"type":"{event}","timestamp":"{iso(fw.tx.now)}","data":{json_data}}}'
        return PreparedEvent(subscriptions, event, payload, document, valid_key)

    def _without_used_keys(
        self, fw: Fw, events: Sequence[PreparedEvent | FwError]
    ) -> list[PreparedEvent | FwError]:
        """Refuse events whose key a Webhook has received, or an earlier event of the batch uses."""
        pairs = [pair for each in events if isinstance(each, PreparedEvent) for pair in _keys(each)]
        if not pairs:
            return list(events)
        used = set(fw.tx.rows(_USED_KEYS, given=rows_as_json(pairs)))
        remaining: list[PreparedEvent | FwError] = []
        for each in events:
            pairs_of_event = _keys(each) if isinstance(each, PreparedEvent) else []
            used_by = next(
                (webhook for webhook, key in pairs_of_event if (webhook, key) in used), None
            )
            used.update(pairs_of_event if used_by is None else ())
            remaining.append(each if used_by is None else _duplicate(fw, used_by))
        return remaining

    def _record_all(
        self, fw: Fw, events: Sequence[PreparedEvent | FwError]
    ) -> list[list[str] | FwError]:
        for _ in range(MAX_BATCH_TRIES):
            try:
                with fw.tx.savepoint():
                    ids = iter(
                        self._deliveries.record(
                            fw, [each for each in events if isinstance(each, PreparedEvent)]
                        )
                    )
            except UniqueViolation:  # another transaction has used a key since it was looked up
                events = self._without_used_keys(fw, events)
            else:
                return [each if isinstance(each, FwError) else next(ids) for each in events]
        return [
            each if isinstance(each, FwError) else self._record_in_savepoint(fw, each)
            for each in events
        ]

    def _record_in_savepoint(self, fw: Fw, event: PreparedEvent) -> list[str] | FwError:
        try:
            with fw.tx.savepoint():
                return self._record_one(fw, event)
        except DuplicateError as refusal:
            return refusal

    def _record_one(self, fw: Fw, event: PreparedEvent) -> list[str]:
        """Record an event, one Webhook after the other. Raises: DuplicateError."""
        ids_of_webhooks: list[list[str]] = []
        for subscription in event.subscriptions:
            try:
                ids_of_webhooks.append(self._deliveries.record_one(fw, event, subscription))
            except UniqueViolation:
                raise _duplicate(fw, subscription.webhook) from None
        if len(ids_of_webhooks) == 1:
            return ids_of_webhooks[0]  # not a copy: its id may be removed
        return [delivery for ids in ids_of_webhooks for delivery in ids]


def _keys(event: PreparedEvent) -> list[tuple[str, str]]:
    """Return the Webhooks that receive an event with a key, each with the key."""
    if event.key is None:
        return []
    return [(subscription.webhook, event.key) for subscription in event.subscriptions]


def _duplicate(fw: Fw, webhook: str) -> DuplicateError:
    """Return the error for a used key, which names the Webhook only to users who may read it.

    The roles and scopes alone decide: after the refusal PostgreSQL answers no query.
    """
    meta = fw.documents.registry.meta("Webhook")
    readable = fw.rights.allows(meta, "read") and not fw.rights.excludes(meta)
    named = f"Webhook {webhook}" if readable else "A Webhook"
    return DuplicateError(f"{named} has already received an event with this key.", field="key")


def _check_size(events: Sequence[PreparedEvent | FwError]) -> None:
    """Check what several events would record; one is accepted as by `emit`.

    Raises: ValidationError.
    """
    if len(events) == 1:
        return
    deliveries = size = 0
    for each in events:
        if isinstance(each, PreparedEvent):
            count = len(each.subscriptions)
            deliveries += count
            size += count * len(each.payload.encode())
    if deliveries > MAX_DELIVERIES or size > MAX_RECORDED_BYTES:
        raise ValidationError(
            f"events would record {deliveries:,} deliveries with {size // 2**20} MiB of bodies; "
            f"the limits are {MAX_DELIVERIES:,} deliveries and {MAX_RECORDED_BYTES // 2**20} MiB. "
            "Send fewer events.",
            field="events",
        )


def _raise_first_of(results: Sequence[object]) -> None:
    """Raise the first error, with the event's position in the list as its field."""
    for index, refusal in enumerate(results):
        if isinstance(refusal, FwError):
            raise refusal.within(f"events[{index}]")


def _event_name(name: object) -> str:
    if not isinstance(name, str):
        raise ValidationError("name must be text.", field="name")
    try:
        validate_event_name(name)
    except UnusableEventNameError as error:
        raise ValidationError(str(error), field="name") from None
    return str.__str__(name)  # the text of an Enum member is its value


def _json_object(data: object) -> str:
    """Return `data` as JSON at the time of the call; later changes are not sent."""
    if not isinstance(data, Mapping):
        raise ValidationError("data must be an object.", field="data")
    plain = _plain_json(data)
    if plain is not None:
        return plain
    try:
        text = _ENCODER.encode(data)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"data must be JSON: {error}.", field="data") from None
    if not _has_text_keys(data):
        # Converted to text, 1 and "1" would be the same key twice.
        raise ValidationError("The keys of data must be text.", field="data")
    return text


def _plain_json(data: object) -> str | None:
    """Return the JSON of `data`, in a quarter of the time of `json`; None if `json` must judge it.

    msgspec also encodes what JSON lacks, such as times, and converts keys to text: only a value
    that equals what it decodes again has neither.
    """
    try:
        encoded = msgspec.json.encode(data)
        return encoded.decode() if msgspec.json.decode(encoded) == data else None
    except Exception:  # of any object in it, whose comparison may raise anything
        return None


def _has_text_keys(data: Mapping[object, object]) -> bool:
    """Return whether the keys of all objects are text, in a value that json can encode."""
    waiting: list[Iterable[object]] = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if not all(isinstance(key, str) for key in each):
                return False
            each = each.values()
        waiting += [inner for inner in each if isinstance(inner, _CONTAINERS)]
    return True


def _reference(reference: object) -> tuple[str | None, str | None]:
    if reference is None:
        return None, None
    if not isinstance(reference, Mapping) or set(reference) != {"doctype", "name"}:
        raise ValidationError("reference must be {doctype, name}.", field="reference")
    doctype, name = reference["doctype"], reference["name"]
    if not (_is_line(doctype) and _is_line(name)):
        raise ValidationError(
            f"reference must be {{doctype, name}}, each 1 to {KEY_CHARACTERS} characters of text "
            "without control characters.",
            field="reference",
        )
    return doctype, name


def _key(key: object) -> str | None:
    if key is None:
        return None
    if not _is_line(key):
        raise ValidationError(
            f"key must be 1 to {KEY_CHARACTERS} characters of text without control characters.",
            field="key",
        )
    return str.__str__(key)  # the text of an Enum member is its value


def _is_line(text: object) -> bool:
    """Return whether both databases can store the text in a column of 140 characters."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= KEY_CHARACTERS
        and not CONTROLS_AND_BREAKS.search(text)
    )
