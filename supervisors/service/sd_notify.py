"""Tells systemd how far the service is, where systemd asks for it (sd_notify(3), Type=notify)."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(address: str | None, state: str) -> bool:
    """Send one state; whether it went out. Never fails the service and never waits.

    `address` is the value of NOTIFY_SOCKET: a path, or a name in Linux's abstract namespace
    when it begins with "@" (sd_notify(3), Environment). None or anything else: nobody asks.
    """
    if not address or address[0] not in "/@":
        return False
    target = "\0" + address[1:] if address[0] == "@" else address
    with contextlib.suppress(OSError, ValueError):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(state.encode(), target)
        return True
    return False
