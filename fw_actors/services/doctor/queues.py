"""The queues: how long work waits, and leases that nobody has given back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from fw_actors.rules.findings import Finding, Section, ok, warning
from fw_actors.services import jobs_of_apps
from fw_actors.services.backlog import queues
from fw_actors.services.site import Site
from fw_actors.store import QueueStats, Tx
from fw_actors.store.schema import JOB

LONG_SECONDS: Final = 300.0
STUCK_MS: Final = 60_000
"""How long after a lease's end a running service must have taken the job over."""


@dataclass(frozen=True)
class QueueFacts:
    """The numbers of each queue, and how many leases have long ended."""

    stats: tuple[QueueStats, ...]
    stuck: Mapping[str, int]


async def queue_facts(site: Site) -> QueueFacts:
    """Ask the store, in one snapshot."""
    return await site.store.read(_ask)


def judge_queues(facts: QueueFacts) -> Section:
    """Judge the facts; pure."""
    shown = {
        row.queue: {
            "ready": row.ready,
            "oldestSeconds": row.oldest_seconds,
            "stuck": facts.stuck.get(row.queue, 0),
        }
        for row in facts.stats
    }
    findings = tuple(_findings(facts)) or (ok("nothing waits longer than it should"),)
    return Section("queues", "Queues", findings, {"queues": shown})


def _findings(facts: QueueFacts) -> Iterator[Finding]:
    for row in facts.stats:
        if row.oldest_seconds > LONG_SECONDS:
            yield warning(
                f"queue {row.queue}: {row.ready} jobs are due, the oldest for "
                f"{row.oldest_seconds / 60:.0f} minutes",
                "Start the service (fw status), or add a worker (fw worker) when it runs.",
            )
        if row.queue == jobs_of_apps.QUEUE and row.failed:
            yield warning(
                f"jobs of apps that failed for good: {row.failed}",
                "The log has the reason of each try, by the job's number.",
            )
    for name, count in sorted(facts.stuck.items()):
        yield warning(
            f"queue {name}: {count} jobs are leased to a process that has died",
            "A running service or worker takes them over; start one.",
        )


def _ask(tx: Tx) -> QueueFacts:
    stuck = (
        sa.select(JOB.c.queue, sa.func.count())
        .where(JOB.c.lease.is_not(None), JOB.c.next_at <= tx.now - STUCK_MS)
        .group_by(JOB.c.queue)
    )
    return QueueFacts(tuple(queues(tx)), {str(name): n for name, n in tx.rows(stuck)})
