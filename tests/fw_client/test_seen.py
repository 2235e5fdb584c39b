"""Deliveries that have been handled (H-231, H-232, H-233)."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fw_client.receiver import ClaimResult, SeenEvents, SeenInMemory, SeenInSqlite

CLAIMED, BUSY, DONE, FULL = ClaimResult
DAY = 86_400


@pytest.fixture(params=["memory", "sqlite"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeenEvents]:
    if request.param == "memory":
        yield SeenInMemory()
        return
    with closing(SeenInSqlite(tmp_path / "seen.db")) as made:
        yield made


def claim(seen: SeenEvents, name: str = "a", now: float = 0) -> ClaimResult:
    return seen.claim(name, now, 60).result


def complete(seen: SeenEvents, name: str = "a", now: float = 0) -> None:
    seen.complete(name, seen.claim(name, now, 60).token, now)


def test_a_delivery_is_claimed_by_one(seen: SeenEvents) -> None:
    assert [claim(seen), claim(seen), claim(seen, "b")] == [CLAIMED, BUSY, CLAIMED]


def test_a_completed_delivery_is_done(seen: SeenEvents) -> None:
    complete(seen)
    assert [claim(seen), claim(seen, now=1000)] == [DONE, DONE]


def test_a_released_delivery_may_be_claimed_at_once(seen: SeenEvents) -> None:
    granted = seen.claim("a", 0, 60)
    seen.release("a", granted.token)
    assert claim(seen) is CLAIMED


def test_a_claim_ends_with_its_lease(seen: SeenEvents) -> None:
    claim(seen)
    assert [claim(seen, now=59), claim(seen, now=60)] == [BUSY, CLAIMED]


def test_a_claim_that_has_passed_on_changes_nothing(seen: SeenEvents) -> None:
    late = seen.claim("a", 0, 60)
    claim(seen, now=60)
    seen.release("a", late.token)
    seen.complete("a", late.token, 61)
    assert claim(seen, now=61) is BUSY


def test_threads_are_granted_one_claim(seen: SeenEvents) -> None:
    results: list[ClaimResult] = []
    threads = [threading.Thread(target=lambda: results.append(claim(seen))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results.count(CLAIMED) == 1
    assert results.count(BUSY) == 7


def test_memory_forgets_what_was_handled_longest_ago() -> None:
    seen = SeenInMemory(2)
    for name in "abc":
        complete(seen, name)
    assert claim(seen, "c") is DONE
    assert claim(seen, "b") is DONE
    assert claim(seen, "a") is CLAIMED


def test_memory_refuses_more_than_it_can_hold_at_once() -> None:
    seen = SeenInMemory(2)
    assert [claim(seen, name) for name in "abc"] == [CLAIMED, CLAIMED, FULL]
    assert claim(seen, "c", now=60) is CLAIMED


def test_a_file_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    first = SeenInSqlite(tmp_path / "seen.db")
    complete(first)
    first.close()
    with closing(SeenInSqlite(tmp_path / "seen.db")) as second:
        assert claim(second) is DONE


def test_a_file_is_shared_by_processes_of_a_fork(tmp_path: Path) -> None:
    seen = SeenInSqlite(tmp_path / "seen.db")
    complete(seen)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put([claim(seen), claim(seen, "b")]))
    child.start()
    assert results.get() == [DONE, CLAIMED]
    child.join()
    assert claim(seen, "b") is BUSY
    seen.close()


def test_a_file_forgets_after_its_days(tmp_path: Path) -> None:
    seen = SeenInSqlite(tmp_path / "seen.db", days=1)
    complete(seen, "a", now=0)
    complete(seen, "b", now=DAY / 2)
    assert claim(seen, "c", now=DAY) is CLAIMED
    assert claim(seen, "a", now=DAY + 1) is CLAIMED
    assert claim(seen, "b", now=DAY + 1) is DONE
    seen.close()
    with closing(sqlite3.connect(tmp_path / "seen.db")) as connection:
        names = connection.execute("SELECT id FROM fw_received ORDER BY id").fetchall()
    assert names == [("a",), ("b",), ("c",)]


def test_a_memory_or_file_that_could_keep_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="capacity"):
        SeenInMemory(0)
    with pytest.raises(ValueError, match="days"):
        SeenInSqlite(tmp_path / "seen.db", days=0)
