"""One serving process, or one that joins it as a worker, from its lock to its exit.

What runs inside is given as `open_service`; this module owns what is around it: the lock, the
pid file, the signals, and what systemd is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from supervisors.service import process, site_files
from supervisors.service.process import End, Stop, stop_on_signals
from supervisors.service.site_files import (
    AlreadyRunning,
    ServeLock,
    ServiceFailed,
    SitePaths,
    StoppedAtOnce,
)

_LOCK_TRIES: Final = 10  # one who asks for the status holds the lock for a moment
_LOCK_EVERY_SECONDS: Final = 0.05


class Service(Protocol):
    """What runs in the process, as far as its outside needs to know it."""

    @property
    def url(self) -> str:
        """Where it accepts, without a slash at the end."""

    async def failed(self) -> None:
        """Wait until it has failed for good; returns or raises then, and not before."""


OpenService = Callable[[], AbstractAsyncContextManager[Service]]
"""Opens the service, and is through once it accepts. Leaving it is the graceful stop: what is in
flight gets `signals.DRAIN_SECONDS`. Cancelling it stops at once."""


@dataclass(frozen=True)
class Announcer:
    """Who is told that the service accepts: `on_ready` gets its URL, systemd its state.

    `notify_socket` is the environment's NOTIFY_SOCKET, or None.
    """

    on_ready: Callable[[str], None]
    notify_socket: str | None = None


async def serve(
    places: SitePaths,
    open_service: OpenService,
    *,
    version: str,
    announcer: Announcer,
    log: FilteringBoundLogger,
) -> None:
    """Serve a site until SIGTERM or SIGINT; returns after a graceful stop.

    Raises: AlreadyRunning; StoppedAtOnce; ServiceFailed; UnusableDataFolder; what `open_service`
    raises, in exception groups as trio makes them.
    """
    places.prepare()
    async with stop_on_signals() as stop, _serve_lock(places):
        site_files.write(places.pid, site_files.presence(version))
        try:
            async with open_service() as service:
                site_files.write(places.pid, site_files.presence(version, service.url))
                stop.accepting()
                log.info("service.ready", url=service.url, version=version)
                announcer.on_ready(service.url)
                process.notify(announcer.notify_socket, process.READY)
                await _until_asked(service, stop)
                log.info("service.stopping")
                process.notify(announcer.notify_socket, process.STOPPING)
        finally:
            site_files.remove(places.pid)
    _conclude(stop, log)


async def work(open_service: OpenService, *, version: str, log: FilteringBoundLogger) -> None:
    """Run a further delivery process on the site's store until a signal, as `serve` does.

    It takes no lock and leaves no pid file: any number may run beside the one that serves.

    Raises: StoppedAtOnce; ServiceFailed; what `open_service` raises.
    """
    async with stop_on_signals() as stop, open_service() as service:
        stop.accepting()
        log.info("worker.ready", version=version)
        await _until_asked(service, stop)
        log.info("worker.stopping")
    _conclude(stop, log)


@asynccontextmanager
async def _serve_lock(places: SitePaths) -> AsyncIterator[None]:
    with ServeLock(places.lock) as lock:
        for _ in range(_LOCK_TRIES):
            if lock.acquire():
                break
            await trio.sleep(_LOCK_EVERY_SECONDS)
        else:
            known = site_files.read(places.pid)
            raise AlreadyRunning(places.folder, None if known is None else known.pid)
        yield


async def _until_asked(service: Service, stop: Stop) -> None:
    """Return when a signal asks for the stop; raise when the service fails before that."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fail_with, service)
        await stop.requested.wait()
        nursery.cancel_scope.cancel()


async def _fail_with(service: Service) -> None:
    await service.failed()
    raise ServiceFailed


def _conclude(stop: Stop, log: FilteringBoundLogger) -> None:
    end = stop.end
    if end in (End.SECOND_SIGNAL, End.TOO_SLOW):
        raise StoppedAtOnce(end.value)
    log.info("service.stopped", how=end.value)
