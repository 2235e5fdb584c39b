"""A second process on a site: `python -m benchmarks.delivery.worker FOLDER`.

It prints `ready`, begins to deliver at the first line that it reads, and ends with its input.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from benchmarks.delivery.site import HeldClock, serving, site_of
from fw_actors.actors.queue_worker import WakeUp
from supervisors.service import process


@contextmanager
def second_worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run one; it has said `ready`."""
    command = [sys.executable, "-m", "benchmarks.delivery.worker", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("The second worker did not start.")
        try:
            yield process
        finally:
            process.stdin.close()


def begin(process: subprocess.Popen[str]) -> None:
    """Have it deliver."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


async def main(folder: Path) -> None:
    process.prepare()
    clock = HeldClock()
    async with serving(site_of(folder), clock) as service:
        print("ready", flush=True)
        if await trio.to_thread.run_sync(sys.stdin.readline):
            clock.release()
            service.runtime.ref("dispatcher").tell(WakeUp())
            await trio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
