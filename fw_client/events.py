"""Events, and their batches, each within the limits of one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fw_client.errors import BadCall, FwClientError, Invalid, api_error
from fw_client.models import EmitResult, EventEmitted, EventRefused
from fw_client.randomness import new_key
from fw_client.wire import encode

MAX_EVENTS: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
_HEAD, _TAIL = b'{"events":[', b"]}"
_ROOM: Final = MAX_BYTES - len(_HEAD) - len(_TAIL)
_DUPLICATE: Final = "DuplicateError"


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
    """

    name: str
    data: Mapping[str, Any] = field(repr=False)
    reference: tuple[str, str] | None = None
    key: str = field(default_factory=new_key)

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

    def results(self, answer: Mapping[str, Any]) -> list[EmitResult]:
        """Return a result for each event. Raises: ValueError unless there is a result for each."""
        answers = answer["events"]
        return [_result(*each) for each in zip(self.events, answers, strict=True)]

    def halves(self) -> tuple[EventBatch, EventBatch]:
        """Return the batch in two parts."""
        middle = len(self.events) // 2
        first, second = self.events[:middle], self.events[middle:]
        return _encoded(first), _encoded(second)

    def must_be_split(self, error: FwClientError) -> bool:
        """Return whether the service has refused the batch because it records too many
        deliveries."""
        return isinstance(error, Invalid) and error.field == "events" and len(self.events) > 1

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
    """Raised when a request of `emit_many` failed permanently; the reason is its `__cause__`.

    Attributes:
        results: of the earlier events, in order.
        unknown: the events of the failed request; none, some or all of them may be recorded. Emit
            these objects again: their keys prevent duplicates. Later events were not taken from the
            iterable.
    """

    def __init__(self, results: Sequence[EmitResult], unknown: Sequence[Event]) -> None:
        self.results, self.unknown = tuple(results), tuple(unknown)
        super().__init__(
            f"{len(self.results):,} events have a result; it is not known whether the next "
            f"{len(self.unknown):,} are recorded"
        )


def batches(events: Iterable[Event]) -> Iterator[EventBatch]:
    """Yield events in batches of at most 1,000 and 4 MiB, in order.

    Raises: TypeError, ValueError for data that JSON cannot express, after the batches before it
        were yielded; TypeError for anything but an Event.
    """
    gathered: list[Event] = []
    encoded: list[bytes] = []
    size = 0
    for event in events:
        if not isinstance(event, Event):  # the app's own emit_many takes dicts
            raise TypeError(f"events must contain Event objects, not {type(event).__name__}")
        text = encode(event.as_json())
        if len(gathered) == MAX_EVENTS or (gathered and size + 1 + len(text) > _ROOM):
            yield _batch(gathered, encoded)
            gathered, encoded, size = [], [], 0
        if len(text) > _ROOM:
            yield EventBatch((event,), None)
            continue
        size += len(text) + (1 if gathered else 0)
        gathered.append(event)
        encoded.append(text)
    if gathered:
        yield _batch(gathered, encoded)


def _encoded(events: Sequence[Event]) -> EventBatch:
    return _batch(events, [encode(event.as_json()) for event in events])


def _batch(events: Sequence[Event], encoded: Sequence[bytes]) -> EventBatch:
    return EventBatch(tuple(events), _HEAD + b",".join(encoded) + _TAIL)


def _result(event: Event, answer: Mapping[str, Any]) -> EmitResult:
    if "error" not in answer:
        return EventEmitted(event.key, tuple(answer["deliveries"]))
    error = answer["error"]
    if error["type"] == _DUPLICATE:
        return EventEmitted(event.key, (), repeated=True)
    status = 400 if error["type"] == "BadRequestError" else 422
    return EventRefused(event.key, api_error(status, {"error": error}))
