"""`fw backup`: a consistent copy of the store, while the service runs."""

from __future__ import annotations

from pathlib import Path

import click

from fw_cli.context import CommandContext
from fw_cli.examples import examples
from fw_cli.output import say
from fw_cli.progress import progress


@click.command(epilog=examples('fw backup "backup-$(date +%F).db"'))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def backup(context: CommandContext, file: Path) -> None:
    """Copy the whole store to FILE, which must not exist; the service may run meanwhile.

    The copy is consistent and is verified. Nothing is migrated, so it can be made before an
    upgrade. fw restore restores it. For SQLite the copy is an SQLite file, for PostgreSQL a dump.
    Stored secrets stay encrypted: keep FW_SECRET_KEY too, in another place.
    """
    copy_store(context, file)


def copy_store(context: CommandContext, file: Path, *, silent: bool = False) -> None:
    """Copy the store to a new file, and print its size unless `silent`."""
    config = context.config
    target = context.cwd / file
    with progress("copying the store") as advance:
        if config.sqlite_file is not None:
            from fw_actors.store.backup import back_up_file

            size = back_up_file(config.sqlite_file, target, advance)
        else:
            from fw_actors.store.backup import back_up_database

            size = back_up_database(config.deployment.database, target, context.environ)
    if not silent:
        say(f"{target}: {size} bytes")
