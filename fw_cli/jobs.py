"""`fw jobs`: the jobs in the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from fw_cli.context import CommandContext
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, show

if TYPE_CHECKING:
    from fw_actors.ops.site import Site
    from fw_actors.store.jobs import QueueStats

_COLUMNS: Final = {
    "queue": "Queue",
    "ready": "Ready",
    "scheduled": "Scheduled",
    "leased": "Leased",
    "failed": "Failed",
    "oldestSeconds": "Oldest (s)",
}


@click.group(cls=FullHelpGroup)
def jobs() -> None:
    """Jobs: show the queues."""


@jobs.command()
@as_json
@click.pass_obj
def stats(context: CommandContext, as_json: bool) -> None:
    """Count the jobs of each queue: webhook, mail, and app for fw.enqueue.

    Ready jobs are due, scheduled ones wait for their next attempt, leased ones are in progress,
    failed ones are kept without further attempts. Oldest is the wait of the oldest ready job.
    """

    async def read(site: Site) -> list[QueueStats]:
        from fw_actors.ops.console_facts import queues

        return await site.store.read(queues)

    # The keys of `_COLUMNS` are in the order of the fields.
    rows = [dict(zip(_COLUMNS, counted, strict=True)) for counted in context.on_site(read)]
    show(rows, _COLUMNS, json=as_json)
