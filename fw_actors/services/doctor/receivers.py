"""What is due by receiver, and how the last attempt there ended: why deliveries wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.rules.findings import Finding, warning
from fw_actors.rules.service_state import ServiceState
from fw_actors.services.events import QUEUE
from fw_actors.services.receivers import receivers_of
from fw_actors.store import Tx
from fw_actors.store.schema import JOB

MOST_NAMED: Final = 5  # receivers, and Webhooks of each


@dataclass(frozen=True)
class ReceiverBacklog:
    """What is due for one receiver.

    Args:
        receiver: scheme, host and port; empty for Webhooks that are gone or whose URL is refused.
        webhooks: names, sorted.
        due: deliveries that are due, those whose lease has ended included.
        under_way: deliveries with a lease that has not ended.
        last_error: of the latest attempt, empty where it was answered 2xx; None before the first.
    """

    receiver: str
    webhooks: tuple[str, ...]
    due: int
    under_way: int
    last_error: str | None


def receiver_backlogs(tx: Tx, registry: Registry) -> tuple[ReceiverBacklog, ...]:
    """Return what is due by receiver, the most first."""
    due = _counts(tx, JOB.c.next_at <= tx.now)
    under_way = _counts(tx, (JOB.c.next_at > tx.now) & JOB.c.lease.is_not(None))
    by_receiver: dict[str, dict[str, int]] = defaultdict(dict)
    receivers = receivers_of(tx, registry)
    for webhook, count in due.items():
        by_receiver[receivers.get(webhook, "")][webhook] = count
    found = [
        ReceiverBacklog(
            receiver,
            tuple(sorted(counts)),
            sum(counts.values()),
            sum(under_way.get(name, 0) for name, at in receivers.items() if at == receiver),
            _last_error(tx, registry, tuple(counts)),
        )
        for receiver, counts in by_receiver.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.due, each.receiver)))


def waiting_findings(
    backlogs: Sequence[ReceiverBacklog], service: ServiceState
) -> Iterator[Finding]:
    """Say of each receiver what is due there, and what to do by what is known of the cause."""
    for each in backlogs[:MOST_NAMED]:
        if each.receiver:
            yield warning(_told(each), _todo(each, service))


def _told(backlog: ReceiverBacklog) -> str:
    names = ", ".join(backlog.webhooks[:MOST_NAMED])
    more = len(backlog.webhooks) - MOST_NAMED
    webhooks = f"Webhook {names}{f' and {more} more' if more > 0 else ''}"
    if backlog.last_error is None:
        last = "there was no attempt yet"
    elif backlog.last_error:
        last = f"the last attempt ended with {backlog.last_error}"
    else:
        last = "the last attempt was answered 2xx."
    return (
        f"{backlog.receiver} ({webhooks}): deliveries due {backlog.due}, leased for an attempt "
        f"{backlog.under_way}; {last.rstrip('.')}"
    )


def _todo(backlog: ReceiverBacklog, service: ServiceState) -> str:
    if not service.running:
        return "What is due goes out when the service or a worker runs."
    if service.health.get(backlog.receiver) == "paused":
        return "The service has paused it: fw console, or /app/console, resumes it."
    test = f"fw webhooks test {backlog.webhooks[0]} shows how long each step takes"
    if backlog.last_error or service.health.get(backlog.receiver) == "slow":
        return (
            f"{test}. While it is slow or silent it gets one attempt at a time; disable the "
            "Webhook when the receiver is gone for good."
        )
    return (
        f"{test}. Where it answers quickly, raise ops.perReceiverConcurrency, or add a worker "
        "(fw worker), which has as many places of its own."
    )


def _counts(tx: Tx, condition: sa.ColumnElement[bool]) -> dict[str, int]:
    """Deliveries by Webhook."""
    grouped = (
        sa.select(JOB.c.partition, sa.func.count())
        .where(JOB.c.queue == QUEUE, condition)
        .group_by(JOB.c.partition)
    )
    return {str(webhook): count for webhook, count in tx.rows(grouped)}


def _last_error(tx: Tx, registry: Registry, webhooks: tuple[str, ...]) -> str | None:
    c = registry.tables["Webhook Delivery"].table.c
    row = tx.one(
        sa.select(c.error)
        .where(c.webhook.in_(webhooks), c.last_attempt.is_not(None))
        .order_by(c.last_attempt.desc())
        .limit(1)
    )
    return None if row is None else row[0] or ""
