"""Ours: the service on SQLite, from due rows to outcomes in the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import trio

from benchmarks.delivery.events import BODY_BYTES, SLOTS
from benchmarks.delivery.site import (
    HeldClock,
    record,
    serving,
    site_in,
    subscribe,
    until_none_is_left,
)
from benchmarks.delivery.worker import begin, second_worker
from fw_actors.actors.queue_worker import WakeUp
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site, open_site

START_SECONDS: Final = 0.3  # for what each actor does first


class NotDelivered(Exception):
    """Raised when the store does not say of every event that it was sent."""


async def deliver(
    folder: Path,
    urls: Sequence[str],
    events: int,
    *,
    bad: Sequence[str] = (),
    processes: int = 1,
    documents: int = 0,
    ordering: str = "none",
    note: Callable[[], object] = lambda: None,
) -> float:
    """Record events in a new site in `folder`, an equal part for each URL, and deliver them.

    The clock runs from the moment that all are due, with the service up, until the store says
    that none is left.

    Args:
        bad: receivers that are not waited for; each has as many events as one of `urls`.
        documents: how many documents the events are about, in turn.
        ordering: of the Webhooks.
        note: is called when the clock begins to run, and when it ends.

    Returns: deliveries per second to `urls`.
    """
    config = site_in(folder, slots=SLOTS if len(urls) == 1 else None)
    async with open_site(config) as site:
        hooks = await subscribe(site, [*urls, *bad], ordering=ordering)
        await record(site, events // len(urls), documents)
    waited_for = hooks[: len(urls)]
    count = events // len(urls) * len(urls)
    clock = HeldClock()
    async with serving(config, clock) as service:
        with ExitStack() as others:
            workers = [others.enter_context(second_worker(folder)) for _ in range(1, processes)]
            await trio.sleep(START_SECONDS)
            note()
            began = time.perf_counter()
            for worker in workers:
                begin(worker)
            clock.release()
            service.runtime.ref("dispatcher").tell(WakeUp())
            await until_none_is_left(service.site, waited_for)
            seconds = time.perf_counter() - began
            note()
            await _check(service.site, waited_for, count)
    return count / seconds


async def _check(site: Site, hooks: Sequence[str], events: int) -> None:
    def read(fw: Fw) -> tuple[int, str]:
        some = fw.get_all("Webhook Delivery", fields=["payload"], limit=1)
        of_them: list[list[object]] = [["status", "=", "Sent"], ["webhook", "in", hooks]]
        return fw.count("Webhook Delivery", of_them), some[0]["payload"]

    sent, payload = await site.read(ADMINISTRATOR, read)
    if sent != events or len(payload) != BODY_BYTES:
        raise NotDelivered(f"Of {events} events {sent} are Sent, with {len(payload)} bytes each.")
