"""Ends the access that a restored backup revives, and reports its other consequences.

A backup has the sessions, links, keys and accounts of its time. Access that was ended since then
must not be restored: a session of a lost laptop, the key of a contractor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.config import Config
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.ops.audit import Action
from fw_actors.ops.console_facts import QUEUES
from fw_actors.ops.site import Site
from fw_actors.store import Statement, Tx
from fw_actors.store.backup import PresentAccess, access_in_database, access_in_file
from fw_actors.store.migrations import end_restore
from fw_actors.store.schema import JOB, SESSION, TOKEN
from fw_actors.webhooks.replay import ReplayRun

_ROWS: Final = ("User", "Webhook", "Webhook Delivery")
"""The DocTypes whose documents are named first."""
_END_SESSIONS: Final = Statement(sa.delete(SESSION).returning(SESSION.c.expires))
_END_LINKS: Final = Statement(sa.delete(TOKEN).returning(TOKEN.c.expires, TOKEN.c.spent))
_WAITING: Final = Statement(
    sa.select(JOB.c.queue, sa.func.count()).where(JOB.c.next_at.is_not(None)).group_by(JOB.c.queue)
)


def access_of_replaced_store(config: Config) -> PresentAccess:
    """Return the access of the store that a restore replaces, without a time limit.

    The store is not migrated: it may be of an older version, which must be able to open it again if
    nothing is replaced, or of a newer one, which is left by a restore.

    Raises: ConfigurationError or sqlite3.Error if it cannot be read.
    """
    if config.sqlite_file is not None:
        return access_in_file(config.sqlite_file)
    return access_in_database(config.deployment.database)


def _present_access(fw: Fw) -> PresentAccess:
    keys = fw.get_all("API Key", fields=["name"])
    users = fw.get_all("User", [["enabled", "=", 1]], ["name"])
    return PresentAccess(
        frozenset(row["name"] for row in keys), frozenset(row["name"] for row in users)
    )


@dataclass(frozen=True)
class Restored:
    """The result of a restore.

    Args:
        sessions: the number of valid sessions that ended; `links` likewise.
        keys_ended: the number of ended API keys: those missing in the replaced store, or all.
        keys: the number of API keys that are valid again.
        users_revived: enabled accounts that the replaced store had disabled or deleted; empty
            where that store could not be read.
        waiting: by queue the jobs that the service will do, once more if they were done before.
        replay: the bulk replay that the service will continue where it was at the backup.
    """

    sessions: int
    links: int
    keys_ended: int
    keys: int
    users_revived: tuple[str, ...]
    waiting: dict[str, int]
    replay: ReplayRun | None


def end_revived_access(
    site: Site, fw: Fw, before: PresentAccess | None, *, all_keys: bool, source: str
) -> Restored:
    """End the access that a restored store revives, in one transaction with an Audit Event.

    This transaction ends the restore: until it is committed, no other command opens the store.

    Args:
        before: the access of the store that is replaced, None if there was none to read.
        all_keys: end every API key.
        source: the name of the backup, for the event.
    """
    tx = fw.tx
    sessions = sum(expires > tx.now for (expires,) in tx.rows(_END_SESSIONS))
    links = sum(spent is None and expires > tx.now for expires, spent in tx.rows(_END_LINKS))
    access = _present_access(fw)
    ended_keys = (
        access.keys if all_keys else access.keys - (access.keys if before is None else before.keys)
    )
    with site.audit.suppressed(tx):
        for name in sorted(ended_keys):
            fw.get_doc("API Key", name).delete()
    revived = () if before is None else tuple(sorted(access.users - before.users))
    detail: dict[str, Any] = {"sessions_ended": sessions, "keys_ended": len(ended_keys)}
    site.audit.record(fw, Action.RESTORE, source, detail)
    end_restore(tx)
    return Restored(
        sessions=sessions,
        links=links,
        keys_ended=len(ended_keys),
        keys=len(access.keys) - len(ended_keys),
        users_revived=revived,
        waiting=waiting_jobs(tx),
        replay=site.bulk.running(tx),
    )


def waiting_jobs(tx: Tx) -> dict[str, int]:
    """Return the number of pending jobs of each queue."""
    counts = {str(queue): int(count) for queue, count in tx.rows(_WAITING)}
    return {queue: counts.get(queue, 0) for queue in QUEUES}


def contents_of(site: Site, fw: Fw) -> dict[str, Any]:
    """Return the numbers of documents by DocType, without empty ones, and the time of the newest
    change."""
    counts: dict[str, int] = {}
    newest: int | None = None
    for doctype, stored in site.registry.tables.items():
        table = stored.table
        if stored.meta.child:
            continue
        latest = sa.func.max(table.c.modified)
        count, at = fw.tx.rows(Statement(sa.select(sa.func.count(), latest).select_from(table)))[0]
        counts[doctype] = int(count)
        newest = at if newest is None else max(newest, at or newest)
    others = sorted(doctype for doctype, count in counts.items() if count)
    shown = dict.fromkeys((*_ROWS, *others))
    return {
        "newest": None if newest is None else iso(newest),
        "documents": {doctype: counts[doctype] for doctype in shown},
    }
