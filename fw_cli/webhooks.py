"""`fw webhooks`: lists deliveries; the other commands are in modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.emitting import emit
from fw_cli.examples import examples
from fw_cli.explaining import explain
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, show
from fw_cli.webhooks_sending import replay, send_test

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_DEFAULT_LIMIT: Final = 20  # C-115
_MOST: Final = 10_000
_STATUSES: Final = ("Queued", "Sent", "Retrying", "Failed")  # B-160

_COLUMNS: Final = {
    "name": "Delivery",
    "webhook": "Webhook",
    "event": "Event",
    "status": "Status",
    "attempts": "Attempts",
    "responseStatus": "Response",
    "creation": "Created",
}


@click.group(cls=FullHelpGroup)
def webhooks() -> None:
    """Webhooks: emit events, list, explain and replay deliveries, send test events."""


webhooks.add_command(emit)
webhooks.add_command(replay)
webhooks.add_command(send_test)


@webhooks.command(
    "list",
    epilog=examples(
        "fw webhooks list --status Failed --limit 100",
        "fw webhooks list --json | jq -r '.[].name'",
    ),
)
@click.option("--status", type=click.Choice(_STATUSES), help="Only deliveries of this status.")
@click.option("--webhook", help="Only deliveries of this Webhook.")
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=_DEFAULT_LIMIT, show_default=True,
    help="The maximum number of deliveries.",
)  # fmt: skip
@as_json
@click.pass_obj
def list_deliveries(
    context: CommandContext, status: str | None, webhook: str | None, limit: int, as_json: bool
) -> None:
    """Show the most recent deliveries, newest first."""
    wanted = {"status": status, "webhook": webhook}
    filters = [[field, "=", value] for field, value in wanted.items() if value is not None]

    def read(fw: Fw) -> list[dict[str, Any]]:
        fields = ["response_status" if key == "responseStatus" else key for key in _COLUMNS]
        found = fw.get_list(
            "Webhook Delivery", filters, fields, order_by="creation desc, name desc", limit=limit
        )
        # The keys of `_COLUMNS` are in the order of `fields`.
        return [dict(zip(_COLUMNS, (row[field] for field in fields), strict=True)) for row in found]

    async def use(site: Site) -> list[dict[str, Any]]:
        return await site.read(ADMINISTRATOR, read)

    show(context.on_site(use), _COLUMNS, json=as_json)


webhooks.add_command(explain)
