"""The suite `nodes`: deliveries per second of several processes on one database, to a receiver
that responds at once and to a slow one.

The reference is one process on SQLite with the same work. All run on this machine, the receiver
and PostgreSQL too: where these occupy the cores, more nodes show no more.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
from sqlalchemy import text

from benchmarks.delivery.events import EVENT, SECRET, SLOTS, data
from benchmarks.nginx import running_nginx
from benchmarks.rows import BenchmarkRow, Comparison, Effort
from fw_actors.config import Config, load
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site, open_site
from fw_actors.runtime import SystemClock
from fw_actors.store import Store, Tx, jobs
from fw_actors.webhooks.events import QUEUE
from tests.postgres_cluster import PostgresCluster, postgres_cluster

NODES: Final = (1, 2, 3)
SLOW_SECONDS: Final = 0.1
SLOW_SHARE: Final = 12  # one event for so many, so that a slow receiver's row takes no longer
_FOLDER: Final = Path(__file__).parent.parent / "build"  # a disk: /tmp may be memory
_KEY: Final = "a key of the benchmarks, forty characters"
_HOUR_SECONDS: Final = 3600.0
_READY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01
_EVENTS_A_TRANSACTION: Final = 500
_ROOT: Final = Path(__file__).parent.parent
_PAUSE: Final = text("UPDATE fw_job SET next_at = :at WHERE next_at IS NOT NULL")


class NotReady(Exception):
    """Raised when a node does not come up, or not all was delivered."""


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with (
        TemporaryDirectory(dir=_FOLDER) as folder,
        running_nginx(Path(folder)) as nginx,
        slow_receiver() as slow,
        postgres_cluster(durable=True) as cluster,
    ):
        receivers = {"quick": (nginx.hook, effort.events),
                     "slow": (slow, max(1, effort.events // SLOW_SHARE))}  # fmt: skip
        for name, (url, events) in receivers.items():
            slots = SLOTS if name == "quick" else 16
            work = EventLoad(url, events, slots)
            for count in NODES:
                yield Comparison(
                    suite="nodes",
                    name=f"{name}_{count}",
                    unit="deliveries/s",
                    ours=partial(on_postgres, cluster, work, count),
                    reference=partial(_on_sqlite, work),
                    reference_name="one process on SQLite",
                ).measure(effort)


@dataclass(frozen=True)
class EventLoad:
    """A number of events for one URL; each process sends `slots` at once."""

    url: str
    events: int
    slots: int


def on_postgres(cluster: PostgresCluster, work: EventLoad, count: int) -> float:
    """Deliver with so many nodes on an empty database; return the rate."""
    with cluster.empty_database() as url:
        return _deliver(url, work, count)


def _on_sqlite(work: EventLoad) -> float:
    with TemporaryDirectory(dir=_FOLDER) as folder:
        return _deliver(f"sqlite:///{folder}/fw.db", work, 1)


def _deliver(database: str, work: EventLoad, count: int) -> float:
    """Record the events for later, start the processes, have all be due; return the rate."""
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(TemporaryDirectory())) for _ in range(count)]
        configs = [site(folder, database, work.slots) for folder in folders]
        trio.run(record, configs[0], work)
        for folder in folders:
            stack.enter_context(node(folder, database))
        return trio.run(until_delivered, configs[0], work.events)


def site(folder: Path, database: str, slots: int) -> Config:
    """Make a site in `folder`; return its configuration."""
    policy = {"site": {"name": "bench"}, "ops": {"perReceiverConcurrency": slots}}
    (folder / "fw.json").write_text(json.dumps(policy))
    return load({"FW_SECRET_KEY": _KEY, "FW_DATABASE": database}, folder)


async def record(config: Config, work: EventLoad) -> None:
    """Make a Webhook, and record the events."""
    async with _ahead(config) as site:

        def subscribe(fw: Fw) -> None:
            hook = {"event_type": "Custom", "custom_event": EVENT, "secret": SECRET}
            fw.new_doc("Webhook", url=work.url, **hook).insert()

        await site.write(ADMINISTRATOR, subscribe)
        await _emit(site, work.events)


async def emit_all(config: Config, work: EventLoad) -> None:
    """Record the events for the Webhook that is there."""
    async with _ahead(config) as site:
        await _emit(site, work.events)


def _ahead(config: Config) -> AbstractAsyncContextManager[Site]:
    """Open the site an hour ahead, so that nothing is due yet."""
    return open_site(config, clock=SystemClock(_HOUR_SECONDS))


async def _emit(site: Site, events: int) -> None:
    def emit(fw: Fw, count: int) -> None:
        for _ in range(count):
            fw.webhooks.emit(EVENT, data())

    for begin in range(0, events, _EVENTS_A_TRANSACTION):
        count = min(_EVENTS_A_TRANSACTION, events - begin)
        await site.write(ADMINISTRATOR, partial(emit, count=count))


async def until_delivered(config: Config, events: int) -> float:
    """Have all events be due; return the rate when they are Sent. Raises: NotReady."""
    async with open_site(config) as site:

        def release(tx: Tx) -> None:
            tx.run(_PAUSE, at=tx.now)

        await site.store.write(release)
        began = time.perf_counter()
        await _until_none_is_left(site.store)
        seconds = time.perf_counter() - began
        sent = await site.read(
            ADMINISTRATOR, lambda fw: fw.count("Webhook Delivery", {"status": "Sent"})
        )
    if sent != events:
        raise NotReady(f"Of {events} events {sent} are Sent.")
    return events / seconds


async def _until_none_is_left(store: Store) -> None:
    while await store.read(lambda tx: jobs.heads(tx, QUEUE)):  # noqa: ASYNC110 - the store says it
        await trio.sleep(_POLL_SECONDS)


@contextmanager
def node(folder: Path, database: str) -> Iterator[None]:
    """Run a delivery process; returns when it is ready."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
    environ |= {"FW_SECRET_KEY": _KEY, "FW_DATABASE": database, "PYTHONPATH": str(_ROOT)}
    log = folder / "worker.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fw_cli", "worker"], cwd=folder, env=environ,
            stdout=subprocess.DEVNULL, stderr=stream,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while "worker.ready" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotReady(log.read_text())
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def slow_receiver() -> Iterator[str]:
    """Run a receiver that answers after a while, however many ask; give its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.slow_receiver", str(listener.fileno()),
             str(SLOW_SECONDS)],
            cwd=_ROOT, pass_fds=(listener.fileno(),),
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}/hook"
        finally:
            process.kill()
            process.wait()
