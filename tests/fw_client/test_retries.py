"""Which requests are sent again, and when (H-223, H-224)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fw_client.errors import ApiError, NotReached, RateLimited
from fw_client.retries import RetryPolicy, requests, wait_before_next
from fw_client.wire import Call, HttpAnswer, NoAnswer

POLICY = RetryPolicy(attempts=4, first_seconds=1, longest_seconds=3)
LOST, UNSENT = NoAnswer("timeout", sent=True), NoAnswer("refused", sent=False)
DONE = HttpAnswer(200, {}, b'{"n": 1}')


def busy(status: int = 503, seconds: str = "", **extra: Any) -> HttpAnswer:
    envelope = {"error": {"type": "OverloadedError", "message": "Busy.", "extra": extra}}
    headers = {"retry-after": seconds} if seconds else {}
    return HttpAnswer(status, headers, json.dumps(envelope).encode())


def call(*, repeatable: bool = True, **more: Any) -> Call[Any]:
    return Call("POST", "/x", lambda answer: answer, repeatable, **more)


def drive(operation: Call[Any], *outcomes: HttpAnswer | NoAnswer) -> tuple[Any, list[float]]:
    """The result of a call whose requests have these outcomes, and the waits between them."""
    left, waits = iter(outcomes), []
    steps = requests(operation, POLICY, lambda: 0.0, "r1")
    step = next(steps)
    try:
        while True:
            if step is None:
                step = steps.send(next(left))
            else:
                waits.append(step)
                step = steps.send(None)
    except StopIteration as end:
        assert next(left, None) is None, "each outcome was asked for"
        return end.value, waits


def wait(outcome: HttpAnswer | NoAnswer, *, attempt: int = 1, repeatable: bool = True) -> Any:
    return wait_before_next(POLICY, attempt, outcome, repeatable, 0.0)


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_busy_status_repeats_only_repeatable_calls(status: int) -> None:
    assert wait(busy(status)) == 1
    assert wait(busy(status), repeatable=False) is None


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 409, 422, 500])
def test_remaining_statuses_are_final(status: int) -> None:
    assert wait(HttpAnswer(status, {}, b"")) is None


def test_lost_response_repeats_only_repeatable_calls() -> None:
    assert wait(LOST) == 1
    assert wait(LOST, repeatable=False) is None


def test_unsent_request_is_always_repeated() -> None:
    assert wait(UNSENT, repeatable=False) == 1


def test_retry_waits_double_up_to_longest() -> None:
    assert [wait(LOST, attempt=n) for n in (1, 2, 3, 4)] == [1, 2, 3, None]


def test_retry_wait_stays_longest_for_any_number_of_attempts() -> None:
    """A program that never gives up outlasts an outage of days."""
    patient = RetryPolicy(attempts=10**9, first_seconds=0.5, longest_seconds=30)
    assert wait_before_next(patient, 10**6, UNSENT, True, 0.0) == 30


def test_retry_wait_is_reduced_by_random_half() -> None:
    assert wait_before_next(POLICY, 2, LOST, True, 0.5) == 1.5
    assert wait_before_next(POLICY, 2, LOST, True, 1.0) == 1


def test_retry_policy_has_documented_defaults() -> None:
    """H-224."""
    policy = RetryPolicy()
    assert (policy.attempts, policy.first_seconds, policy.longest_seconds) == (4, 0.5, 30)
    assert RetryPolicy(attempts=1, first_seconds=0, longest_seconds=0).attempts == 1


def test_retry_after_lengthens_a_wait_and_never_shortens_it() -> None:
    assert wait(busy(seconds="3")) == 3
    assert wait(busy(seconds="1"), attempt=2) == 2
    assert wait(busy(seconds="Wed, 21 Oct 2026 07:28:00 GMT")) == 1


def test_retry_after_beyond_longest_wait_is_final() -> None:
    assert wait(busy(429, "4")) is None


def test_query_timeout_is_not_repeated() -> None:
    assert wait(busy(reason="queryTimeout")) is None


def test_call_returns_result_after_waits() -> None:
    assert drive(call(), UNSENT, busy(), DONE) == ({"n": 1}, [1, 2])


def test_not_reached_states_whether_request_was_sent() -> None:
    with pytest.raises(NotReached, match="after 4 attempts: refused") as lost:
        drive(call(), LOST, UNSENT, UNSENT, UNSENT)
    assert lost.value.sent
    with pytest.raises(NotReached) as never:
        drive(call(), UNSENT, UNSENT, UNSENT, UNSENT)
    assert not never.value.sent
    assert never.value.request_id == "r1"


def test_call_raises_error_of_last_response() -> None:
    with pytest.raises(RateLimited) as refused:
        drive(call(), busy(429, "900"))
    assert refused.value.retry_after == 900


@pytest.mark.parametrize("first", [LOST, busy(502)])
def test_not_found_after_lost_deletion_is_success(first: Any) -> None:
    gone = HttpAnswer(404, {}, b'{"error": {"type": "NotFoundError", "message": "Gone."}}')
    deletion = call(done_if_repeated=frozenset({"NotFoundError"}))
    assert drive(deletion, first, gone) == (None, [1])
    with pytest.raises(ApiError):
        drive(deletion, gone)
    with pytest.raises(ApiError):
        drive(deletion, UNSENT, gone)
    linked = HttpAnswer(409, {}, b'{"error": {"type": "ConflictError", "message": "Linked."}}')
    with pytest.raises(ApiError, match="Linked") as refused:
        drive(deletion, first, linked)
    assert refused.value.repeated
    with pytest.raises(ApiError, match="Linked") as refused:
        drive(deletion, UNSENT, linked)
    assert not refused.value.repeated


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_seconds": -1}, {"first_seconds": 31}])
def test_retry_policy_refuses_unusable_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        RetryPolicy(**wrong)
