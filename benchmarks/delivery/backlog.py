"""A site with a past: many finished deliveries, and many that a dead receiver does not take."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import trio
from sqlalchemy import text

from benchmarks.delivery.site import record, site_in, site_of, subscribe
from benchmarks.delivery.worker import begin, second_worker
from fw_actors.ops.site import open_site
from fw_actors.rules.delivery import Backoff
from fw_actors.store import Tx
from fw_actors.webhooks.claims import NO_TURN, Head, StoredWebhook, Turn
from fw_actors.webhooks.deliveries import Deliveries

CLAIMS: Final = 50
SETTLED_SECONDS: Final = 5.0
PAST: Final = "bench.long_ago"
_FILLED: Final = ("name", "status", "next_attempt", "last_attempt", "attempts", "sent")

# The dead receiver gets nothing of what is measured.
_RETIRE: Final = "UPDATE doc_webhook SET custom_event = :event"


class _MeasurementUndone(Exception):
    """Raised so that a claim which was only measured leaves nothing."""


class _OneSlotPerWebhook:
    """One place for each Webhook, as a dead receiver has."""

    exhausted = False

    def free(self, hook: StoredWebhook | None) -> int:
        return 1

    def take(self, hook: StoredWebhook | None, count: int) -> None:
        pass

    def turn(self, webhook: str) -> Turn:
        return NO_TURN

    def shares(self, heads: Sequence[Head]) -> Mapping[str, int]:
        return {}

    def may_read(self, hook: StoredWebhook) -> bool:
        return True

    def count_bytes(self, size: int) -> None:
        pass


def fill(folder: Path, finished: int, due: int, dead: str) -> None:
    """Make a site with so many deliveries, half of the finished ones Sent and half Failed.

    Args:
        dead: the URL of the receiver that the due ones wait for.
    """
    trio.run(_fill, folder, finished, due, dead)


async def _fill(folder: Path, finished: int, due: int, dead: str) -> None:
    async with open_site(site_in(folder)) as site:
        await subscribe(site, [dead])
        await record(site, 1)  # the model of all others
        await site.store.write(lambda tx: _copy(tx, finished, due))
        await site.store.write(lambda tx: tx.run(text(_RETIRE), event=PAST))


def _copy(tx: Tx, finished: int, due: int) -> None:
    columns = sorted(tx.columns("doc_webhook_delivery").keys() - set(_FILLED))
    quoted = ", ".join(f'"{column}"' for column in columns)
    for first, count, status in (
        (0, finished // 2, "Sent"),
        (finished // 2, finished - finished // 2, "Failed"),
        (finished, due, "Queued"),
    ):
        waits = status == "Queued"
        tx.run(
            text(
                f"INSERT INTO doc_webhook_delivery ({quoted}, {', '.join(_FILLED)}) "
                f"WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n "
                f"WHERE i + 1 < :first + :count) "
                f"SELECT {quoted}, printf('msg_%027d', i), :status, "
                f"{'creation, NULL, 0, NULL' if waits else 'NULL, creation, 6, creation'} "
                "FROM n, doc_webhook_delivery WHERE name = (SELECT subject FROM fw_job LIMIT 1) "
                "LIMIT :count"
            ),
            first=first,
            count=count,
            status=status,
        )
    tx.run(
        text(
            "INSERT INTO fw_job (queue, partition, subject, next_at, created) "
            "SELECT 'webhook', webhook, name, next_attempt, creation "
            "FROM doc_webhook_delivery WHERE status <> 'Sent' AND name LIKE 'msg_000%'"
        )
    )


def claim_milliseconds(folder: Path) -> float:
    """Return how long a claim holds the writer: the median of many that are undone."""
    return trio.run(_claim_milliseconds, folder)


async def _claim_milliseconds(folder: Path) -> float:
    taken: list[float] = []
    async with open_site(site_of(folder)) as site:
        deliveries = Deliveries(Backoff(30.0, 3600.0))

        def claim(tx: Tx) -> None:
            began = time.perf_counter()
            [_] = deliveries.claim(tx, _OneSlotPerWebhook(), "measured").deliveries
            taken.append((time.perf_counter() - began) * 1000)
            raise _MeasurementUndone

        for _ in range(CLAIMS):
            try:
                await site.store.write(claim)
            except _MeasurementUndone:
                continue
    return median(taken)


def start_seconds(folder: Path) -> float:
    """Return how long a process takes from its beginning until it delivers."""
    began = time.perf_counter()
    with second_worker(folder):
        return time.perf_counter() - began


def resident_megabytes(folder: Path) -> float:
    """Return what a process holds in memory that has delivered for some seconds."""
    with second_worker(folder) as process:
        begin(process)
        time.sleep(SETTLED_SECONDS)
        return _resident(process)


def _resident(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]
    return int(kilobytes) / 1024
