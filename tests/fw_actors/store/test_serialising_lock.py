"""Threads with short work take turns; none waits for one that takes its time."""

from __future__ import annotations

import threading

from fw_actors.store.executor import SerialisingLock

LONG = 30.0  # far more than any step of a test takes


def test_a_turn_is_waited_for() -> None:
    lock = SerialisingLock(LONG)
    order: list[str] = []
    begins = threading.Event()

    def second() -> None:
        begins.set()
        with lock.hold():
            order.append("second")

    other = threading.Thread(target=second)
    with lock.hold():
        other.start()
        begins.wait(LONG)
        order.append("first")
    other.join(LONG)
    assert order == ["first", "second"]


def test_one_that_takes_too_long_is_not_waited_for() -> None:
    lock = SerialisingLock(0.0)
    ended = threading.Event()

    def second() -> None:
        with lock.hold():
            ended.set()

    with lock.hold():
        threading.Thread(target=second).start()
        assert ended.wait(LONG)


def test_a_turn_ends_with_an_error_and_the_next_begins() -> None:
    lock = SerialisingLock(LONG)
    for _ in range(2):
        try:
            with lock.hold():
                raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    with lock.hold():
        pass


def test_who_went_on_beside_a_long_turn_does_not_end_it() -> None:
    lock = SerialisingLock(0.0)
    with lock.hold():
        with lock.hold():
            pass
        assert lock.is_held
    assert not lock.is_held
