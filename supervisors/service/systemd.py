"""systemd: which unit runs a process, and notifications about the state of the service.

The notifications (sd_notify(3)) are: still starting, ready, stopping, and that the service still
works. The last one is the watchdog's: systemd ends and restarts a service that has not sent it for
`WatchdogSec=`. It is sent from the service's own loop and only while the store answers, so that a
hanging service is restarted.

A start may take longer than `TimeoutStartSec=`, because it migrates the store. systemd would end
it, which undoes the migration, and start it again and again.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
EXTENSION_SECONDS: Final = 30
_PER_SECOND: Final = 1_000_000  # systemd's times are in microseconds
_NOTIFICATIONS_PER_INTERVAL: Final = 3
"""Notifications in an interval: a single failure must not end the service."""


@dataclass(frozen=True)
class Notifier:
    """Notifies systemd of the state of the process that it has started.

    Args:
        address: the value of NOTIFY_SOCKET: a path, or a name in Linux's abstract namespace if it
            begins with "@" (sd_notify(3), Environment). Anything else, such as None, disables it.
        watchdog_seconds: seconds without a notification after which systemd ends the service; None
            without a watchdog.
    """

    address: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> Notifier:
        """Return the one of the process `pid` with this environment (sd_watchdog_enabled(3)).

        WATCHDOG_USEC is another process's if WATCHDOG_PID is not this one.
        """
        address = environ.get("NOTIFY_SOCKET")
        interval, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        own = interval.isascii() and interval.isdigit() and owner in ("", str(pid))
        seconds = int(interval) / _PER_SECOND if address and own else 0.0
        return cls(address, seconds or None)

    def notify(self, state: str) -> bool:
        """Send one state; return whether it was sent. Never raises and never waits."""
        address = self.address
        if not address or address[0] not in "/@":
            return False
        target = "\0" + address[1:] if address[0] == "@" else address
        with contextlib.suppress(OSError, ValueError):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto(state.encode(), target)
            return True
        return False

    async def extend_start(self) -> None:
        """Extend the time for the start while the loop runs. Never returns."""
        import trio

        while True:
            await trio.sleep(EXTENSION_SECONDS / _NOTIFICATIONS_PER_INTERVAL)
            self.notify(f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * _PER_SECOND}")

    async def keep_awake(self, answers: Callable[[float], Awaitable[bool]]) -> None:
        """Notify the watchdog three times in each interval while the service works.

        Never returns if there is a watchdog. `answers` gets the seconds that it may take.
        """
        import trio  # on use: commands that only inspect processes start without it

        if self.watchdog_seconds is None:
            return
        every = self.watchdog_seconds / _NOTIFICATIONS_PER_INTERVAL
        while True:
            began = trio.current_time()
            if await answers(every):
                self.notify(WATCHDOG)
            await trio.sleep_until(began + every)


NO_SYSTEMD: Final = Notifier()
"""Sends no notifications."""


_OF_THE_UNIT: Final = frozenset(
    {"INVOCATION_ID", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID"}
    | {"WATCHDOG_PID", "WATCHDOG_USEC"}
)
_PARENT: Final = 4 - 3  # proc(5): field 4 of stat; the fields after the name start at number 3
_HIERARCHY: Final = re.compile(r"0::|\d+:name=systemd:")  # cgroups(7): version 2, version 1
_OWNER: Final = re.compile(r"(?:^|/)user@\d+\.service/")


@dataclass(frozen=True)
class Unit:
    """A service of systemd; `name` is empty if only its existence is known."""

    name: str
    of_user: bool = False

    def command(self, verb: str) -> str:
        """Return the command that an operator enters for `verb`, such as "stop"."""
        return f"systemctl {'--user ' if self.of_user else ''}{verb} {self.name or 'UNIT'}"


def unit_of(pid: int) -> Unit | None:
    """Return the unit whose main process this is; None if there is none, or if it is unknown."""
    process = Path(f"/proc/{pid}")
    try:
        environ = process.joinpath("environ").read_bytes()
        stat = process.joinpath("stat").read_text(errors="replace")
        cgroup = process.joinpath("cgroup").read_text(errors="replace")
    except OSError:
        return None
    entries = (entry.partition("=") for entry in os.fsdecode(environ).split("\0"))
    parent = int(stat[stat.rindex(")") + 1 :].split()[_PARENT])
    return unit_from_facts(pid, parent, {name: value for name, _, value in entries}, cgroup)


def unit_from_facts(pid: int, parent: int, environ: Mapping[str, str], cgroup: str) -> Unit | None:
    """Return as `unit_of`, from the facts that /proc has about the process.

    The processes of a terminal are in a unit too, and inherit its INVOCATION_ID, which is therefore
    not sufficient.
    """
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if _HIERARCHY.match(line)]
    path = paths[0] if paths else ""
    last = path.rpartition("/")[2]
    name = last if last.endswith(".service") else ""
    started = (
        "NOTIFY_SOCKET" in environ
        or environ.get("SYSTEMD_EXEC_PID") == str(pid)
        or ("INVOCATION_ID" in environ and parent == 1 and bool(name))
    )
    return Unit(name, bool(_OWNER.search(path))) if started else None


def without_unit(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that are only for the main process of a unit."""
    return {name: value for name, value in environ.items() if name not in _OF_THE_UNIT}
