"""`fw webhooks erase`: erases the bodies of deliveries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import ADMINISTRATOR, BATCH_PAUSE_SECONDS, CommandContext
from fw_cli.examples import examples
from fw_cli.output import as_json, show
from fw_cli.progress import progress
from fw_cli.time_options import SINCE
from fw_cli.values import (
    DELIVERY,
    DeliverySelection,
    require_selection_on_record,
    selection_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site


@click.command(
    epilog=examples(
        "fw webhooks erase msg_0ERYgT4q4QkDeICXePkUY0MMgHq",
        "fw webhooks erase --reference Customer C-0042",
        "fw webhooks erase --webhook erp --until 30d --yes",
    )
)
@click.argument("delivery", required=False, type=DELIVERY)
@selection_options("Erase the deliveries")
@click.option(
    "--until",
    type=SINCE,
    help="Only deliveries last attempted before this time: 7d, 12h, 30m, or ISO 8601 (UTC).",
)
@yes_option
@as_json
@click.pass_obj
def erase(
    context: CommandContext,
    delivery: str | None,
    webhook: str | None,
    reference: tuple[str, str] | None,
    until: Any,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase the body of DELIVERY, or of all final deliveries that the options select.

    The sent body and the answers of receivers are erased permanently, and a replay is no longer
    possible; the record, its attempts and its Audit Events stay. Deliveries in progress are
    skipped.
    """
    if (delivery is None) == (webhook is None and reference is None and until is None):
        raise click.UsageError(
            "Give one DELIVERY, or select many with --webhook, --reference or --until."
        )
    require_selection_on_record(context, delivery, webhook, reference)
    subject = (
        f"the body of {delivery}" if delivery else "the bodies of all final deliveries that match"
    )
    confirm(f"Erase {subject} permanently?", yes=yes)

    with progress("erasing") as advance:

        async def use(site: Site) -> list[str]:
            if delivery is not None:
                return await _erase_one(site, delivery)
            moment = None if until is None else until(site.clock.now())
            selection = DeliverySelection(webhook, reference)
            return await _erase_selected(site, selection, moment, advance)

        names = context.on_site(use)
    if names or as_json:
        show([{"delivery": name} for name in names], {"delivery": "Erased"}, json=as_json)
    else:
        click.echo("Nothing to erase.")


async def _erase_one(site: Site, delivery: str) -> list[str]:
    from fw_actors.webhooks.erasure import erase

    await site.write(ADMINISTRATOR, lambda fw: erase(fw, site.audit, delivery))
    return [delivery]


async def _erase_selected(
    site: Site,
    selection: DeliverySelection,
    until: int | None,
    advance: Callable[[int, int], None],
) -> list[str]:
    """Erase in batches, and return the erased deliveries.

    `until`: milliseconds since 1970; only deliveries last attempted before it.
    """
    import trio

    from fw_actors.webhooks.erasure import (
        MAX_ERASABLE_DELIVERIES,
        MAX_ERASED_DELIVERIES,
        erasable,
        erase_many,
    )

    names: list[str] = []

    def find(fw: Fw) -> list[str]:
        nonlocal selection
        selection = selection.followed(fw, names[-1] if names else None)
        return erasable(fw, **selection._asdict(), until=until)

    while True:
        deliveries, before = await site.read(ADMINISTRATOR, find), len(names)
        for begin in range(0, len(deliveries), MAX_ERASED_DELIVERIES):
            advance(before + begin, before + len(deliveries))
            part = deliveries[begin : begin + MAX_ERASED_DELIVERIES]
            names += await site.write(
                ADMINISTRATOR, partial(erase_many, audit=site.audit, deliveries=part)
            )
            await trio.sleep(BATCH_PAUSE_SECONDS)
        if len(deliveries) < MAX_ERASABLE_DELIVERIES or len(names) == before:
            return names
