"""The service in the background: starts, stops and restarts it, and reports its status.

Plain and synchronous, for the command line. The site's lock decides whether the service runs; the
pid file only names its holder (`site_files`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn

from supervisors.service import site_files
from supervisors.service.process import DRAIN_SECONDS, SETTLE_SECONDS, Process, open_process
from supervisors.service.site_files import (
    NotStoppable,
    SitePaths,
    StartFailed,
    StillStarting,
    UnusableDataFolder,
    is_held,
)

READY_SECONDS: Final = 60.0
"""How long `start` waits until the service is ready."""

_EVERY_SECONDS: Final = 0.05
_SHOWN_LINES: Final = 20
_SHOWN_BYTES: Final = 16_384

# The signals of a stop and the waits after each: a graceful stop, whose wait is a little longer
# than it may take, then the second signal, which stops at once, then SIGKILL.
_STOP_STEPS: Final = (
    (signal.SIGTERM, DRAIN_SECONDS + SETTLE_SECONDS + 5.0),
    (signal.SIGTERM, SETTLE_SECONDS),
    (signal.SIGKILL, 5.0),
)


class RunState(Enum):
    """The state of a site's service; the values are those of `fw status --json` (C-108)."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"


@dataclass(frozen=True)
class ServiceStatus:
    """The service of a site at one moment; unknown values are None."""

    state: RunState
    pid: int | None = None
    url: str | None = None
    version: str | None = None


class Stopped(Enum):
    """The result of a stop."""

    NOT_RUNNING = "was not running"
    GRACEFULLY = "stopped"
    AT_ONCE = "did not stop in time, and was stopped at once"
    KILLED = "did not stop in time, and was killed"


def status(places: SitePaths) -> ServiceStatus:
    """Return the status of the service.

    Raises: UnusableDataFolder, if the status cannot be read.
    """
    if not is_held(places.lock):
        return ServiceStatus(RunState.STOPPED)
    said = site_files.read(places.pid)
    if (
        said is None
    ):  # it holds the lock, but has not written its pid file yet or has removed it already
        return ServiceStatus(RunState.STARTING)
    state = RunState.STARTING if said.url is None else RunState.RUNNING
    return ServiceStatus(state, said.pid, said.url, said.version)


def start(
    places: SitePaths,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    ready_seconds: float = READY_SECONDS,
) -> ServiceStatus:
    """Run `command`, which serves the site, detached from this terminal; wait until it is ready.

    Its output is appended to the site's log. A running service is left unchanged. A
    KeyboardInterrupt stops the new process.

    Raises: StartFailed if it ends instead; StillStarting; UnusableDataFolder.
    """
    before = status(places)
    if before.state is RunState.RUNNING:
        return before
    places.prepare()
    child, begin = _spawn(places, command, environ)
    try:
        return _until_ready(places, child, begin, ready_seconds)
    except KeyboardInterrupt:
        child.terminate()
        raise
    finally:
        if child.returncode is None:
            child.returncode = 0  # it outlives this process on purpose: prevents Popen's warning


def stop(places: SitePaths) -> Stopped:
    """Stop the running service, wait until it has stopped, and return the result.

    Raises: NotStoppable; UnusableDataFolder.
    """
    if not is_held(places.lock):
        return Stopped.NOT_RUNNING
    said = site_files.read(places.pid)
    if said is None:
        if _until_free(places, 1.0):
            return Stopped.GRACEFULLY  # it was about to end
        raise NotStoppable(
            f"the service of {places.folder} is running, but its process id is unknown"
        )
    with open_process(said.pid, said.born) as process:
        if process is not None:
            return _stop(process, places)
    if is_held(places.lock):
        raise NotStoppable(
            f"the service of {places.folder} runs as process {said.pid}, but not on this machine "
            "or in this container: stop it there"
        )
    return Stopped.GRACEFULLY


def _spawn(
    places: SitePaths, command: Sequence[str], environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process; return it, and the offset of its first line in the log."""
    try:
        log = os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnusableDataFolder(places.log, error) from error
    try:
        begin = os.fstat(log).st_size
        child = subprocess.Popen(
            command,
            cwd=places.folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    return child, begin


def _until_ready(
    places: SitePaths, child: subprocess.Popen[bytes], begin: int, seconds: float
) -> ServiceStatus:
    end = time.monotonic() + seconds
    while True:
        ended = child.poll()
        now = status(places)
        if now.state is RunState.RUNNING and (now.pid == child.pid or ended is not None):
            return now  # ended: a concurrent start was faster, and its service is in use
        if ended is not None and now.state is RunState.STOPPED:
            _say_why(places, ended, begin)
        if time.monotonic() >= end:
            raise StillStarting(now.pid or child.pid, seconds, places.log)
        time.sleep(_EVERY_SECONDS)


def _say_why(places: SitePaths, code: int, begin: int) -> NoReturn:
    if code < 0:
        outcome = f"was ended by {signal.Signals(-code).name}"
    else:
        outcome = f"ended with exit code {code}"
    with open(places.log, "rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(begin, log.tell() - _SHOWN_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    raise StartFailed(outcome, places.log, lines[-_SHOWN_LINES:])


def _stop(process: Process, places: SitePaths) -> Stopped:
    outcomes = (Stopped.GRACEFULLY, Stopped.AT_ONCE, Stopped.KILLED)
    for (number, seconds), outcome in zip(_STOP_STEPS, outcomes, strict=True):
        try:
            process.signal(number)
        except PermissionError as error:
            raise NotStoppable(f"process {process.pid} belongs to another user") from error
        if process.wait(seconds):
            _until_free(places, 1.0)
            return outcome
    raise NotStoppable(f"process {process.pid} does not end, even after SIGKILL")


def _until_free(places: SitePaths, seconds: float) -> bool:
    """Wait at most this long until the site's lock is free; return whether it is."""
    end = time.monotonic() + seconds
    while is_held(places.lock):
        if time.monotonic() >= end:
            return False
        time.sleep(_EVERY_SECONDS)
    return True
