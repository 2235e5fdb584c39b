"""The suite `through`: events per second from the first emission to the last recorded outcome.

The service is `fw serve` on SQLite. The rows `library` and `batch` have another process emit, one
event or many in a transaction, and stand against `delivery/end_to_end` of the same run, where the
events are recorded beforehand. `processes_2` has a client emit over HTTP, to a service of two
processes against one. `memory_N` is the memory of all processes of a service of N, after such
events: with supervisor and fork server, and shared pages count once.
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
from benchmarks.rows import BenchmarkRow, Comparison, Effort, figure
from benchmarks.through.producer import emit_all, producer
from supervisors.service import site_files
from supervisors.service.site_files import SitePaths

A_BATCH: Final = 500
CONNECTIONS: Final = 64
POLL_SECONDS: Final = 0.02
END_TO_END_AIM: Final = 0.75
TWO_PROCESSES_AIM: Final = 1.4  # on two cores
MEMORY_OF: Final = (1, 2, 4)
MEGABYTES_A_PROCESS: Final = 90
IDLE_SECONDS: Final = 2.0
DEADLINE_SECONDS: Final = 300.0
_LEFT: Final = "SELECT count(*) FROM (SELECT 1 FROM fw_job WHERE queue = 'webhook' LIMIT 1)"
_SENT: Final = "SELECT count(*) FROM doc_webhook_delivery WHERE status = 'Sent'"

Emitter = Callable[[Served, int], AbstractContextManager[Callable[[], None]]]
"""Prepares to emit so many events at a site; yields the function that does it."""


class EventsNotSent(Exception):
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
                aim=END_TO_END_AIM,
            ).measure(effort)
        yield Comparison(
            suite="through",
            name="processes_2",
            unit="events/s",
            ours=partial(counted_by_all, nginx, events, partial(_over_http, 2)),
            reference=partial(counted_by_all, nginx, events, partial(_over_http, 1)),
            reference_name="one process",
            aim=TWO_PROCESSES_AIM,
        ).measure(effort)
        for count in MEMORY_OF:
            limit = count * MEGABYTES_A_PROCESS
            yield Comparison(
                suite="through",
                name=f"memory_{count}",
                unit="MB",
                ours=partial(counted_by_all, nginx, events, partial(_memory, count, effort.tell)),
                reference=partial(float, limit),
                reference_name="the most it may be, 90 MB for each process",
                less_is_better=True,
                aim=1.0,
            ).measure(effort)


async def _recorded_before(urls: Sequence[str], events: int) -> float:
    with TemporaryDirectory(dir=FOLDER) as site:
        return await deliver(Path(site), urls, events)


async def _produced(a_transaction: int, urls: Sequence[str], events: int) -> float:
    return through(urls[0], events, partial(by_library, a_transaction))


async def _over_http(processes: int, urls: Sequence[str], events: int) -> float:
    return through(urls[0], events, over_http, processes=processes)


async def _memory(
    processes: int, tell: Callable[[str], None], urls: Sequence[str], events: int
) -> float:
    each = memory_after(urls[0], events, processes)
    tell(f"through/memory_{processes}: {', '.join(map(figure, each))} MB, the supervisor's first")
    return sum(each)


def through(url: str, events: int, emitter: Emitter, *, processes: int = 1) -> float:
    """Serve a new site, emit, and return how many events a second were delivered to `url`.

    The clock runs from the first emission until the store says of all that they were sent.

    Raises: EventsNotSent.
    """
    with _serving(url, processes) as served, emitter(served, events) as emit:
        began = time.perf_counter()
        emit()
        assert served.folder is not None
        wait_until_sent(served.folder / DATABASE, events)
        return events / (time.perf_counter() - began)


def memory_after(url: str, events: int, processes: int) -> list[float]:
    """Deliver events that are emitted over HTTP; return the memory in MB of each process of the
    idle service, the supervisor and its fork server first, if there are any.

    Of a page that several processes share each has its part.

    Raises: EventsNotSent.
    """
    with _serving(url, processes) as served, over_http(served, events) as emit:
        emit()
        assert served.folder is not None
        wait_until_sent(served.folder / DATABASE, events)
        time.sleep(IDLE_SECONDS)
        record = site_files.read(SitePaths(served.folder).pid)
        if record is None:
            raise EventsNotSent("The service has ended.")
        running = [each.pid for each in record.serving if each.pid is not None]
        if processes > 1 and len(running) != processes:
            raise EventsNotSent(f"Of {processes} processes {len(running)} run.")
        others = set(_children(record.pid)) - set(running)  # the fork server
        return [proportional_megabytes(pid) for pid in (record.pid, *others, *running)]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def proportional_megabytes(pid: int) -> float:
    """Return the memory of a process: its own pages, and its part of those that it shares."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise EventsNotSent(f"The system does not tell the memory of process {pid}.")


@contextmanager
def _serving(url: str, processes: int) -> Iterator[Served]:
    """Serve a new site with a Webhook for `url`, and a user who may emit."""
    hook = (
        f'fw.new_doc("Webhook", event_type="Custom", custom_event="{EVENT}", url="{url}", '
        f'secret="{SECRET}").insert().name'
    )
    role = (
        '(lambda user: (setattr(user, "roles", [{"role": "Event Publisher"}]), user.save()))'
        '(fw.get_doc("User", "user0"))[0]'
    )
    ops = {"perReceiverConcurrency": SLOTS, "processes": processes}
    with service.site(f"({hook}, {role})", ops=ops, users=1, in_order=True) as served:
        yield served


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


def wait_until_sent(database: Path, events: int) -> None:
    """Return when no event waits in this store, and all are Sent. Raises: EventsNotSent."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        while store.execute(_LEFT).fetchone()[0]:
            if time.monotonic() > deadline:
                raise EventsNotSent(f"Events are left after {DEADLINE_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)
        (sent,) = store.execute(_SENT).fetchone()
    if sent != events:
        raise EventsNotSent(f"Of {events} events {sent} are Sent.")
