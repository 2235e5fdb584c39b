"""Finds the state of the service on this machine by its lock and its console socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from fw_actors.config import Config
from fw_actors.rules.findings import ServiceState
from fw_cli.console_client import ConsoleClient
from fw_cli.errors import CommandFailed
from supervisors.service.background import RunState, status
from supervisors.service.site_files import SitePaths

_ASK_SECONDS: Final = 5.0  # a view is computed at most once a second


def service_state(config: Config) -> ServiceState:
    """Return whether a site's service runs here, and what it says of its receivers and Webhooks.

    Raises: UnusableDataFolder.
    """
    paths = SitePaths(config.folder)
    if status(paths).state is RunState.STOPPED:
        return ServiceState(running=False)
    seen = asyncio.run(_view(ConsoleClient(paths.console)))
    return ServiceState(
        running=True,
        health={each["origin"]: each["health"] for each in seen.get("receivers", ())},
        node=socket.gethostname(),
        stale_webhooks=seen.get("store", {}).get("staleWebhooks", ()),
    )


async def _view(client: ConsoleClient) -> Mapping[str, Any]:
    """Return the service's current view; empty if it has no socket or is busy."""
    found: Mapping[str, Any] = {}
    with suppress(CommandFailed, TimeoutError, KeyError):  # for example of another version
        async with asyncio.timeout(_ASK_SECONDS):
            kept = await client.ask("view")  # may be old: views are computed on request
            found = (await client.ask("view", after=kept["view"]["number"]))["view"]
    await client.close()
    return found
