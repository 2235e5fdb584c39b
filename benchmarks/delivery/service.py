"""Ours: the service as a worker on SQLite, from due rows to durable outcomes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec
import trio

from benchmarks.delivery.events import BODY_BYTES, EVENT, PLACES, SECRET, data
from fw_actors.actors.nudge import Nudge
from fw_actors.config import Config, load
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.runtime import SystemClock
from fw_actors.services.events import QUEUE
from fw_actors.services.site import Site, open_site
from fw_actors.store import jobs
from supervisors.service import this_process
from supervisors.service.logs import configure
from supervisors.service.tree import open_service

EVENTS_A_TRANSACTION: Final = 500
LOOK_SECONDS: Final = 0.01
AN_HOUR_MS: Final = 3_600_000


class NotDelivered(Exception):
    """Raised when the store does not say of every event that it was sent."""


class HeldClock:
    """The machine's clock, an hour slow until it is released: till then nothing is due."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._behind = AN_HOUR_MS

    def now(self) -> int:
        """Return milliseconds since the epoch (UTC)."""
        return self._clock.now() - self._behind

    def release(self) -> None:
        """Tell the right time from now on."""
        self._behind = 0


async def deliver(folder: Path, url: str, events: int) -> float:
    """Record events in a new site in `folder`, deliver them; return deliveries per second.

    The clock runs from the moment that all are due, with the service up, until the store says
    that none is left.
    """
    this_process.prepare()
    config = _site(folder)
    async with open_site(config) as site:
        await _record(site, url, events)
    with (folder / "service.log").open("w") as stream:
        deployment = config.deployment
        log = configure(
            style=deployment.log_format,
            level=deployment.log_level,
            clock=SystemClock(),
            stream=stream,
        )
        clock = HeldClock()
        async with open_service(config, log=log, front=False, clock=clock) as service:
            began = time.perf_counter()
            clock.release()
            service.runtime.ref("dispatcher").tell(Nudge())
            await _until_none_is_left(service.site)
            seconds = time.perf_counter() - began
            await _check(service.site, events)
    return events / seconds


def _site(folder: Path) -> Config:
    """Make a site with the defaults of production, but for the places of one receiver."""
    policy = {"site": {"name": "bench"}, "ops": {"perReceiverConcurrency": PLACES}}
    (folder / "fw.json").write_bytes(msgspec.json.encode(policy))
    return load({"FW_SECRET_KEY": "a key of the benchmarks, forty characters"}, folder)


async def _record(site: Site, url: str, events: int) -> None:
    def subscribe(fw: Fw) -> None:
        fw.new_doc(
            "Webhook", url=url, event_type="Custom", custom_event=EVENT, secret=SECRET
        ).insert()

    await site.write(ADMINISTRATOR, subscribe)
    happened = data()
    for begin in range(0, events, EVENTS_A_TRANSACTION):
        count = min(EVENTS_A_TRANSACTION, events - begin)

        def emit(fw: Fw, count: int = count) -> None:
            for _ in range(count):
                fw.webhooks.emit(EVENT, happened)

        await site.write(ADMINISTRATOR, emit)


async def _until_none_is_left(site: Site) -> None:
    while await site.store.read(lambda tx: jobs.heads(tx, QUEUE)):  # noqa: ASYNC110 - the store says it
        await trio.sleep(LOOK_SECONDS)


async def _check(site: Site, events: int) -> None:
    def look(fw: Fw) -> tuple[int, str]:
        some = fw.get_all("Webhook Delivery", fields=["payload"], limit=1)
        return fw.count("Webhook Delivery", {"status": "Sent"}), some[0]["payload"]

    sent, payload = await site.read(ADMINISTRATOR, look)
    if sent != events or len(payload) != BODY_BYTES:
        raise NotDelivered(f"Of {events} events {sent} are Sent, with {len(payload)} bytes each.")
