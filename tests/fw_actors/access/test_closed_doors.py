"""What is remembered of refusals: a hint that saves a write, and never decides anything."""

from __future__ import annotations

from fw_actors.access.closed_doors import ClosedDoors


def test_a_refused_counter_is_remembered_until_it_is_found_open() -> None:
    doors = ClosedDoors()
    assert b"a" not in doors
    doors.remember(b"a")
    assert b"a" in doors
    doors.forget(b"a")
    doors.forget(b"a")
    assert b"a" not in doors


def test_the_least_recently_refused_is_forgotten_first() -> None:
    doors = ClosedDoors(most=2)
    for key in (b"a", b"b", b"a", b"c"):
        doors.remember(key)
    assert (b"a" in doors, b"b" in doors, b"c" in doors, len(doors)) == (True, False, True, 2)
