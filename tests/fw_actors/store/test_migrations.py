"""From any earlier version to the newest, once."""

from __future__ import annotations

from operator import methodcaller

import pytest
from sqlalchemy import text

from fw_actors.errors import ConfigurationError
from fw_actors.runtime.entropy import SeededEntropy
from fw_actors.store import Tx
from fw_actors.store.migrations import FIRST_VERSION, STEPS, Step, migrate
from fw_actors.store.schema import METADATA
from tests.fw_actors.store.conftest import OpenStore

ENTROPY = SeededEntropy(7)


def add_colour(tx: Tx) -> None:
    tx.run(text("ALTER TABLE fw_token ADD COLUMN colour TEXT"))


WITH_COLOUR = (*STEPS, Step(FIRST_VERSION + len(STEPS) + 1, add_colour))


async def test_a_new_database_has_every_table_of_the_schema(open_store: OpenStore) -> None:
    async with open_store(inline=True) as store:
        for table in METADATA.sorted_tables:
            found = await store.read(methodcaller("columns", table.name))
            assert found.keys() == {column.name for column in table.columns}


async def test_an_older_database_gets_the_steps_it_lacks_once(open_store: OpenStore) -> None:
    newest = FIRST_VERSION + len(STEPS)
    async with open_store(inline=True) as store:
        befores = [
            await store.write(lambda tx: migrate(tx, ENTROPY, WITH_COLOUR)) for _ in range(2)
        ]
        assert befores == [newest, newest + 1]
        assert "colour" in await store.read(lambda tx: tx.columns("fw_token"))


async def test_the_first_version_upgraded_has_the_tables_of_a_new_database(
    open_store: OpenStore,
) -> None:
    async with open_store(inline=True) as store:

        def back_to_the_first(tx: Tx) -> None:
            tx.run(text("DROP TABLE fw_api_key"))
            tx.run(text("DROP TABLE fw_bulk_replay"))
            tx.run(text("UPDATE fw_meta SET value = '1' WHERE key = 'schema_version'"))

        await store.write(back_to_the_first)
        assert await store.write(lambda tx: migrate(tx, ENTROPY)) == FIRST_VERSION
        for table in METADATA.sorted_tables:
            found = await store.read(methodcaller("columns", table.name))
            assert found.keys() == {column.name for column in table.columns}


async def test_a_step_that_fails_leaves_the_database_as_it_was(open_store: OpenStore) -> None:
    def fail(tx: Tx) -> None:
        raise ValueError("broken")

    steps = (*WITH_COLOUR, Step(WITH_COLOUR[-1].version + 1, fail))
    async with open_store(inline=True) as store:
        with pytest.raises(ValueError, match="broken"):
            await store.write(lambda tx: migrate(tx, ENTROPY, steps))
        assert "colour" not in await store.read(lambda tx: tx.columns("fw_token"))


async def test_a_newer_database_is_refused_with_both_versions(open_store: OpenStore) -> None:
    async with open_store(inline=True) as store:
        await store.write(lambda tx: migrate(tx, ENTROPY, WITH_COLOUR))
    newest = FIRST_VERSION + len(STEPS)
    with pytest.raises(ConfigurationError, match=rf"version {newest + 1} .* knows {newest}:"):
        async with open_store():
            pass
