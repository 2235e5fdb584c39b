"""What SIGTERM and SIGINT mean: the first asks for a graceful stop, the second stops at once.

Interface §8, Operating: at most 10 s for what is in flight, then attempts are cancelled and
given back. A third signal finds the system's own handlers and kills.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

import trio

DRAIN_SECONDS: Final = 10.0
"""How long what is in flight may go on after the first signal."""

SETTLE_SECONDS: Final = 5.0
"""How long cancelling, giving back and closing may take after that."""


class End(Enum):
    """How a run came to its end."""

    DRAINED = "what was in flight has ended or was given back"
    UNSTARTED = "the first signal came before the service accepted anything"
    SECOND_SIGNAL = "a second signal came"
    TOO_SLOW = f"stopping took longer than {DRAIN_SECONDS + SETTLE_SECONDS:.0f} s"


class Stop:
    """The stop of one run: asked for by signals, waited for by the service.

    `requested` is set by the first signal. `at_once` is the scope around everything that runs:
    cancelled by the second signal, by the deadline after the first, or by the first one itself
    while nothing has been accepted, since then there is nothing to drain.
    """

    def __init__(self) -> None:
        self.requested = trio.Event()
        self.at_once = trio.CancelScope()
        self._accepting = False
        self._signals = 0

    def accepting(self) -> None:
        """Say that the service accepts: from now on the first signal drains."""
        self._accepting = True

    def signalled(self) -> None:
        """Take one signal into account."""
        self._signals += 1
        self.requested.set()
        if self._signals > 1 or not self._accepting:
            self.at_once.cancel()
        else:
            self.at_once.deadline = trio.current_time() + DRAIN_SECONDS + SETTLE_SECONDS

    @property
    def end(self) -> End:
        """How the run ended; to be asked after its block was left."""
        if not self.at_once.cancelled_caught:
            return End.DRAINED  # also when a second signal came too late to change anything
        if not self._accepting:
            return End.UNSTARTED
        return End.SECOND_SIGNAL if self._signals > 1 else End.TOO_SLOW


@asynccontextmanager
async def stop_on_signals() -> AsyncIterator[Stop]:
    """Run the block inside `Stop.at_once`, with both signals taken from the system until its end.

    For the main thread of a process only.
    """
    stop = Stop()
    async with trio.open_nursery() as nursery:
        await nursery.start(_listen, stop)
        with stop.at_once:
            yield stop
        nursery.cancel_scope.cancel()


async def _listen(stop: Stop, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
        task_status.started()
        async for _ in arriving:
            stop.signalled()
            break
        async for _ in arriving:
            stop.signalled()
            break
