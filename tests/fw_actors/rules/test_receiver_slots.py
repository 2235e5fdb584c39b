"""The number of slots of a receiver (B-230, B-231, B-232, B-233)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.receivers import ReceiverSlots, fair_shares, startable


def test_receiver_slots_double_up_to_limit() -> None:
    """A receiver starts with one slot and doubles with each answer up to the limit (B-231)."""
    receiver = ReceiverSlots(limit=16)
    windows = [receiver.window]
    for _ in range(6):
        receiver.take(1)
        receiver.answered(0.2)
        windows.append(receiver.window)
    assert windows == [1, 2, 4, 8, 16, 16, 16]


def test_receiver_slots_fall_to_one_on_slow_head() -> None:
    receiver = ReceiverSlots(limit=16, window=16)
    receiver.take(1)
    receiver.answered(1.001)
    assert (receiver.window, receiver.slow) == (1, True)


def test_receiver_slots_grow_for_head_within_second() -> None:
    receiver = ReceiverSlots(limit=16, window=4)
    receiver.take(1)
    receiver.answered(1.0)
    assert (receiver.window, receiver.slow) == (8, False)


def test_receiver_slots_fall_to_one_on_timeout() -> None:
    receiver = ReceiverSlots(limit=16, window=16)
    receiver.take(1)
    receiver.timed_out()
    assert (receiver.window, receiver.slow, receiver.in_flight) == (1, True, 0)


def test_receiver_slots_keep_window_at_neutral_end() -> None:
    receiver = ReceiverSlots(limit=16, window=4)
    receiver.take(3)
    receiver.ended()
    assert (receiver.window, receiver.slow, receiver.in_flight, receiver.free) == (4, False, 2, 2)


def test_receiver_slots_have_none_free_in_shrunk_window() -> None:
    receiver = ReceiverSlots(limit=16, window=4)
    receiver.take(4)
    receiver.timed_out()
    assert receiver.free == 0


def test_startable_reserves_quarter_for_fast_receivers() -> None:
    """A quarter of `deliveryConcurrency` is closed to slow receivers (B-233)."""
    slow = ReceiverSlots(limit=16, slow=True)
    assert [startable(slow, free, 512) for free in (512, 129, 128, 1, 0)] == [1, 1, 0, 0, 0]


def test_startable_gives_last_slot_to_healthy_receiver() -> None:
    assert startable(ReceiverSlots(limit=16), 1, 512) == 1


@given(st.integers(1, 64), st.booleans(), st.integers(0, 100), st.integers(0, 600))
def test_startable_never_exceeds_free_slots(
    window: int, slow: bool, in_flight: int, free: int
) -> None:
    receiver = ReceiverSlots(64, window, slow, in_flight)
    started = startable(receiver, free, 512)
    assert 0 <= started <= min(free, max(0, window - in_flight))


@given(st.integers(0, 20), st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_fair_shares_leave_no_webhook_two_slots_behind_another(free: int, used: list[int]) -> None:
    """No Webhook gets a slot while another one has two fewer; all free slots are given (B-237)."""
    in_flight = {str(number): count for number, count in enumerate(used)}
    shares = fair_shares(free, in_flight)
    after = {webhook: count + shares[webhook] for webhook, count in in_flight.items()}
    assert sum(shares.values()) == free
    assert all(after[webhook] <= min(after.values()) + 1 for webhook in shares if shares[webhook])


def test_fair_shares_count_attempts_in_flight() -> None:
    assert fair_shares(8, {"a": 8, "b": 0}) == {"a": 0, "b": 8}
    assert fair_shares(2, {"a": 14, "b": 0, "c": 0}) == {"a": 0, "b": 1, "c": 1}
    assert fair_shares(8, {"a": 0, "b": 0, "c": 0}) == {"a": 3, "b": 3, "c": 2}
    assert fair_shares(0, {"a": 1, "b": 1}) == {"a": 0, "b": 0}
