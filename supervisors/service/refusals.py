"""What the process side of the service refuses, each with the sentence that a person reads."""

from __future__ import annotations

from pathlib import Path


class ServiceRefusal(Exception):
    """A start, a stop or a run that could not be. Raise one of its children.

    The command line prints the message and exits with 1 (interface §5).
    """

    def __init__(self, message: str) -> None:
        if type(self) is ServiceRefusal:
            raise TypeError("ServiceRefusal is a family; raise one of its children")
        super().__init__(message)


class AlreadyRunning(ServiceRefusal):
    """Raised by a second `serve` on one site (interface §8, Operating); `pid` where it is known."""

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
