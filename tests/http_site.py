"""A whole service in virtual time, with HTTP over a socket pair: all layers but the listener."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import trio

from fw_actors.runtime import SeededEntropy, TrioClock
from supervisors.service.tree import RunningService, open_service
from tests.accounts_kit import PASSWORD, SiteWithAccounts
from tests.app_modules import apps_as_they_were
from tests.mail_kit import RecordingLog
from tests.site_kit import START_MS, make_config
from tests.web.client import AppClient, ClientResponse
from web.app import FrontEnd, make_app
from web.settings import Settings

URL = "https://desk.example"
PEER = "203.0.113.9"
SERVICES = "/api/method/core.services."


class ForwardClock(TrioClock):
    """A wall clock that a test sets forward without any time passing for timers and scans."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


@dataclass
class HttpSite(SiteWithAccounts):
    """A running service, and shortcuts for the requests of tests."""

    service: RunningService
    app: FrontEnd
    clock: ForwardClock
    log: RecordingLog = field(default_factory=RecordingLog)

    def pass_time(self, seconds: float) -> None:
        """Set the wall clock forward, by which the store decides."""
        self.clock.ahead += round(seconds * 1000)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        sid: str | None = None,
        key: str | None = None,
        peer: str = PEER,
        csrf: bool = True,
        headers: Sequence[tuple[str, str]] = (),
    ) -> ClientResponse:
        """Send a request, with a session, with an API key, or without credentials."""
        lines = list(headers)
        if key is not None:
            lines.append(("Authorization", f"Bearer {key}"))
        client = AppClient(self.app, peer)
        return await client.ask(method, path, body, headers=lines, sid=sid, csrf=csrf)

    async def op(self, name: str, body: object = None, **given: Any) -> ClientResponse:
        """Call an operation of core.services."""
        return await self.ask("POST", SERVICES + name, body, **given)

    async def login(self, usr: str, pwd: str = PASSWORD, **given: Any) -> ClientResponse:
        return await self.ask("POST", "/api/login", {"usr": usr, "pwd": pwd}, **given)

    async def sid(self, usr: str, pwd: str = PASSWORD, **given: Any) -> str:
        """Sign in; the session's sid."""
        reply = await self.login(usr, pwd, **given)
        assert reply.status == 200, reply.body
        return SimpleCookie(reply.header("set-cookie"))["sid"].value

    async def alive(self, sid: str) -> bool:
        """Whether a session works."""
        return (await self.op("profile.getMyProfile", sid=sid)).status == 200

    async def key(self, sid: str, **arguments: Any) -> dict[str, Any]:
        """Create an API key; return the response's fields."""
        reply = await self.op("api_keys.createMyAPIKey", {"label": "test", **arguments}, sid=sid)
        assert reply.status == 200, reply.body
        decoded: dict[str, Any] = reply.json
        return decoded


@asynccontextmanager
async def http_site(folder: Path, seed: int = 1, **changes: Any) -> AsyncIterator[HttpSite]:
    """Run a service on `folder`; `changes` as for `make_config`.

    A second run on the same folder needs another `seed`: ids are random.
    """
    config = make_config(folder, **changes)
    clock = ForwardClock(START_MS + round(trio.current_time() * 1000))
    entropy, log = SeededEntropy(seed), RecordingLog()
    opening = open_service(config, log=log, front=False, clock=clock, entropy=entropy, inline=True)
    with apps_as_they_were(folder):
        async with opening as service:
            settings = Settings(
                name="tests",
                url=URL,
                trust=config.deployment.trust_proxy,
                tracer=service.site.tracer,
            )
            app = make_app(service.gateway, settings, entropy)
            yield HttpSite(service.site, service, app, clock, log)
