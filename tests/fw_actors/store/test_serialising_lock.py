"""Threads with short work run in turns; a thread stops waiting for a slow one."""

from __future__ import annotations

import threading

from fw_actors.store.executor import SerialisingLock

LONG = 30.0  # far more than any step of a test takes


def test_serialising_lock_waits_for_current_holder() -> None:
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


def test_serialising_lock_stops_waiting_at_timeout() -> None:
    lock = SerialisingLock(0.0)
    ended = threading.Event()

    def second() -> None:
        with lock.hold():
            ended.set()

    with lock.hold():
        threading.Thread(target=second).start()
        assert ended.wait(LONG)


def test_serialising_lock_is_released_on_error() -> None:
    lock = SerialisingLock(LONG)
    for _ in range(2):
        try:
            with lock.hold():
                raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    with lock.hold():
        pass


def test_serialising_lock_keeps_holder_beside_second_entrant() -> None:
    lock = SerialisingLock(0.0)
    with lock.hold():
        with lock.hold():
            pass
        assert lock.is_held
    assert not lock.is_held
