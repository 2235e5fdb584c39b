"""`fw sweep`: runs the scheduler's housekeeping once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fw_cli.context import CommandContext
from fw_cli.output import counted, say
from fw_cli.progress import progress

if TYPE_CHECKING:
    from fw_actors.actors.sweeper import Batch
    from fw_actors.ops.site import Site


@click.command()
@click.argument("what", type=click.Choice(["auth", "webhooks", "audit"]))
@click.pass_obj
def sweep(context: CommandContext, what: str) -> None:
    """Delete expired rows of one kind.

    auth: sessions, link tokens and login attempts. webhooks: deliveries, or only their bodies,
    beyond their retention. audit: Audit Events beyond their retention.

    Safe while the service or another sweep runs. All rules hold without sweeps.
    """

    async def use(site: Site) -> int:
        return sum([await _deleted(site, step) for step in _steps(site, what)])

    with progress("deleting expired rows"):
        count = context.on_site(use)
    say(f"deleted {counted(count, 'row')}")


def _steps(site: Site, kind: str) -> tuple[Batch, ...]:
    from fw_actors.actors.sweeper import audit_batches, auth_batches, webhook_batches

    ops = site.config.ops
    if kind == "auth":
        return auth_batches(site.config.auth.lockout_minutes)
    if kind == "audit":
        return audit_batches(ops.audit_retention_days)
    return webhook_batches(ops.webhook_retention_days, ops.payload_days)


async def _deleted(site: Site, step: Batch) -> int:
    import trio

    from fw_actors.actors.sweeper import BATCH, PAUSE_SECONDS

    total = 0
    while True:
        count = await site.store.write(step)
        total += count
        if count < BATCH:
            return total
        await trio.sleep(PAUSE_SECONDS)
