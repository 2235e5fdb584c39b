"""`fw webhooks`: deliveries, pauses, test events, and the group of all commands for Webhooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli import receiving, replaying, webhook_documents
from fw_cli.attempts import attempts
from fw_cli.cancelling import cancel
from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.emitting import emit
from fw_cli.erasing import erase
from fw_cli.examples import examples
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, say, show, show_json
from fw_cli.time_options import DURATION
from fw_cli.values import DELIVERY, MAX_LISTED, WEBHOOK, AnyCase, WholeNumber, require_known

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.errors import FwError
    from fw_actors.ops.site import Site
    from fw_actors.webhooks.diagnostics import DeliveryReport, TestEventResult
    from fw_actors.webhooks.pacing import WebhookPause

_DEFAULT_LIMIT: Final = 20  # C-115
_DAY: Final = 24 * 60 * 60
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

_ATTEMPT_COLUMNS: Final = {
    "number": "Attempt",
    "trigger": "Trigger",
    "began": "Began",
    "durationMs": "ms",
    "responseStatus": "Response",
    "error": "Error",
    "address": "Address",
}


@click.group(cls=FullHelpGroup)
def webhooks() -> None:
    """Webhooks: add, change and pause them, emit events, list, explain and replay deliveries."""


webhooks.add_command(emit)
webhooks.add_command(attempts)
webhooks.add_command(cancel)
webhooks.add_command(erase)
for _command in (
    *webhook_documents.COMMANDS,
    receiving.verify,
    receiving.listen,
    replaying.replay,
    replaying.replays,
):
    webhooks.add_command(_command)


@webhooks.command(
    "list",
    epilog=examples(
        "fw webhooks list --status Failed --limit 100", "fw webhooks list --json | jq -r '.[].name'"
    ),
)
@click.option(
    "--status", type=AnyCase(_STATUSES),
    help="Only deliveries of this status.",
)  # fmt: skip
@click.option("--webhook", type=WEBHOOK, help="Only deliveries of this Webhook.")
@click.option(
    "--limit", type=WholeNumber(1, MAX_LISTED), default=_DEFAULT_LIMIT, show_default=True,
    help="The maximum number of deliveries.",
)  # fmt: skip
@click.option("--attempts", is_flag=True, help="Show the attempts of each, newest first.")
@as_json
@click.pass_obj
def list_deliveries(
    context: CommandContext,
    status: str | None,
    webhook: str | None,
    limit: int,
    attempts: bool,
    as_json: bool,
) -> None:
    """Show the most recent deliveries, newest first.

    A Webhook is shown by its title, or by host and path, with its id. With --attempts there is a
    row for each recorded attempt; in JSON they are under the key `recorded`.
    """
    from fw_actors.webhooks.health import labels_of

    values = {"status": status, "webhook": webhook}
    filters = [[field, "=", value] for field, value in values.items() if value is not None]

    def read(site: Site, fw: Fw) -> list[dict[str, Any]]:
        fields = ["response_status" if key == "responseStatus" else key for key in _COLUMNS]
        documents = fw.get_list(
            "Webhook Delivery", filters, fields, order_by="creation desc, name desc", limit=limit
        )
        if webhook is not None and not documents:  # a deleted Webhook may have deliveries
            require_known(fw, "Webhook", webhook)
        # The keys of `_COLUMNS` are in the order of `fields`.
        rows = [
            dict(zip(_COLUMNS, (row[field] for field in fields), strict=True)) for row in documents
        ]
        if not as_json:  # the keys of JSON are fixed (C-115): programs identify a Webhook by its id
            labels = labels_of(fw.tx, (row["webhook"] for row in rows))
            for row in rows:
                row["webhook"] = _name_with_label(row["webhook"], labels.get(row["webhook"]))
        if attempts:
            recorded = _recorded_attempts(fw, [row["name"] for row in rows])
            for row in rows:
                row["recorded"] = recorded[row["name"]]
        return rows

    rows = context.read(read)
    if attempts and not as_json:
        show([_attempt_row(row["name"], each) for row in rows for each in row["recorded"]],
             {"delivery": "Delivery", **_ATTEMPT_COLUMNS}, json=False)  # fmt: skip
    else:
        show(rows, _COLUMNS, json=as_json)


def _name_with_label(webhook: str, label: str | None) -> str:
    """Return a Webhook's label with its id; only the id of a deleted one."""
    return webhook if label is None else f"{label} ({webhook})"


def _recorded_attempts(fw: Fw, deliveries: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    from fw_actors.webhooks.attempts import attempts_of_each
    from fw_actors.webhooks.diagnostics import attempt_as_json

    by_delivery = attempts_of_each(fw.tx, deliveries)
    return {
        name: [attempt_as_json(each) for each in attempts] for name, attempts in by_delivery.items()
    }


def _attempt_row(delivery: str, attempt: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attempt as a row of a table: its columns, and its trigger in words."""
    from fw_actors.webhooks.attempts import trigger_in_words

    trigger = trigger_in_words(attempt["trigger"], attempt["error"], attempt["user"])
    return {**attempt, "delivery": delivery, "trigger": trigger}


@webhooks.command()
@click.argument("delivery", type=DELIVERY)
@as_json
@click.pass_obj
def explain(context: CommandContext, delivery: str, as_json: bool) -> None:
    """Show why DELIVERY waits, since or until when, and its recorded attempts, newest first.

    It waits for its receiver, for the end of a backoff, or for an attempt in progress; or it is
    final, its Webhook is disabled or deleted, or the process that leased it has died.
    """
    from fw_actors.webhooks.diagnostics import delivery_report
    from fw_actors.webhooks.health import labels_of
    from fw_cli.service_state import service_state

    def read(site: Site, fw: Fw) -> tuple[DeliveryReport, str]:
        report = delivery_report(fw, require_known(fw, "Webhook Delivery", delivery))
        webhook = fw.get_doc("Webhook Delivery", delivery).webhook
        return report, _name_with_label(webhook, labels_of(fw.tx, [webhook]).get(webhook))

    report, webhook = context.read(read)
    service = service_state(context.config)
    result = report.as_json(service)
    if as_json:
        show_json(result)
        return
    explanation = report.explanation(service)
    say(f"{delivery}: {result['status']}")
    say(f"Its Webhook is {webhook}.")
    say(explanation.text)
    if explanation.due_at is not None:
        since = "since" if explanation.due_at <= report.facts.now else "at"
        say(f"It is due {since} {result['dueAt']}.")
    if report.erased is not None:
        say(f"Its body was erased at {report.erased}.")
    if report.trace_id is not None:
        say(f"Its trace is {report.trace_id}.")
    if result["recorded"]:
        rows = [_attempt_row(delivery, each) for each in result["recorded"]]
        show(rows, _ATTEMPT_COLUMNS, json=False)


@webhooks.command(
    epilog=examples("fw webhooks pause 0ACEcIcPZYbaR --for 2h", "fw webhooks pause 0ACEcIcPZYbaR")
)
@click.argument("webhook", type=WEBHOOK)
@click.option("--for", "duration", type=DURATION, help="The duration: 30m, 2h or 7d.")
@as_json
@click.pass_obj
def pause(context: CommandContext, webhook: str, duration: int | None, as_json: bool) -> None:
    """Pause WEBHOOK for a time, or until it is resumed: its deliveries wait.

    The pause applies to all processes of the site, at the latest when their attempts in progress
    have ended. Nothing is lost: order and attempts of the waiting deliveries are unchanged.
    """
    from fw_actors.documents.fields import iso
    from fw_actors.webhooks.pacing import MAX_PAUSE_SECONDS

    if duration is not None and duration > MAX_PAUSE_SECONDS:
        raise click.UsageError(f"--for: the time must be at most {MAX_PAUSE_SECONDS // _DAY}d.")

    def change(site: Site, fw: Fw) -> WebhookPause | FwError:
        return site.pauses.pause(fw, require_known(fw, "Webhook", webhook), duration)

    changed = _carry_out(context, change)
    if as_json:
        _show_pause(changed)
    else:
        until = "it is resumed" if changed.until is None else iso(changed.until)
        say(f"{webhook} is paused until {until}; its deliveries wait.")


@webhooks.command()
@click.argument("webhook", type=WEBHOOK)
@as_json
@click.pass_obj
def resume(context: CommandContext, webhook: str, as_json: bool) -> None:
    """Resume WEBHOOK and send its due deliveries now. Without a pause this changes nothing."""

    from fw_actors.webhooks.pacing import pause_of

    before: list[tuple[bool, bool]] = []

    def change(site: Site, fw: Fw) -> WebhookPause | FwError:
        name = require_known(fw, "Webhook", webhook)
        enabled = bool(fw.get_doc("Webhook", name).enabled)
        before[:] = [(pause_of(fw.tx, name).paused, enabled)]
        return site.pauses.resume(fw, name)

    changed = _carry_out(context, change)
    if as_json:
        _show_pause(changed)
        return
    was_paused, enabled = before[0]
    if not was_paused:
        say(f"{webhook} is not paused; nothing was changed.")
    elif enabled:
        say(f"resumed {webhook}; its due deliveries are sent now.")
    else:
        say(f"resumed {webhook}. It is disabled, so its waiting deliveries fail.")


def _carry_out(
    context: CommandContext, change: Callable[[Site, Fw], WebhookPause | FwError]
) -> WebhookPause:
    """Carry out a pause or its end. Raises: NotFoundError."""

    async def use(site: Site) -> WebhookPause:
        result = await site.write(ADMINISTRATOR, partial(change, site))
        if isinstance(result, Exception):
            raise result
        return result

    return context.on_site(use)


def _show_pause(pause: WebhookPause) -> None:
    """Print a pause as JSON."""
    from fw_actors.documents.fields import iso

    since, until = (None if at is None else iso(at) for at in (pause.since, pause.until))
    show_json({"webhook": pause.webhook, "paused": pause.paused, "since": since, "until": until})


@webhooks.command("test")
@click.argument("webhook", type=WEBHOOK)
@as_json
@click.pass_obj
def send_test(context: CommandContext, webhook: str, as_json: bool) -> None:
    """Send a signed test event to WEBHOOK now, and show the duration of each step.

    The event is not stored. Exits 1 if the receiver did not answer with 2xx.
    """

    async def use(site: Site) -> TestEventResult:
        from fw_actors.http import open_sender
        from fw_actors.webhooks.diagnostics import TestEventSender

        config = site.config
        await site.read(ADMINISTRATOR, lambda fw: require_known(fw, "Webhook", webhook))
        async with open_sender(
            policy=config.outgoing,
            proxy=config.egress_proxy,
            certificates=config.client_certificates,
        ) as sender:
            return await TestEventSender(site, sender).send(
                webhook, lambda fn: site.read(ADMINISTRATOR, fn)
            )

    from fw_actors.rules.safe_output import escaped

    result = context.on_site(use)
    if as_json:
        show_json(result)
    else:
        _show_result(result)
    if result.error is not None:
        click.echo(escaped(result.error), err=True)  # may quote the receiver
        raise click.exceptions.Exit(1)


def _show_result(result: TestEventResult) -> None:
    times = result.times
    steps = {
        "dns": times.dns, "connect": times.connect, "tls": times.tls, "response": times.answer,
    }  # fmt: skip
    durations = ", ".join(f"{name} {ms:.1f} ms" for name, ms in steps.items() if ms)
    click.echo(f"{result.status or 'no response'}{durations and f' ({durations})'}")
