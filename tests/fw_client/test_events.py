"""Events and their batches (H-225, H-226)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fw_client.errors import BadCall, Invalid
from fw_client.events import MAX_BYTES, Event, EventBatch, batches
from fw_client.models import EventEmitted, EventRefused

MIB = 1024 * 1024


def event(size: int = 0, key: str = "k") -> Event:
    return Event("order.paid", {"text": "x" * size}, key=key)


def test_event_has_unique_key_from_creation() -> None:
    first, second = Event("order.paid", {}), Event("order.paid", {})
    assert first.key != second.key
    assert first.as_json() == first.as_json()


def test_event_as_json_has_form_of_service() -> None:
    made = Event("order.paid", {"n": 1}, ("Sales Order", "SO-1"), "SO-1")
    reference = {"doctype": "Sales Order", "name": "SO-1"}
    options = {"key": "SO-1", "reference": reference}
    assert made.as_json() == {"name": "order.paid", "data": {"n": 1}, "options": options}


def test_batches_hold_a_thousand_events() -> None:
    made = list(batches(event() for _ in range(2001)))
    assert [len(each.events) for each in made] == [1000, 1000, 1]
    assert len(json.loads(made[0].body or b"")["events"]) == 1000


def test_batches_are_never_larger_than_a_request_may_be() -> None:
    made = list(batches(event(MIB - 100) for _ in range(9)))
    assert [len(each.events) for each in made] == [4, 4, 1]
    assert all(len(each.body or b"") <= MAX_BYTES for each in made)


def test_batch_may_be_exactly_as_large_as_request() -> None:
    (small,) = batches([event()])
    room = MAX_BYTES - len(small.body or b"")
    (full,) = batches([event(room)])
    assert len(full.body or b"") == MAX_BYTES
    (over,) = batches([event(room + 1)])
    assert over.body is None


def test_too_large_event_is_refused_in_its_position() -> None:
    made = list(batches([event(key="a"), event(5 * MIB, "b"), event(key="c")]))
    assert [[each.key for each in batch.events] for batch in made] == [["a"], ["b"], ["c"]]
    (refused,) = next(each for each in made if each.body is None).too_large()
    assert isinstance(refused, EventRefused)
    assert isinstance(refused.error, BadCall)


def test_empty_list_of_events_makes_no_batch() -> None:
    assert list(batches([])) == []


def test_event_data_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        list(batches([Event("order.paid", {"n": float("nan")})]))
    with pytest.raises(TypeError):
        list(batches([Event("order.paid", {"n": object()})]))


def test_event_that_is_a_dict_is_refused() -> None:
    """`fw.webhooks.emit_many` of an app takes dicts."""
    events: list[Any] = [{"name": "order.paid", "data": {}}]
    with pytest.raises(TypeError, match=r"^events must contain Event objects, not dict$"):
        list(batches(events))


def test_results_are_those_of_the_events_in_order() -> None:
    batch = EventBatch((event(key="a"), event(key="b"), event(key="c")), b"")
    taken = {"type": "DuplicateError", "message": "Known.", "extra": {"field": "key"}}
    wrong = {"type": "ValidationError", "message": "No.", "extra": {"field": "name"}}
    first, second, third = batch.results(
        {"events": [{"deliveries": ["msg_1"]}, {"error": taken}, {"error": wrong}]}
    )
    assert first == EventEmitted("a", ("msg_1",))
    assert second == EventEmitted("b", (), repeated=True)
    assert isinstance(third, EventRefused)
    assert isinstance(third.error, Invalid)
    assert (third.key, third.error.field) == ("c", "name")


def test_batch_is_split_only_for_too_many_deliveries() -> None:
    """A single event cannot be split, and another refusal concerns the request as a whole."""
    two, one = batches([event()] * 2), batches([event()])
    (several,), (single,) = two, one
    too_many = Invalid(422, "ValidationError", "Too many.", {"field": "events"})
    assert several.must_be_split(too_many)
    assert not single.must_be_split(too_many)
    assert not several.must_be_split(Invalid(422, "ValidationError", "No.", {"field": "name"}))
    assert not several.must_be_split(BadCall(400, "BadRequestError", "No.", {"field": "events"}))


def test_results_of_wrong_number_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        EventBatch((event(), event()), b"").results({"events": [{"deliveries": []}]})
