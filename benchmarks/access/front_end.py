"""Our front end over one JSON route and no service behind it, a process of its own."""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog
import trio

from benchmarks.access.empty_route import BOOT
from fw_actors.runtime.clock import SystemEntropy
from web.app import FrontEnd
from web.exchange import Exchange, RequestMetrics
from web.listening import bind
from web.operations import Authentication, Operation, Route
from web.response import EventStreams, Response, json_response
from web.server import serve
from web.settings import Settings

NO_SERVICE: Final[Any] = None


async def boot(_: Exchange) -> Response:
    """Return what an authenticated `/api/boot` returns."""
    return json_response(BOOT)


def main() -> None:
    """Serve on a free port, printed on stdout, until killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    bound = bind("127.0.0.1", 0)
    route = Route("/api/boot", {"GET": Operation(boot, Authentication.IGNORED)})
    settings = Settings("benchmark", bound.url)
    app = FrontEnd([route], NO_SERVICE, settings, SystemEntropy(), RequestMetrics(), EventStreams())
    print(bound.socket.getsockname()[1], flush=True)

    async def run() -> None:
        await serve(app, bound, stop=trio.Event(), drain_seconds=0)

    trio.run(run)


if __name__ == "__main__":
    main()
