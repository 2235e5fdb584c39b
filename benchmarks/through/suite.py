"""The suite `through`: events per second from the first emission to the last recorded outcome.

The service is `fw serve` on SQLite. The rows `library` and `batch` have another process emit, one
event or many in a transaction, and stand against `delivery/end_to_end` of the same run, where the
events are recorded beforehand. `processes_2` has a client emit over HTTP, to a service of two
processes against one.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.access import service
from benchmarks.access.load import load, request
from benchmarks.access.service import FOLDER, Served
from benchmarks.delivery.events import EVENT, SECRET, SLOTS, data
from benchmarks.delivery.service import deliver
from benchmarks.intake import DATABASE, METHOD, api_key
from benchmarks.nginx import counted_by_all, running_nginx
from benchmarks.rows import BenchmarkRow, Comparison, Effort
from benchmarks.through.producer import emit_all, producer

A_BATCH: Final = 500
CONNECTIONS: Final = 64
POLL_SECONDS: Final = 0.02
DEADLINE_SECONDS: Final = 300.0
_LEFT: Final = "SELECT count(*) FROM (SELECT 1 FROM fw_job WHERE queue = 'webhook' LIMIT 1)"
_SENT: Final = "SELECT count(*) FROM doc_webhook_delivery WHERE status = 'Sent'"

Emitter = Callable[[Served, int], AbstractContextManager[Callable[[], None]]]
"""Prepares to emit so many events at a site; yields the function that does it."""


class NotThrough(Exception):
    """Raised when the store does not say in time of every event that it was sent."""


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    FOLDER.mkdir(exist_ok=True)
    events = max(1, effort.events // A_BATCH) * A_BATCH
    with TemporaryDirectory(dir=FOLDER) as folder, running_nginx(Path(folder)) as nginx:
        for name, a_transaction in (("library", 1), ("batch", A_BATCH)):
            yield Comparison(
                suite="through",
                name=name,
                unit="events/s",
                ours=partial(counted_by_all, nginx, events, partial(_produced, a_transaction)),
                reference=partial(counted_by_all, nginx, events, _recorded_before),
                reference_name="delivery/end_to_end",
            ).measure(effort)
        yield Comparison(
            suite="through",
            name="processes_2",
            unit="events/s",
            ours=partial(counted_by_all, nginx, events, partial(_over_http, 2)),
            reference=partial(counted_by_all, nginx, events, partial(_over_http, 1)),
            reference_name="one process",
        ).measure(effort)


async def _recorded_before(urls: Sequence[str], events: int) -> float:
    with TemporaryDirectory(dir=FOLDER) as site:
        return await deliver(Path(site), urls, events)


async def _produced(a_transaction: int, urls: Sequence[str], events: int) -> float:
    return through(urls[0], events, partial(by_library, a_transaction))


async def _over_http(processes: int, urls: Sequence[str], events: int) -> float:
    return through(urls[0], events, over_http, processes=processes)


def through(url: str, events: int, emitter: Emitter, *, processes: int = 1) -> float:
    """Serve a new site, emit, and return how many events a second were delivered to `url`.

    The clock runs from the first emission until the store says of all that they were sent.

    Raises: NotThrough.
    """
    hook = (
        f'fw.new_doc("Webhook", event_type="Custom", custom_event="{EVENT}", url="{url}", '
        f'secret="{SECRET}").insert().name'
    )
    role = (
        '(lambda user: (setattr(user, "roles", [{"role": "Event Publisher"}]), user.save()))'
        '(fw.get_doc("User", "user0"))[0]'
    )
    ops = {"perReceiverConcurrency": SLOTS, "processes": processes}
    with (
        service.site(f"({hook}, {role})", ops=ops, users=1, in_order=True) as served,
        emitter(served, events) as emit,
    ):
        began = time.perf_counter()
        emit()
        assert served.folder is not None
        _wait_until_sent(served.folder / DATABASE, events)
        return events / (time.perf_counter() - began)


@contextmanager
def by_library(a_transaction: int, served: Served, events: int) -> Iterator[Callable[[], None]]:
    """Emit in a process beside the service, `a_transaction` events in each."""
    assert served.folder is not None
    with producer(served.folder, events, a_transaction) as process:
        yield partial(emit_all, process)


@contextmanager
def over_http(served: Served, events: int) -> Iterator[Callable[[], None]]:
    """Emit over HTTP, one event a request."""
    headers = [("Authorization", f"Bearer {api_key(served)}")]
    body = json.dumps({"name": EVENT, "data": data()}).encode()
    emit = request("POST", f"{METHOD}webhooks.emit", body, headers)

    def emit_all_of_them() -> None:
        load(served.port, emit, 200, events, CONNECTIONS)

    yield emit_all_of_them


def _wait_until_sent(database: Path, events: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        while store.execute(_LEFT).fetchone()[0]:
            if time.monotonic() > deadline:
                raise NotThrough(f"Events are left after {DEADLINE_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)
        (sent,) = store.execute(_SENT).fetchone()
    if sent != events:
        raise NotThrough(f"Of {events} events {sent} are Sent.")
