"""`fw console`: the running service in the terminal, in the manner of Erlang's observer."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from fw_cli.output import as_json, show_json
from fw_cli.refusals import CommandFailed
from fw_cli.surroundings import CommandContext


@click.command()
@as_json
@click.pass_obj
def console(surroundings: CommandContext, as_json: bool) -> None:
    """Look into the running service: actors, receivers, queues, lockouts; and act on them.

    Through a socket that only the service's own user can open; data/console.address says where it
    is. --json prints what is there now, once.
    """
    from fw_cli.console_client import ConsoleClient
    from supervisors.service.site_files import SitePaths

    path = SitePaths(surroundings.folder).console

    async def look() -> Any:
        client = ConsoleClient(path)
        try:
            return (await client.ask("view"))["view"]
        finally:
            await client.close()

    first = asyncio.run(look())  # a service that does not run is told before the screen is taken
    if as_json:
        show_json(first)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed("the console needs a terminal; --json prints what is there now")
    from fw_cli.console_screen import ConsoleScreen

    ConsoleScreen(path).run()
