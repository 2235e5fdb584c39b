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


def test_claim_is_granted_once(seen: SeenEvents) -> None:
    assert [claim(seen), claim(seen), claim(seen, "b")] == [CLAIMED, BUSY, CLAIMED]


def test_completed_delivery_stays_done(seen: SeenEvents) -> None:
    complete(seen)
    assert [claim(seen), claim(seen, now=1000)] == [DONE, DONE]


def test_released_delivery_may_be_claimed_immediately(seen: SeenEvents) -> None:
    granted = seen.claim("a", 0, 60)
    seen.release("a", granted.token)
    assert claim(seen) is CLAIMED


def test_claim_ends_with_its_lease(seen: SeenEvents) -> None:
    claim(seen)
    assert [claim(seen, now=59), claim(seen, now=60)] == [BUSY, CLAIMED]


@pytest.mark.parametrize("back", [301, DAY])
def test_claim_ends_with_its_lease_after_clock_was_set_back(seen: SeenEvents, back: int) -> None:
    """The process of the claim has died: no event may be lost with it (H-232)."""
    claim(seen, now=back)
    assert [claim(seen), claim(seen, now=59), claim(seen, now=60)] == [BUSY, BUSY, CLAIMED]


def test_expired_claim_changes_nothing(seen: SeenEvents) -> None:
    late = seen.claim("a", 0, 60)
    claim(seen, now=60)
    seen.release("a", late.token)
    seen.complete("a", late.token, 61)
    assert claim(seen, now=61) is BUSY


def test_claim_is_granted_to_one_thread(seen: SeenEvents) -> None:
    results: list[ClaimResult] = []
    threads = [threading.Thread(target=lambda: results.append(claim(seen))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results.count(CLAIMED) == 1
    assert results.count(BUSY) == 7


def test_seen_memory_evicts_oldest_completed_delivery() -> None:
    seen = SeenInMemory(2)
    for name in "abc":
        complete(seen, name)
    assert claim(seen, "c") is DONE
    assert claim(seen, "b") is DONE
    assert claim(seen, "a") is CLAIMED


def test_seen_memory_refuses_claims_beyond_capacity() -> None:
    seen = SeenInMemory(2)
    assert [claim(seen, name) for name in "abc"] == [CLAIMED, CLAIMED, FULL]
    assert claim(seen, "c", now=60) is CLAIMED


def test_seen_memory_forgets_an_expired_claim_to_make_room() -> None:
    seen = SeenInMemory(1)
    claim(seen, "a")
    assert claim(seen, "b", now=60) is CLAIMED
    assert claim(seen, "a", now=61) is FULL


def test_seen_memory_ignores_settlement_of_forgotten_claim() -> None:
    """Its handler has outlasted the lease: the answer to the service must be the handler's."""
    seen = SeenInMemory(1)
    late = seen.claim("a", 0, 60)
    claim(seen, "b", now=60)
    seen.complete("a", late.token, 61)
    seen.release("a", late.token)
    assert claim(seen, "b", now=61) is BUSY


def test_seen_file_may_be_closed_twice(tmp_path: Path) -> None:
    seen = SeenInSqlite(tmp_path / "seen.db")
    seen.close()
    seen.close()
    assert claim(seen) is CLAIMED
    seen.close()


def test_seen_file_is_closed_and_opened_again(tmp_path: Path) -> None:
    """The last connection to a file with a log deletes the log when it is closed."""
    seen = SeenInSqlite(tmp_path / "seen.db")
    complete(seen)
    log = tmp_path / "seen.db-wal"
    assert log.exists()
    seen.close()
    assert not log.exists()
    assert claim(seen) is DONE
    seen.close()


def test_seen_file_persists_across_openings(tmp_path: Path) -> None:
    first = SeenInSqlite(tmp_path / "seen.db")
    complete(first)
    first.close()
    with closing(SeenInSqlite(tmp_path / "seen.db")) as second:
        assert claim(second) is DONE


def test_seen_file_is_shared_with_forked_process(tmp_path: Path) -> None:
    seen = SeenInSqlite(tmp_path / "seen.db")
    complete(seen)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put([claim(seen), claim(seen, "b")]))
    child.start()
    assert results.get(timeout=60) == [DONE, CLAIMED]
    child.join()
    assert claim(seen, "b") is BUSY
    seen.close()


def test_forked_process_uses_no_connection_of_its_parent(tmp_path: Path) -> None:
    """SQLite's connections must not be carried across a fork: the file could be damaged."""
    file = tmp_path / "seen.db"
    seen = SeenInSqlite(file)

    def opened() -> int:
        return sum(each.resolve() == file for each in Path("/proc/self/fd").iterdir())

    def inherit() -> None:
        before = opened()
        claim(seen)
        results.put(opened() - before)

    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=inherit)
    child.start()
    assert results.get(timeout=60) == 1
    child.join()
    seen.close()


class HeldTime(float):
    """A time whose first use under the lock of the memory waits until it is let go."""

    in_use: threading.Event
    go: threading.Event

    def _hold(self) -> None:
        self.in_use.set()
        assert self.go.wait(60)

    def __add__(self, other: float) -> float:
        if self.is_added_last:
            self._hold()
        return float(self) + other

    def __sub__(self, other: float) -> float:
        self._hold()
        return float(self) - other

    is_added_last = False


def test_forked_process_does_not_wait_for_thread_of_its_parent(seen: SeenEvents) -> None:
    """A thread that claims an event during a fork does not exist in the child (H-233)."""
    held = HeldTime(0)
    held.in_use, held.go = threading.Event(), threading.Event()
    held.is_added_last = isinstance(seen, SeenInMemory)
    thread = threading.Thread(target=claim, args=(seen, "a", held))
    thread.start()
    assert held.in_use.wait(60)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(claim(seen, "b")))
    child.start()
    try:
        assert results.get(timeout=10) is CLAIMED
    finally:
        held.go.set()
        thread.join()
        child.kill()
        child.join()
    assert claim(seen, "a") is BUSY


def test_seen_file_deletes_entries_older_than_its_days(tmp_path: Path) -> None:
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


def test_seen_events_refuse_zero_capacity_or_days(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="capacity"):
        SeenInMemory(0)
    with pytest.raises(ValueError, match="days"):
        SeenInSqlite(tmp_path / "seen.db", days=0)
