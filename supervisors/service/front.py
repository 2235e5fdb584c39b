"""The front end as a child of the service, on an address that is bound before anything starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, cast

import trio

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from fw_actors.config import Config
from fw_actors.runtime import Entropy
from fw_actors.runtime.system import unwrap_single_error
from supervisors.children import ChildSpec, task_child
from supervisors.service.metrics import Readings, ServiceReadings
from supervisors.service.parts import Parts
from supervisors.service.process import DRAIN_SECONDS
from web.app import FrontEnd, make_app
from web.exchange import Traffic
from web.listening import Bound, bind
from web.response import EventStreams
from web.routes.health import HealthRoutes
from web.server import serve
from web.settings import Settings, login_screen

MONITORING_REQUESTS: Final = 100
"""The requests that a worker answers at once."""


@contextmanager
def listening(config: Config) -> Iterator[Bound]:
    """Bind the configured address first, so that a taken one fails before anything is opened.

    Raises: ConfigurationError.
    """
    bound = bind(config.deployment.bind_host, config.deployment.bind_port)
    try:
        yield bound
    finally:
        bound.socket.close()  # without effect if the server has closed it


def application(parts: Parts, gateway: Gateway, console: Console | None = None) -> FrontEnd:
    """Return the site's application."""
    config = parts.site.config
    settings = Settings(
        name=config.site.name,
        url=parts.url,
        login=login_screen(config.login.notice, config.login.demo_user, config.login.demo_password),
        min_password_length=config.auth.min_password_length,
        refuse_common_passwords=config.auth.refuse_common_passwords,
        self_service_api_keys=config.auth.self_service_api_keys,
        api_key_days=config.auth.api_key_days,
        secure_cookie=config.auth.secure_cookie,
        max_requests=config.web.max_requests,
        hsts_include_sub_domains=config.web.hsts_include_sub_domains,
        trust=config.deployment.trust_proxy,
        scrubber=config.scrubber,
    )
    entropy, traffic = parts.site.entropy, Traffic()
    readings = None
    if parts.siblings is not None:
        readings = ServiceReadings(Readings(parts), traffic, parts.siblings)
    return make_app(gateway, settings, entropy, console, traffic=traffic, readings=readings)


@asynccontextmanager
async def answering_while_starting(
    config: Config, bound: Bound, entropy: Entropy
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Serve health, and report no readiness, while the store is opened.

    Yields the function that ends this; after it the address is free for the service itself.
    """
    settings = Settings(name=config.site.name, url=bound.url, max_requests=0)
    gateway, traffic = cast("Any", _StartingGateway()), Traffic()
    routes = HealthRoutes(gateway, traffic).routes()
    app = FrontEnd(routes, gateway, settings, entropy, traffic, EventStreams())
    stop, ended = trio.Event(), trio.Event()
    own = Bound(bound.socket.dup(), bound.url)

    async def run(*, task_status: trio.TaskStatus[str]) -> None:
        await serve(app, own, stop=stop, task_status=task_status)
        ended.set()

    async def end() -> None:
        stop.set()
        await ended.wait()

    with unwrap_single_error():
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield end
            nursery.cancel_scope.cancel()


class _StartingGateway:
    """The gateway of a service that is not open yet."""

    async def ready(self) -> bool:
        """Report no readiness."""
        return False


def front(parts: Parts, bound: Bound, gateway: Gateway, console: Console) -> ChildSpec:
    """Return the server of the site's application."""
    return _server(application(parts, gateway, console), bound)


def monitoring(parts: Parts, bound: Bound, gateway: Gateway) -> ChildSpec:
    """Return the server of a worker: health, readiness and metrics alone."""
    config, traffic = parts.site.config, Traffic()
    settings = Settings(
        name=config.site.name,
        url=bound.url,
        max_requests=MONITORING_REQUESTS,
        trust=config.deployment.trust_proxy,
        scrubber=config.scrubber,
    )
    routes = HealthRoutes(gateway, traffic).routes()
    app = FrontEnd(routes, gateway, settings, parts.site.entropy, traffic, EventStreams())
    return _server(app, bound)


def _server(app: FrontEnd, bound: Bound) -> ChildSpec:
    stop = trio.Event()

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        # A duplicate, since the server closes its socket, and a failed server is started again.
        own = Bound(bound.socket.dup(), bound.url)
        await serve(app, own, stop=stop, task_status=task_status)
        bound.socket.close()  # stopped: new connections are refused from now on

    return task_child("web", run, stop=stop.set, shutdown_seconds=DRAIN_SECONDS)
