"""The application: routes requests, runs operations, and turns errors into responses.

The request is quart-trio's and the URL map Werkzeug's. Quart's own dispatch (contexts, signals,
hooks, sessions, error pages) is not used: docs/web.md has its cost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Final

import structlog
import trio
from quart.wrappers import Request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from fw_actors.config import ProxyTrustPolicy
from fw_actors.errors import (
    FwError,
    InternalError,
    NotFoundError,
    OverloadedError,
    is_query_timeout,
)
from fw_actors.runtime.clock import MS_PER_SECOND, Entropy
from fw_actors.tracing import Tracer, in_trace
from web.exchange import (
    ID_BYTES,
    SERVER_ERROR,
    UNROUTED,
    Exchange,
    RequestMetrics,
    has_forwarding_header,
    is_trusted,
    request_id_of,
    trace_of,
)
from web.guard import BodyDecoder, check_request
from web.operations import Route
from web.pages.framing import UnknownPaths
from web.pages.rendering import Assets, Rendering
from web.pages.routes import page_routes
from web.request import NONE_READ
from web.response import (
    EventStreams,
    Response,
    ResponseEncoder,
    WireResponse,
    clear_every_cookie,
    common_headers,
    error_in,
    error_response,
)
from web.routes.access import AccessRoutes, RecoveryRoutes
from web.routes.administration import ConsoleRoutes, UserRoutes
from web.routes.attempts import AttemptRoutes
from web.routes.description import DescriptionRoutes
from web.routes.health import ALWAYS_SERVED, MONITORED, HealthRoutes
from web.routes.jobs import JobRoutes
from web.routes.resource import MethodRoutes, ResourceRoutes
from web.routes.self_service import SelfServiceRoutes
from web.routes.webhooks import BulkReplayRoutes, WebhookRoutes
from web.settings import Settings

METHOD_LENGTH_LOGGED: Final = 16
PATH_LENGTH_LOGGED: Final = 200
METHODS: Final = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}
)
"""Methods that may name a span; a request may have any text as its method."""
API: Final = "/api/"
CANCELLED_STATUS: Final = 499
"""The status in log and metrics of a request that got no response, as nginx has it: its client
disconnected, or the service stopped."""
ErrorPage = Callable[[Exchange, FwError], Response]
UnknownPage = Callable[[Exchange, FwError], Awaitable[Response | None]]
"""Returns the response for a path without a route, or None for the error page."""


def make_app(
    gateway: Gateway,
    settings: Settings,
    entropy: Entropy,
    console: Console | None = None,
    *,
    health: HealthRoutes | None = None,
) -> FrontEnd:
    """Return the application over `gateway`.

    `entropy` generates request ids. Without a `console` its page and operations are left out.
    Without `health` the metrics are those of this process.
    """
    health, streams = health or HealthRoutes(gateway, RequestMetrics()), EventStreams()
    rendering = Rendering(settings, Assets())
    routes = [
        *api_routes(gateway, settings, health),
        *page_routes(gateway, rendering, settings, console, streams),
    ]
    if console is not None:
        routes += ConsoleRoutes(gateway, console).routes()
    description = DescriptionRoutes(routes, settings, gateway)
    every = [*routes, *description.routes()]
    unknown = UnknownPaths(gateway, rendering).error_page
    return FrontEnd(
        every, gateway, settings, entropy, health.request_metrics, streams,
        not_found=rendering.error_page, unknown=unknown,
    )  # fmt: skip


def api_routes(gateway: Gateway, settings: Settings, health: HealthRoutes) -> list[Route]:
    """Return the routes for programs, in the order of the HTTP reference."""
    return [
        *AccessRoutes(gateway, settings).routes(),
        *RecoveryRoutes(gateway).routes(),
        *SelfServiceRoutes(gateway).routes(),
        *UserRoutes(gateway).routes(),
        *ResourceRoutes(gateway).routes(),
        *WebhookRoutes(gateway).routes(),
        *BulkReplayRoutes(gateway).routes(),
        *AttemptRoutes(gateway).routes(),
        *JobRoutes(gateway).routes(),
        *MethodRoutes(gateway).routes(),
        *health.routes(),
    ]


@cache
def _url_map(rules: tuple[str, ...]) -> Map:
    """Return the matcher of paths, cached: compiling it is most of the cost of an application.

    It does not redirect paths with two slashes, and ignores methods: only the guard distinguishes
    405 from 404.
    """
    return Map([Rule(rule, endpoint=rule) for rule in rules], merge_slashes=False)


def _cause_of(error: BaseException) -> dict[str, str]:
    """Return what the log says about an error: its type, and the reason of a 503, which is the
    service's state. Other messages may quote the request."""
    expected = error_in(error)
    if expected is None:
        return {"error": InternalError.__name__}
    cause = {"error": type(expected).__name__}
    if isinstance(expected, OverloadedError):
        cause["reason"] = expected.message
    return cause


class FrontEnd:
    """The application: one for each listening address."""

    def __init__(
        self,
        routes: Iterable[Route],
        gateway: Gateway,
        settings: Settings,
        entropy: Entropy,
        request_metrics: RequestMetrics,
        streams: EventStreams,
        *,
        not_found: ErrorPage | None = None,
        unknown: UnknownPage | None = None,
    ) -> None:
        """`not_found` renders the error of a path that no route has, outside of `/api/`; `unknown`
        is called first, and answers signed-in users."""
        self._gateway = gateway
        self._settings = settings
        self._entropy = entropy
        self._request_metrics = request_metrics
        self._not_found, self._unknown = not_found, unknown
        self._decoder = BodyDecoder()
        self._encoder = ResponseEncoder(common_headers(settings))
        self._log = structlog.get_logger("web").bind()  # bound, or each call creates it
        self._active_requests = 0
        self.stopping = False
        """Whether only health and readiness are still served; set by the server."""
        self.successor: FrontEnd | None = None
        """The application to which open connections switch with their next request."""
        self.streams = streams
        """Open event streams; a stopping server ends them first."""
        self.routes: Mapping[str, Route] = {route.rule: route for route in routes}
        self.url_map = _url_map(tuple(self.routes))
        self._fixed = {rule: route for rule, route in self.routes.items() if "<" not in rule}

    @property
    def active_requests(self) -> int:
        """The number of requests in progress."""
        return self._active_requests

    @property
    def max_requests(self) -> int:
        """The limit of requests in progress."""
        return self._settings.max_requests

    @property
    def trust(self) -> ProxyTrustPolicy:
        """The proxies that are trusted."""
        return self._settings.trust

    @contextmanager
    def slot(self, request: Request) -> Iterator[bool]:
        """Count a request in progress; yield whether it is within the limit.

        Health and readiness are always served, and not counted: otherwise a service under attack
        would seem dead, and be restarted or removed from its load balancer.
        """
        if request.path in ALWAYS_SERVED:
            yield True
            return
        self._active_requests += 1
        try:
            yield self._active_requests <= self._settings.max_requests and not self.stopping
        finally:
            self._active_requests -= 1

    def body_limit(self, request: Request) -> int:
        """Return the limit of the request's body in bytes; -1 if the operation reads none."""
        route = self._route_of(request)
        operation = None if route is None else route.operations.get(request.method)
        if operation is None or operation.body is None:
            return NONE_READ
        return operation.body.limit

    async def respond(self, request: Request) -> WireResponse:
        """Return the response to a request, also for errors of its operation.

        Raises: only a cancellation or a group that contains one, which the server handles.
        """
        try:
            tracer = self._settings.tracer
            if tracer is None or request.path in MONITORED:
                return await self._respond(request)
            return await self._respond_in_trace(request, tracer)
        except Exception as error:  # outside of any operation
            request_id = request_id_of(request, self._settings, self._entropy)
            with suppress(Exception):  # they may be what has failed
                self._note_defect(request, error, request_id)
                self._request_metrics.record(UNROUTED, InternalError.status, 0.0)
            return self._encoder.encode(error_response(InternalError(request_id)), request_id)

    async def _respond_in_trace(self, request: Request, tracer: Tracer) -> WireResponse:
        route = self._route_of(request)
        method = request.method if request.method in METHODS else "_OTHER"
        name = "HTTP" if method == "_OTHER" else method
        if route is not None:
            name = f"{name} {route.rule}"
        span = tracer.server(name, trace_of(request, self._settings))
        error = ""
        try:
            with in_trace(span.context):
                response = await self._respond(request)
            if span.is_recorded:
                span.note({"http.response.status_code": response.status})
            if response.status >= SERVER_ERROR:
                error = str(response.status)
            return response
        except BaseException as fault:
            error = type(fault).__name__
            raise
        finally:
            if span.is_recorded:
                span.note(
                    {
                        "http.request.method": method,
                        "url.scheme": request.scheme,
                        "url.path": request.path[:PATH_LENGTH_LOGGED],
                    }
                )
                if route is not None:
                    span.note({"http.route": route.rule})
            span.end(error)

    async def _respond(self, request: Request) -> WireResponse:
        route = self._route_of(request)
        exchange = Exchange(request, self._settings, self._entropy, route)
        began = trio.current_time()
        cause: dict[str, str] = {}
        try:
            if route is None:
                response = await self._respond_without_route(exchange)
            else:
                operation = await check_request(exchange, route, self._gateway, self._decoder)
                response = await operation.handle(exchange)
        except (Exception, BaseExceptionGroup, trio.Cancelled) as error:
            try:
                response = self._response_of(error, exchange)
            except (BaseExceptionGroup, trio.Cancelled):
                self._record(exchange, CANCELLED_STATUS, trio.current_time() - began, cause)
                raise
            cause = _cause_of(error)  # not the error, which refers to this frame
        if exchange.clears_cookies:
            response = self._with_cleared_cookies(response, request)
        encoded = self._encoder.encode(response, exchange.request_id)
        self._record(exchange, response.status, trio.current_time() - began, cause)
        return encoded

    async def _respond_without_route(self, exchange: Exchange) -> Response:
        """Return the page of an unknown path for signed-in users. Raises: NotFoundError."""
        error = NotFoundError("There is nothing under this path.")
        response = None
        if self._unknown is not None and not exchange.request.path.startswith(API):
            response = await self._unknown(exchange, error)
        if response is None:
            raise error
        return response

    def _with_cleared_cookies(self, response: Response, request: Request) -> Response:
        """Clear every cookie `sid`; one that the response sets comes last, and stays."""
        cleared = clear_every_cookie(self._settings.url, request.path)
        lines = [("Set-Cookie", line) for line in cleared]
        return replace(response, headers=(*lines, *response.headers))

    def _route_of(self, request: Request) -> Route | None:
        """Return the route by path only, regardless of the Host header."""
        fixed = self._fixed.get(request.path)
        if fixed is not None:
            return fixed
        try:
            adapter = self.url_map.bind("", path_info=request.path)
            rule, arguments = adapter.match(return_rule=True)
        except HTTPException:
            return None
        request.view_args = dict(arguments)
        return self.routes[rule.endpoint]

    def _record(
        self, exchange: Exchange, status: int, seconds: float, cause: Mapping[str, str]
    ) -> None:
        """Count a request and log it in one line, without its query and its body; `cause` is that
        of an error."""
        request = exchange.request
        route = UNROUTED if exchange.route is None else exchange.route.rule
        address = exchange.address
        if has_forwarding_header(request) and not is_trusted(exchange.peer, self._settings.trust):
            self._request_metrics.record_ignored_forwarding()
        self._request_metrics.record(route, status, seconds)
        log = self._log.debug if route in MONITORED else self._log.info
        log(
            "web.request",
            request_id=exchange.request_id,
            method=request.method[:METHOD_LENGTH_LOGGED],
            path=request.path[:PATH_LENGTH_LOGGED],
            status=status,
            user=None if exchange.caller is None else exchange.caller.user,
            address=address,
            duration_ms=round(seconds * MS_PER_SECOND, 1),
            **cause,
        )

    def overload_response(self, request: Request) -> WireResponse:
        """Return 503 without further work: rejecting excess requests must be cheap."""
        response = error_response(OverloadedError())
        self._request_metrics.record(UNROUTED, response.status, 0.0)
        request_id = request_id_of(request, self._settings, self._entropy)
        return self._encoder.encode(response, request_id)

    def rejection(self, status: int, peer: str) -> WireResponse:
        """Return the response to input that is not an HTTP request (H-129)."""
        request_id = self._entropy.bytes(ID_BYTES).hex()
        # At level debug: port scanners send such input all the time.
        self._log.debug("web.rejected", request_id=request_id, status=status, address=peer)
        return self._encoder.encode_status(status, request_id)

    def _note_defect(self, request: Request, error: BaseException, request_id: str) -> None:
        """Log a defect, and record it in the Error Log (O-105)."""
        method = request.method[:METHOD_LENGTH_LOGGED]
        path = request.path[:PATH_LENGTH_LOGGED]
        self._log.error(
            "web.request_failed", request_id=request_id, method=method, path=path, exc_info=error
        )
        self._gateway.errors.note(f"{method} {path}", error, request_id)

    def _response_of(self, error: BaseException, exchange: Exchange) -> Response:
        """Return the response to an error; for a defect it contains only the request id.

        Raises: `error` itself if it is or contains a cancellation, which the server handles.
        """
        expected = error_in(error)
        if expected is None:
            if not isinstance(error, Exception):
                raise error
            expected = InternalError(exchange.request_id)
            self._note_defect(exchange.request, error, exchange.request_id)
        scrub = self._settings.scrubber.scrub_unless_sent
        expected = expected.reworded(lambda text: scrub(text, exchange.sent_texts))
        if is_query_timeout(expected):
            route = UNROUTED if exchange.route is None else exchange.route.rule
            self._log.warning("web.query_timeout", request_id=exchange.request_id, route=route)
        error_page = self._not_found if exchange.route is None else exchange.route.error_page
        if exchange.route is None and exchange.request.path.startswith(API):
            error_page = None
        return error_response(expected) if error_page is None else error_page(exchange, expected)
