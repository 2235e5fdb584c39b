"""`fw webhooks add`, `show`, `edit`, `enable`, `disable`, `rotate-secret` and `delete`.

They write through the same functions as HTTP, so that the same rules apply, and then make the
running service use the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fw_actors.rules import MAX_OVERLAP_HOURS
from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, say, show, show_json, spool
from fw_cli.secret_input import read_secret, secret_options, warn_of_short
from fw_cli.values import (
    EVENT,
    UTF8,
    WEBHOOK,
    AnyCase,
    WholeNumber,
    require_doctype,
    require_known,
    require_webhook,
    suggestion,
)

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

F = TypeVar("F", bound=Callable[..., Any])

DOCTYPE: Final = "Webhook"
MOMENTS: Final = {
    "inserted": "on_insert",
    "saved": "on_update",
    "submitted": "on_submit",
    "cancelled": "on_cancel",
    "deleted": "on_trash",
}
"""The events of a document by their names in options, with the fields of a Webhook."""
_SET_OTHERWISE: Final = {
    "name": "fw webhooks add --name sets it, and it cannot change",
    "enabled": "use fw webhooks enable or disable",
    "secret": "use fw webhooks rotate-secret, or add with --secret-stdin or --secret-env",
    **{field: f"use --on {moment}" for moment, field in MOMENTS.items()},
}
"""The fields that `--set` does not accept, and the way to set them."""

_COLUMNS: Final = {
    "name": "Webhook",
    "title": "Title",
    "events": "Events",
    "url": "URL",
    "state": "State",
    "waiting": "Waiting",
    "lastError": "Last error",
}


def field_options(command: F) -> F:
    """Add the options for the fields of a Webhook."""
    options = (
        click.option("--title", help="Display name."),
        click.option("--description", help="A description for people."),
        click.option("--event", "custom_event", type=EVENT, help="The custom event it receives."),
        click.option("--doctype", "webhook_doctype", help="The DocType whose events it receives."),
        click.option(
            "--on",
            "moments",
            multiple=True,
            type=AnyCase(list(MOMENTS)),
            help="An event of the DocType; may be repeated.",
        ),
        click.option("--timeout", type=WholeNumber(1, 60), help="Seconds to wait for a response."),
        click.option("--max-attempts", type=WholeNumber(1, 10), help="Maximum number of attempts."),
        click.option(
            "--rate-limit",
            type=WholeNumber(0, 10_000),
            help="Maximum requests a second; 0: no limit.",
        ),
        click.option(
            "--ordering",
            type=AnyCase(["none", "document"]),
            help="Whether deliveries of a document are sent one after the other.",
        ),
        click.option(
            "--client-certificate",
            metavar="NAME",
            help="The NAME of the FW_CLIENT_CERT_<NAME> to present; empty for none.",
        ),
        click.option(
            "--set",
            "more",
            type=UTF8,
            metavar="FIELD=VALUE",
            multiple=True,
            help="Another field of the Webhook, its value as JSON or text; may be repeated.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    epilog=examples(
        "fw webhooks add https://erp.example/hook --event invoice.paid",
        "fw webhooks add https://erp.example/hook --name erp --doctype Invoice --on submitted",
        "fw webhooks add https://erp.example/hook --event invoice.paid --secret-env ERP",
        "fw webhooks add https://erp.example/hook --event invoice.paid --rate-limit 10",
    )
)
@click.argument("url")
@click.option("--name", help="The Webhook's name; random by default.")
@field_options
@click.option("--disabled", is_flag=True, help="Do not enable it yet.")
@secret_options
@as_json
@click.pass_obj
def add(
    context: CommandContext,
    /,
    url: str,
    name: str | None,
    disabled: bool,
    secret_stdin: bool,
    secret_env: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a Webhook that sends to URL, and print its name and its new signing secret.

    The secret is shown only once. A secret given by --secret-stdin or --secret-env is not printed.
    """
    values = {"url": url, "enabled": int(not disabled), **_fields(options)}
    if options["moments"] and "webhook_doctype" not in values:
        raise click.UsageError("--doctype is required with --on.")
    if "webhook_doctype" in values and not options["moments"]:
        raise click.UsageError("--on is required with --doctype.")
    if "event_type" not in values:
        raise click.UsageError("Give the events: --event, or --doctype with --on.")
    if name is not None:
        values["name"] = name
    secret = read_secret(context, from_stdin=secret_stdin, variable=secret_env)

    async def make(site: Site) -> tuple[str, str | None]:
        from fw_actors.documents import rest
        from fw_actors.webhooks.signing_keys import new_secret
        from fw_cli.context import ADMINISTRATOR

        values["secret"] = new_secret(site.entropy) if secret is None else secret

        def insert(fw: Fw) -> tuple[str, str | None]:
            _require_doctype_of(fw, values)
            stored = rest.insert(fw, DOCTYPE, values)
            return stored["name"], _event_warning(fw, stored)

        return await site.write(ADMINISTRATOR, insert)

    made, event_warning = context.on_site(make)
    _print_warning(event_warning)
    if secret is not None:
        warn_of_short(secret)
    _warn_of_refused_address(context, url)
    result: dict[str, Any] = {"name": made}
    if secret is None:
        result["secret"] = values["secret"]
    _show_result(context, result, f"created the Webhook {made}", as_json=as_json)


def _warn_of_refused_address(context: CommandContext, url: str) -> None:
    """Warn on stderr if ops.outgoing refuses the address in a URL; names are not resolved."""
    from urllib.parse import urlsplit

    host = urlsplit(url).hostname or ""
    if context.config.egress_proxy is not None and context.config.egress_proxy.carries(host):
        return  # the proxy connects
    try:
        refusal = context.config.outgoing.refusal(host)
    except ValueError:  # a name
        return
    if refusal is not None:
        click.echo(f"warning: its deliveries will be refused: {host} {refusal}", err=True)


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the options give. Raises: click.UsageError."""
    moments, more = options["moments"], options["more"]
    fields = {n: v for n, v in options.items() if n not in ("moments", "more") and v is not None}
    if "custom_event" in fields and ("webhook_doctype" in fields or moments):
        raise click.UsageError(
            "--event selects custom events; --doctype and --on select document events."
        )
    if "custom_event" in fields:
        fields |= {"event_type": "Custom"}
    elif "webhook_doctype" in fields or moments:
        fields |= {"event_type": "Document"}
    if moments:
        fields |= {field: int(moment in moments) for moment, field in MOMENTS.items()}
    return fields | dict(map(_assignment, more))


def _assignment(text: str) -> tuple[str, Any]:
    """Return field and value of `--set`; a value that is not JSON is text.

    Raises: click.UsageError; CommandFailed for an unknown field.
    """
    import msgspec

    from fw_actors.documents.core import Webhook

    field, equals, value = text.partition("=")
    if not equals or not field:
        raise click.UsageError(f"--set {text[:60]} must have the form FIELD=VALUE.")
    if field in _SET_OTHERWISE:
        raise click.UsageError(f"--set does not take {field}: {_SET_OTHERWISE[field]}.")
    if field not in Webhook.meta.fields:
        near = suggestion(field, list(Webhook.meta.fields))
        raise CommandFailed(f"{DOCTYPE} has no field {field[:60]}.{near}")
    try:
        return field, msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return field, value


@click.command("show", epilog=examples("fw webhooks show", "fw webhooks show erp --json"))
@click.argument("webhook", required=False, type=WEBHOOK)
@as_json
@click.pass_obj
def show_webhooks(context: CommandContext, webhook: str | None, as_json: bool) -> None:
    """Show WEBHOOK, given by name or title, with its state; or a table of all Webhooks.

    The state is that of its outcomes: working, untried, slow, failing, paused or disabled. Waiting
    deliveries are counted up to 1,000. Secrets are never shown.
    """
    from fw_cli.service_state import service_state

    service = service_state(context.config)

    def read(_: Site, fw: Fw) -> Iterator[dict[str, Any]]:
        from fw_actors.documents import rest
        from fw_actors.documents.query import WALK_ROWS, names_of
        from fw_actors.webhooks.health import MAX_WAITING_DELIVERIES, health_of

        names = names_of(fw, DOCTYPE) if webhook is None else iter([require_webhook(fw, webhook)])
        while page := list(islice(names, WALK_ROWS)):
            health = health_of(fw.tx, page, service)
            for name in page:
                row = _webhook_as_json(rest.read(fw, DOCTYPE, name), health[name])
                if row["waiting"] >= MAX_WAITING_DELIVERIES and not as_json:
                    row["waiting"] = f"{row['waiting']} or more"
                yield row

    with spool() as rows:
        context.read(lambda site, fw: rows.fill(read(site, fw)))
        if webhook is None:
            show(rows, _COLUMNS, json=as_json)
        elif as_json:
            show_json(next(iter(rows)))
        else:
            facts = [{"field": key, "value": value} for key, value in next(iter(rows)).items()]
            show(facts, {"field": "Field", "value": "Value"}, json=False)


def _webhook_as_json(values: Mapping[str, Any], health: Any) -> dict[str, Any]:
    """Return a Webhook and its state as rows of JSON."""
    from fw_actors.documents.fields import iso

    def time(ms: int | None) -> str | None:
        return None if ms is None else iso(ms)

    return {
        **{field: value for field, value in values.items() if field not in ("doctype", "idx")},
        "events": events_of(values),
        "state": str(health.state),
        "failures": health.failures,
        "failingSince": time(health.failing_since),
        "lastError": health.last_error or None,
        "lastSuccess": time(health.last_success),
        "waiting": health.waiting,
        "oldestWaiting": time(health.oldest),
    }


def events_of(values: Mapping[str, Any]) -> str:
    """Return the events of a Webhook, in words."""
    if values["event_type"] == "Custom":
        return str(values["custom_event"])
    moments = [moment for moment, field in MOMENTS.items() if values[field]]
    return f"{values['webhook_doctype']} {', '.join(moments)}"


@click.command(
    epilog=examples(
        "fw webhooks edit erp --url https://erp.example/new --timeout 20",
        "fw webhooks edit erp --doctype Invoice --on submitted --on cancelled",
    )
)
@click.argument("webhook", type=WEBHOOK)
@click.option("--url", help="The URL that it sends to.")
@field_options
@as_json
@click.pass_obj
def edit(context: CommandContext, /, webhook: str, as_json: bool, **options: Any) -> None:
    """Change the fields of WEBHOOK that the options name."""
    values = _fields(options)
    if not values:
        raise click.UsageError("Give at least one option for a field to change.")
    _save(context, webhook, values, "changed", as_json=as_json)


@click.command()
@click.argument("webhook", type=WEBHOOK)
@as_json
@click.pass_obj
def enable(context: CommandContext, webhook: str, as_json: bool) -> None:
    """Enable WEBHOOK: it receives events from now on."""
    _save(context, webhook, {"enabled": 1}, "enabled", as_json=as_json)


@click.command()
@click.argument("webhook", type=WEBHOOK)
@as_json
@click.pass_obj
def disable(context: CommandContext, webhook: str, as_json: bool) -> None:
    """Disable WEBHOOK: it receives no events, and its waiting deliveries fail.

    While it is paused they wait, and fail after the pause.
    """
    _save(context, webhook, {"enabled": 0}, "disabled", as_json=as_json)


def _require_doctype_of(fw: Fw, values: Mapping[str, Any]) -> None:
    """Check the DocType of a Webhook, if one is given. Raises: CommandFailed."""
    if values.get("webhook_doctype"):
        require_doctype(fw, values["webhook_doctype"])


def _save(
    context: CommandContext,
    webhook: str,
    values: Mapping[str, Any],
    done: str,
    *,
    as_json: bool,
) -> None:
    """Save fields of a Webhook, and print the result."""
    from fw_actors.documents import rest

    def write(_site: Site, fw: Fw) -> str | None:
        name = require_known(fw, DOCTYPE, webhook)
        _require_doctype_of(fw, values)
        return _event_warning(fw, rest.save(fw, DOCTYPE, name, values))

    _print_warning(context.write(write))
    _show_result(context, {"name": webhook}, f"{done} the Webhook {webhook}", as_json=as_json)


@click.command(
    "rotate-secret",
    epilog=examples(
        "fw webhooks rotate-secret erp",
        "fw webhooks rotate-secret erp --overlap 24",
        "fw webhooks rotate-secret erp --secret-stdin --yes < new.secret",
    ),
)
@click.argument("webhook", type=WEBHOOK)
@click.option(
    "--overlap",
    metavar="HOURS",
    type=WholeNumber(0, MAX_OVERLAP_HOURS),
    default=0,
    help="Hours for which the old secret also signs; default: 0.",
)
@secret_options
@yes_option
@as_json
@click.pass_obj
def rotate_secret(
    context: CommandContext,
    webhook: str,
    overlap: int,
    secret_stdin: bool,
    secret_env: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Replace the signing secret of WEBHOOK, and print the new one unless it was given.

    All further attempts are signed with the new secret, including those of waiting deliveries. A
    receiver that still has the old secret refuses them, usually with 401: such a delivery has
    failed, and is sent again only by a replay. With --overlap they are also signed with the old
    secret for that many hours, and a receiver may have either.
    """
    secret = read_secret(context, from_stdin=secret_stdin, variable=secret_env)
    context.read(lambda site, fw: require_known(fw, DOCTYPE, webhook))
    confirm(f"Replace the signing secret of {webhook}?", yes=yes)
    made: list[str] = []
    until: list[str | None] = []

    def write(site: Site, fw: Fw) -> None:
        from fw_actors.webhooks.signing_keys import new_secret, rotate

        made[:] = [new_secret(site.entropy) if secret is None else secret]
        name = require_known(fw, DOCTYPE, webhook)
        until[:] = [rotate(fw, site.audit, name, made[0], overlap).old_until]

    context.write(write)
    result: dict[str, Any] = {"name": webhook}
    if until[0] is not None:
        result["oldSecretUntil"] = until[0]
    if secret is None:
        result["secret"] = made[0]
    if secret is not None:
        warn_of_short(secret)
    _show_result(context, result, f"replaced the signing secret of {webhook}", as_json=as_json)


@click.command()
@click.argument("webhook", type=WEBHOOK)
@yes_option
@as_json
@click.pass_obj
def delete(context: CommandContext, webhook: str, yes: bool, as_json: bool) -> None:
    """Delete WEBHOOK; its deliveries are kept, and waiting deliveries fail."""
    context.read(lambda site, fw: require_known(fw, DOCTYPE, webhook))
    confirm(f"Delete the Webhook {webhook}?", yes=yes)
    from fw_actors.documents import rest

    context.write(lambda site, fw: rest.delete(fw, DOCTYPE, webhook))
    _show_result(context, {"name": webhook}, f"deleted the Webhook {webhook}", as_json=as_json)


COMMANDS: Final[Sequence[click.Command]] = (
    add,
    show_webhooks,
    edit,
    enable,
    disable,
    rotate_secret,
    delete,
)


def _event_warning(fw: Fw, stored: Mapping[str, Any]) -> str | None:
    from fw_actors.webhooks.subscriptions import never_occurring

    return never_occurring(fw.documents.registry, stored)


def _print_warning(event_warning: str | None) -> None:
    if event_warning is not None:
        click.echo(f"warning: {event_warning}", err=True)


def _show_result(
    context: CommandContext, result: dict[str, Any], sentence: str, *, as_json: bool
) -> None:
    """Report a change, and whether the running service uses it."""
    used = in_use(context)
    if as_json:
        show_json({**result, "inUse": used})
        return
    say(sentence)
    if "oldSecretUntil" in result:
        say(f"the old secret also signs until {result['oldSecretUntil']}")
    if "secret" in result:
        say(f"its secret, shown only now: {result['secret']}")
    if used is False:
        say(NOT_IN_USE)


NOT_IN_USE: Final = (
    "the running service did not answer and may not use this yet: fw restart makes it do so"
)


def in_use(context: CommandContext) -> bool | None:
    """Make the running service use the stored Webhooks; return whether it does.

    None if no service runs here. The change is committed, so no error of the service fails the
    command.
    """
    from fw_actors.errors import ConfigurationError
    from fw_cli.service_state import use_stored_subscriptions
    from supervisors.service.site_files import ServiceError

    try:
        return use_stored_subscriptions(context.config)
    except (CommandFailed, ConfigurationError, ServiceError):
        return False
