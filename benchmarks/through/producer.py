"""A process that emits events beside the service: `python -m benchmarks.through.producer FOLDER
EVENTS A_TRANSACTION`.

It prints `ready`, begins at the first line that it reads, and ends when all events are recorded.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from benchmarks.access.service import KEY
from benchmarks.delivery.events import EVENT, data
from fw_actors.config import load
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site, open_site

CALLERS: Final = 16


class ProducerFailed(Exception):
    """Raised when a producer does not begin, or ends before it has recorded all."""


@contextmanager
def producer(folder: Path, events: int, a_transaction: int) -> Iterator[subprocess.Popen[str]]:
    """Run one that has opened the site; `emit_all` has it emit."""
    numbers = [str(events), str(a_transaction)]
    command = [sys.executable, "-m", "benchmarks.through.producer", str(folder), *numbers]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise ProducerFailed("The producer did not open the site.")
        yield process


def emit_all(process: subprocess.Popen[str]) -> None:
    """Have a producer emit; return when it has recorded all. Raises: ProducerFailed."""
    process.communicate("go\n")
    if process.returncode != 0:
        raise ProducerFailed("The producer has failed.")


async def main(folder: Path, events: int, a_transaction: int) -> None:
    """Emit with `CALLERS` tasks, each one transaction after the other."""
    async with open_site(load({"FW_SECRET_KEY": KEY}, folder)) as site:
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        counts = iter([a_transaction] * (events // a_transaction))
        async with trio.open_nursery() as nursery:
            for _ in range(CALLERS):
                nursery.start_soon(_emit, site, counts)


async def _emit(site: Site, counts: Iterator[int]) -> None:
    event = {"name": EVENT, "data": data()}

    def emit(fw: Fw, count: int) -> None:
        if count == 1:
            fw.webhooks.emit(EVENT, event["data"])
        else:
            fw.webhooks.emit_many([event] * count)

    for count in counts:
        await site.write(ADMINISTRATOR, partial(emit, count=count))


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
