"""The query plan of a claim on SQLite (O-21, B-237)."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from fw_actors.store import Tx
from fw_actors.store.statement import SQLITE
from fw_actors.webhooks.claims import DeliveryClaims
from tests.fw_actors.office import open_office


async def test_claim_reads_leased_rows_by_indexes(
    tmp_path: Path,
) -> None:
    """A claim reads only its leased rows among any number of finished or due ones."""

    def plan(tx: Tx) -> list[str]:
        form = rows.leased_rows.form(SQLITE)
        sql, values = form.resolve({"leases": '[[0,"w",1]]', "token": "t"})
        for value in values:
            sql = sql.replace("?", repr(value), 1)
        return [str(line[-1]) for line in tx.rows(text(f"EXPLAIN QUERY PLAN {sql}"))]

    async with open_office(tmp_path) as office:
        rows = DeliveryClaims(office.site.registry)
        steps = await office.site.store.read(plan)
    assert any(
        "fw_job USING INDEX fw_job_due (queue=? AND partition=? AND next_at=?)" in step
        for step in steps
    ), steps
    assert any("SEARCH doc_webhook_delivery USING INDEX" in step for step in steps), steps
