"""`fw webhooks cancel`: cancels waiting deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import ADMINISTRATOR, BATCH_PAUSE_SECONDS, CommandContext
from fw_cli.examples import examples
from fw_cli.output import as_json, show
from fw_cli.progress import progress
from fw_cli.values import (
    DELIVERY,
    DeliverySelection,
    require_selection_on_record,
    selection_options,
)

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site
    from fw_actors.webhooks.cancellation import CancelledDeliveries


@click.command(
    epilog=examples(
        "fw webhooks cancel msg_0ERYgT4q4QkDeICXePkUY0MMgHq",
        "fw webhooks cancel --webhook erp --yes",
        "fw webhooks cancel --reference Customer C-0042",
    )
)
@click.argument("delivery", required=False, type=DELIVERY)
@selection_options("Cancel the waiting deliveries")
@yes_option
@as_json
@click.pass_obj
def cancel(
    context: CommandContext,
    delivery: str | None,
    webhook: str | None,
    reference: tuple[str, str] | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel DELIVERY, or all waiting deliveries that the options select.

    Queued and Retrying deliveries become Failed, and nothing more is sent; a replay sends them
    later. Deliveries that are being sent now are skipped: run the command again.
    """
    if (delivery is None) == (webhook is None and reference is None):
        raise click.UsageError("Give one DELIVERY, or select many with --webhook or --reference.")
    require_selection_on_record(context, delivery, webhook, reference)
    confirm(
        f"Cancel {delivery}?" if delivery else "Cancel all waiting deliveries that match?", yes=yes
    )

    async def use(site: Site) -> tuple[list[str], int]:
        if delivery is None:
            return await _cancel_selected(site, DeliverySelection(webhook, reference))
        await site.write(ADMINISTRATOR, lambda fw: site.cancellations.cancel(fw, delivery))
        return [delivery], 0

    with progress("cancelling"):
        cancelled, in_flight = context.on_site(use)
    if cancelled or as_json:
        show([{"delivery": name} for name in cancelled], {"delivery": "Cancelled"}, json=as_json)
    else:
        click.echo("Nothing to cancel.")
    if in_flight:
        click.echo(
            f"Skipped because they are being sent now: {in_flight}. "
            "Run the command again to cancel those that fail.",
            err=True,
        )


async def _cancel_selected(site: Site, selection: DeliverySelection) -> tuple[list[str], int]:
    """Cancel in batches; return the cancelled deliveries, and how many are being sent now."""
    import trio

    cancelled: list[str] = []

    def step(fw: Fw) -> tuple[CancelledDeliveries, bool]:
        """Cancel a batch; return it, and whether a rename came between (PostgreSQL)."""
        nonlocal selection
        last = cancelled[-1] if cancelled else None
        selection = selection.followed(fw, last)
        batch = site.cancellations.cancel_matching(fw, **selection._asdict())
        return batch, selection.followed(fw, last) != selection

    while True:
        result, was_renamed = await site.write(ADMINISTRATOR, step)
        cancelled += result.cancelled
        if not result.more and not was_renamed:
            return cancelled, result.in_flight
        await trio.sleep(BATCH_PAUSE_SECONDS)
