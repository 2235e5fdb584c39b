"""The queues: how long work waits, and leases that nobody has given back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from fw_actors.rules.findings import Finding, Section, ok, warning
from fw_actors.rules.service_state import ServiceState
from fw_actors.services import events, jobs_of_apps
from fw_actors.services.backlog import queues
from fw_actors.services.doctor.receivers import (
    ReceiverBacklog,
    receiver_backlogs,
    waiting_findings,
)
from fw_actors.services.site import Site
from fw_actors.store import QueueStats, Tx
from fw_actors.store.schema import JOB

LONG_SECONDS: Final = 300.0
STUCK_MS: Final = 60_000
"""How long after a lease's end a running service must have taken the job over."""


@dataclass(frozen=True)
class QueueFacts:
    """The numbers of each queue, how many leases have long ended, and what is due by receiver;
    `receivers` is empty where no delivery waits for long."""

    stats: tuple[QueueStats, ...]
    stuck: Mapping[str, int]
    receivers: tuple[ReceiverBacklog, ...] = ()


async def queue_facts(site: Site) -> QueueFacts:
    """Ask the store, in one snapshot."""
    return await site.store.read(lambda tx: _ask(tx, site))


def judge_queues(facts: QueueFacts, service: ServiceState) -> Section:
    """Judge the facts; pure."""
    shown = {
        row.queue: {
            "ready": row.ready,
            "oldestSeconds": row.oldest_seconds,
            "stuck": facts.stuck.get(row.queue, 0),
        }
        for row in facts.stats
    }
    receivers = [
        {
            "receiver": each.receiver,
            "webhooks": list(each.webhooks),
            "due": each.due,
            "leased": each.under_way,
            "lastError": each.last_error or None,
        }
        for each in facts.receivers
    ]
    findings = tuple(_findings(facts, service)) or (
        ok(f"nothing has been due for more than {LONG_SECONDS / 60:.0f} minutes"),
    )
    return Section("queues", "Queues", findings, {"queues": shown, "receivers": receivers})


def _findings(facts: QueueFacts, service: ServiceState) -> Iterator[Finding]:
    for row in facts.stats:
        if row.oldest_seconds > LONG_SECONDS:
            yield warning(
                f"queue {row.queue}: jobs due {row.ready}, the oldest for "
                f"{row.oldest_seconds / 60:.0f} minutes",
                _todo(row, service, any(each.receiver for each in facts.receivers)),
            )
        if row.queue == jobs_of_apps.QUEUE and row.failed:
            yield warning(
                f"jobs of apps that failed for good: {row.failed}",
                "The log has the reason of each try, by the job's number.",
            )
    yield from waiting_findings(facts.receivers, service)
    for name, count in sorted(facts.stuck.items()):
        yield warning(
            f"queue {name}: jobs whose lease ended over a minute ago: {count}; the process that "
            "had them died or is held up",
            "The service takes them over as it finds places; if the number stays, look at its log."
            if service.running
            else "A running service or worker takes them over; start one.",
        )


def _todo(row: QueueStats, service: ServiceState, receivers_named: bool) -> str:
    """What to do about a queue that waits, by what is known of the cause."""
    if not service.running:
        if row.leased:
            return (
                "The service does not run on this machine (fw start); another process works on "
                "the queue."
            )
        return "The service does not run on this machine: fw start, or fw worker."
    if row.queue == events.QUEUE and receivers_named:
        return "The service runs; the lines below name the receivers that deliveries wait for."
    return (
        "The service runs; its log has what came of each try (delivery.ended, mail.ended, "
        "job.failed)."
    )


def _ask(tx: Tx, site: Site) -> QueueFacts:
    stuck = (
        sa.select(JOB.c.queue, sa.func.count())
        .where(JOB.c.lease.is_not(None), JOB.c.next_at <= tx.now - STUCK_MS)
        .group_by(JOB.c.queue)
    )
    stats = tuple(queues(tx))
    late = any(r.queue == events.QUEUE and r.oldest_seconds > LONG_SECONDS for r in stats)
    return QueueFacts(
        stats,
        {str(name): n for name, n in tx.rows(stuck)},
        receiver_backlogs(tx, site.registry) if late else (),
    )
