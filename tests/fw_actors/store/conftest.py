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
from fw_actors.store.sqlite_connection import SqliteConnection, make_file
from fw_actors.store.sqlite_engine import GroupCommit
from fw_actors.store.statement import SQLITE
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
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SeededEntropy(1)}
    if kind == SQLITE:
        return partial(open_sqlite, path, **options)
    return partial(open_postgres, request.getfixturevalue("postgres_url"), **options)


@pytest.fixture(params=["threads", "inline"])
async def store(request: pytest.FixtureRequest, open_store: OpenStore) -> AsyncIterator[Store]:
    """An open store of both kinds, with the notes table."""
    async with open_store(inline=request.param == "inline") as store:
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
