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

from msgspec.structs import replace

from supervisors.service import site_files
from supervisors.service.process import (
    GRACEFUL_SECONDS,
    SETTLE_SECONDS,
    Process,
    ServingRecord,
    ServingState,
    open_process,
    outcome_of,
    start_time,
)
from supervisors.service.site_files import (
    NotStoppable,
    PidFile,
    RunBySystemd,
    SitePaths,
    StartFailed,
    StillStarting,
    UnusableDataFolder,
    is_held,
)
from supervisors.service.systemd import unit_of, without_unit

READY_SECONDS: Final = 60.0
"""The time that `start` waits until the service is ready."""

_POLL_SECONDS: Final = 0.05
_SHOWN_LINES: Final = 20
_SHOWN_BYTES: Final = 16_384

# The signals of a stop and the wait after each: a graceful stop, with a wait slightly longer than
# its limit, then the second signal, which stops at once, then SIGKILL.
STOP_STEPS: Final = (
    (signal.SIGTERM, GRACEFUL_SECONDS + 5.0),
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
    processes: int = 1
    serving: tuple[ServingRecord, ...] = ()
    """The processes of a service of several."""
    began: float = 0.0
    """The start, in seconds since the epoch."""

    @property
    def ready(self) -> int:
        """The number of processes that accept requests and answer their supervisor."""
        return sum(process.state == ServingState.READY for process in self.serving)


class Stopped(Enum):
    """The result of a stop."""

    NOT_RUNNING = "was not running"
    GRACEFULLY = "stopped"
    AT_ONCE = "did not stop in time, and was stopped at once"
    KILLED = "did not stop in time, and was killed"


def status(paths: SitePaths) -> ServiceStatus:
    """Return the status of the service.

    Raises: UnusableDataFolder, if the status cannot be read.
    """
    if not is_held(paths.lock):
        return ServiceStatus(RunState.STOPPED)
    record = site_files.read(paths.pid)
    if record is None:  # the lock's holder has no pid file yet, or has removed it already
        return ServiceStatus(RunState.STARTING)
    state = RunState.STARTING if record.url is None else RunState.RUNNING
    return ServiceStatus(
        state,
        record.pid,
        record.url,
        record.version,
        record.processes,
        _remaining(record),
        record.began,
    )


def _remaining(record: PidFile) -> tuple[ServingRecord, ...]:
    """Return the serving processes as recorded, or those that a killed supervisor has left.

    Nothing is recorded after its end. In another container no process of the service is visible:
    the record is then all that is known.
    """
    remaining = [
        each for each in record.serving if each.pid and start_time(each.pid) == each.start_ticks
    ]
    if remaining:
        with open_process(record.pid, record.start_ticks) as supervisor:
            if supervisor is None:
                return tuple(replace(each, state=ServingState.STOPPING.value) for each in remaining)
    return record.serving


def start(
    paths: SitePaths,
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
    before = status(paths)
    if before.state is RunState.RUNNING:
        return before
    paths.prepare()
    child, begin = _spawn(paths, command, environ)
    try:
        return _until_ready(paths, child, begin, ready_seconds)
    except KeyboardInterrupt:
        child.terminate()
        raise
    finally:
        if child.returncode is None:
            child.returncode = 0  # it outlives this process on purpose: prevents Popen's warning


def stop(paths: SitePaths, verb: str = "stop") -> Stopped:
    """Stop the running service, wait until it has stopped, and return the result.

    `verb` is the verb of systemctl in the error for a service that systemd runs.

    Raises: NotStoppable; RunBySystemd; UnusableDataFolder.
    """
    if not is_held(paths.lock):
        return Stopped.NOT_RUNNING
    record = site_files.read(paths.pid)
    if record is None:
        if _until_free(paths, 1.0):
            return Stopped.GRACEFULLY  # it has ended meanwhile
        raise NotStoppable(
            f"the service of {paths.folder} is running, but its process id is unknown"
        )
    with open_process(record.pid, record.start_ticks) as process:
        if process is not None:
            unit = unit_of(record.pid)
            if unit is not None:
                raise RunBySystemd(record.pid, verb, unit)
            return _stop(process, paths)
    if record.processes > 1:  # the supervisor was killed: its processes end by themselves
        _until_free(paths, STOP_STEPS[0][1])
    if is_held(paths.lock):
        raise NotStoppable(
            f"the service of {paths.folder} runs as process {record.pid}, but not on this machine "
            "or in this container: stop it there"
        )
    return Stopped.GRACEFULLY


def _spawn(
    paths: SitePaths, command: Sequence[str], environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process; return it, and the offset of its first line in the log."""
    try:
        log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnusableDataFolder(paths.log, error) from error
    try:
        begin = os.fstat(log).st_size
        child = subprocess.Popen(
            command,
            cwd=paths.folder,
            env=without_unit(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    return child, begin


def _until_ready(
    paths: SitePaths, child: subprocess.Popen[bytes], begin: int, seconds: float
) -> ServiceStatus:
    end = time.monotonic() + seconds
    while True:
        ended = child.poll()
        now = status(paths)
        if now.state is RunState.RUNNING and (now.pid == child.pid or ended is not None):
            return now  # ended: a concurrent start was faster, and its service is in use
        if ended is not None and now.state is RunState.STOPPED:
            _report_start_failure(paths, ended, begin)
        if time.monotonic() >= end:
            raise StillStarting(now.pid or child.pid, seconds, paths.log)
        time.sleep(_POLL_SECONDS)


def _report_start_failure(paths: SitePaths, code: int, begin: int) -> NoReturn:
    with open(paths.log, "rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(begin, log.tell() - _SHOWN_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    raise StartFailed(outcome_of(code), paths.log, lines[-_SHOWN_LINES:])


def _stop(process: Process, paths: SitePaths) -> Stopped:
    outcomes = (Stopped.GRACEFULLY, Stopped.AT_ONCE, Stopped.KILLED)
    began = time.monotonic()
    for (number, seconds), outcome in zip(STOP_STEPS, outcomes, strict=True):
        try:
            process.signal(number)
        except PermissionError as error:
            raise NotStoppable(f"process {process.pid} belongs to another user") from error
        if process.wait(seconds):
            duration = time.monotonic() - began
            _until_free(paths, 1.0)
            late = outcome is Stopped.GRACEFULLY and duration > GRACEFUL_SECONDS
            return Stopped.AT_ONCE if late else outcome
    raise NotStoppable(f"process {process.pid} does not end, even after SIGKILL")


def _until_free(paths: SitePaths, seconds: float) -> bool:
    """Wait up to `seconds` until the site's lock is free; return whether it is."""
    end = time.monotonic() + seconds
    while is_held(paths.lock):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)
    return True
