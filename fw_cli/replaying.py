"""`fw webhooks replay` and `replays`: sends deliveries again, and shows the results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import SpooledRows, as_json, say, show, show_json, spool
from fw_cli.progress import progress
from fw_cli.time_options import SINCE
from fw_cli.values import (
    DELIVERY,
    UTF8,
    WEBHOOK,
    AnyCase,
    WholeNumber,
    require_known,
    require_webhook_on_record,
)

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.errors import FwError
    from fw_actors.ops.site import Site
    from fw_actors.webhooks.replay import Replayed, ReplayRun

_FINAL: Final = ("Failed", "Sent")
_DELIVERIES_PER_TRANSACTION: Final = (
    100  # deliveries per transaction; keeps the waits of other writers short
)
_COLUMNS: Final = {"delivery": "Delivery", "status": "Status", "refused": "Error"}
_RUN_COLUMNS: Final = {
    "id": "Replay",
    "begun": "Begun",
    "user": "By",
    "state": "State",
    "replayed": "Replayed",
    "arrived": "Arrived",
    "failedAgain": "Failed again",
    "open": "Open",
}


class ReplayedMany(NamedTuple):
    """The numbers of selected and of refused deliveries, and the id of a bulk replay."""

    selected: int
    refused: int = 0
    run: str | None = None


@click.command(
    epilog=examples(
        "fw webhooks replay msg_0ERYgT4q4QkDeICXePkUY0MMgHq",
        "fw webhooks replay --since 12h --dry-run     # list the deliveries to replay",
        "fw webhooks replay --webhook 0ACEcIcPZYbaR --status Failed --since 7d",
    )
)
@click.argument("delivery", required=False, type=DELIVERY)
@click.option("--webhook", type=WEBHOOK, help="Replay the deliveries of this Webhook.")
@click.option(
    "--status",
    type=AnyCase(_FINAL),
    help="Replay those of this status.  [default: Failed]",
)
@click.option(
    "--since", type=SINCE, help="Only events since this time: 7d, 12h, 30m, or ISO 8601 (UTC)."
)
@click.option("--limit", type=WholeNumber(1), help="The maximum number, oldest first.")
@click.option("--dry-run", is_flag=True, help="List them without replaying.")
@as_json
@click.pass_obj
def replay(
    context: CommandContext,
    delivery: str | None,
    webhook: str | None,
    status: str | None,
    since: Any,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replay DELIVERY, or all that the options select: same ids, same bytes, new attempts."""
    _require_selection(delivery, (webhook, status, since), limit)

    async def use(site: Site) -> ReplayedMany:
        if delivery is not None:
            rows.fill([await _replay_one(site, delivery, dry_run=dry_run)])
            return ReplayedMany(1)
        if webhook is not None:
            await site.read(ADMINISTRATOR, lambda fw: require_webhook_on_record(fw, webhook))
        filters = _filters(webhook, status, None if since is None else since(site.clock.now()))
        selected = await site.read(
            ADMINISTRATOR, lambda fw: names.fill(site.replays.find(fw, filters, limit))
        )
        if selected and not dry_run:
            return await _replay_all(site, filters, names, selected, rows)
        rows.fill({"delivery": name} for name in names)
        return ReplayedMany(selected)

    with spool() as names, spool() as rows:
        replayed = context.on_site(use)
        if replayed.selected or as_json:
            show(rows, _COLUMNS if not dry_run else {"delivery": "Delivery"}, json=as_json)
        else:
            click.echo("Nothing to replay.")
    if replayed.run is not None and not as_json:
        click.echo(f"See the outcome: fw webhooks replays {replayed.run}")
    if replayed.refused:
        raise CommandFailed(
            f"{replayed.refused} of {replayed.selected} deliveries could not be replayed"
        )


def _require_selection(delivery: str | None, selecting: Sequence[Any], limit: int | None) -> None:
    """Require one delivery, or options that select some. Raises: UsageError."""
    if (delivery is None) == all(option is None for option in selecting):
        raise click.UsageError(
            "Give one DELIVERY, or select many with --webhook, --status or --since."
        )
    if delivery is not None and limit is not None:
        raise click.UsageError("--limit applies to deliveries that options select, not to one.")


def _filters(webhook: str | None, status: str | None, since: int | None) -> list[list[str]]:
    """Return the options as filters of documents; `since` in ms."""
    from fw_actors.documents.fields import iso

    filters = [["status", "=", status or _FINAL[0]]]
    if webhook is not None:
        filters.append(["webhook", "=", webhook])
    if since is not None:
        filters.append(["creation", ">=", iso(since)])
    return filters


async def _replay_one(site: Site, delivery: str, *, dry_run: bool) -> dict[str, Any]:
    """Replay one delivery; return its row. Raises: NotFoundError, ConflictError."""
    await site.read(ADMINISTRATOR, lambda fw: require_known(fw, "Webhook Delivery", delivery))
    if dry_run:
        return {"delivery": delivery}
    result = await site.write(ADMINISTRATOR, lambda fw: site.replays.replay(fw, delivery))
    if isinstance(result, Exception):
        raise result
    return _row(delivery, result)


async def _replay_all(
    site: Site, filters: list[list[str]], names: SpooledRows, selected: int, rows: SpooledRows
) -> ReplayedMany:
    """Replay in transactions of a hundred; report deliveries that have changed meanwhile."""
    run = await site.write(
        ADMINISTRATOR, lambda fw: site.bulk.begin_foreground(fw, filters, selected)
    )
    done = refused = 0
    remaining = iter(names)
    with progress("replaying") as advance:
        while part := list(islice(remaining, _DELIVERIES_PER_TRANSACTION)):
            advance(done, selected)
            done += len(part)
            replay_part = partial(_replay_part, site, run, part, done == selected)
            results = await site.write(ADMINISTRATOR, replay_part)
            rows.fill(_row(name, each) for name, each in zip(part, results, strict=True))
            refused += sum(isinstance(each, Exception) for each in results)
    return ReplayedMany(selected, refused, run.id)


def _replay_part(
    site: Site, run: ReplayRun, names: list[str], last: bool, fw: Fw
) -> Sequence[Replayed | FwError]:
    return site.bulk.replay_part(fw, run, names, last=last)


def _row(delivery: str, result: Any) -> dict[str, Any]:
    if isinstance(result, Exception):
        return {"delivery": delivery, "status": None, "refused": str(result)}
    return {"delivery": delivery, "status": result.status}


@click.command(
    epilog=examples("fw webhooks replays", "fw webhooks replays 4b0c61f1c41d2c9b53b8a4c5 --json")
)
@click.argument("run", required=False, type=UTF8, metavar="[REPLAY]")
@as_json
@click.pass_obj
def replays(context: CommandContext, run: str | None, as_json: bool) -> None:
    """Show the last 20 bulk replays and their results, or one REPLAY in full.

    Arrived, Failed again and Open count the deliveries as they are now, without those that were
    replayed again or deleted since.
    """

    def read(site: Site, fw: Fw) -> list[dict[str, Any]]:
        runs = site.bulk.all(fw) if run is None else [site.bulk.get(fw, run)]
        return [_run_row(fw, each) for each in runs]

    rows = context.read(read)
    if as_json:
        show_json(rows if run is None else rows[0])
    elif run is None:
        show(rows, _RUN_COLUMNS, json=False)
    else:
        _show_result(rows[0])


def _run_row(fw: Fw, run: ReplayRun) -> dict[str, Any]:
    from fw_actors.documents.fields import iso
    from fw_actors.webhooks.replay import outcomes_of

    outcomes = outcomes_of(fw.tx, run)
    return {
        "id": run.id,
        "begun": iso(run.begun),
        "ended": None if run.ended is None else iso(run.ended),
        "user": run.user,
        "filters": run.selection,
        "state": run.state,
        "error": run.error,
        "total": run.total,
        "replayed": run.replayed,
        "refused": run.refused,
        "arrived": outcomes.arrived,
        "failedAgain": outcomes.failed,
        "open": outcomes.open,
        "gone": outcomes.gone,
        "more": outcomes.more,
    }


def _show_result(row: dict[str, Any]) -> None:
    selected = ", ".join(" ".join(map(str, each)) for each in row["filters"])
    say(f"{row['id']}: {row['state']}. Begun by {row['user']} at {row['begun']}: {selected}.")
    if row["error"]:
        say(row["error"])
    say(f"{row['replayed']:,} of {row['total']:,} replayed:")
    more = " at least" if row["more"] else ""
    for key, text in (
        ("arrived", "arrived"),
        ("failedAgain", "failed again"),
        ("open", "still open"),
        ("gone", "replayed again since, or deleted"),
    ):
        if row[key] or key != "gone":
            say(f"  {row[key]:,}{more} {text}")
    for reason, count in row["refused"].items():
        say(f"  {count:,} not replayed: {reason}")
