"""The plans of PostgreSQL for the statements of the queue (O-21, B-237)."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator
from functools import partial
from operator import methodcaller
from typing import Any, Final

import pytest
import trio
from sqlalchemy import text

from fw_actors.store import LeasedJob, Statement, Store, Tx, jobs
from fw_actors.store.jobs import CLAIM, HEADS, NEXT_DUE
from fw_actors.store.statement import POSTGRESQL
from tests.fw_actors.store.conftest import OpenStore

# A dead receiver with many due rows beside many finished ones.
_FILL: Final = (
    "INSERT INTO fw_job (queue, partition, created, next_at) "
    "SELECT 'webhook', 'w' || n % 40, 0, CASE WHEN n % 5 = 0 THEN n END "
    "FROM generate_series(1, 20000) n",
    "ANALYZE fw_job",
)


@pytest.fixture
def kind() -> str:
    return POSTGRESQL


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with open_store() as store:
        for statement in _FILL:
            await store.write(methodcaller("run", text(statement)))
        yield store


def plan(tx: Tx, statement: Statement, options: str = "COSTS OFF", **params: Any) -> str:
    form = statement.form(POSTGRESQL)
    sql, values = form.resolve(dict.fromkeys(form.names, 1) | params)
    for value in values:
        sql = sql.replace("%s", f"'{value}'", 1)
    return "\n".join(line for (line,) in tx.rows(text(f"EXPLAIN ({options}) {sql}")))


async def test_claim_plan_seeks_partial_index_once(store: Store) -> None:
    """The CTE is materialised; otherwise more rows than LIMIT could be taken (B-237)."""
    given: dict[str, Any] = {"queue": "webhook", "partition": "w0", "now": 20_000, "limit": 5}
    found = await store.read(lambda tx: plan(tx, CLAIM, **given))
    assert "CTE due" in found
    assert "Index Scan using fw_job_due on fw_job" in found
    assert "next_at <= '20000'" in found.split("Index Cond", 1)[1].split("\n", 1)[0]
    assert "Seq Scan on fw_job" not in found, found
    assert "Sort" not in found.split("CTE due", 1)[1].split("->  Index Scan using fw_job_due")[0]


async def test_next_due_plan_is_single_index_seek(store: Store) -> None:
    given: dict[str, Any] = {"queue": "webhook", "partition": "w0", "now": 20_000}
    found = await store.read(lambda tx: plan(tx, NEXT_DUE, **given))
    assert "using fw_job_due on fw_job" in found, found
    assert "Seq Scan on fw_job" not in found, found


async def test_heads_plan_reads_few_pages_per_partition(store: Store) -> None:
    """Work is counted in pages, which load cannot change; an index walk would read thousands."""
    found = await store.read(lambda tx: plan(tx, HEADS, "ANALYZE, BUFFERS", queue="webhook"))
    assert "Seq Scan on fw_job" not in found, found
    pages = re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", found)
    assert pages is not None
    assert sum(map(int, pages.groups("0"))) < 40 * 2 * 8, found


async def test_concurrent_claims_share_rows_without_waiting(store: Store) -> None:
    """A claim locks its rows until its commit; a concurrent claim skips them."""
    barrier = threading.Barrier(2)
    taken: list[list[LeasedJob]] = []

    def claim(tx: Tx, token: str) -> None:
        leased = jobs.claim(tx, "webhook", "w0", 5, 40_000, token)
        barrier.wait(timeout=30)  # a claim that waited for the other would never reach this
        taken.append(leased)

    async with trio.open_nursery() as nursery:
        for token in ("t1", "t2"):
            nursery.start_soon(store.write, partial(claim, token=token))
    first, second = ({job.id for job in leased} for leased in taken)
    assert len(first) == len(second) == 5
    assert not first & second
