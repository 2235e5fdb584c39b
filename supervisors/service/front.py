"""The front end as a child of the service, on an address that is bound before all else starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import trio
from quart.wrappers import Request

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from fw_actors.config import Config
from fw_actors.runtime import Entropy
from fw_actors.runtime.system import unwrap_single_error
from supervisors.children import ChildSpec, task_child
from supervisors.service.assembly import ServiceDependencies
from supervisors.service.metrics import ProcessMetrics, ServiceMetrics
from supervisors.service.process import DRAIN_SECONDS
from web.app import FrontEnd, make_app
from web.connections import ConnectionLimits, OpenConnections
from web.exchange import RequestMetrics
from web.listening import Bound, bind
from web.response import EventStreams, WireResponse
from web.routes.health import ALWAYS_SERVED, HealthRoutes
from web.routes.webhooks import MAX_BATCH_BYTES
from web.server import connections_for, serve, serve_until_handed_over
from web.settings import Settings, login_screen

MONITORING_REQUESTS: Final = 100
"""The maximum number of concurrent requests to a worker."""
STARTING_REQUESTS: Final = 100
"""The maximum number of requests that wait for the start; more are refused."""
START_WAIT_SECONDS: Final = 10.0


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


def health_of(deps: ServiceDependencies, gateway: Gateway) -> HealthRoutes:
    """Return the health checks and the metrics of the service; call it once in each process."""
    request_metrics, samples = RequestMetrics(), None
    if deps.peers is not None:
        samples = ServiceMetrics(ProcessMetrics(deps), request_metrics, deps.peers)
    return HealthRoutes(gateway, request_metrics, samples)


def application(
    deps: ServiceDependencies,
    gateway: Gateway,
    console: Console | None = None,
    health: HealthRoutes | None = None,
) -> FrontEnd:
    """Return the site's application; `health` is from `health_of`."""
    config = deps.site.config
    settings = Settings(
        name=config.site.name,
        url=deps.url,
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
        tracer=deps.site.tracer,
        other_nodes_wait=config.sqlite_file is None and not config.ops.subscription_refresh,
    )
    health = health or health_of(deps, gateway)
    return make_app(gateway, settings, deps.site.entropy, console, health=health)


class StartingFrontEnd(FrontEnd):
    """The application while the service starts: health, and other requests wait (H-108)."""

    def __init__(self, config: Config, url: str, entropy: Entropy) -> None:
        settings = Settings(
            name=config.site.name,
            url=config.deployment.public_url or url,
            max_requests=min(STARTING_REQUESTS, config.web.max_requests),
            hsts_include_sub_domains=config.web.hsts_include_sub_domains,
            trust=config.deployment.trust_proxy,
        )
        gateway, request_metrics = cast("Any", _StartingGateway()), RequestMetrics()
        routes = HealthRoutes(gateway, request_metrics).routes()
        super().__init__(routes, gateway, settings, entropy, request_metrics, EventStreams())
        self._started = trio.Event()

    def hand_over(self, app: FrontEnd) -> None:
        """Make `app` serve the waiting requests, and all later ones on the open connections."""
        self.successor = app
        self._started.set()

    def body_limit(self, request: Request) -> int:
        """Return the largest limit of any operation: they are not known during the start."""
        return MAX_BATCH_BYTES

    async def respond(self, request: Request) -> WireResponse:
        """Let the service respond, once it has started; refuse after `START_WAIT_SECONDS`."""
        if request.path in ALWAYS_SERVED:
            return await super().respond(request)
        with trio.move_on_after(START_WAIT_SECONDS):
            await self._started.wait()
        if self.successor is None:
            return self.overload_response(request)
        with self.successor.slot(request) as has_slot:
            if has_slot:
                return await self.successor.respond(request)
            return self.successor.overload_response(request)


@dataclass(frozen=True)
class Start:
    """The start of a service whose address already accepts requests."""

    app: StartingFrontEnd
    connections: OpenConnections
    handed_over: trio.Event

    def hand_over(self, app: FrontEnd) -> None:
        """Leave the address to the server of `app`, and the open connections to `app`."""
        self.app.hand_over(app)
        self.handed_over.set()


@asynccontextmanager
async def answering_while_starting(
    config: Config, bound: Bound, entropy: Entropy
) -> AsyncIterator[Start]:
    """Serve health, and report no readiness, while the service starts.

    Connections opened meanwhile are served until the block ends.
    """
    app = StartingFrontEnd(config, bound.url, entropy)
    limits = ConnectionLimits.for_requests(config.web.max_requests)
    start = Start(app, connections_for(app, limits), trio.Event())
    run = partial(
        serve_until_handed_over,
        app,
        Bound(bound.socket.dup(), bound.url),
        start.connections,
        handed_over=start.handed_over,
    )
    with unwrap_single_error():
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield start
            nursery.cancel_scope.cancel()


class _StartingGateway:
    """The gateway of a service that is not open yet."""

    async def ready(self) -> bool:
        """Report no readiness."""
        return False


def monitoring(deps: ServiceDependencies, bound: Bound, gateway: Gateway) -> FrontEnd:
    """Return the application of a worker: only health, readiness and metrics."""
    config, request_metrics = deps.site.config, RequestMetrics()
    settings = Settings(
        name=config.site.name,
        url=bound.url,
        max_requests=MONITORING_REQUESTS,
        trust=config.deployment.trust_proxy,
        scrubber=config.scrubber,
    )
    routes = HealthRoutes(gateway, request_metrics).routes()
    return FrontEnd(routes, gateway, settings, deps.site.entropy, request_metrics, EventStreams())


def server_child(
    app: FrontEnd, bound: Bound, connections: OpenConnections | None = None
) -> ChildSpec:
    """Return the server of `app` as a child; `connections` may contain those opened during the
    start."""
    stop = trio.Event()

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        # A duplicate, since the server closes its socket, and a failed server is started again.
        own = Bound(bound.socket.dup(), bound.url)
        await serve(
            app,
            own,
            stop=stop,
            drain_seconds=DRAIN_SECONDS,
            connections=connections,
            task_status=task_status,
        )
        bound.socket.close()  # stopped: new connections are refused

    return task_child("web", run, stop=stop.set, shutdown_seconds=DRAIN_SECONDS)
