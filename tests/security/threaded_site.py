"""A service with the threads of its store, and a user of the example app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fw_actors.runtime import SeededEntropy, SystemClock
from supervisors.service.tree import open_service
from tests.http_site import URL, HttpSite
from tests.mail_kit import RecordingLog
from tests.site_kit import make_config
from web.app import make_app
from web.settings import Settings


@asynccontextmanager
async def a_site(folder: Path, **changes: Any) -> AsyncIterator[HttpSite]:
    """A site with its threads, and wendy, who may write and list notes."""
    config = make_config(folder, apps=("examples.notes",), **changes)
    entropy, log = SeededEntropy(1), RecordingLog()
    clock: Any = SystemClock()
    async with open_service(config, log=log, front=False, clock=clock, entropy=entropy) as service:
        settings = Settings(name="tests", url=URL, trust=config.deployment.trust_proxy)
        app = make_app(service.gateway, settings, entropy)
        site = HttpSite(service.site, service, app, clock, log)
        await site.add_account("wendy", "Note Writer")
        yield site
