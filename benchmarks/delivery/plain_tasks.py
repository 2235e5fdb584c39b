"""The cost of an actor for each delivery: instructions of the processor, with and without actors.

`python -m benchmarks.delivery.plain_tasks FOLDER URL EVENTS HOW` delivers so many events and prints
the instructions of a delivery, in user mode, of all threads. HOW is `actors` for the service as it
is, or `tasks`: a task of trio from a reused pool then does what the DeliveryActor does, with the
same code, and asks the OutcomeWriter itself.

The processor counts, so other load on the machine matters little; unlike times.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import outcome
import trio

from benchmarks.delivery import service
from fw_actors.actors.outcome_writer import Record
from fw_actors.runtime import KeyedPool, Message
from supervisors.service import assembly

_SYSCALL: Final = {"x86_64": 298, "aarch64": 241}
# The first 64 bytes of perf_event_attr, see perf_event_open(2): hardware, size, instructions, three
# fields for samples, then the flags inherit, exclude_kernel and exclude_hv.
_ATTRIBUTES: Final = struct.pack("IIQQQQQ", 0, 64, 1, 0, 0, 0, 1 << 1 | 1 << 5 | 1 << 6) + bytes(16)
_OURS: Final = 0


class NoCounter(Exception):
    """Raised when this machine does not let a process count its instructions."""


class PlainPool(KeyedPool):
    """Handles each message in a task instead of an actor; for deliveries only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._todo, self._taken = trio.open_memory_channel[tuple[str, Message]](inf)
        self._free = self._handling = 0

    def __len__(self) -> int:
        return self._handling

    def tell(self, key: str, message: Message) -> bool:
        """Have an idle task of the pool handle the message, or a further one."""
        self._handling += 1
        if self._free:
            self._free -= 1
        else:
            trio.lowlevel.spawn_system_task(self._work)
        self._todo.send_nowait((key, message))
        return True

    async def _work(self) -> None:
        async for key, message in self._taken:
            actor: Any = self.make(key)
            actor.context = context = _PlainContext()
            await actor.attempt(message)
            if context.pending_ask is not None:
                outcomes, request, then = context.pending_ask
                answer = await outcome.acapture(outcomes.ask, request, inf)
                actor.outcome_recorded(then(answer))
            self._handling -= 1
            self._free += 1


class _PlainContext:
    """The part of a context that a DeliveryActor uses."""

    time = staticmethod(trio.current_time)

    def __init__(self) -> None:
        self.pending_ask: tuple[Any, Record, Any] | None = None

    def ask(self, outcomes: Any, request: Record, *, then: Any) -> None:
        """Keep the request: its answer is awaited when the receiver's place is free."""
        self.pending_ask = outcomes, request, then

    def stop(self) -> None:
        """Do nothing: the task ends by itself."""


@contextmanager
def counting() -> Iterator[int]:
    """Count the instructions of this process, with threads that begin later.

    Raises: NoCounter.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SYSCALL.get(platform.machine())
    counter = -1 if number is None else libc.syscall(number, _ATTRIBUTES, _OURS, -1, -1, 0)
    if counter < 0:
        raise NoCounter(f"No counter of instructions: {os.strerror(ctypes.get_errno())}.")
    try:
        yield counter
    finally:
        os.close(counter)


def read(counter: int) -> int:
    """Return how many instructions were counted."""
    (count,) = struct.unpack("Q", os.read(counter, 8))
    return int(count)


def instructions(folder: Path, url: str, events: int, how: str) -> float:
    """Return the instructions of a delivery, measured in another process.

    Raises: NoCounter; RuntimeError with what the process said when it failed otherwise.
    """
    command = [sys.executable, "-m", "benchmarks.delivery.plain_tasks", str(folder), url]
    done = subprocess.run([*command, str(events), how], capture_output=True, text=True, check=False)
    if done.returncode == os.EX_UNAVAILABLE:
        raise NoCounter(done.stderr.strip())
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return float(done.stdout)


def main(folder: Path, url: str, events: int, how: str) -> float:
    """Deliver and count."""
    pool = {"actors": KeyedPool, "tasks": PlainPool}[how]
    with counting() as counter, patch.object(assembly, "KeyedPool", pool):
        counts: list[int] = []
        deliver = partial(service.deliver, note=lambda: counts.append(read(counter)))
        trio.run(partial(deliver, folder, [url], events))
        began, ended = counts
        return (ended - began) / events


if __name__ == "__main__":
    try:
        print(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    except NoCounter as unavailable:
        print(unavailable, file=sys.stderr)
        sys.exit(os.EX_UNAVAILABLE)
