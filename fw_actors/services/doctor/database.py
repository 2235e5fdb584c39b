"""The database: whether it is whole, how large it is, and whether the disk has room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
import trio

from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from fw_actors.services.site import Site
from fw_actors.store import Tx
from fw_actors.store.sqlite_examination import examine_file

_MIB: Final = 1 << 20
LITTLE_DISK: Final = 1 << 30
NO_DISK: Final = 100 * _MIB


@dataclass(frozen=True)
class DatabaseFacts:
    """`free_disk` is None where the database is on a server; `checked` says how it was checked."""

    kind: str
    place: str
    size: int  # bytes
    checked: str
    faults: tuple[str, ...] = ()
    free_disk: int | None = None  # bytes


async def database_facts(site: Site) -> DatabaseFacts:
    """Look at the file, or ask the server."""
    path = site.config.sqlite_file
    if path is None:
        return await site.store.read(_ask_postgresql)
    found = await trio.to_thread.run_sync(examine_file, path)
    return DatabaseFacts(
        kind="sqlite",
        place=str(path),
        size=found.size,
        checked="wholly" if found.thorough else "but for its indexes, since it is large",
        faults=found.faults,
        free_disk=shutil.disk_usage(path.parent).free,
    )


def judge_database(facts: DatabaseFacts) -> Section:
    """Judge the facts; pure."""
    shown = {
        "kind": facts.kind,
        "sizeBytes": facts.size,
        "freeDiskBytes": facts.free_disk,
        "intact": not facts.faults,
    }
    return Section("database", "Database", tuple(_findings(facts)), shown)


def _findings(facts: DatabaseFacts) -> Iterator[Finding]:
    size = f"{facts.size / _MIB:.1f} MiB"
    if facts.faults:
        yield problem(
            f"{facts.kind} {facts.place} is damaged: {'; '.join(facts.faults)}",
            "Stop the service, keep a copy of the file as it is, and restore a backup.",
        )
    else:
        yield ok(f"{facts.kind} {facts.place}: {size}, checked {facts.checked}")
    if facts.free_disk is None:
        return
    free = f"the disk of the database has {facts.free_disk / _MIB:.0f} MiB left"
    if facts.free_disk < NO_DISK:
        yield problem(free, "Make room: soon every write is refused with 503.")
    elif facts.free_disk < max(LITTLE_DISK, facts.size):
        yield warning(free, "Make room: a backup needs as much as the database.")
    else:
        yield ok(free)


def _ask_postgresql(tx: Tx) -> DatabaseFacts:
    row = tx.one(
        sa.text("SELECT current_database(), pg_database_size(current_database()), version()")
    )
    assert row is not None
    name, size, version = row
    checked = f"by its server ({str(version).split(',')[0].split(' on ')[0]})"
    return DatabaseFacts("postgresql", str(name), int(size), checked)
