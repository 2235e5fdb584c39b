"""Runs the data migrations of apps, and records which of them a site has run (D-174 to D-177)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.documents.registry import DataMigration, Registry
from fw_actors.errors import ConfigurationError, ValidationError, is_store_refusal
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import DATA_MIGRATION

if TYPE_CHECKING:
    from fw_actors.ops.site import Site

LOCK: Final = "fw.data_migrations"
CURSOR_CHARACTERS: Final = 10_000

_c = DATA_MIGRATION.c
_ALL: Final = Statement(sa.select(_c.app, _c.number, _c.name, _c.cursor, _c.done))
_BEGIN: Final = Statement(
    sa.insert(DATA_MIGRATION).values(
        app=sa.bindparam("its_app"),
        number=sa.bindparam("its_number"),
        name=sa.bindparam("its_name"),
        cursor=None,
        done=None,
    )
)
_ADVANCE: Final = Statement(
    sa.update(DATA_MIGRATION)
    .where(_c.app == sa.bindparam("its_app"), _c.number == sa.bindparam("its_number"))
    .values(cursor=sa.bindparam("its_cursor"), done=sa.bindparam("at"))
)


@dataclass(frozen=True, slots=True)
class PendingMigration:
    """A data migration that a site lacks; `begun` if some of its batches are done."""

    app: str
    migration: DataMigration
    begun: bool

    def __str__(self) -> str:
        return f"{self.app} {self.migration.number} ({self.migration.name})"


class DataMigrationFailed(Exception):
    """Raised after a migration has raised `error`."""

    def __init__(self, pending: PendingMigration, error: Exception) -> None:
        super().__init__(f"{pending} failed: {error}")
        self.pending, self.error = pending, error


@dataclass(frozen=True, slots=True)
class _Record:
    name: str
    cursor: str | None
    done: int | None


_Records = Mapping[tuple[str, int], _Record]


def _records(tx: Tx) -> _Records:
    return {(app, number): _Record(*rest) for app, number, *rest in tx.rows(_ALL)}


def refuse_older_apps(tx: Tx, registry: Registry) -> None:
    """Refuse an app that lacks migrations which the store has had.

    Raises: ConfigurationError, with all problems at once.
    """
    problems = list(_problems(_records(tx), registry))
    if problems:
        raise ConfigurationError(problems)


def _problems(records: _Records, registry: Registry) -> Iterator[str]:
    for app, migrations in registry.migrations.items():
        recorded = {number: record for (owner, number), record in records.items() if owner == app}
        if max(recorded, default=0) > len(migrations):
            yield (
                f"apps: {app}: the store has run migration {max(recorded)}, but this version of "
                f"the app has only {len(migrations)}. Install the newer version, or restore a "
                "backup."
            )
        for each in migrations:
            record = recorded.get(each.number)
            if record is not None and record.name != each.name:
                yield (
                    f"apps: {app}: migration {each.number} was run as {record.name} and is now "
                    f"named {each.name}; give a new migration the next number."
                )


def pending(tx: Tx, registry: Registry) -> list[PendingMigration]:
    """Return the migrations that the store lacks, in the order in which they will run."""
    records = _records(tx)
    return [
        PendingMigration(app, each, record is not None)
        for app, migrations in registry.migrations.items()
        for each in migrations
        if (record := records.get((app, each.number))) is None or record.done is None
    ]


async def run_pending(site: Site) -> AsyncIterator[PendingMigration]:
    """Run the site's pending migrations, and yield each one when it is done.

    Each migration, or each batch of one, is a transaction that also records it, so that work which
    was committed before the process ended is not repeated. Two processes at once run each once.

    Raises: DataMigrationFailed; the transaction is undone, and later migrations are not run.
    """
    for each in await site.store.read(lambda tx: pending(tx, site.registry)):
        done = False
        while not done:
            done = await site.write(ADMINISTRATOR, _Step(each))
        yield each


@dataclass(frozen=True, slots=True)
class _Step:
    """One transaction of a migration; its result is whether the migration is done."""

    pending: PendingMigration

    def __call__(self, fw: Fw) -> bool:
        app, migration = self.pending.app, self.pending.migration
        place = {"its_app": app, "its_number": migration.number}
        fw.tx.lock(LOCK)
        record = _records(fw.tx).get((app, migration.number))
        if record is None:
            fw.tx.run(_BEGIN, **place, its_name=migration.name)
        elif record.done is not None:  # by another process
            return True
        cursor = self._run(fw, None if record is None else record.cursor)
        done = fw.tx.now if cursor is None else None
        fw.tx.run(_ADVANCE, **place, its_cursor=cursor, at=done)
        return cursor is None

    def _run(self, fw: Fw, cursor: str | None) -> str | None:
        """Return the next cursor as JSON, None at the end."""
        migration = self.pending.migration
        try:
            if not migration.in_batches:
                migration(fw)
                return None
            following = migration(fw, None if cursor is None else msgspec.json.decode(cursor))
            return None if following is None else _as_json(following, cursor)
        except Exception as error:
            if is_store_refusal(error):
                raise
            raise DataMigrationFailed(self.pending, error) from error


def _as_json(following: Any, cursor: str | None) -> str:
    try:
        # Not msgspec's encoder, which makes a text of a datetime, and null of NaN: the next batch
        # would get another value than this one returned.
        text = json.dumps(following, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"The cursor must be JSON: {error}.") from None
    if len(text) > CURSOR_CHARACTERS:
        raise ValidationError(f"The cursor is longer than {CURSOR_CHARACTERS:,} characters.")
    if text == cursor:
        raise ValidationError(
            f"The migration returned the cursor {text[:100]} twice and would never end."
        )
    return text
