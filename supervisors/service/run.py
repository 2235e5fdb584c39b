"""Runs a process of a site from its lock to its exit: a serving one, one of several, a worker.

`open_service` provides the service itself; this module owns its environment: the lock, the pid
file or a worker's, the signals, and the notifications to systemd.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import trio

from fw_actors.runtime import SystemClock
from supervisors.service import process, site_files
from supervisors.service.control_channel import (
    HEALTH_CHECK,
    Assignment,
    ControlChannel,
    PeerProcesses,
)
from supervisors.service.process import (
    GRACEFUL_SECONDS,
    End,
    ServingRecord,
    Stop,
    stop_on_signals,
)
from supervisors.service.site_files import (
    LOCK_ATTEMPTS,
    LOCK_EVERY_SECONDS,
    AlreadyRunning,
    ServeLock,
    ServiceFailed,
    SitePaths,
    StoppedAtOnce,
    UnusableDataFolder,
    registered,
)
from supervisors.service.systemd import NO_SYSTEMD, READY, STOPPING, Notifier

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_ORPHAN_SECONDS: Final = GRACEFUL_SECONDS + 2.0
"""The time for which a process may outlive its supervisor."""


class Service(Protocol):
    """The running service as seen by its process."""

    @property
    def url(self) -> str:
        """The URL at which it accepts requests, without a trailing slash."""

    async def failed(self) -> None:
        """Wait until the service has failed permanently."""

    async def answers(self, seconds: float) -> bool:
        """Return whether it works: its loop runs, and its store answers within `seconds`."""


OpenService = Callable[[], AbstractAsyncContextManager[Service]]
"""Opens the service and yields once it accepts requests. Leaving it is the graceful stop: work in
progress gets `process.DRAIN_SECONDS`. Cancelling it stops at once."""


@dataclass(frozen=True)
class Announcer:
    """Announces the state of the service: to `on_ready`, with its URL, and to systemd."""

    on_ready: Callable[[str], None]
    systemd: Notifier = NO_SYSTEMD


KEEP_SECONDS: Final = 2.0
"""The time between two checks that the pid file is still there."""


class OwnPidFile:
    """The pid file of this process, for the holder of the site's lock.

    It has two writers: the run of the service, and the supervisor of several processes. Each sets
    its own part.
    """

    def __init__(self, path: Path, version: str, processes: int = 1) -> None:
        self._path = path
        record = site_files.own_pid_file(version, processes=processes)
        self._record = msgspec.structs.replace(record, began=SystemClock().now() / 1000)

    def write(self) -> None:
        """Write the file. Raises: UnusableDataFolder."""
        site_files.write(self._path, self._record)

    def accepting(self, url: str) -> None:
        """Record that the service accepts requests. Raises: UnusableDataFolder."""
        self._record = msgspec.structs.replace(self._record, url=url)
        self.write()

    def serving(self, processes: Sequence[ServingRecord]) -> None:
        """Record the states of the processes, if they have changed. Raises: UnusableDataFolder."""
        if self._record.serving != (records := tuple(processes)):
            self._record = msgspec.structs.replace(self._record, serving=records)
            self.write()

    async def keep(self) -> None:
        """Write the file again if somebody has deleted or changed it, until cancelled.

        Without it the service can be neither stopped nor found by a command.
        """
        while True:
            await trio.sleep(KEEP_SECONDS)
            if site_files.read(self._path) != self._record:
                with suppress(UnusableDataFolder):
                    self.write()

    def remove(self) -> None:
        """Remove the file if it exists."""
        site_files.remove(self._path)


async def serve(
    paths: SitePaths,
    open_service: OpenService,
    *,
    version: str,
    announcer: Announcer,
    log: FilteringBoundLogger,
    lock: ServeLock | None = None,
    pid_file: OwnPidFile | None = None,
) -> None:
    """Serve a site until SIGTERM, SIGINT or SIGHUP; returns after a graceful stop.

    `lock` and `pid_file` are the site's, if `open_service` needs them.

    Raises: AlreadyRunning; StoppedAtOnce; ServiceFailed; UnusableDataFolder; the errors of
    `open_service`, in trio's exception groups.
    """
    paths.prepare()
    pid_file = pid_file or OwnPidFile(paths.pid, version)
    async with stop_on_signals() as stop, _serve_lock(paths, lock or ServeLock(paths.lock)):
        pid_file.write()
        try:
            async with _opened(open_service, announcer.systemd) as service:
                pid_file.accepting(service.url)
                stop.accepting()
                log.info("service.ready", url=service.url, version=version)
                announcer.on_ready(service.url)
                await _until_asked(service, stop, announcer.systemd, pid_file.keep)
                log.info("service.stopping")
                announcer.systemd.notify(STOPPING)
        finally:
            pid_file.remove()
    log.info("service.stopped", how=graceful_end(stop))


async def work(
    paths: SitePaths,
    open_service: OpenService,
    *,
    version: str,
    log: FilteringBoundLogger,
    url: str | None = None,
    systemd: Notifier = NO_SYSTEMD,
) -> None:
    """Run an additional delivery process on the site's store until a signal, as `serve` does.

    It takes no lock: any number may run next to the serving process. `url` is the address of its
    health checks, if any.

    Raises: StoppedAtOnce; ServiceFailed; UnusableDataFolder; the errors of `open_service`.
    """
    paths.prepare()
    async with stop_on_signals() as stop:
        with registered(paths, version, url):
            async with _opened(open_service, systemd) as service:
                stop.accepting()
                log.info("worker.ready", version=version, **({} if url is None else {"url": url}))
                await _until_asked(service, stop, systemd)
                log.info("worker.stopping")
                systemd.notify(STOPPING)
    log.info("worker.stopped", how=graceful_end(stop))


@asynccontextmanager
async def _opened(open_service: OpenService, systemd: Notifier) -> AsyncIterator[Service]:
    """Open the service; systemd waits for it as long as this process works."""
    starting = trio.CancelScope()

    async def extend() -> None:
        with starting:
            await systemd.extend_start()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(extend)
        async with open_service() as service:
            starting.cancel()
            yield service


@asynccontextmanager
async def _serve_lock(paths: SitePaths, lock: ServeLock) -> AsyncIterator[None]:
    with lock:
        for _ in range(LOCK_ATTEMPTS):
            if lock.acquire():
                break
            await trio.sleep(LOCK_EVERY_SECONDS)
        else:
            await _wait_for_orphans(paths, lock)
        yield


async def _wait_for_orphans(paths: SitePaths, lock: ServeLock) -> None:
    """Wait for processes whose supervisor was killed, which end by themselves.

    Raises: AlreadyRunning if another service holds the lock.
    """
    previous = site_files.read(paths.pid)
    end = trio.current_time() + GRACEFUL_SECONDS
    while previous is not None and previous.processes > 1 and trio.current_time() < end:
        with process.open_process(previous.pid, previous.start_ticks) as supervisor:
            if supervisor is not None:
                break
        if lock.acquire():
            return
        await trio.sleep(LOCK_EVERY_SECONDS)
    raise AlreadyRunning(paths.folder, None if previous is None else previous.pid)


async def until_asked(service: Service, stop: Stop) -> None:
    """Return when a signal requests the stop; raise if the service fails before that."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fail_with, service)
        await stop.requested.wait()
        nursery.cancel_scope.cancel()


async def _until_asked(
    service: Service,
    stop: Stop,
    systemd: Notifier,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Notify systemd that the service is ready and works, until a signal requests the stop."""
    systemd.notify(READY)
    async with trio.open_nursery() as nursery:
        if meanwhile is not None:
            nursery.start_soon(meanwhile)
        nursery.start_soon(systemd.keep_awake, service.answers)
        await until_asked(service, stop)
        nursery.cancel_scope.cancel()


async def _fail_with(service: Service) -> None:
    await service.failed()
    raise ServiceFailed


def graceful_end(stop: Stop) -> str:
    """Return how a run ended, for the log. Raises: StoppedAtOnce if the stop was not graceful."""
    end = stop.end
    if end in (End.SECOND_SIGNAL, End.TOO_SLOW):
        raise StoppedAtOnce(end.value)
    return str(end.value)


async def serve_process(
    assignment: Assignment,
    peers: PeerProcesses,
    open_service: OpenService,
    log: FilteringBoundLogger,
) -> None:
    """Serve as one process of a service until the supervisor or a signal requests the end.

    Raises: StoppedAtOnce; ServiceFailed; the errors of `open_service`, in trio's exception groups.
    """
    control = socket.socket(fileno=assignment.control)
    _end_with_supervisor(control)
    async with stop_on_signals() as stop, trio.open_nursery() as nursery:
        channel = ControlChannel(control, lambda name, body: _handle(stop, peers, name, body))
        await nursery.start(channel.run)
        nursery.start_soon(_stop_with_channel, channel, stop)
        peers.connect(channel)
        async with open_service() as service:
            stop.accepting()
            peers.register(HEALTH_CHECK, service.answers)
            channel.tell("ready")
            log.info("process.ready", pid=os.getpid())
            async with trio.open_nursery() as pausing:
                pausing.start_soon(_pause_as_others, peers)  # a frozen supervisor delays no stop
                await until_asked(service, stop)
                pausing.cancel_scope.cancel()
            log.info("process.stopping")
        nursery.cancel_scope.cancel()
    log.info("process.stopped", how=graceful_end(stop))


async def _pause_as_others(peers: PeerProcesses) -> None:
    """Pause the receivers that others have paused, also since this process read them before."""
    for receiver in await peers.paused_receivers():
        await peers.answer("pause", [receiver, True])


async def _handle(stop: Stop, peers: PeerProcesses, name: str, body: Any) -> object:
    if name == "stop":
        stop.request()
        return None
    if name == "end":
        stop.end_at_once()
        return None
    return await peers.answer(name, body)


async def _stop_with_channel(channel: ControlChannel, stop: Stop) -> None:
    await channel.closed.wait()
    stop.request()


def _end_with_supervisor(control: socket.socket) -> None:
    """Kill this process if it outlives its supervisor for too long, even if it is stuck."""
    poll = select.poll()
    poll.register(os.dup(control.fileno()), 0)  # not for data, only for the end

    def watch() -> None:
        poll.poll()
        time.sleep(_ORPHAN_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="fw-supervisor", daemon=True).start()
