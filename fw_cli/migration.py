"""`fw migrate`: updates the store to the schema of this version and the site's apps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fw_cli.context import CommandContext
from fw_cli.progress import progress

if TYPE_CHECKING:
    from fw_actors.ops.site import Site


@click.command()
@click.pass_obj
def migrate(context: CommandContext) -> None:
    """Create or migrate the store: tables, columns, roles; nothing is ever dropped."""
    with progress("bringing the store up to date"):  # indexing millions of rows takes a while
        context.on_site(_opened_is_migrated)
    click.echo("the store is up to date")


async def _opened_is_migrated(site: Site) -> None:
    """Do nothing: opening a site migrates its store (C-104)."""
