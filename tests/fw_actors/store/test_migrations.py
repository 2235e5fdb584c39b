"""A database is migrated from any earlier version to the newest, once."""

from __future__ import annotations

from operator import methodcaller

import pytest
from sqlalchemy import insert, text

from fw_actors.errors import ConfigurationError
from fw_actors.runtime.clock import SeededEntropy
from fw_actors.store import Tx, migrations
from fw_actors.store.migrations import FIRST_VERSION, STEPS, MigrationStep, migrate
from fw_actors.store.schema import METADATA
from tests.fw_actors.store.conftest import OpenStore

ENTROPY = SeededEntropy(7)


def add_colour(tx: Tx) -> None:
    tx.run(text("ALTER TABLE fw_token ADD COLUMN colour TEXT"))


def undo_later_steps(tx: Tx) -> None:
    for name in (
        "data_migration",
        "delivery_attempt",
        "webhook_hour",
        "webhook_health",
        "webhook_claim",
    ):
        tx.run(text(f"DROP TABLE fw_{name}"))
    for name in ("ordering_key", "begun"):
        tx.run(text(f"DROP INDEX fw_job_{name}"))
    for name in ("ordering_key", "trace_context"):
        tx.run(text(f"ALTER TABLE fw_job DROP COLUMN {name}"))
    tx.run(text("DROP TABLE fw_known_address"))
    tx.run(text("DROP TABLE fw_known_device"))
    tx.run(text("DROP INDEX fw_login_attempt_until"))
    for name in ("network_56", "network_48"):
        tx.run(text(f"DROP INDEX fw_login_attempt_{name}"))
        tx.run(text(f"ALTER TABLE fw_login_attempt DROP COLUMN {name}"))


WITH_COLOUR = (*STEPS, MigrationStep(FIRST_VERSION + len(STEPS) + 1, add_colour))


async def test_new_database_has_every_table_of_schema(open_store: OpenStore) -> None:
    async with open_store(inline=True) as store:
        for table in METADATA.sorted_tables:
            found = await store.read(methodcaller("columns", table.name))
            assert found.keys() == {column.name for column in table.columns}


async def test_migrate_applies_missing_step_once(open_store: OpenStore) -> None:
    newest = FIRST_VERSION + len(STEPS)
    async with open_store(inline=True) as store:
        befores = [
            await store.write(lambda tx: migrate(tx, ENTROPY, WITH_COLOUR)) for _ in range(2)
        ]
        assert befores == [newest, newest + 1]
        assert "colour" in await store.read(lambda tx: tx.columns("fw_token"))


async def test_migrate_from_first_version_creates_current_schema(
    open_store: OpenStore,
) -> None:
    async with open_store(inline=True) as store:

        def back_to_the_first(tx: Tx) -> None:
            tx.run(text("DROP TABLE fw_api_key"))
            tx.run(text("DROP TABLE fw_bulk_replay"))
            tx.run(text("DROP TABLE fw_password_cost"))
            undo_later_steps(tx)
            tx.run(text("UPDATE fw_meta SET value = '1' WHERE key = 'schema_version'"))

        await store.write(back_to_the_first)
        assert await store.write(lambda tx: migrate(tx, ENTROPY)) == FIRST_VERSION
        for table in METADATA.sorted_tables:
            found = await store.read(methodcaller("columns", table.name))
            assert found.keys() == {column.name for column in table.columns}
            assert await store.read(methodcaller("indexes", table.name)) >= {
                index.name for index in table.indexes
            }


async def test_migrate_counts_password_hashes_by_cost(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "HASH_PAGE", 2)
    tail = "$c29tZXNhbHRzb21l$" + "A" * 43
    cheap, dear = f"$argon2id$v=19$m=64,t=1,p=1{tail}", f"$argon2id$v=19$m=19456,t=2,p=1{tail}"

    def older(tx: Tx) -> None:
        tx.run(text("DROP TABLE fw_password_cost"))
        undo_later_steps(tx)
        for number, stored in enumerate((cheap, dear, "damaged", dear, cheap, dear)):
            values = {"user": f"user{number}", "hash": stored, "changed": 1}
            tx.run(insert(METADATA.tables["fw_password"]).values(values))
        tx.run(text("UPDATE fw_meta SET value = '3' WHERE key = 'schema_version'"))

    async with open_store(inline=True) as store:
        await store.write(older)
        await store.write(lambda tx: migrate(tx, ENTROPY))
        query = text("SELECT cost, hashes FROM fw_password_cost ORDER BY cost")
        rows = await store.read(lambda tx: tx.rows(query))
        assert rows == [("19456,2,1", 3), ("64,1,1", 2)]


async def test_migrate_writes_webhook_of_earlier_attempts(open_store: OpenStore) -> None:
    """An attempt gets the Webhook of its own delivery, and none if the delivery is gone."""

    def older(tx: Tx) -> None:
        tx.run(text("DROP TABLE fw_data_migration"))
        tx.run(text("ALTER TABLE fw_job DROP COLUMN trace_context"))
        for name in ("delivery_attempt_time", "delivery_attempt_webhook", "login_attempt_until"):
            tx.run(text(f"DROP INDEX fw_{name}"))
        tx.run(text("ALTER TABLE fw_delivery_attempt DROP COLUMN webhook"))
        tx.run(text("CREATE TABLE doc_webhook_delivery (name TEXT PRIMARY KEY, webhook TEXT)"))
        tx.run(text("INSERT INTO doc_webhook_delivery VALUES ('msg_1', 'A'), ('msg_2', 'B')"))
        tx.run(
            text(
                "INSERT INTO fw_delivery_attempt (delivery, position, number)"
                " VALUES ('msg_1', 1, 1), ('msg_2', 1, 1), ('msg_2', 2, 2), ('msg_3', 1, 1)"
            )
        )
        tx.run(text("UPDATE fw_meta SET value = '13' WHERE key = 'schema_version'"))

    async with open_store(inline=True) as store:
        await store.write(older)
        await store.write(lambda tx: migrate(tx, ENTROPY))
        query = text("SELECT delivery, webhook FROM fw_delivery_attempt ORDER BY 1, position")
        rows = await store.read(lambda tx: tx.rows(query))
        assert rows == [("msg_1", "A"), ("msg_2", "B"), ("msg_2", "B"), ("msg_3", None)]


async def test_migrate_renames_lanes_of_jobs(open_store: OpenStore) -> None:
    """The column and the index get the names that the statements use."""

    def older(tx: Tx) -> None:
        for name in ("data_migration", "delivery_attempt"):
            tx.run(text(f"DROP TABLE fw_{name}"))
        tx.run(text("CREATE TABLE fw_delivery_attempt (delivery TEXT, last_attempt BIGINT)"))
        tx.run(text("DROP INDEX fw_login_attempt_until"))
        tx.run(text("DROP INDEX fw_job_ordering_key"))
        tx.run(text("ALTER TABLE fw_job DROP COLUMN trace_context"))
        tx.run(text("ALTER TABLE fw_job RENAME COLUMN ordering_key TO lane"))
        tx.run(text("CREATE INDEX fw_job_lane ON fw_job (partition, lane, id)"))
        tx.run(text("UPDATE fw_meta SET value = '12' WHERE key = 'schema_version'"))

    async with open_store(inline=True) as store:
        await store.write(older)
        await store.write(lambda tx: migrate(tx, ENTROPY))
        jobs = METADATA.tables["fw_job"]
        assert "lane" not in await store.read(methodcaller("columns", jobs.name))
        assert await store.read(methodcaller("indexes", jobs.name)) >= {
            index.name for index in jobs.indexes
        }
        assert "fw_job_lane" not in await store.read(methodcaller("indexes", jobs.name))


async def test_failed_migration_step_rolls_back_earlier_steps(open_store: OpenStore) -> None:
    def fail(tx: Tx) -> None:
        raise ValueError("broken")

    steps = (*WITH_COLOUR, MigrationStep(WITH_COLOUR[-1].version + 1, fail))
    async with open_store(inline=True) as store:
        with pytest.raises(ValueError, match="broken"):
            await store.write(lambda tx: migrate(tx, ENTROPY, steps))
        assert "colour" not in await store.read(lambda tx: tx.columns("fw_token"))


async def test_database_of_newer_version_is_refused_with_both_versions(
    open_store: OpenStore,
) -> None:
    """O-18."""
    async with open_store(inline=True) as store:
        await store.write(lambda tx: migrate(tx, ENTROPY, WITH_COLOUR))
    newest = FIRST_VERSION + len(STEPS)
    with pytest.raises(ConfigurationError, match=rf"version {newest + 1} .* knows {newest}:"):
        async with open_store():
            pass
