"""Notifications to systemd (sd_notify(3)): ready, stopping, and that the service still works.

The last one is the watchdog's: systemd ends and restarts a service that has not sent it for
`WatchdogSec=`. It is sent from the service's own loop and only while the store answers, so that a
hanging service is restarted.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
_PER_SECOND: Final = 1_000_000  # WATCHDOG_USEC is in microseconds
_LOOKS: Final = 3
"""Checks in an interval of the watchdog: a single failure must not end the service."""


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

    async def keep_awake(self, answers: Callable[[float], Awaitable[bool]]) -> None:
        """Notify the watchdog three times in each interval while the service works.

        Never returns if there is a watchdog. `answers` gets the seconds that it may take.
        """
        import trio  # on use: commands that only inspect processes start without it

        if self.watchdog_seconds is None:
            return
        every = self.watchdog_seconds / _LOOKS
        while True:
            began = trio.current_time()
            if await answers(every):
                self.notify(WATCHDOG)
            await trio.sleep_until(began + every)


NO_SYSTEMD: Final = Notifier()
"""Sends no notifications."""
