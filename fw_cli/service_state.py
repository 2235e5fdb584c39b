"""Asks the service on this machine, found by its lock, through its console socket."""

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
from supervisors.service.site_files import SitePaths, running_workers

_ASK_SECONDS: Final = 5.0  # a view is computed at most once a second


def service_state(config: Config) -> ServiceState:
    """Return whether a site's service runs here, and its state of receivers and Webhooks.

    Raises: UnusableDataFolder.
    """
    paths = SitePaths(config.folder)
    workers = len(running_workers(paths))
    if status(paths).state is RunState.STOPPED:
        return ServiceState(running=False, workers=workers)
    view = asyncio.run(_request_view(ConsoleClient(paths.console)))
    return ServiceState(
        running=True,
        health={each["origin"]: each["health"] for each in view.get("receivers", ())},
        node=socket.gethostname(),
        stale_webhooks=view.get("store", {}).get("staleWebhooks", ()),
        workers=workers,
    )


def use_stored_subscriptions(config: Config) -> bool | None:
    """Make the running service use the currently stored Webhooks (C-152).

    Returns: whether it does; None if no service runs on this machine. Services of the site on other
        machines are not reached.
    """
    paths = SitePaths(config.folder)
    if status(paths).state is RunState.STOPPED:
        return None
    return asyncio.run(_request_refresh(ConsoleClient(paths.console)))


async def _request_refresh(client: ConsoleClient) -> bool:
    """Return whether the service has confirmed that it uses them."""
    done = False
    with suppress(CommandFailed, TimeoutError):  # no socket, busy, or of an older version
        async with asyncio.timeout(_ASK_SECONDS):
            await client.ask("refresh")
            done = True
    await client.close()
    return done


async def _request_view(client: ConsoleClient) -> Mapping[str, Any]:
    """Return the service's current view; empty if it has no socket or is busy."""
    view: Mapping[str, Any] = {}
    with suppress(CommandFailed, TimeoutError, KeyError):  # for example of another version
        async with asyncio.timeout(_ASK_SECONDS):
            kept = await client.ask("view")  # may be old: views are computed on request
            view = (await client.ask("view", after=kept["view"]["number"]))["view"]
    await client.close()
    return view
