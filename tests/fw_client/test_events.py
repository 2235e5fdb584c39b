"""Events and their batches (H-225, H-226)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fw_client.errors import BadCall, Invalid, Unavailable
from fw_client.events import MAX_BYTES, Event, EventBatch, EventBatches
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
    made = list(EventBatches(event() for _ in range(2001)))
    assert [len(each.events) for each in made] == [1000, 1000, 1]
    assert len(json.loads(made[0].body or b"")["events"]) == 1000


def test_batches_are_never_larger_than_a_request_may_be() -> None:
    made = list(EventBatches(event(MIB - 100) for _ in range(9)))
    assert [len(each.events) for each in made] == [4, 4, 1]
    assert all(len(each.body or b"") <= MAX_BYTES for each in made)


def test_batch_may_be_exactly_as_large_as_request() -> None:
    (small,) = EventBatches([event()])
    room = MAX_BYTES - len(small.body or b"")
    (full,) = EventBatches([event(room)])
    assert len(full.body or b"") == MAX_BYTES
    (over,) = EventBatches([event(room + 1)])
    assert over.body is None


def test_too_large_event_is_refused_in_its_position() -> None:
    made = list(EventBatches([event(key="a"), event(5 * MIB, "b"), event(key="c")]))
    assert [[each.key for each in batch.events] for batch in made] == [["a"], ["b"], ["c"]]
    (refused,) = next(each for each in made if each.body is None).too_large()
    assert isinstance(refused, EventRefused)
    assert isinstance(refused.error, BadCall)


def test_empty_list_of_events_makes_no_batch() -> None:
    assert list(EventBatches([])) == []


def test_event_data_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        list(EventBatches([Event("order.paid", {"n": float("nan")})]))
    with pytest.raises(TypeError):
        list(EventBatches([Event("order.paid", {"n": object()})]))


def test_event_that_is_a_dict_is_refused() -> None:
    """`fw.webhooks.emit_many` of an app takes dicts."""
    events: list[Any] = [{"name": "order.paid", "data": {}}]
    with pytest.raises(TypeError, match=r"^events must contain Event objects, not dict$"):
        list(EventBatches(events))


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


def test_refusal_is_only_an_error_about_the_events() -> None:
    """Another error concerns the request as a whole."""
    (batch,) = EventBatches([event()] * 2)
    too_many = Invalid(422, "ValidationError", "Too many.", {"field": "events"})
    too_deep = BadCall(400, "BadRequestError", "Nested too deeply.")
    for error in (too_many, too_deep, BadCall(413, "", "Too large for a proxy.")):
        assert batch.refusal(error) is error
    for other in (
        Invalid(422, "ValidationError", "No.", {"field": "name"}),
        BadCall(400, "", "Of a proxy."),
        Unavailable(503, "", "Later."),
    ):
        assert batch.refusal(other) is None


@pytest.mark.parametrize("key", [None, 5])
def test_event_key_that_is_no_text_is_refused(key: Any) -> None:
    """H-225: with null the service would record the event again at each repetition."""
    with pytest.raises(TypeError, match=r"^key must be text"):
        Event("order.paid", {}, key=key)


@pytest.mark.parametrize("data", [None, "ab", ["ab"]])
def test_event_data_that_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(TypeError, match=r"^data must be a mapping"):
        Event("order.paid", data)


def test_deeply_nested_event_is_refused() -> None:
    data: dict[str, Any] = {}
    for _ in range(100_000):
        data = {"a": data}
    with pytest.raises(ValueError, match="nested too deeply"):
        list(EventBatches([Event("order.paid", data)]))


def test_unusable_event_is_named_by_a_note() -> None:
    with pytest.raises(TypeError) as caught:
        list(EventBatches([Event("order.paid", {"n": object()}, key="SO-7")]))
    assert "the key SO-7" in caught.value.__notes__[0]


def test_full_batch_takes_no_further_event() -> None:
    """H-226: an event that was taken for the next batch would be lost with a failed request."""
    events = iter([event(key=str(n)) for n in range(1001)])
    next(iter(EventBatches(events)))
    assert next(events).key == "1000"


def test_event_taken_for_the_next_batch_is_waiting() -> None:
    made = EventBatches(event(3 * MIB, key) for key in "abc")
    batch = next(iter(made))
    assert [each.key for each in batch.events] == ["a"]
    assert [each.key for each in made.waiting] == ["b"]


def test_results_of_wrong_number_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        EventBatch((event(), event()), b"").results({"events": [{"deliveries": []}]})
