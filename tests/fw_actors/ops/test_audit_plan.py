"""The query plans of the stores for many Audit Events."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import text

from fw_actors.actors.sweeper import BATCH, Batch, audit_batches
from fw_actors.ops.audit import DENIED_IN_MINUTE
from fw_actors.store import Statement, Tx
from fw_actors.store.postgres_engine import PostgresTx
from fw_actors.store.statement import POSTGRESQL, SQLITE
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

BY_TIME = "by_doc_audit_event__creation"
BY_ACTOR = "by_doc_audit_event__action__actor__creation"
# A day and some hours of a site whose replays are many.
FILL = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)"
    " INSERT INTO doc_audit_event (name, action, actor, creation)"
    " SELECT 'event' || i, CASE WHEN i % 10 = 0 THEN 'Denied' ELSE 'webhook.replay' END,"
    " 'user' || i % 7, :last - i * 2000 FROM n"
)


@pytest.fixture
async def busy(site: VirtualSite) -> VirtualSite:
    await site.sql(FILL, last=1_800_000_000_000)
    await site.site.store.write(lambda tx: tx.run(text("ANALYZE doc_audit_event")))
    return site


def plan(tx: Tx, statement: Statement, params: dict[str, Any]) -> str:
    """Return the store's plan of a statement."""
    postgres = isinstance(tx, PostgresTx)
    sql, values = statement.form(POSTGRESQL if postgres else SQLITE).resolve(params)
    for value in values:
        sql = sql.replace("%s" if postgres else "?", repr(value), 1)
    explain = "EXPLAIN" if postgres else "EXPLAIN QUERY PLAN"
    return "\n".join(str(line[-1]) for line in tx.rows(text(f"{explain} {sql}")))


def statements_of(tx: Any, step: Batch) -> list[tuple[Statement, dict[str, Any]]]:
    """Run a step; the statements that it ran, with values."""
    queries: list[tuple[Statement, dict[str, Any]]] = []
    rows, run_many = tx.rows, tx.run_many

    def read(statement: Statement, /, **params: Any) -> Any:
        queries.append((statement, params))
        return rows(statement, **params)

    def run(statement: Statement, params: list[dict[str, Any]], /) -> None:
        queries.append((statement, params[0]))
        run_many(statement, params)

    tx.rows, tx.run_many = read, run
    assert step(tx) == BATCH
    tx.rows, tx.run_many = rows, run_many
    return queries


async def test_audit_sweep_finds_by_time_and_deletes_by_name(busy: VirtualSite) -> None:
    (step,) = audit_batches(1)

    def explained(tx: Tx) -> list[str]:
        return [plan(tx, *each) for each in statements_of(tx, step)]

    found, deleted = await busy.site.store.write(explained)
    assert BY_TIME in found
    assert re.search("doc_audit_event_pkey|sqlite_autoindex_doc_audit_event_1", deleted), deleted
    for whole in ("Seq Scan", "SCAN doc_audit_event", "Sort", "TEMP B-TREE"):
        assert whole not in found + deleted


async def test_denied_event_reads_refusals_of_its_user_and_minute(busy: VirtualSite) -> None:
    given = {"actor": "user3", "begin": 1_799_999_960_000, "end": 1_800_000_020_000}
    found = await busy.site.store.read(lambda tx: plan(tx, DENIED_IN_MINUTE, given))
    assert BY_ACTOR in found, found
    assert found.count("creation") >= 2 + BY_ACTOR.count("creation"), found
