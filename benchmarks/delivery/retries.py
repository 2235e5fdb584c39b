"""The delay of retries that fall due within one second, as after a receiver's outage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from sqlalchemy import text

from benchmarks.delivery.events import SLOTS
from benchmarks.delivery.site import (
    HeldClock,
    record,
    serving,
    site_in,
    subscribe,
    until_none_is_left,
)
from fw_actors.actors.queue_worker import WakeUp
from fw_actors.ops.site import open_site
from fw_actors.store import Tx

# As if the first attempt of each had failed in turn.
_JOBS: Final = "UPDATE fw_job SET attempts = 1, next_at = :due + id % 1000"
_DELIVERIES: Final = (
    "UPDATE doc_webhook_delivery SET status = 'Retrying', attempts = 1, next_attempt = "
    "(SELECT next_at FROM fw_job WHERE queue = 'webhook' AND subject = doc_webhook_delivery.name)"
)
# An outcome clears when it was due: that is kept where nobody looks.
_NOTE: Final = "UPDATE doc_webhook_delivery SET creation = next_attempt"
_LATE: Final = (
    "SELECT last_attempt - duration_ms - creation FROM doc_webhook_delivery "
    "WHERE status = 'Sent' ORDER BY 1"
)
_AHEAD_MS: Final = 1000


async def late_milliseconds(folder: Path, url: str, retries: int) -> list[float]:
    """Return how late each went out, from the earliest to the latest."""
    config = site_in(folder, slots=SLOTS)
    async with open_site(config) as site:
        hooks = await subscribe(site, [url])
        await record(site, retries)
    clock = HeldClock()
    async with serving(config, clock) as service:
        store = service.site.store
        due = round(time.time() * 1000) + _AHEAD_MS
        await store.write(lambda tx: _spread(tx, due))
        clock.release()
        service.runtime.ref("dispatcher").tell(WakeUp())
        await until_none_is_left(service.site, hooks)
        return [float(late) for (late,) in await store.read(lambda tx: tx.rows(text(_LATE)))]


def _spread(tx: Tx, due: int) -> None:
    tx.run(text(_JOBS), due=due)
    tx.run(text(_DELIVERIES))
    tx.run(text(_NOTE))
