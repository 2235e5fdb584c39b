"""Emitting events, one or many, without a service (H-222, H-225, H-226)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from fw_client import (
    ApiError,
    EmitInterrupted,
    Event,
    EventEmitted,
    EventRefused,
    FwClient,
    NotReached,
)
from tests.fw_client.scripted_service import (
    SIGNED_OUT,
    URL,
    ScriptedService,
    client,
    recorded,
)


def test_emit_is_repeated_with_same_key() -> None:
    service = ScriptedService(httpx.ReadTimeout("slow"), recorded)
    made = client(service).webhooks.emit("order.paid", {"n": 1})
    first, second = service.requests
    assert first.content == second.content
    assert made == EventEmitted(made.key, (f"msg_{made.key}",))


def test_emit_sends_given_key() -> None:
    """H-225: a program that emits again after its own crash gives the same key."""
    service = ScriptedService(recorded)
    assert client(service).webhooks.emit("order.paid", {}, key="order-7").key == "order-7"
    (event,) = json.loads(service.requests[0].content)["events"]
    assert event["options"]["key"] == "order-7"


def test_refused_emit_raises_api_error() -> None:
    refusal = {"type": "ValidationError", "message": "No.", "extra": {"field": "name"}}
    service = ScriptedService(httpx.Response(200, json={"events": [{"error": refusal}]}))
    with pytest.raises(ApiError) as refused:
        client(service).webhooks.emit("doc.on_insert", {})
    assert refused.value.field == "name"


def test_emit_many_sends_batches() -> None:
    service = ScriptedService(recorded, recorded, recorded)
    events = [Event("order.paid", {}, key=str(n)) for n in range(2001)]
    results = client(service).webhooks.emit_many(iter(events))
    assert [each.key for each in results] == [str(n) for n in range(2001)]
    assert len(service.requests) == 3


def test_emit_interrupted_has_results_and_unknown_events() -> None:
    service = ScriptedService(recorded, *[httpx.ReadTimeout("slow")] * 3)
    events = [Event("order.paid", {}, key=str(n)) for n in range(1500)]
    with pytest.raises(EmitInterrupted) as interrupted:
        client(service).webhooks.emit_many(events)
    assert len(interrupted.value.results) == 1000
    assert interrupted.value.unknown == tuple(events[1000:])
    assert isinstance(interrupted.value.__cause__, NotReached)


def test_emit_many_refuses_only_too_large_event() -> None:
    service = ScriptedService(recorded)
    events = [Event("order.paid", {"text": "x" * 5_000_000}), Event("order.paid", {})]
    first, second = client(service).webhooks.emit_many(events)
    assert isinstance(first, EventRefused)
    assert isinstance(second, EventEmitted)


def test_emit_many_splits_batch_that_records_too_much() -> None:
    """The service counts the Webhooks; the client sends the batch in halves (B-88)."""
    refusal = {"type": "ValidationError", "message": "Too many.", "extra": {"field": "events"}}
    too_many = httpx.Response(422, json={"error": refusal})
    service = ScriptedService(too_many, recorded, too_many, recorded, recorded)
    events = [Event("order.paid", {}, key=str(n)) for n in range(10)]
    results = client(service).webhooks.emit_many(events)
    assert [each.key for each in results] == [str(n) for n in range(10)]
    sizes = [len(json.loads(each.content)["events"]) for each in service.requests]
    assert sizes == [10, 5, 5, 2, 3]
    service = ScriptedService(httpx.Response(422, json={"error": refusal}))
    (refused,) = client(service).webhooks.emit_many(events[:1])
    assert isinstance(refused, EventRefused)


def test_emit_interrupted_has_each_event_taken_from_the_iterable() -> None:
    """H-226: nothing is lost of a generator that cannot be started again."""
    large = "x" * 3_000_000
    events = iter([Event("order.paid", {"text": large}, key=str(n)) for n in range(3)])
    service = ScriptedService(recorded, httpx.Response(403, json=SIGNED_OUT))
    with pytest.raises(EmitInterrupted) as caught:
        client(service).webhooks.emit_many(events)
    results, unknown = caught.value.results, caught.value.unknown
    keys = [*(each.key for each in results), *(each.key for each in (*unknown, *events))]
    assert keys == ["0", "1", "2"]


def failing(count: int) -> Iterator[Event]:
    for number in range(count):
        yield Event("order.paid", {}, key=str(number))
    raise OSError("the database is gone")


def test_failing_iterable_keeps_results_of_sent_events() -> None:
    """H-226."""
    with pytest.raises(EmitInterrupted) as caught:
        client(ScriptedService(recorded)).webhooks.emit_many(failing(1002))
    assert isinstance(caught.value.__cause__, OSError)
    assert len(caught.value.results) == 1000
    assert [each.key for each in caught.value.unknown] == ["1000", "1001"]


def test_iterable_failing_before_the_first_request_raises_its_error() -> None:
    service = ScriptedService()
    with pytest.raises(OSError, match="the database is gone"):
        client(service).webhooks.emit_many(failing(2))
    assert service.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(400, json={"error": {"type": "BadRequestError", "message": "Too deep."}}),
        httpx.Response(413, text="<html>of a proxy</html>"),
    ],
)
def test_event_that_spoils_its_batch_is_refused_alone(answer: httpx.Response) -> None:
    """H-226: a refused event does not prevent the others from being recorded."""

    def service(request: httpx.Request) -> httpx.Response:
        return answer if b"spoiled" in request.content else recorded(request)

    events = [Event("order.paid", {}, key=key) for key in ("a", "b", "spoiled", "c")]
    with httpx.Client(transport=httpx.MockTransport(service)) as http:
        results = FwClient(URL, key="fwk_k", http=http).webhooks.emit_many(events)
    assert [each.key for each in results if isinstance(each, EventRefused)] == ["spoiled"]
    assert [each.key for each in results] == ["a", "b", "spoiled", "c"]


def test_refused_event_has_the_request_id() -> None:
    """H-222."""
    error = {"type": "ValidationError", "message": "No."}
    headers = {"x-request-id": "r7"}
    answer = httpx.Response(200, json={"events": [{"error": error}]}, headers=headers)
    with pytest.raises(ApiError) as caught:
        client(ScriptedService(answer)).webhooks.emit("order.paid", {})
    assert caught.value.request_id == "r7"
