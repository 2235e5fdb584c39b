"""Files of a running site: lock, pid file, address, and the errors about them.

flock, since it needs no clean-up after a kill, and is not lost when some other part of the
process opens and closes the same file, as POSIX record locks are.

The file alone proves nothing, since a killed process leaves it behind and its number may go to
another one: it counts while the site's lock is held (`lock`), and a signal is sent only to the
process that wrote it (`process`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from fw_actors.config import Config
from supervisors.service.process import birth
from web.server import url_of


class ServiceRefusal(Exception):
    """A start, a stop or a run that could not be. Raise one of its children.

    The command line prints the message and exits with 1 (C-100).
    """

    def __init__(self, message: str) -> None:
        if type(self) is ServiceRefusal:
            raise TypeError("ServiceRefusal is a family; raise one of its children")
        super().__init__(message)


class AlreadyRunning(ServiceRefusal):
    """Raised by a second `serve` on one site (O-30); `pid` where it is known."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.pid = pid
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"{holder} already serves the site {folder}: stop it with `fw stop`, "
            "or join it with `fw worker`"
        )


class UnusableDataFolder(ServiceRefusal):
    """Raised when the files of the service can't be made or written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"can't use {path}: {error.strerror or error}")


class ServiceFailed(ServiceRefusal):
    """Raised when what runs in the service has failed for good and restarts did not help."""

    def __init__(self) -> None:
        super().__init__("the service has failed and could not be restarted from within")


class StoppedAtOnce(ServiceRefusal):
    """Raised when a service ended before what was in flight did; nothing accepted is lost.

    `reason` completes the sentence "stopped at once: …".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"stopped at once: {reason}; what was in flight is taken up when its lease ends"
        )


class StartFailed(ServiceRefusal):
    """Raised when a background service ended instead of getting ready.

    `lines` are the last ones of its log, to be shown below the message.
    """

    def __init__(self, outcome: str, log: Path, lines: list[str]) -> None:
        self.lines = tuple(lines)
        told = "ends with" if lines else "says nothing of it"
        super().__init__(f"the service did not start: it {outcome}; {log} {told}")


class StillStarting(ServiceRefusal):
    """Raised when a background service is not ready in time; it goes on starting."""

    def __init__(self, pid: int, seconds: float, log: Path) -> None:
        super().__init__(
            f"the service (process {pid}) is not ready after {seconds:.0f} s and goes on starting: "
            f"see `fw status` and {log}, or end it with `fw stop`"
        )


class NotStoppable(ServiceRefusal):
    """Raised when the running service can't be reached by a signal, or outlives all of them."""


@dataclass(frozen=True)
class SitePaths:
    """The files of a site's service. `folder` is the folder of fw.json (C-10).

    `run_folder` is where what lives no longer than the process lies; None: the system's for
    temporary files.
    """

    folder: Path
    run_folder: Path | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def lock(self) -> Path:
        """Locked by the one process that serves the site; never removed, so that it stays one."""
        return self.data / "serve.lock"

    @property
    def pid(self) -> Path:
        """What the serving process says of itself."""
        return self.data / "serve.json"

    @property
    def log(self) -> Path:
        """What a background service writes on stdout and stderr."""
        return self.data / "serve.log"

    @property
    def console(self) -> Path:
        """Names the socket of the running service's console; see `socket_place`."""
        return self.data / "console.address"

    def prepare(self) -> None:
        """Make the data folder, for its owner only, when it is missing.

        Raises: UnusableDataFolder.
        """
        try:
            self.data.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UnusableDataFolder(self.data, error) from error


class ServeLock:
    """The lock of one site, held from a successful `acquire` until `release` or the process's end.

    A context manager that releases. Not re-entrant: a second lock on the same path, also in the
    same process, is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Try once, without waiting; False when another process holds it, or looks at it.

        `is_held` takes a shared lock for a moment, so a caller tries for a little while.

        Raises: UnusableDataFolder.
        """
        if self.held:
            raise RuntimeError("this lock is held already")
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnusableDataFolder(self._path, error) from error
        if not _try(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        """Give the lock back; without effect when it is not held."""
        if self._descriptor is not None:
            # Unlocked and not only closed: a child on its way to exec still holds a copy.
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
    """Whether some process serves the site; those who ask do not see each other.

    Raises: UnusableDataFolder, when the file is there and may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnusableDataFolder(path, error) from error
    try:
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Presence(msgspec.Struct, frozen=True):
    """One serving process: `url` is None until it accepts; `born` as `process.birth` gives it."""

    pid: int
    born: int | None
    version: str
    url: str | None = None


def presence(version: str, url: str | None = None) -> Presence:
    """Return what this process has to say of itself."""
    return Presence(pid=os.getpid(), born=birth(os.getpid()), version=version, url=url)


def write(path: Path, said: Presence) -> None:
    """Put the file in place in one step: a reader sees the old one or the new one, never a part.

    Only the holder of the site's lock may call it. Not made durable: it means nothing after a
    power cut.

    Raises: UnusableDataFolder.
    """
    draft = path.with_name(f".{path.name}.{said.pid}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(msgspec.json.encode(said) + b"\n")
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UnusableDataFolder(path, error) from error


def read(path: Path) -> Presence | None:
    """Return what stands there; None when there is no file, or none of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Presence)
    except (OSError, msgspec.MsgspecError):
        return None


def remove(path: Path) -> None:
    """Take the file away; without effect when it has gone. For the holder of the lock only."""
    with contextlib.suppress(OSError):
        path.unlink()


def site_url(config: Config) -> str:
    """Return what links begin with, without a slash at the end.

    The public URL; without one the address that the serving process is bound to, or would be
    (A-191).
    """
    deployment = config.deployment
    if deployment.public_url is not None:
        return deployment.public_url
    serving = read(SitePaths(config.folder).pid)
    if serving is not None and serving.url is not None:
        return serving.url
    return url_of(deployment.bind_host, deployment.bind_port)
