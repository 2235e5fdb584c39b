"""The suite `through` at little effort: its producer, its rows, and that a wrong result fails."""

from __future__ import annotations

import inspect
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks.access.service import KEY
from benchmarks.delivery.site import subscribe
from benchmarks.nginx import Nginx, counted_by_all, running_nginx
from benchmarks.rows import Effort
from benchmarks.through import suite
from benchmarks.through.producer import ProducerFailed, emit_all, producer
from benchmarks.through.suite import (
    EventsNotSent,
    by_library,
    memory_after,
    proportional_megabytes,
    through,
    wait_until_sent,
)
from fw_actors.config import load
from fw_actors.ops.site import open_site


def test_producer_records_all_its_events(tmp_path: Path) -> None:
    (tmp_path / "fw.json").write_text("{}")
    config = load({"FW_SECRET_KEY": KEY}, tmp_path)

    async def run() -> int:
        async with open_site(config) as site:
            await subscribe(site, ["https://receiver.test/hook"])
            with producer(tmp_path, 20, 10) as process:
                emit_all(process)
            return await site.read("Administrator", lambda fw: fw.count("Webhook Delivery", {}))

    assert trio.run(run) == 20


def test_producer_that_cannot_open_its_site_fails(tmp_path: Path) -> None:
    (tmp_path / "fw.json").write_text("no policy")
    with pytest.raises(ProducerFailed), producer(tmp_path, 20, 10):
        pass


def test_through_rows_have_aims_and_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sides are others here: starting a service for each takes minutes on a slow machine."""
    sides = {"_recorded_before": 100.0, "_produced": 80.0, "_over_http": 70.0}
    for name, rate in sides.items():
        monkeypatch.setattr(suite, name, lambda *_, rate=rate: rate)
    monkeypatch.setattr(suite, "memory_after", lambda url, events, processes: [50.0] * processes)
    monkeypatch.setattr(suite, "counted_by_all", run_side)
    reported: list[str] = []
    rows = list(suite.rows(Effort(events=1, rounds=1, tell=reported.append)))
    assert [(row.name, row.unit, row.ratio, row.aim) for row in rows] == [
        ("library", "events/s", 0.8, 0.75),
        ("batch", "events/s", 0.8, 0.75),
        ("processes_2", "events/s", 1.0, 1.4),
        ("memory_1", "MB", 1.8, 1.0),
        ("memory_2", "MB", 1.8, 1.0),
        ("memory_4", "MB", 1.8, 1.0),
    ]
    assert [row.reaches_aim for row in rows] == [True, True, False, True, True, True]
    assert "through/memory_2: 50.00, 50.00 MB, the supervisor's first" in reported


def run_side(nginx: Nginx, posts: int, side: Callable[..., Any]) -> float:
    """Run a side without a receiver that counts."""
    found: Any = side(nginx.hooks, posts)
    if not inspect.isawaitable(found):
        return float(found)

    async def result() -> float:
        return float(await found)

    return trio.run(result)


@pytest.mark.timeout(300)
def test_through_delivers_the_events_of_a_producer(tmp_path: Path) -> None:
    """The receiver counts them, and the store has them as Sent."""

    async def side(urls: Sequence[str], events: int) -> float:
        return through(urls[0], events, partial(by_library, 10))

    with running_nginx(tmp_path) as nginx:
        assert counted_by_all(nginx, 20, side) > 0


@pytest.mark.timeout(300)
def test_memory_is_that_of_all_processes_after_events_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "IDLE_SECONDS", 0.0)
    with running_nginx(tmp_path) as nginx:
        each = memory_after(nginx.hook, 20, 2)
        assert nginx.requests() > 20
    assert len(each) == 4
    assert max(each[:2]) < min(each[2:])  # supervisor and fork server open no store


@pytest.mark.parametrize(("status", "left"), [("Sent", 0), ("Failed", 0), ("Queued", 1)])
def test_through_fails_unless_all_events_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, left: int
) -> None:
    monkeypatch.setattr(suite, "DEADLINE_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "fw.db", isolation_level=None)) as store:
        store.execute("CREATE TABLE fw_job (queue)")
        store.execute("CREATE TABLE doc_webhook_delivery (status)")
        store.executemany("INSERT INTO fw_job VALUES (?)", [("webhook",)] * left + [("mail",)])
        store.executemany("INSERT INTO doc_webhook_delivery VALUES (?)", [("Sent",), (status,)])
    if status == "Sent":
        wait_until_sent(tmp_path / "fw.db", 2)
        with pytest.raises(EventsNotSent, match="Of 3 events 2 are Sent"):
            wait_until_sent(tmp_path / "fw.db", 3)
    else:
        expected = "Events are left" if left else "Of 2 events 1 are Sent"
        with pytest.raises(EventsNotSent, match=expected):
            wait_until_sent(tmp_path / "fw.db", 2)


def test_proportional_memory_of_a_process_is_measured() -> None:
    assert proportional_megabytes(os.getpid()) > 5
