"""Custom events: validated, and recorded alone or in batches (B-70 to B-87).

A batch is one transaction. Its deliveries are written by two statements however many there are;
keys are looked up before. A key that another transaction wrote meanwhile refuses the statement on
PostgreSQL, and the events are then recorded one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.fields import CONTROLS_AND_BREAKS, iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.registry import Registry
from fw_actors.errors import DuplicateError, FwError, ValidationError
from fw_actors.rules.signing import UnusableEventNameError, validate_event_name
from fw_actors.store import Statement, UniqueViolation
from fw_actors.store.statement import JsonRows, rows_as_json
from fw_actors.webhooks.events import DeliveryRecorder, RecordedEvent
from fw_actors.webhooks.subscriptions import SubscriptionCache

KEY_CHARACTERS: Final = 140
MAX_EVENTS: Final = 1000
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CONTAINERS: Final = (dict, list, tuple)
_REQUIRED: Final = {"name", "data"}
_ALLOWED: Final = {*_REQUIRED, "reference", "key"}

Emitted = dict[str, Any]
"""`{"deliveries": [id, …]}`, or `{"error": {"type", "message", "extra"}}` as in a response."""


class CustomEvents:
    """Records the events that apps emit."""

    def __init__(
        self,
        registry: Registry,
        subscriptions: SubscriptionCache,
        deliveries: DeliveryRecorder,
        *,
        off: bool,
    ) -> None:
        """`off`: FW_WEBHOOKS=off, nothing is queued."""
        c = registry.tables["Webhook Delivery"].table.c
        given = JsonRows("given")
        self._used = Statement(
            sa.select(c.webhook, c.key)
            .select_from(given.table)
            .where(c.webhook == given.item(0, str), c.key == given.item(1, str))
        )
        self._subscriptions = subscriptions
        self._deliveries = deliveries
        self._off = off

    def emit(
        self, fw: Fw, name: object, data: object, reference: object, key: object
    ) -> dict[str, list[str]]:
        """Record an event. Raises: ValidationError; DuplicateError for a used key."""
        return {"deliveries": self._record_one(fw, self._event(fw, name, data, reference, key))}

    def emit_beside(
        self, fw: Fw, name: str, data: Mapping[str, object], *, skipped: str
    ) -> list[str]:
        """Record an event of the service, but not for the Webhook `skipped`; return the ids."""
        event = self._event(fw, name, data, None, None)
        wanted = [each for each in event.wanted if each.webhook != skipped]
        return self._record_one(fw, event._replace(wanted=wanted))

    def emit_many(self, fw: Fw, given: object, all_or_nothing: bool) -> list[Emitted]:
        """Record up to 1,000 events; return a result for each, in order.

        Args:
            given: mappings with `name`, `data` and, if wanted, `reference` and `key`; an FwError
                in place of one is its result.
            all_or_nothing: raise the first refusal. The caller undoes what was written before it.

        Raises: ValidationError for anything but a list of 1 to 1,000 events.
        """
        if isinstance(given, str | bytes) or not isinstance(given, Sequence):
            raise ValidationError("events must be a list.", field="events")
        if not 1 <= len(given) <= MAX_EVENTS:
            raise ValidationError(f"events must hold 1 to {MAX_EVENTS:,} events.", field="events")
        planned = self._without_used_keys(fw, [self._planned(fw, each) for each in given])
        if all_or_nothing:
            _raise_first_of(planned)
        results = self._record_all(fw, planned)
        if all_or_nothing:
            _raise_first_of(results)
        return [
            {"error": result.details} if isinstance(result, FwError) else {"deliveries": result}
            for result in results
        ]

    def _planned(self, fw: Fw, given: object) -> RecordedEvent | FwError:
        if isinstance(given, FwError):
            return given
        if not isinstance(given, Mapping) or not _REQUIRED <= set(given) <= _ALLOWED:
            return ValidationError("An event must be {name, data, reference?, key?}.")
        try:
            return self._event(
                fw, given["name"], given["data"], given.get("reference"), given.get("key")
            )
        except ValidationError as refusal:
            return refusal

    def _event(
        self, fw: Fw, name: object, data: object, reference: object, key: object
    ) -> RecordedEvent:
        """Return a valid event with its subscriptions. Raises: ValidationError."""
        event = _event_name(name)
        body = _json_object(data)
        pointed = _reference(reference)
        known_by = _key(key)
        wanted = () if self._off else self._subscriptions.of(fw.tx).custom.get(event, ())
        payload = f'{{"type":"{event}","timestamp":"{iso(fw.tx.now)}","data":{body}}}'
        return RecordedEvent(wanted, event, payload, pointed, known_by)

    def _without_used_keys(
        self, fw: Fw, planned: Sequence[RecordedEvent | FwError]
    ) -> list[RecordedEvent | FwError]:
        """Refuse events whose key a Webhook has received, or an earlier event of the batch has."""
        pairs = [
            pair for each in planned if isinstance(each, RecordedEvent) for pair in _keys(each)
        ]
        if not pairs:
            return list(planned)
        used = set(fw.tx.rows(self._used, given=rows_as_json(pairs)))
        left: list[RecordedEvent | FwError] = []
        for each in planned:
            mine = _keys(each) if isinstance(each, RecordedEvent) else []
            taken = next((webhook for webhook, key in mine if (webhook, key) in used), None)
            used.update(mine if taken is None else ())
            left.append(each if taken is None else _duplicate(taken))
        return left

    def _record_all(
        self, fw: Fw, planned: Sequence[RecordedEvent | FwError]
    ) -> list[list[str] | FwError]:
        try:
            with fw.tx.savepoint():
                recorded = iter(
                    self._deliveries.record(
                        fw, [each for each in planned if isinstance(each, RecordedEvent)]
                    )
                )
        except UniqueViolation:  # another transaction has used a key since it was looked up
            return [
                each if isinstance(each, FwError) else self._record_apart(fw, each)
                for each in planned
            ]
        return [each if isinstance(each, FwError) else next(recorded) for each in planned]

    def _record_apart(self, fw: Fw, event: RecordedEvent) -> list[str] | FwError:
        try:
            with fw.tx.savepoint():
                return self._record_one(fw, event)
        except DuplicateError as refusal:
            return refusal

    def _record_one(self, fw: Fw, event: RecordedEvent) -> list[str]:
        """Record an event for one Webhook after the other. Raises: DuplicateError."""
        ids: list[str] = []
        for subscription in event.wanted:
            try:
                (made,) = self._deliveries.record(fw, [event._replace(wanted=(subscription,))])
            except UniqueViolation:
                raise _duplicate(subscription.webhook) from None
            ids += made
        return ids


def _keys(event: RecordedEvent) -> list[tuple[str, str]]:
    """Return the Webhooks that an event with a key goes to, each with the key."""
    if event.key is None:
        return []
    return [(subscription.webhook, event.key) for subscription in event.wanted]


def _duplicate(webhook: str) -> DuplicateError:
    return DuplicateError(
        f"Webhook {webhook} has already received an event with this key.", field="key"
    )


def _raise_first_of(results: Sequence[object]) -> None:
    """Raise the first refusal, with the event's place in the list as its field."""
    for index, refusal in enumerate(results):
        if isinstance(refusal, FwError):
            place = f"events[{index}]"
            field = refusal.extra.get("field")
            extra: dict[str, Any] = {
                **refusal.extra,
                "field": f"{place}.{field}" if field else place,
            }
            raise type(refusal)(f"{place}: {refusal.message}", **extra)


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
    try:
        text = _ENCODER.encode(data)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise ValidationError("data must be serialisable as JSON.", field="data") from None
    if not _has_text_keys(data):
        # Converted to text, 1 and "1" would be the same key twice.
        raise ValidationError("The keys of data must be text.", field="data")
    return text


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
        raise ValidationError("reference must be {doctype, name}, both text.", field="reference")
    return doctype, name


def _key(key: object) -> str | None:
    if key is None:
        return None
    if not _is_line(key):
        raise ValidationError(
            f"key must be 1 to {KEY_CHARACTERS} characters of text without control characters.",
            field="key",
        )
    return str.__str__(key)  # of an Enum member, its value


def _is_line(text: object) -> bool:
    """Return whether both stores can keep the text in a column of 140 characters."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= KEY_CHARACTERS
        and not CONTROLS_AND_BREAKS.search(text)
    )
