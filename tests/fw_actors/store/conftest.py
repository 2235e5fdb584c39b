"""Stores and engines on a fresh database, and a table that tests may use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fw_actors.runtime.clock import SeededEntropy, SystemClock
from fw_actors.store import Store, open_sqlite
from fw_actors.store.postgres import open_postgres
from fw_actors.store.sqlite_connection import SqliteConnection
from fw_actors.store.sqlite_engine import GroupCommit
from fw_actors.store.statement import SQLITE
from fw_actors.store.trio_sqlite import make_file
from tests.fw_actors.store.kinds import IN_ORDER, KINDS
from tests.fw_actors.store.notes import create_notes

OpenStore = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "fw.db"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every test runs on both stores, except in files that name one."""
    found: str = request.param
    return found


@pytest.fixture
def open_store(kind: str, path: Path, request: pytest.FixtureRequest) -> OpenStore:
    """`open_sqlite` or `open_postgres` on the test's database; options may be given."""
    return _opening(path if kind == SQLITE else request.getfixturevalue("postgres_url"))


def _opening(database: Path | str) -> OpenStore:
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    if isinstance(database, Path):
        return partial(open_sqlite, database, **options)
    return partial(open_postgres, database, **options)


@pytest.fixture(params=["threads", "inline"])
async def store(request: pytest.FixtureRequest, kind: str, path: Path) -> AsyncIterator[Store]:
    """An open store of both kinds, with the notes table; on PostgreSQL its tables may be older than
    the test, but empty."""
    opening = _opening(path if kind == SQLITE else request.getfixturevalue("kept_schema"))
    async with opening(inline=request.param == "inline") as store:
        await store.write(create_notes)
        yield store


@pytest.fixture
async def threaded(open_store: OpenStore) -> AsyncIterator[Store]:
    """A store with its threads, with the notes table."""
    async with open_store() as store:
        await store.write(create_notes)
        yield store


@pytest.fixture
async def ordered(open_store: OpenStore, kind: str) -> AsyncIterator[Store]:
    """A store with its threads whose writes run in sequence, with the notes table."""
    async with open_store(**IN_ORDER[kind]) as store:
        await store.write(create_notes)
        yield store


@pytest.fixture
def connection(path: Path) -> Iterator[SqliteConnection]:
    make_file(path)
    connection = SqliteConnection(path, busy_seconds=0.1)
    yield connection
    connection.close()


@pytest.fixture
def engine(connection: SqliteConnection) -> GroupCommit:
    """The writer's engine without a thread: a test decides which calls form a group."""
    return GroupCommit(connection)
