"""Several processes, or several stores of one, on one database: the same on both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from fw_actors.store import jobs
from fw_actors.store.statement import SQLITE
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import add, create_notes, texts
from tests.fw_actors.store.other_process import process

OPEN = """
import sys
from pathlib import Path
import trio
from fw_actors.runtime.clock import SystemClock
from fw_actors.runtime.clock import SystemEntropy
from fw_actors.store import installation_key, open_sqlite
from fw_actors.store.postgres import open_postgres

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    where, options = sys.argv[1], {"clock": SystemClock(), "entropy": SystemEntropy()}
    postgres = where.startswith("postgresql:")
    opened = open_postgres(where, **options) if postgres else open_sqlite(Path(where), **options)
    async with opened as store:
        print((await store.read(installation_key)).hex())

trio.run(main)
"""


@pytest.fixture
def database(kind: str, path: Path, request: pytest.FixtureRequest) -> str:
    """Return the address of the store for the program above."""
    return str(path) if kind == SQLITE else str(request.getfixturevalue("postgres_url"))


def test_new_database_is_created_once_by_concurrent_processes(database: str) -> None:
    with process(OPEN, database) as (first_in, first_out), process(OPEN, database) as (in_, out):
        assert first_out.readline() == out.readline() == "ready\n"
        for stream in (first_in, in_):
            stream.write("go\n")
            stream.flush()
        key = first_out.readline()
        assert len(key) == 65
        assert out.readline() == key


async def test_external_commit_of_second_store_calls_listener(
    open_store: OpenStore,
) -> None:
    """A commit of another process is noticed within a second (O-17)."""
    async with open_store() as ours, open_store() as theirs:
        await ours.write(create_notes)
        noticed = trio.Event()
        ours.on_external_commit(noticed.set)
        await theirs.write(add("from outside"))
        with trio.fail_after(30):
            await noticed.wait()
        assert await ours.read(texts) == ["from outside"]
        assert ours.statistics().external_commits >= 1


async def test_poll_reports_external_commits_only(open_store: OpenStore) -> None:
    called: list[str] = []
    async with open_store(inline=True) as ours, open_store(inline=True) as theirs:
        leave = ours.on_external_commit(lambda: called.append("noticed"))
        await ours.write(create_notes)
        await ours.write(add("our own"))
        ours.poll()
        assert called == []
        await theirs.write(add("theirs"))
        for _ in range(1000):  # a notice needs a moment to arrive
            ours.poll()
            if called:
                break
            await trio.sleep(0.02)
        assert called == ["noticed"]
        leave()
        await theirs.write(add("more of theirs"))
        ours.poll()
        assert called == ["noticed"]


async def test_concurrent_claims_of_stores_lease_jobs_once(
    open_store: OpenStore,
) -> None:
    """Each job has one holder, and a claim never exceeds its limit."""
    leased: list[int] = []
    async with open_store() as ours, open_store() as theirs:
        for _ in range(60):
            await ours.write(lambda tx: jobs.enqueue(tx, queue="webhook", partition="w"))

        async def claim(worker: int) -> None:
            store = (ours, theirs)[worker % 2]
            for number in range(5):
                token = f"t{worker} {number}"
                taken = await store.write(
                    lambda tx: jobs.claim(tx, "webhook", "w", 3, 40_000, token)  # noqa: B023
                )
                assert len(taken) <= 3
                leased.extend(job.id for job in taken)

        async with trio.open_nursery() as nursery:
            for worker in range(4):
                nursery.start_soon(claim, worker)
        while rest := await ours.write(
            lambda tx: jobs.claim(tx, "webhook", "w", 60, 40_000, "rest")
        ):
            leased.extend(job.id for job in rest)
    assert sorted(leased) == sorted(set(leased))
    assert len(leased) == 60
