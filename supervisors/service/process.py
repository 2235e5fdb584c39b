"""A process that is certainly the one meant: signals that can't hit a stranger.

A process number is given to another process once its first owner has gone. Its time of birth
tells the two apart, and on Linux a pidfd stays with the one process it was opened for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_START_TIME = 22 - 3  # proc(5): field 22 of stat; fields after the name begin with number 3
_LOOK_SECONDS = 0.05


def birth(pid: int) -> int | None:
    """Return when a process began, in the kernel's ticks; None where the system does not say.

    Two processes with one number differ in it. It means nothing beyond this boot of the machine.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 1 :].split()[_START_TIME])


class Process:
    """Another process, known by its number and its birth. Made by `open_process`."""

    def __init__(self, pid: int, descriptor: int | None) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; without effect when the process has ended.

        Raises: PermissionError, when it belongs to someone else.
        """
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "linux" and self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, number)
            else:
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended, at most so long; whether it has."""
        if self._descriptor is not None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(max(0.0, seconds) * 1000))
        end = time.monotonic() + seconds
        while _exists(self.pid):
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


@contextlib.contextmanager
def open_process(pid: int, born: int | None) -> Iterator[Process | None]:
    """Give the process with this number if it is still the one born then, else None."""
    try:
        descriptor = os.pidfd_open(pid) if sys.platform == "linux" else None
    except (ProcessLookupError, ValueError):
        yield None
        return
    except OSError:  # a kernel before 5.3, or a sandbox without the call
        descriptor = None
    try:
        # Asked after the pidfd is open: from here on the number can't change its owner unseen.
        same = _exists(pid) and (born is None or birth(pid) == born)
        yield Process(pid, descriptor) if same else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
