"""The latency of an event, from its commit to the first byte at its receiver."""

from __future__ import annotations

import time
from typing import Final

import trio

from benchmarks.delivery.events import EVENT, data
from benchmarks.delivery.service import NotDelivered
from benchmarks.delivery.site import (
    serving,
    subscribe,
    until_none_is_left,
)
from benchmarks.delivery.stamps import stamping
from fw_actors.config import Config
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site
from fw_actors.runtime import SystemClock

SINGLE_EVENTS: Final = 200
BETWEEN_SECONDS: Final = 0.02
WARM_UP_EVENTS: Final = 5  # the first opens the connection


def of_single_events(config: Config) -> list[float]:
    """Emit one event after the other in a service that has nothing else to do.

    Returns: milliseconds of each, from the shortest to the longest.
    """
    return trio.run(_measure, config)


async def _measure(config: Config) -> list[float]:
    commits: list[int] = []

    def emit(fw: Fw) -> None:
        fw.tx.after_commit(lambda: commits.append(time.monotonic_ns()))
        fw.webhooks.emit(EVENT, data())

    with stamping() as receiver:
        async with serving(config, SystemClock()) as service:
            hooks = await subscribe(service.site, [receiver.url])
            for _ in range(WARM_UP_EVENTS + SINGLE_EVENTS):
                await service.site.write(ADMINISTRATOR, emit)
                await trio.sleep(BETWEEN_SECONDS)
            await until_none_is_left(service.site, hooks)
            await _unsubscribe(service.site, hooks)
        arrivals = receiver.taken()
    if len(arrivals) != len(commits):
        raise NotDelivered(f"Of {len(commits)} events {len(arrivals)} came.")
    pairs = zip(commits[WARM_UP_EVENTS:], arrivals[WARM_UP_EVENTS:], strict=True)
    return sorted((arrival - commit) / 1e6 for commit, arrival in pairs)


async def _unsubscribe(site: Site, hooks: list[str]) -> None:
    """Delete the Webhooks, so that the next measurement on this site has the event to itself."""

    def delete(fw: Fw) -> None:
        for hook in hooks:
            fw.get_doc("Webhook", hook).delete()

    await site.write(ADMINISTRATOR, delete)


def percentile(values: list[float], share: float) -> float:
    """Return the value that `share` of the sorted `values` do not exceed."""
    return values[min(len(values) - 1, int(len(values) * share))]
