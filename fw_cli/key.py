"""`fw key`: API keys of any account, for machines above all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from fw_actors.rules import MAX_KEY_DAYS
from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, say, show, show_json, spool
from fw_cli.values import KEY, ROLE, USER, WholeNumber, known_user, require_known

if TYPE_CHECKING:
    from fw_actors.access.api_keys import MadeKey
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_COLUMNS: Final = {
    "name": "Key",
    "user": "User",
    "label": "Label",
    "creation": "Created",
    "expires": "Expires",
    "last_used": "Last used",
}


@click.group(cls=FullHelpGroup)
def key() -> None:
    """API keys: create one for an account, list and revoke them."""


@key.command(
    epilog=examples(
        "fw key create ci --label deploy --days 90",
        'fw key create ci --label deploy --email ci@example.org --role "Event Publisher"',
    )
)
@click.argument("account", metavar="USER", type=USER)
@click.option("--label", required=True, help="Purpose of the key.")
@click.option(
    "--days", type=WholeNumber(1, MAX_KEY_DAYS), help="Validity in days; default: the policy's."
)
@click.option("--email", help="Create the account USER first, with this address and no password.")
@click.option(
    "--role", "roles", multiple=True, type=ROLE, help="With --email: a role; may be repeated."
)
@as_json
@click.pass_obj
def create(
    context: CommandContext,
    account: str,
    label: str,
    days: int | None,
    email: str | None,
    roles: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create an API key of the account USER, and print it; it is shown only once.

    The owner gets a mail if the account has a password. With --email a machine account is created
    first: it has no password, can only be used through its keys, and gets no mail.
    """
    if roles and email is None:
        raise click.UsageError("--role requires --email, because it applies to a new account.")

    def work(site: Site, fw: Fw) -> MadeKey:
        from fw_actors.access.administration import make_key_for
        from fw_actors.access.users import add_user

        if email is None:
            user = str(known_user(site, fw, account).name)
        elif fw.exists("User", account) is not None:
            options = "--email and --role" if roles else "--email"
            raise CommandFailed(f"{account} already has an account: omit {options}")
        else:
            for each in roles:
                require_known(fw, "Role", each)
            user = add_user(fw, account, email, "", roles)["name"]
        return make_key_for(fw, site.api_keys, site.mail_queue, site.config.auth, user, label, days)

    made = context.write(work)
    if as_json:
        from fw_actors.documents.fields import iso

        expires = None if made.expires is None else iso(made.expires)
        show_json({"name": made.name, "label": made.label, "expires": expires, "key": made.key})
    else:
        say(made.key)


@key.command("list")
@click.option("--user", type=USER, help="Only the keys of this account.")
@as_json
@click.pass_obj
def list_keys(context: CommandContext, user: str | None, as_json: bool) -> None:
    """List the API keys of all accounts, the newest first, expired ones too."""

    from fw_actors.documents.query import newest_first

    def read(site: Site, fw: Fw) -> Iterator[dict[str, Any]]:
        filters = [] if user is None else [["user", "=", known_user(site, fw, user).name]]
        return newest_first(fw, "API Key", filters, list(_COLUMNS))

    with spool() as rows:
        context.read(lambda site, fw: rows.fill(read(site, fw)))
        show(rows, _COLUMNS, json=as_json)


@key.command()
@click.argument("name", metavar="KEY", type=KEY)
@yes_option
@click.pass_obj
def revoke(context: CommandContext, name: str, yes: bool) -> None:
    """End KEY, named as fw key list shows it; it cannot be restored."""
    shown = name.removeprefix("fwk_").partition("_")[0]

    def facts(_site: Site, fw: Fw) -> str:
        doc = fw.get_doc("API Key", require_known(fw, "API Key", shown))
        return f"{doc.label} of {doc.user}"

    about = context.read(facts)
    confirm(f"Revoke the API key {shown}, {about}?", yes=yes)
    context.write(lambda site, fw: fw.get_doc("API Key", shown).delete())
    say(f"revoked {shown}, {about}")
