"""`fw console`: the running service in the terminal, in the manner of Erlang's observer."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.output import as_json, show_json

ANSWER_SECONDS: Final = 10.0


@click.command()
@as_json
@click.pass_obj
def console(context: CommandContext, as_json: bool) -> None:
    """Inspect the running service: actors, receivers, failures, jobs, lockouts; and act on them.

    Press ? for the keys and q to quit. The console continues when the service is restarted.

    It connects to a socket that only the service's own user can open; data/console.address names
    it. --json prints the current state once.
    """
    from fw_cli.console_client import ConsoleClient
    from supervisors.service.site_files import SitePaths

    path = SitePaths(context.folder).console

    async def view() -> Any:
        client = ConsoleClient(path)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return (await client.ask("view"))["view"]
        except TimeoutError:
            raise CommandFailed("the service does not answer; its log may say why") from None
        finally:
            await client.close()

    first = asyncio.run(view())  # reports a stopped service before the screen is taken over
    if as_json:
        show_json(first)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed("the console requires a terminal; --json prints the current state")
    from fw_cli.console_screen import ConsoleScreen

    ConsoleScreen(path).run()
