"""Events, and their batches, each within the limits of one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fw_client.errors import ApiError, BadCall, FwClientError, Invalid, api_error
from fw_client.models import EmitResult, EventEmitted, EventRefused
from fw_client.randomness import new_key
from fw_client.wire import encode

MAX_EVENTS: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
_HEAD, _TAIL = b'{"events":[', b"]}"
_ROOM: Final = MAX_BYTES - len(_HEAD) - len(_TAIL)
_DUPLICATE: Final = "DuplicateError"
_BAD_REQUEST: Final = "BadRequestError"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of an app.

    The key is set when the object is created, so that the same object can be emitted again if the
    result of a call is unknown: no Webhook receives it twice.

    Attributes:
        name: such as `order.paid`; not `doc.…`.
        data: any JSON object.
        reference: the DocType and the name of the document that it is about.
        key: at most 140 characters; random by default. Use a value of your data, such as the number
            of an order, if the program may emit the event again after a restart.

    Raises: TypeError for a key that is no text, and for data that are no mapping.
    """

    name: str
    data: Mapping[str, Any] = field(repr=False)
    reference: tuple[str, str] | None = None
    key: str = field(default_factory=new_key)

    def __post_init__(self) -> None:
        # The service would take None as no key: a repeated request would emit the event twice.
        if not isinstance(self.key, str):
            raise TypeError(
                f"key must be text, not {type(self.key).__name__}; leave it out for a random one"
            )
        if not isinstance(self.data, Mapping):
            raise TypeError(f"data must be a mapping, not {type(self.data).__name__}")

    def as_json(self) -> dict[str, Any]:
        """Return the event in the service's format."""
        options: dict[str, Any] = {"key": self.key}
        if self.reference is not None:
            doctype, name = self.reference
            options["reference"] = {"doctype": doctype, "name": name}
        return {"name": self.name, "data": dict(self.data), "options": options}


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one request; `body` is None for an event that is too large for a request."""

    events: tuple[Event, ...]
    body: bytes | None = field(repr=False)

    def results(self, answer: Mapping[str, Any], request_id: str | None = None) -> list[EmitResult]:
        """Return a result for each event; `request_id` is that of their errors.

        Raises: ValueError unless there is a result for each.
        """
        answers = answer["events"]
        return [
            _result(event, each, request_id)
            for event, each in zip(self.events, answers, strict=True)
        ]

    def halves(self) -> tuple[EventBatch, EventBatch]:
        """Return the batch in two parts."""
        middle = len(self.events) // 2
        first, second = self.events[:middle], self.events[middle:]
        return _encoded(first), _encoded(second)

    def refusal(self, error: FwClientError) -> ApiError | None:
        """Return the error if it refuses the batch because of its events; None for another one.

        They would record too many deliveries, are larger than a proxy permits, or one of them makes
        the whole body invalid, such as one that is nested too deeply. The events must then be sent
        in parts, so that only the event at fault is refused.
        """
        if isinstance(error, Invalid):
            return error if error.field == "events" else None
        if isinstance(error, BadCall):
            return error if error.status == 413 or error.code == _BAD_REQUEST else None
        return None

    def too_large(self) -> list[EmitResult]:
        """Return the results of a batch without a body."""
        return [
            EventRefused(
                event.key,
                BadCall(413, "PayloadTooLargeError", f"An event is larger than {_ROOM:,} bytes."),
            )
            for event in self.events
        ]


class EmitInterrupted(FwClientError):
    """Raised when `emit_many` cannot continue after events may have been recorded.

    The reason is its `__cause__`: a request failed permanently, or the iterable raised an error or
    has an event that JSON cannot express.

    Attributes:
        results: of the earlier events, in order.
        unknown: the events that were taken from the iterable and have no result; none, some or all
            of them may be recorded. Emit these objects again: their keys prevent duplicates. Later
            events were not taken from the iterable.
    """

    def __init__(self, results: Sequence[EmitResult], unknown: Sequence[Event]) -> None:
        self.results, self.unknown = tuple(results), tuple(unknown)
        super().__init__(
            f"{len(self.results):,} events have a result; it is not known whether the next "
            f"{len(self.unknown):,} are recorded"
        )


class EventBatches:
    """Divides events into batches of at most 1,000 and 4 MiB, in order.

    Iterating raises the errors of the iterable; TypeError, ValueError for data that JSON cannot
    express; TypeError for anything but an Event.

    Attributes:
        waiting: the events that were taken from the iterable and are in no batch yet.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self.waiting: list[Event] = []

    def __iter__(self) -> Iterator[EventBatch]:
        encoded: list[bytes] = []
        size = 0
        for event in self._events:
            text = _text(event)
            if encoded and size + 1 + len(text) > _ROOM:
                full, self.waiting = self.waiting, [event]
                yield _batch(full, encoded)
                encoded, size = [], 0
            else:
                self.waiting.append(event)
            if len(text) > _ROOM:
                self.waiting = []
                yield EventBatch((event,), None)
                continue
            size += len(text) + (1 if encoded else 0)
            encoded.append(text)
            if len(encoded) == MAX_EVENTS:  # before another event is taken
                full, self.waiting = self.waiting, []
                yield _batch(full, encoded)
                encoded, size = [], 0
        if encoded:
            full, self.waiting = self.waiting, []
            yield _batch(full, encoded)


def _text(event: object) -> bytes:
    """Return an event as JSON."""
    if not isinstance(event, Event):  # the app's own emit_many takes dicts
        raise TypeError(f"events must contain Event objects, not {type(event).__name__}")
    try:
        return encode(event.as_json())
    except (TypeError, ValueError) as error:
        error.add_note(f"in the data of the event {event.name} with the key {event.key}")
        raise


def _encoded(events: Sequence[Event]) -> EventBatch:
    return _batch(events, [_text(event) for event in events])


def _batch(events: Sequence[Event], encoded: Sequence[bytes]) -> EventBatch:
    return EventBatch(tuple(events), _HEAD + b",".join(encoded) + _TAIL)


def _result(event: Event, answer: Mapping[str, Any], request_id: str | None) -> EmitResult:
    if "error" not in answer:
        return EventEmitted(event.key, tuple(answer["deliveries"]))
    error = answer["error"]
    if error["type"] == _DUPLICATE:
        return EventEmitted(event.key, (), repeated=True)
    status = 400 if error["type"] == _BAD_REQUEST else 422
    return EventRefused(event.key, api_error(status, {"error": error}, request_id))
