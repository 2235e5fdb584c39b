"""The application: requests in, operations carried out, one envelope for all refusals.

The request is Quart's, and Werkzeug's URL map finds the path. What else Quart offers (contexts,
signals, hooks, sessions, error pages) is not used: one method stands in its place, so that a
refused sign-in costs no more than an empty route. `http11` cancels what its client left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import structlog
import trio
from quart.wrappers import Request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from fw_actors.config import ProxyTrustPolicy
from fw_actors.errors import QUERY_TIMEOUT, InternalError, NotFoundError, OverloadedError
from fw_actors.runtime.clock import Entropy
from web.exchange import UNROUTED, Exchange, Traffic, request_id_of
from web.guard import admit
from web.operations import Path
from web.pages.routes import page_paths
from web.request import NONE_READ, clear_every_cookie
from web.response import (
    Answer,
    EventStreams,
    Replies,
    Reply,
    common_headers,
    refusal,
    refusal_in,
    says_forwarded,
)
from web.routes.access import AccessRoutes, RecoveryRoutes
from web.routes.administration import ConsoleRoutes, UserRoutes
from web.routes.description import DescriptionRoutes
from web.routes.health import ALWAYS_SERVED, LOOKED_AT, HealthRoutes
from web.routes.resource import MethodRoutes, ResourceRoutes
from web.routes.self_service import SelfServiceRoutes
from web.routes.webhooks import BulkReplayRoutes, WebhookRoutes
from web.settings import Settings

METHOD_LENGTH_LOGGED: Final = 16
PATH_LENGTH_LOGGED: Final = 200


def make_app(
    gateway: Gateway,
    settings: Settings,
    entropy: Entropy,
    console: Console | None = None,
) -> FrontEnd:
    """Return the application that serves `gateway`.

    `entropy` makes request ids; without a `console` there is no page of it.
    """
    traffic, streams = Traffic(), EventStreams()
    paths = [
        *api_paths(gateway, settings, traffic),
        *page_paths(gateway, settings, console, streams),
    ]
    if console is not None:
        paths += ConsoleRoutes(gateway, console).paths()
    description = DescriptionRoutes(paths, settings.name, gateway)
    return FrontEnd([*paths, *description.paths()], gateway, settings, entropy, traffic, streams)


def api_paths(gateway: Gateway, settings: Settings, traffic: Traffic) -> list[Path]:
    """Return the paths for programs, in the order in which the reference lists them."""
    return [
        *AccessRoutes(gateway, settings).paths(),
        *RecoveryRoutes(gateway).paths(),
        *SelfServiceRoutes(gateway).paths(),
        *UserRoutes(gateway).paths(),
        *ResourceRoutes(gateway).paths(),
        *WebhookRoutes(gateway).paths(),
        *BulkReplayRoutes(gateway).paths(),
        *MethodRoutes(gateway).paths(),
        *HealthRoutes(gateway, traffic).paths(),
    ]


class FrontEnd:
    """The application. One for each listening address."""

    def __init__(
        self,
        paths: Iterable[Path],
        gateway: Gateway,
        settings: Settings,
        entropy: Entropy,
        traffic: Traffic,
        streams: EventStreams,
    ) -> None:
        self.url_map = Map(merge_slashes=False)  # a path that is nearly right is not right
        self._gateway = gateway
        self._settings = settings
        self._entropy = entropy
        self._traffic = traffic
        self._replies = Replies(common_headers(settings))
        self._log = structlog.get_logger("web").bind()  # at each call it would be made anew
        self._in_hand = 0
        self.stopping = False
        """Whether only health and readiness are told any more; set by the server."""
        self.streams = streams
        """Open event streams; whoever stops the server ends them first."""
        self._paths = {path.rule: path for path in paths}
        for rule in self._paths:
            # No methods given: the guard tells 405 from 404, and it alone.
            self.url_map.add(Rule(rule, endpoint=rule))
        self._fixed = {rule: path for rule, path in self._paths.items() if "<" not in rule}

    @property
    def in_hand(self) -> int:
        """How many requests are being served at this moment."""
        return self._in_hand

    @property
    def max_requests(self) -> int:
        """How many requests may be in hand at once."""
        return self._settings.max_requests

    @property
    def trust(self) -> ProxyTrustPolicy:
        """Which proxies are believed."""
        return self._settings.trust

    @contextmanager
    def place(self, request: Request) -> Iterator[bool]:
        """Count a request in hand; say whether it may be served, or there are too many.

        What tells of health and readiness is served in any case, and not counted: a service under
        attack that seems to be dead is restarted, or taken out of its balancer.
        """
        if request.path in ALWAYS_SERVED:
            yield True
            return
        self._in_hand += 1
        try:
            yield self._in_hand <= self._settings.max_requests and not self.stopping
        finally:
            self._in_hand -= 1

    def body_limit(self, request: Request) -> int:
        """Return how many bytes the body of `request` may have; -1 where it is not read."""
        path = self._path_of(request)
        operation = None if path is None else path.operations.get(request.method)
        if operation is None or operation.body is None:
            return NONE_READ
        return operation.body.limit

    async def reply_to(self, request: Request) -> Reply:
        """Answer a request, whatever comes of it; the place of Quart's contexts and handlers.

        Raises: what holds a cancellation, which belongs to the server.
        """
        try:
            return await self._reply_to(request)
        except Exception as error:  # outside of any operation
            request_id = request_id_of(request, self._settings, self._entropy)
            self._log.error("web.request_failed", request_id=request_id, exc_info=error)
            return self._replies.of(refusal(InternalError(request_id)), request_id)

    async def _reply_to(self, request: Request) -> Reply:
        exchange = Exchange(request, self._settings, self._entropy, self._path_of(request))
        began = trio.current_time()
        try:
            answer = await self._serve(exchange)
        except (Exception, BaseExceptionGroup) as error:
            answer = self._refuse(error, exchange)
        if exchange.clears_cookies:
            answer = self._clearing(answer, request)
        self._tell(exchange, answer.status, trio.current_time() - began)
        return self._replies.of(answer, exchange.request_id)

    def _clearing(self, answer: Answer, request: Request) -> Answer:
        """Take every cookie `sid` away; one that the answer itself sets comes last, and stays."""
        cleared = clear_every_cookie(self._settings.url, request.path)
        lines = [("Set-Cookie", line) for line in cleared]
        return replace(answer, headers=(*lines, *answer.headers))

    def _path_of(self, request: Request) -> Path | None:
        """Route by path alone: what a Host header says is no concern of ours."""
        fixed = self._fixed.get(request.path)
        if fixed is not None:
            return fixed
        try:
            adapter = self.url_map.bind("", path_info=request.path)
            rule, arguments = adapter.match(return_rule=True)
        except HTTPException:
            return None
        request.view_args = dict(arguments)
        return self._paths[rule.endpoint]

    def _tell(self, exchange: Exchange, status: int, seconds: float) -> None:
        """Count and log what came of a request: one line, without its query and its body."""
        request = exchange.request
        route = UNROUTED if exchange.path is None else exchange.path.rule
        self._traffic.answered(route, status, seconds)
        if self._settings.trust.is_off and says_forwarded(request.headers.keys()):
            self._traffic.forwarded_ignored()
        log = self._log.debug if route in LOOKED_AT else self._log.info
        log(
            "web.request",
            request_id=exchange.request_id,
            method=request.method[:METHOD_LENGTH_LOGGED],
            path=request.path[:PATH_LENGTH_LOGGED],
            status=status,
            user=None if exchange.caller is None else exchange.caller.user,
            address=exchange.address,
            duration_ms=round(seconds * 1000, 1),
        )

    def turned_away(self, request: Request) -> Reply:
        """Answer without further work, which is the point: what is too much must cost little."""
        answer = refusal(OverloadedError())
        self._traffic.answered(UNROUTED, answer.status, 0.0)
        return self._replies.of(answer, request_id_of(request, self._settings, self._entropy))

    async def _serve(self, exchange: Exchange) -> Answer:
        if exchange.path is None:
            raise NotFoundError("There is nothing under this path.")
        operation = await admit(exchange, exchange.path, self._gateway)
        return await operation.handle(exchange)

    def _refuse(self, error: BaseException, exchange: Exchange) -> Answer:
        """Make an answer of what was raised; a defect is logged and tells only the request id.

        Raises: `error` itself when a cancellation is in it, which belongs to the server.
        """
        refused = refusal_in(error)
        if refused is None:
            if isinstance(error, BaseExceptionGroup) and not isinstance(error, ExceptionGroup):
                raise error
            refused = InternalError(exchange.request_id)
            method = exchange.request.method[:METHOD_LENGTH_LOGGED]
            path = exchange.request.path[:PATH_LENGTH_LOGGED]
            self._log.error(
                "web.request_failed",
                request_id=exchange.request_id,
                method=method,
                path=path,
                exc_info=error,
            )
            self._gateway.errors.note(f"{method} {path}", error, exchange.request_id)
        refused = refused.reworded(self._settings.scrubber.scrub_known)
        if refused.extra.get("reason") == QUERY_TIMEOUT:
            route = UNROUTED if exchange.path is None else exchange.path.rule
            self._log.warning("web.query_timeout", request_id=exchange.request_id, route=route)
        as_page = None if exchange.path is None else exchange.path.refuse
        return refusal(refused) if as_page is None else as_page(exchange, refused)
