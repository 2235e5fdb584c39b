"""Finds out why a delivery waits: its row, its Webhook and its job, in one snapshot."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.errors import NotFoundError
from fw_actors.rules.delivery_outcome import Status
from fw_actors.rules.explanation import Waiting
from fw_actors.services.events import QUEUE
from fw_actors.services.receivers import receivers_of
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import JOB

_NAME: Final[sa.BindParameter[Any]] = sa.bindparam("key")

_JOB: Final = Statement(
    sa.select(JOB.c.id, JOB.c.next_at, JOB.c.lease, JOB.c.deaths, JOB.c.partition)
    .where(JOB.c.queue == QUEUE, JOB.c.subject == _NAME)
    .order_by(JOB.c.id.desc())
    .limit(1)
)


def waiting(tx: Tx, registry: Registry, delivery: str) -> Waiting:
    """Return the facts about a delivery. Raises: NotFoundError."""
    row = registry.tables["Webhook Delivery"].fetch(tx, delivery)
    if row is None:
        raise NotFoundError(f"There is no delivery {delivery[:140]}.")
    hook = registry.tables["Webhook"].fetch(tx, row["webhook"])
    job = tx.one(_JOB, key=delivery) or (0, None, None, 0, "")
    number, next_at, lease, deaths, partition = job
    receivers = receivers_of(tx, registry)
    receiver = receivers.get(row["webhook"], "")
    same = [name for name, at in receivers.items() if at == receiver] if receiver else [partition]
    ahead = under_way = 0
    if next_at is not None and lease is None:
        ahead, under_way = _beside(tx, same, next_at, number)
    return Waiting(
        now=tx.now,
        status=Status(row["status"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        error=_sentence(row["error"]),
        hook_enabled=None if hook is None else bool(hook["enabled"]),
        next_at=next_at,
        leased=lease is not None,
        deaths=deaths,
        receiver=receiver,
        ahead=ahead,
        under_way=under_way,
    )


def _beside(tx: Tx, webhooks: list[str], due: int, number: int) -> tuple[int, int]:
    """How many deliveries of some Webhooks are due before a job (its due time and number), and
    how many are leased."""
    theirs = sa.select(sa.func.count()).where(JOB.c.queue == QUEUE, JOB.c.partition.in_(webhooks))
    before = (JOB.c.next_at < due) | ((JOB.c.next_at == due) & (JOB.c.id < number))
    ahead = tx.scalar(theirs.where(before, JOB.c.lease.is_(None)))
    leased = tx.scalar(theirs.where(JOB.c.next_at > tx.now, JOB.c.lease.is_not(None)))
    return ahead, leased


def _sentence(error: str | None) -> str:
    return f"The last error: {error}" if error else "No error was noted."
