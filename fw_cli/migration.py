"""`fw migrate`: the store as this version and the site's apps need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fw_cli.progress import progress
from fw_cli.surroundings import CommandContext

if TYPE_CHECKING:
    from fw_actors.ops.site import Site


@click.command()
@click.pass_obj
def migrate(surroundings: CommandContext) -> None:
    """Make or migrate the store: tables, columns, roles; nothing is ever dropped."""
    with progress("bringing the store up to date"):  # an index on millions of rows takes its time
        surroundings.on_site(_opened_is_migrated)
    click.echo("the store is up to date")


async def _opened_is_migrated(site: Site) -> None:
    """Every command that opens the site migrates its store first (C-104)."""
