"""The suite `delivery`: how fast recorded events reach a receiver and are known to have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from benchmarks.delivery import h11_loop, service
from benchmarks.nginx import Nginx, running_nginx
from benchmarks.rows import Comparison, Effort, Row

# A file system as a site would have it: on many machines /tmp is memory, where a commit is free.
_FOLDER: Final = Path(__file__).parents[2] / "build"


class Miscounted(Exception):
    """Raised when the receiver counted other requests than were to be sent."""


def rows(effort: Effort) -> Iterator[Row]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=_FOLDER) as folder, running_nginx(Path(folder)) as nginx:
        yield Comparison(
            suite="delivery",
            name="end_to_end",
            unit="deliveries/s",
            ours=partial(_counted, nginx, effort.events, _ours),
            reference=partial(_counted, nginx, effort.events, h11_loop.post),
            reference_name="bare h11 loop on trio, nothing durable",
        ).measure(effort)


async def _ours(url: str, events: int) -> float:
    with TemporaryDirectory(dir=_FOLDER) as site:
        return await service.deliver(Path(site), url, events)


def _counted(nginx: Nginx, events: int, side: Callable[[str, int], Awaitable[float]]) -> float:
    """Run one side; believe its rate when the receiver has counted as many requests."""
    before = nginx.requests()
    rate = trio.run(side, nginx.hook, events)
    counted = nginx.requests() - before - 1  # without the question for the number itself
    if counted != events:
        raise Miscounted(f"{events} requests were to be sent, the receiver counted {counted}.")
    return rate
