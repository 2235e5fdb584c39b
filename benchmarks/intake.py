"""The suite `intake`: the rate at which events are recorded, over HTTP and by the library.

A Webhook subscribes to the events. Its receiver accepts the connection and never responds, so that
the one delivery in flight waits while the others are recorded.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import httpx
import trio

from benchmarks.access import service
from benchmarks.access.load import load, request
from benchmarks.access.service import FOLDER, KEY, PASSWORD, Served
from benchmarks.rows import BenchmarkRow, Comparison, Effort
from fw_actors.config import load as load_config
from fw_actors.ops.site import open_site

SUITE: Final = "intake"
EVENT: Final = "order.paid"
DATA: Final[dict[str, Any]] = {"order": "SO-0001", "amount": 12.5, "items": ["a", "b", "c"]}
A_BATCH: Final = 100
CONNECTIONS: Final = 64
PRODUCERS: Final = 4  # connections that send batches
RAW: Final = f"raw sqlite3, the same rows, {A_BATCH} a commit"
OPS: Final = {"deliveryConcurrency": 1, "perReceiverConcurrency": 1}
SINGLE_AIM: Final = 1.2
RAW_AIM: Final = 0.35
METHOD: Final = "/api/method/core.services."
DATABASE: Final = Path("data") / "fw.db"


class NotRecorded(Exception):
    """Raised when the store does not have the events of a round."""


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    with _site() as ours, service.empty_route() as reference:
        bearer = ("Authorization", f"Bearer {api_key(ours)}")
        one = json.dumps({"name": EVENT, "data": DATA}).encode()
        many = json.dumps({"events": [{"name": EVENT, "data": DATA}] * A_BATCH}).encode()
        emit = request("POST", f"{METHOD}webhooks.emit", one, [bearer])
        emit_many = request("POST", f"{METHOD}webhooks.emitMany", many, [bearer])
        empty = request("POST", "/", one, [bearer])
        batches = max(1, effort.events // A_BATCH)
        assert ours.folder is not None
        folder = ours.folder
        yield Comparison(
            suite=SUITE,
            name="http_single",
            unit="events/s",
            ours=lambda: recorded(
                folder,
                effort.events,
                lambda: load(ours.port, emit, 200, effort.events, CONNECTIONS).rate,
            ),
            reference=lambda: load(reference.port, empty, 200, effort.events, CONNECTIONS).rate,
            reference_name="empty JSON route of Quart-Trio",
            aim=SINGLE_AIM,
        ).measure(effort)
        raw = partial(_raw, folder, batches)
        yield Comparison(
            suite=SUITE,
            name="http_batch",
            unit="events/s",
            ours=lambda: recorded(
                folder,
                batches * A_BATCH,
                lambda: load(ours.port, emit_many, 200, batches, PRODUCERS).rate * A_BATCH,
            ),
            reference=raw,
            reference_name=RAW,
            aim=RAW_AIM,
        ).measure(effort)
        yield Comparison(
            suite=SUITE,
            name="library",
            unit="events/s",
            ours=lambda: recorded(
                folder, batches * A_BATCH, partial(trio.run, _by_library, folder, batches)
            ),
            reference=raw,
            reference_name=RAW,
            aim=RAW_AIM,
        ).measure(effort)


def recorded(folder: Path, events: int, emit: Callable[[], float]) -> float:
    """Return the rate that `emit` returns, if it has recorded so many events. Raises: NotRecorded.

    A batch is answered with 200 even if each of its events was refused.
    """
    before = _deliveries(folder)
    rate = emit()
    found = _deliveries(folder) - before
    if found != events:
        raise NotRecorded(f"Of {events} events {found} are recorded.")
    return rate


def _deliveries(folder: Path) -> int:
    with closing(sqlite3.connect(f"file:{folder / DATABASE}?mode=ro", uri=True)) as store:
        (count,) = store.execute("SELECT count(*) FROM doc_webhook_delivery").fetchone()
        return int(count)


@contextmanager
def _site() -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        hook = (
            f'fw.new_doc("Webhook", event_type="Custom", custom_event="{EVENT}", url="{url}", '
            'secret="whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", timeout=30).insert().name'
        )
        role = (
            '(lambda user: (setattr(user, "roles", [{"role": "Event Publisher"}]), user.save()))'
            '(fw.get_doc("User", "user0"))[0]'
        )
        with service.site(hook, role, ops=OPS, users=1) as served:
            yield served


def api_key(ours: Served) -> str:
    """Return a new API key of the first user, who may emit."""
    with httpx.Client(
        base_url=f"http://127.0.0.1:{ours.port}", headers=[("X-FW-CSRF", "1")]
    ) as client:
        client.post("/api/login", json={"usr": "user0", "pwd": PASSWORD}).raise_for_status()
        made = client.post(f"{METHOD}api_keys.createMyAPIKey", json={"label": "intake"})
        made.raise_for_status()
        key: str = made.json()["key"]
        return key


async def _by_library(folder: Path, batches: int) -> float:
    """Emit batches one after the other, beside the running service; return events a second."""
    events = [{"name": EVENT, "data": DATA} for _ in range(A_BATCH)]
    config = load_config({"FW_SECRET_KEY": KEY}, folder)
    async with open_site(config) as site:
        began = perf_counter()
        for _ in range(batches):
            await site.write("Administrator", lambda fw: fw.webhooks.emit_many(events))
        return batches * A_BATCH / (perf_counter() - began)


def _raw(folder: Path, batches: int) -> float:
    """Insert copies of a recorded event into an empty copy of the store; return rows a second."""
    with TemporaryDirectory(dir=FOLDER) as copy:
        path = Path(copy) / DATABASE.name
        with (
            closing(sqlite3.connect(folder / DATABASE)) as source,
            closing(sqlite3.connect(path, isolation_level=None)) as raw,
        ):
            source.backup(raw)
            raw.execute("PRAGMA journal_mode=WAL")
            raw.execute("PRAGMA synchronous=FULL")
            insert_delivery, delivery = _row_of(raw, "doc_webhook_delivery")
            insert_job, job = _row_of(raw, "fw_job")
            began = perf_counter()
            for batch in range(batches):
                names = [f"msg_{batch:020}{n:07}" for n in range(A_BATCH)]
                raw.execute("BEGIN IMMEDIATE")
                raw.executemany(insert_delivery, [{**delivery, "name": name} for name in names])
                raw.executemany(insert_job, [{**job, "subject": name} for name in names])
                raw.execute("COMMIT")
            return batches * A_BATCH / (perf_counter() - began)


def _row_of(raw: sqlite3.Connection, table: str) -> tuple[str, dict[str, Any]]:
    """Empty a table; return an INSERT into it and one of its rows, without its number."""
    cursor = raw.execute(f"SELECT * FROM {table} LIMIT 1")
    names = [column[0] for column in cursor.description if column[0] != "id"]
    found = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))
    raw.execute(f"DELETE FROM {table}")
    quoted = ", ".join(f'"{name}"' for name in names)
    given = ", ".join(f":{name}" for name in names)
    return f"INSERT INTO {table} ({quoted}) VALUES ({given})", {n: found[n] for n in names}
