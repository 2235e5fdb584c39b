"""Finds the state of the service on this machine by its lock and its console socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from fw_actors.config import Config
from fw_actors.rules.findings import ServiceState
from fw_cli.console_client import ConsoleClient
from fw_cli.errors import CommandFailed
from supervisors.service.background import RunState, status
from supervisors.service.site_files import SitePaths

_ASK_SECONDS: Final = 5.0  # a view is computed at most once a second


def service_state(config: Config) -> ServiceState:
    """Return whether a site's service runs here, and the health of its receivers if available.

    Raises: UnusableDataFolder.
    """
    paths = SitePaths(config.folder)
    if status(paths).state is RunState.STOPPED:
        return ServiceState(running=False)
    return ServiceState(running=True, health=asyncio.run(_health(ConsoleClient(paths.console))))


async def _health(client: ConsoleClient) -> Mapping[str, str]:
    """Return the health of each receiver; empty if the service has no socket or is busy."""
    health: dict[str, str] = {}
    with suppress(CommandFailed, TimeoutError, KeyError):  # for example of another version
        async with asyncio.timeout(_ASK_SECONDS):
            kept = await client.ask("view")  # may be old: views are computed on request
            now = await client.ask("view", after=kept["view"]["number"])
            health = {each["origin"]: each["health"] for each in now["view"]["receivers"]}
    await client.close()
    return health
