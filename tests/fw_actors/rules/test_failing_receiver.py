"""The health of a receiver follows from the outcomes of its attempts (B-239)."""

from __future__ import annotations

import pytest

from fw_actors.rules.receivers import ReceiverSlots, startable

REFUSED = "status: the receiver answered 503."


def failed_times(count: int, **fields: object) -> ReceiverSlots:
    receiver = ReceiverSlots(limit=16, window=8, **fields)  # type: ignore[arg-type]
    for n in range(count):
        receiver.take(1)
        receiver.failed(f"{n}: {REFUSED}", 1000 + n)
        receiver.answered(0.1)
    return receiver


@pytest.mark.parametrize(("count", "health"), [(0, "healthy"), (2, "healthy"), (3, "failing")])
def test_receiver_health_is_failing_after_three_failures(count: int, health: str) -> None:
    assert failed_times(count).health == health


def test_receiver_keeps_start_and_error_of_failures() -> None:
    receiver = failed_times(200)
    assert (receiver.failures, receiver.failing_since) == (200, 1000)
    assert receiver.last_error == f"199: {REFUSED}"


def test_receiver_success_resets_failures() -> None:
    receiver = failed_times(200)
    receiver.succeeded()
    assert (receiver.health, receiver.failures) == ("healthy", 0)
    assert (receiver.failing_since, receiver.last_error) == (None, "")


def test_receiver_health_ranks_paused_failing_slow() -> None:
    receiver = failed_times(3, slow=True)
    receiver.timed_out()
    assert receiver.health == "failing"
    receiver.paused = True
    assert receiver.health == "paused"


def test_receiver_failures_take_no_slot() -> None:
    """A receiver that fails quickly keeps its slots; its retries have their backoff."""
    receiver, answered = failed_times(9), ReceiverSlots(limit=16, window=16)
    assert startable(receiver, 512, 512) == startable(answered, 512, 512)
