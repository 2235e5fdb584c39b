"""Processes and signals: identity of a process, SIGTERM, tuning of the interpreter.

A process number may be reused after its process has ended. The start time distinguishes the
processes, and on Linux a pidfd always refers to the process it was opened for.

Work in progress gets at most 10 s, then attempts are cancelled and released (O-31). A second signal
ends the process at once (O-32); a third reaches the system's own handlers and kills.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import trio

_START_TIME = 22 - 3  # proc(5): field 22 of stat; the fields after the name start at number 3
_POLL_SECONDS = 0.05
_log: Final = logging.getLogger(__name__)


def start_time(pid: int) -> int | None:
    """Return the start time of a process in kernel ticks; None if the system does not provide it.

    It differs between two processes with the same number, and is valid only for this boot.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 1 :].split()[_START_TIME])


class ServingState(StrEnum):
    """The state of one process of a service of several; the values are those of `fw status`."""

    STARTING = "starting"
    READY = "ready"
    SILENT = "silent"  # it is ready, but did not answer its supervisor's last question
    RESTARTING = "restarting"  # it has ended; its successor does not accept requests yet
    STOPPING = "stopping"


class ServingRecord(msgspec.Struct, frozen=True):
    """One process of a service of several, as its supervisor sees it.

    `state` is a `ServingState`, or one of another version; `pid` is None while no process runs.
    """

    number: int
    state: str
    pid: int | None = None
    start_ticks: int | None = msgspec.field(
        default=None, name="born"
    )  # as earlier versions write it
    restarts: int = 0


class Process:
    """Another process, identified by number and start time. Created by `open_process`."""

    def __init__(self, pid: int, descriptor: int | None) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended.

        Raises: PermissionError if it belongs to another user.
        """
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "linux" and self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, number)
            else:
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` until the process has ended; return whether it has."""
        if self._descriptor is not None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(max(0.0, seconds) * 1000))
        end = time.monotonic() + seconds
        while _exists(self.pid):
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def outcome_of(code: int) -> str:
    """Return how a process ended, for a message; `code` is that of `subprocess.Popen`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"was ended by signal {-code}"


@contextlib.contextmanager
def open_process(pid: int, start_ticks: int | None) -> Iterator[Process | None]:
    """Yield the process with this number if its start time matches, else None."""
    try:
        descriptor = os.pidfd_open(pid) if sys.platform == "linux" else None
    except (ProcessLookupError, ValueError):
        yield None
        return
    except OSError:  # a kernel before 5.3, or a sandbox without the call
        descriptor = None
    try:
        # Checked after the pidfd is open: from here on a reuse of the number has no effect.
        same = _exists(pid) and (start_ticks is None or start_time(pid) == start_ticks)
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


DRAIN_SECONDS: Final = 10.0
"""The time for which work in progress may continue after the first signal."""

SETTLE_SECONDS: Final = 5.0
"""The time for cancelling, releasing and closing after that."""

GRACEFUL_SECONDS: Final = DRAIN_SECONDS + SETTLE_SECONDS
"""The time of a graceful stop; after it a process ends at once."""

END_SECONDS: Final = 3.5
"""The time for which a process may live after it was told to end at once, even if a thread does not
return, such as one that waits for a server that has frozen. A supervisor of several processes kills
those first."""


STORE_AWAY: Final = 75
"""The exit code of a process of several that finds its store away when it starts (EX_TEMPFAIL)."""


class End(Enum):
    """The reason why a run ended."""

    DRAINED = "work in progress has ended or was released"
    UNSTARTED = "the first signal came before the service accepted anything"
    SECOND_SIGNAL = "a second signal came"
    TOO_SLOW = f"stopping took longer than {GRACEFUL_SECONDS:.0f} s"


class Stop:
    """The stop of one run: requested by signals, awaited by the service.

    `requested` is set by the first signal. `at_once` is the scope around everything that runs. It
    is cancelled by the second signal, by the deadline after the first, or by the first signal if
    nothing was accepted yet, because then there is nothing to drain.
    """

    def __init__(self) -> None:
        import trio  # on use: commands that only inspect processes start without it

        self.requested = trio.Event()
        self.at_once = trio.CancelScope()
        self._accepting = False
        self._signals = 0
        self._last: threading.Timer | None = None

    def accepting(self) -> None:
        """Note that the service accepts requests: from now on the first signal drains."""
        self._accepting = True

    def signalled(self) -> None:
        """Handle one signal."""
        self._signals += 1
        self.requested.set()
        if self._signals > 1 or not self._accepting:
            self._cancel()
        else:
            import trio

            self.at_once.deadline = trio.current_time() + GRACEFUL_SECONDS
            self._end_within(GRACEFUL_SECONDS + END_SECONDS)

    def request(self) -> None:
        """Request the stop like a first signal; does nothing if it is requested already."""
        if not self.requested.is_set():
            self.signalled()
            self._signals -= 1  # systemd may send this process a signal of its own

    def end_at_once(self) -> None:
        """Stop without draining, like a second signal."""
        self._signals = max(self._signals, 2)
        self.requested.set()
        self._cancel()

    def over(self) -> None:
        """Note that the block has ended by itself."""
        if self._last is not None:
            self._last.cancel()

    def _cancel(self) -> None:
        self.at_once.cancel()
        self._end_within(END_SECONDS)

    def _end_within(self, seconds: float) -> None:
        self.over()
        self._last = threading.Timer(seconds, _end_process)
        self._last.daemon = True
        self._last.start()

    @property
    def end(self) -> End:
        """Return how the run ended. Call it after the block."""
        if not self.at_once.cancelled_caught:
            return End.DRAINED  # also if a second signal came too late to have an effect
        if not self._accepting:
            return End.UNSTARTED
        return End.SECOND_SIGNAL if self._signals > 1 else End.TOO_SLOW


def _end_process() -> None:
    _log.error("the process ends without waiting for its threads, which do not return")
    os._exit(1)


@asynccontextmanager
async def stop_on_signals() -> AsyncIterator[Stop]:
    """Run the block inside `Stop.at_once`, handling SIGTERM, SIGINT and SIGHUP until its end.

    SIGHUP, which the end of a terminal sends, stays ignored if it was, as by nohup. For the main
    thread of a process only.
    """
    import trio

    stop = Stop()
    async with trio.open_nursery() as nursery:
        await nursery.start(_listen, stop)
        try:
            with stop.at_once:
                yield stop
        finally:
            stop.over()
        nursery.cancel_scope.cancel()


async def _listen(stop: Stop, *, task_status: trio.TaskStatus[None]) -> None:
    import trio

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    count = 0
    with trio.open_signal_receiver(*numbers) as arriving:
        task_status.started()
        async for number in arriving:
            if number == signal.SIGHUP and count:
                continue  # shell and kernel both send it at the end of a terminal
            stop.signalled()
            count += 1
            if count == 2:
                break


YOUNG_OBJECTS: Final = 20_000


def prepare() -> None:
    """Tune the interpreter: shorter switch interval, rarer garbage collection, more descriptors.

    Work in progress exceeds the 700 young objects after which Python collects garbage, and few of
    them are in cycles: these collections took 5 % of a delivery. The hundred thousand objects of
    the code itself are frozen, so that they are no longer scanned.

    Thousands of clients and receivers may be connected at once; the usual soft limit of 1,024
    descriptors is meant for programs that use select().
    """
    from fw_actors.store import THREAD_SWITCH_SECONDS  # not for processes without a store

    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    gc.set_threshold(YOUNG_OBJECTS)
    gc.freeze()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
