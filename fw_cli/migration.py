"""`fw migrate`: updates the store to the schema of this version and the site's apps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.output import as_json, say, show
from fw_cli.progress import progress

if TYPE_CHECKING:
    from fw_actors.ops.data_migrations import DataMigrationFailed, PendingMigration
    from fw_actors.ops.site import Site


@click.command()
@click.option("--plan", is_flag=True, help="List the data migrations that would run; run none.")
@as_json
@click.pass_obj
def migrate(context: CommandContext, plan: bool, as_json: bool) -> None:
    """Create or migrate the store: tables, columns, roles; nothing is ever dropped. Then run the
    pending data migrations of the site's apps, each in a transaction.

    If one fails, it is undone and later ones are not run. With --plan the store is brought up to
    date, as by every command, but documents are not changed.
    """
    if as_json and not plan:
        raise click.UsageError("--json requires --plan.")
    if plan:
        _show(context.on_site(_pending_migrations), json=as_json)
        return
    with progress("bringing the store up to date"):  # indexing millions of rows takes a while
        context.on_site(_migrate)
    click.echo("the store is up to date")


async def _pending_migrations(site: Site) -> list[PendingMigration]:
    from fw_actors.ops.data_migrations import pending

    return await site.store.read(lambda tx: pending(tx, site.registry))


def _show(waiting: list[PendingMigration], *, json: bool) -> None:
    rows = [
        {
            "app": each.app,
            "number": each.migration.number,
            "name": each.migration.name,
            "begun": each.begun,
        }
        for each in waiting
    ]
    if rows or json:
        show(rows, {key: key.capitalize() for key in ("app", "number", "name", "begun")}, json=json)
    else:
        click.echo("no data migration is pending")


async def _migrate(site: Site) -> None:
    """Run the data migrations; opening the site has migrated its store (C-104)."""
    from fw_actors.ops import data_migrations

    try:
        async for each in data_migrations.run_pending(site):
            say(f"migrated {each}")
    except data_migrations.DataMigrationFailed as failure:
        raise CommandFailed(_sentence(failure)) from failure


def _sentence(failure: DataMigrationFailed) -> str:
    from fw_cli.scripts import described

    migration = failure.pending.migration
    file = str(getattr(sys.modules.get(migration.module), "__file__", migration.module))
    return (
        f"{failure.pending} failed, and what its transaction did is undone: "
        f"{described(failure.error, file)}"
    )
