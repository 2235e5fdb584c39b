"""The suite `delivery`: how fast recorded events reach a receiver and are known to have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.delivery import h11_loop, service
from benchmarks.nginx import counted, running_nginx
from benchmarks.rows import Comparison, Effort, Row

# A file system as a site would have it: on many machines /tmp is memory, where a commit is free.
_FOLDER: Final = Path(__file__).parents[2] / "build"


def rows(effort: Effort) -> Iterator[Row]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=_FOLDER) as folder, running_nginx(Path(folder)) as nginx:
        yield Comparison(
            suite="delivery",
            name="end_to_end",
            unit="deliveries/s",
            ours=partial(counted, nginx, effort.events, _ours),
            reference=partial(counted, nginx, effort.events, h11_loop.post),
            reference_name="bare h11 loop on trio, nothing durable",
        ).measure(effort)


async def _ours(url: str, events: int) -> float:
    with TemporaryDirectory(dir=_FOLDER) as site:
        return await service.deliver(Path(site), url, events)
