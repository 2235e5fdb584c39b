"""Threads with short work take turns; none waits for one that takes its time."""

from __future__ import annotations

import threading

from fw_actors.store.executor import Turns

LONG = 30.0  # far more than any step of a test takes


def test_a_turn_is_waited_for() -> None:
    turns = Turns(LONG)
    order: list[str] = []
    begins = threading.Event()

    def second() -> None:
        begins.set()
        with turns.one():
            order.append("second")

    other = threading.Thread(target=second)
    with turns.one():
        other.start()
        begins.wait(LONG)
        order.append("first")
    other.join(LONG)
    assert order == ["first", "second"]


def test_one_that_takes_too_long_is_not_waited_for() -> None:
    turns = Turns(0.0)
    ended = threading.Event()

    def second() -> None:
        with turns.one():
            ended.set()

    with turns.one():
        threading.Thread(target=second).start()
        assert ended.wait(LONG)


def test_a_turn_ends_with_an_error_and_the_next_begins() -> None:
    turns = Turns(LONG)
    for _ in range(2):
        try:
            with turns.one():
                raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    with turns.one():
        pass


def test_who_went_on_beside_a_long_turn_does_not_end_it() -> None:
    turns = Turns(0.0)
    with turns.one():
        with turns.one():
            pass
        assert turns._lock.locked()
    assert not turns._lock.locked()
