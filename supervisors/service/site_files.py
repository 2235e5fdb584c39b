"""Files of a running site: lock, pid file, workers, console socket, and the errors about them.

The lock is flock's: it needs no clean-up after a kill and, unlike POSIX record locks, survives
other parts of the process opening and closing the same file.

The pid file alone proves nothing, because a killed process leaves it behind and its number may be
reused: it is valid while the site's lock is held (`ServeLock`), and signals are sent only to the
process that wrote it (`process`).

Each worker of the site on this machine has a file in `data/workers`, which is locked while it runs.
This identifies the file of a killed worker even if another process has its number now, and also
from another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from fw_actors.config import Config
from supervisors.service.process import ServingRecord, start_time
from supervisors.service.systemd import Unit
from web.listening import url_of


class ServiceError(Exception):
    """Base class of failed starts, stops and runs.

    The command line prints the message and exits with 1 (C-100).
    """

    def __init__(self, message: str) -> None:
        if type(self) is ServiceError:
            raise TypeError("ServiceError is abstract; raise one of its subclasses")
        super().__init__(message)


class AlreadyRunning(ServiceError):
    """Raised by a second `serve` on one site (O-30); `pid` if it is known."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.pid = pid
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"{holder} already serves the site {folder}: stop it with `fw stop`, "
            "or join it with `fw worker`"
        )


class UnusableDataFolder(ServiceError):
    """Raised if the files of the service cannot be created or written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot open {path}: {error.strerror or error}")


class ServiceFailed(ServiceError):
    """Raised if the service has failed permanently and restarts did not help."""

    def __init__(self) -> None:
        super().__init__("the service has failed and its restarts did not help")


class StoppedAtOnce(ServiceError):
    """Raised if a service ended before its work in progress; nothing accepted is lost.

    `reason` completes the sentence "stopped at once: …".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"stopped at once: {reason}; work in progress is resumed when its leases end"
        )


class StartFailed(ServiceError):
    """Raised if a background service ended before it was ready.

    `lines` are the last lines of its log, shown below the message.
    """

    def __init__(self, outcome: str, log: Path, lines: list[str]) -> None:
        self.lines = tuple(lines)
        ending = "ends with" if lines else "contains no message"
        super().__init__(f"the service did not start: it {outcome}; {log} {ending}")


class StillStarting(ServiceError):
    """Raised if a background service is not ready in time; it continues to start."""

    def __init__(self, pid: int, seconds: float, log: Path) -> None:
        super().__init__(
            f"the service (process {pid}) is not ready after {seconds:.0f} s and is still "
            f"starting: see `fw status` and {log}, or end it with `fw stop`"
        )


class NotStoppable(ServiceError):
    """Raised if the running service cannot be signalled, or survives all signals."""


class RunBySystemd(NotStoppable):
    """Raised instead of a stop that systemd would treat as a failure, or not notice.

    A restart would leave a process outside the unit, without its credentials and limits (C-133).
    """

    def __init__(self, pid: int, verb: str, unit: Unit) -> None:
        name = f" as {unit.name}" if unit.name else ""
        super().__init__(f"systemd runs process {pid}{name}; use: {unit.command(verb)}")


@dataclass(frozen=True)
class SitePaths:
    """The files of a site's service. `folder` is the folder of fw.json (C-10).

    `run_folder` is for files that end with the process; None means the system's folder for
    temporary files.
    """

    folder: Path
    run_folder: Path | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def lock(self) -> Path:
        """Locked by the one process that serves the site; never removed, to stay unique."""
        return self.data / "serve.lock"

    @property
    def pid(self) -> Path:
        """The pid file of the serving process."""
        return self.data / "serve.json"

    @property
    def log(self) -> Path:
        """The output of a background service."""
        return self.data / "serve.log"

    @property
    def workers(self) -> Path:
        """The folder with a file for each worker."""
        return self.data / "workers"

    @property
    def console(self) -> Path:
        """The file with the path of the running service's console socket; see `console_socket`."""
        return self.data / "console.address"

    def prepare(self) -> None:
        """Create the data folder, accessible only to its owner, if it is missing.

        Raises: UnusableDataFolder.
        """
        try:
            self.data.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UnusableDataFolder(self.data, error) from error


LOCK_ATTEMPTS: Final = 10  # a check by `is_held` takes the lock for a moment
LOCK_EVERY_SECONDS: Final = 0.05


class ServeLock:
    """The lock of one site, held from a successful `acquire` until `release` or the process's end.

    As a context manager it releases the lock. It is not re-entrant: a second lock on the same path
    fails, even in the same process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Try once, without waiting; return False if another process holds or checks the lock.

        `is_held` takes a shared lock for a moment, so callers should retry a few times.

        Raises: UnusableDataFolder.
        """
        if self.held:
            raise RuntimeError("this lock is already held")
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnusableDataFolder(self._path, error) from error
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    @property
    def descriptor(self) -> int:
        """The descriptor of the lock; a process that inherits it holds the lock, too."""
        if self._descriptor is None:
            raise RuntimeError("this lock is not held")
        return self._descriptor

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._descriptor is not None:
            # Unlock before closing: a child about to exec still holds a copy.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Return whether a process serves the site; concurrent checks do not affect each other.

    Raises: UnusableDataFolder if the file exists but cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnusableDataFolder(path, error) from error
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class PidFile(msgspec.Struct, frozen=True):
    """One serving process, or the supervisor of several.

    `url` is None until the service accepts; `start_ticks` is from `process.start_time`, named
    `born` in the file as in earlier versions; `processes` is their number without the supervisor.
    `serving` has one record for each of several processes. `began` is the start in seconds since
    the epoch, if the file is written again later, or 0.
    """

    pid: int
    start_ticks: int | None = msgspec.field(name="born")
    version: str
    url: str | None = None
    processes: int = 1
    serving: tuple[ServingRecord, ...] = ()
    began: float = 0.0


def own_pid_file(version: str, url: str | None = None, processes: int = 1) -> PidFile:
    """Return the record of this process; `processes` is their number in the service."""
    own = os.getpid()
    return PidFile(own, start_time(own), version, url, processes)


def write(path: Path, record: PidFile) -> None:
    """Replace the file atomically: readers see the old or the new content, never a part.

    Only the holder of the site's lock may call it. Not durable: it is meaningless after a power
    failure.

    Raises: UnusableDataFolder.
    """
    draft = path.with_name(f".{path.name}.{record.pid}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(msgspec.json.encode(record) + b"\n")
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UnusableDataFolder(path, error) from error


def read(path: Path) -> PidFile | None:
    """Return the file's content; None if there is no file or it is invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=PidFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def remove(path: Path) -> None:
    """Remove the file if it exists. For the holder of the lock only."""
    with contextlib.suppress(OSError):
        path.unlink()


def site_url(config: Config) -> str:
    """Return the URL with which links begin, without a trailing slash.

    This is the public URL, or else the address to which the serving process is or would be bound
    (A-191).
    """
    deployment = config.deployment
    if deployment.public_url is not None:
        return deployment.public_url
    paths = SitePaths(config.folder)
    serving = read(paths.pid)
    if serving is not None and serving.url is not None and is_held(paths.lock):
        return serving.url
    return url_of(deployment.bind_host, deployment.bind_port)


class RunningWorker(NamedTuple):
    """A running worker, and the time when it began (seconds since the epoch)."""

    process: PidFile
    began: float


@contextmanager
def registered(paths: SitePaths, version: str, url: str | None) -> Iterator[None]:
    """Register this process as a worker until the block ends.

    Raises: UnusableDataFolder.
    """
    record = own_pid_file(version, url)
    file = paths.workers / f"{record.pid}-{record.start_ticks or 0}.json"
    try:
        descriptor = _locked_file(file, msgspec.json.encode(record) + b"\n")
    except OSError as error:
        raise UnusableDataFolder(file, error) from error
    try:
        yield
    finally:
        remove(file)
        os.close(descriptor)


def _locked_file(file: Path, content: bytes) -> int:
    """Write a file and return its descriptor; it is locked before it is visible."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    draft = file.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, content)
        os.replace(draft, file)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def running_workers(paths: SitePaths) -> list[RunningWorker]:
    """Return the workers of the site on this machine, in the order of their starts.

    Files of workers that were killed are removed. Raises: UnusableDataFolder.
    """
    workers = []
    for file in paths.workers.glob("*.json"):
        if not is_held(file):
            remove(file)
            continue
        record = read(file)
        with contextlib.suppress(OSError):  # the worker has ended meanwhile
            if record is not None:
                workers.append(RunningWorker(record, file.stat().st_mtime))
    return sorted(workers, key=lambda worker: worker.began)


_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: Linux's ucred


def path_in(address_file: Path) -> Path:
    """Return the path that a service has written to `address_file`. Raises: OSError."""
    return Path(os.fsdecode(address_file.read_bytes()))


class HasOptions(Protocol):
    """A connected socket of any library."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


def peer_user(connected: HasOptions) -> int:
    """Return the user id of the connected peer, as reported by the kernel."""
    size = _CREDENTIALS.size
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return int(user)
