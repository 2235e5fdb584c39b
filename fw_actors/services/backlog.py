"""What waits in the store at one moment: jobs by queue, and identifiers that are locked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.services import events, jobs_of_apps, mail
from fw_actors.store import QueueStats, Statement, Tx, jobs
from fw_actors.store.schema import LOGIN_ATTEMPT

QUEUES: Final = (events.QUEUE, mail.QUEUE, jobs_of_apps.QUEUE)
"""Interface §8, Queues: shown also when they are empty."""

_NOW: Final[sa.BindParameter[Any]] = sa.bindparam("now")
_LOCKED: Final = Statement(
    sa.select(sa.func.count(LOGIN_ATTEMPT.c.key.distinct())).where(LOGIN_ATTEMPT.c.until > _NOW)
)


@dataclass(frozen=True)
class Backlog:
    """The queues, the known ones first, and how many identifiers are locked."""

    queues: tuple[QueueStats, ...]
    locked: int


def backlog(tx: Tx) -> Backlog:
    """Return what waits now."""
    return Backlog(tuple(queues(tx)), locked_identifiers(tx))


def queues(tx: Tx) -> list[QueueStats]:
    """Return the numbers of every queue, empty ones too."""
    found = {row.queue: row for row in jobs.stats(tx)}
    names = [*QUEUES, *(name for name in found if name not in QUEUES)]
    return [found.get(name) or QueueStats(name, 0, 0, 0, 0, 0.0) for name in names]


def locked_identifiers(tx: Tx) -> int:
    """Return how many identifiers refuse every sign-in now."""
    count: int = tx.scalar(_LOCKED, now=tx.now)
    return count
