"""`fw webhooks attempts`: the attempts of all deliveries, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fw_actors.rules import ATTEMPTS_LISTED
from fw_cli.context import CommandContext
from fw_cli.examples import examples
from fw_cli.output import as_json, show
from fw_cli.time_options import SINCE
from fw_cli.values import MAX_LISTED, UTF8, WEBHOOK, AnyCase, WholeNumber, require_known

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site
    from fw_actors.webhooks.attempt_list import AttemptCursor, AttemptFilter, ListedAttempt

_RESULTS: Final = ("Sent", "Failed")
_COLUMNS: Final = {
    "ended": "Ended",
    "webhook": "Webhook",
    "event": "Event",
    "number": "Attempt",
    "trigger": "Trigger",
    "responseStatus": "Response",
    "error": "Error",
    "durationMs": "ms",
    "delivery": "Delivery",
}


@click.command(
    "attempts",
    epilog=examples(
        "fw webhooks attempts --result failed --since 1h",
        "fw webhooks attempts --webhook 0ACEcIcPZYbaR --response 503 --json",
    ),
)
@click.option("--webhook", type=WEBHOOK, help="Only attempts at this Webhook.")
@click.option("--result", type=AnyCase(_RESULTS), help="Only attempts with this result.")
@click.option(
    "--response",
    "code",
    type=WholeNumber(100, 999),
    help="Only attempts with this response status.",
)
@click.option("--error", type=UTF8, help="Only attempts whose error contains this text.")
@click.option("--since", type=SINCE, help="Only since this time: 7d, 12h, 30m, or ISO 8601 (UTC).")
@click.option("--until", type=SINCE, help="Only before this time: 7d, 12h, 30m, or ISO 8601 (UTC).")
@click.option(
    "--limit", type=WholeNumber(1, MAX_LISTED), default=ATTEMPTS_LISTED, show_default=True,
    help="The maximum number of attempts.",
)  # fmt: skip
@as_json
@click.pass_obj
def attempts(
    context: CommandContext,
    webhook: str | None,
    result: str | None,
    code: int | None,
    error: str | None,
    since: Any,
    until: Any,
    limit: int,
    as_json: bool,
) -> None:
    """Show the attempts of all deliveries, newest first; the last 30 of each are kept.

    With --response or --error, and for successes with --webhook, only the newest 5,000 are
    searched; use --since and --until to reach older ones.
    """

    def read(site: Site, fw: Fw) -> tuple[list[dict[str, Any]], bool]:
        from fw_actors.webhooks.attempt_list import AttemptFilter, AttemptResult

        now = site.clock.now()
        if since is not None and until is not None and since(now) >= until(now):
            raise click.UsageError("--since must be before --until.")
        filters = AttemptFilter(
            webhook=webhook,
            result=None if result is None else AttemptResult(result.lower()),
            response_status=code,
            error=error or None,
            since=None if since is None else since(now),
            until=None if until is None else until(now),
        )
        return _read(fw, filters, limit)

    rows, newest_only = context.read(read)
    show(rows if as_json else _in_words(context, rows), _COLUMNS, json=as_json)
    if newest_only:
        click.echo(
            "Only the newest 5,000 were searched; --since and --until reach older ones.", err=True
        )


def _read(fw: Fw, filters: AttemptFilter, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of up to `limit` attempts, and whether only the newest were searched.

    Raises: CommandFailed if there is neither an attempt at the Webhook nor the Webhook.
    """
    from fw_actors.webhooks.attempt_list import MAX_LIMIT, attempt_page

    rows: list[dict[str, Any]] = []
    before: AttemptCursor | None = None
    while True:
        page = attempt_page(fw, filters, min(limit - len(rows), MAX_LIMIT), before)
        rows += map(_row, page.attempts)
        before = page.next
        if before is None or len(rows) >= limit:
            break
    if filters.webhook is not None and not rows:  # a deleted Webhook may have attempts
        require_known(fw, "Webhook", filters.webhook)
    return rows, page.newest_only


def _in_words(context: CommandContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with labels of Webhooks and triggers for people."""
    from fw_actors.webhooks.attempts import trigger_in_words
    from fw_actors.webhooks.health import labels_of

    labels = context.read(lambda site, fw: labels_of(fw.tx, {row["webhook"] for row in rows}))
    return [
        {
            **row,
            "webhook": labels.get(row["webhook"], row["webhook"]),
            "trigger": trigger_in_words(row["trigger"], row["error"], None),
        }
        for row in rows
    ]


def _row(attempt: ListedAttempt) -> dict[str, Any]:
    from fw_actors.documents.fields import iso

    return {
        "ended": iso(attempt.cursor.ended),
        "delivery": attempt.cursor.delivery,
        "webhook": attempt.webhook,
        "event": attempt.event,
        "number": attempt.number,
        "trigger": attempt.trigger.value,
        "user": attempt.run.user or None,
        "status": attempt.status,
        "responseStatus": attempt.response_status,
        "error": attempt.error,
        "durationMs": attempt.duration_ms,
    }
