"""Threads with short work take turns; none waits for one that takes its time."""

from __future__ import annotations

import threading

from fw_actors.store.executor import SerialisingLock

LONG = 30.0  # far more than any step of a test takes


def test_a_turn_is_waited_for() -> None:
    serialising = SerialisingLock(LONG)
    order: list[str] = []
    begins = threading.Event()

    def second() -> None:
        begins.set()
        with serialising.hold():
            order.append("second")

    other = threading.Thread(target=second)
    with serialising.hold():
        other.start()
        begins.wait(LONG)
        order.append("first")
    other.join(LONG)
    assert order == ["first", "second"]


def test_one_that_takes_too_long_is_not_waited_for() -> None:
    serialising = SerialisingLock(0.0)
    ended = threading.Event()

    def second() -> None:
        with serialising.hold():
            ended.set()

    with serialising.hold():
        threading.Thread(target=second).start()
        assert ended.wait(LONG)


def test_a_turn_ends_with_an_error_and_the_next_begins() -> None:
    serialising = SerialisingLock(LONG)
    for _ in range(2):
        try:
            with serialising.hold():
                raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    with serialising.hold():
        pass


def test_who_went_on_beside_a_long_turn_does_not_end_it() -> None:
    serialising = SerialisingLock(0.0)
    with serialising.hold():
        with serialising.hold():
            pass
        assert serialising._lock.locked()
    assert not serialising._lock.locked()
