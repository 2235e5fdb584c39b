"""The shares of a full queue: at most 64 wait (A-113, A-116, A-117)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.fair_queue import FairQueue, QueueFull, Requester


def filled(queue: FairQueue[str], requester: Requester, count: int) -> FairQueue[str]:
    for number in range(count):
        assert queue.put(f"{requester.name}{number}", requester) is None
    return queue


def served(queue: FairQueue[str]) -> list[str]:
    items = []
    while (item := queue.pop()) is not None:
        items.append(item)
    return items


A, B, C = (Requester(name) for name in "abc")
KNOWN = Requester("k", known=True)


def test_fair_queue_serves_requesters_in_turn() -> None:
    queue: FairQueue[str] = FairQueue(8)
    filled(queue, A, 4)
    filled(queue, B, 2)
    filled(queue, C, 1)
    assert served(queue) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
    assert len(queue) == 0


def test_fair_queue_displaces_newest_of_largest_requester() -> None:
    queue = filled(FairQueue(4), A, 4)
    assert queue.put("b0", B) == "a3"
    assert queue.put("b1", B) == "a2"
    with pytest.raises(QueueFull):
        queue.put("b2", B)
    with pytest.raises(QueueFull):
        queue.put("a4", A)
    assert queue.put("c0", C) in ("a1", "b1")
    assert len(queue) == 4


def test_fair_queue_refuses_newcomer_if_shares_are_equal() -> None:
    queue: FairQueue[str] = FairQueue(3)
    for name in "xyz":
        queue.put(name, Requester(name))
    with pytest.raises(QueueFull):
        queue.put("b", B)


def test_fair_queue_reserves_slots_for_known_requesters() -> None:
    queue: FairQueue[str] = FairQueue(6, reserved=2)
    for name in "uvwxyz":
        queue.put(name, Requester(name))
    first, second = Requester("1", known=True), Requester("2", known=True)
    assert {queue.put("k1", first), queue.put("k2", second)} <= set("uvwxyz")
    with pytest.raises(QueueFull):
        queue.put("k3", Requester("3", known=True))
    left = served(queue)
    assert {"k1", "k2"} <= set(left)
    assert len(left) == 6


def test_fair_queue_keeps_known_requesters_within_reserve() -> None:
    queue: FairQueue[str] = FairQueue(4, reserved=2)
    queue.put("k0", KNOWN)
    queue.put("k1", KNOWN)
    queue.put("x", A)
    queue.put("y", B)
    with pytest.raises(QueueFull):
        queue.put("z", C)


def test_fair_queue_gives_no_reserved_slot_to_unknown_requester() -> None:
    """An unknown newcomer displaces only a larger share, even while the reserve is free (A-117)."""
    queue: FairQueue[str] = FairQueue(3, reserved=2)
    for name in "xyz":
        queue.put(name, Requester(name))
    with pytest.raises(QueueFull):
        queue.put("b", B)


def test_fair_queue_divides_reserve_among_known_requesters() -> None:
    """The largest share gives way to a known newcomer, though it is of a known one (A-116)."""
    queue = filled(FairQueue(4, reserved=2), KNOWN, 2)
    filled(queue, A, 1)
    filled(queue, B, 1)
    assert queue.put("other", Requester("other", known=True)) == "k1"


def test_fair_queue_remove_frees_slot() -> None:
    queue = filled(FairQueue(2), A, 2)
    assert queue.remove("a0", A)
    assert not queue.remove("a0", A)
    assert queue.put("b0", B) is None
    assert served(queue) == ["a1", "b0"]


requesters = st.builds(Requester, st.sampled_from("abcdef"), st.booleans())


@given(st.lists(st.one_of(requesters, st.just("pop")), max_size=80), st.integers(0, 5))
def test_fair_queue_loses_nothing_and_stays_bounded(
    steps: list[Requester | str], reserved: int
) -> None:
    queue: FairQueue[int] = FairQueue(5, reserved)
    waiting: set[int] = set()
    for number, step in enumerate(steps):
        if isinstance(step, str):
            item = queue.pop()
            assert (item is None) == (not waiting)
            waiting.discard(-1 if item is None else item)
            continue
        try:
            displaced = queue.put(number, step)
        except QueueFull:
            assert len(waiting) == 5
            continue
        assert displaced is None or displaced in waiting
        waiting = (waiting - {displaced}) | {number}
        assert len(queue) == len(waiting) <= 5
    rest = set(iter(queue.pop, None))
    assert rest == waiting
