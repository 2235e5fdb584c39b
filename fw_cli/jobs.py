"""Jobs: what waits in the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.output import as_json, show
from fw_cli.surroundings import Surroundings

if TYPE_CHECKING:
    from fw_actors.services.site import Site
    from fw_actors.store.jobs import QueueStats

_QUEUES: Final = ("webhook", "mail", "app")  # interface §8, Queues: shown also when empty

_COLUMNS: Final = {
    "queue": "Queue",
    "ready": "Ready",
    "scheduled": "Scheduled",
    "leased": "Leased",
    "failed": "Failed",
    "oldestSeconds": "Oldest (s)",
}


@click.group()
def jobs() -> None:
    """Jobs: what waits in the queues."""


@jobs.command()
@as_json
@click.pass_obj
def stats(surroundings: Surroundings, as_json: bool) -> None:
    """Count the jobs of each queue; oldest is how long the longest-waiting ready one waits."""

    async def read(site: Site) -> list[QueueStats]:
        from fw_actors.store import jobs as store_jobs

        return await site.store.read(store_jobs.stats)

    found = {row.queue: row for row in surroundings.on_site(read)}
    names = [*_QUEUES, *(name for name in found if name not in _QUEUES)]
    show([_row(name, found.get(name)) for name in names], _COLUMNS, json=as_json)


def _row(queue: str, counted: QueueStats | None) -> dict[str, Any]:
    if counted is None:
        return {"queue": queue, "ready": 0, "scheduled": 0, "leased": 0, "failed": 0,
                "oldestSeconds": 0.0}  # fmt: skip
    return {
        "queue": queue,
        "ready": counted.ready,
        "scheduled": counted.scheduled,
        "leased": counted.leased,
        "failed": counted.failed,
        "oldestSeconds": counted.oldest_seconds,
    }
