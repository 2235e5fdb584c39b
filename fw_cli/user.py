"""`fw user`: adds, lists and deletes accounts, sets passwords, unlocks, disables and enables.

Further commands of the group are in `user_access` and `user_import`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from fw_cli import user_access
from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.examples import examples
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, counted, say, show, spool
from fw_cli.passwords import password_stdin, take_password
from fw_cli.user_import import import_accounts
from fw_cli.values import ROLE, USER, known_user, require_known

if TYPE_CHECKING:
    from fw_actors.access.passwords import EndedAccess
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_COLUMNS: Final = {
    "name": "Name",
    "email": "E-mail",
    "fullName": "Full name",
    "roles": "Roles",
    "enabled": "Enabled",
}


@click.group(cls=FullHelpGroup)
def user() -> None:
    """Accounts: add, list, invite, import; passwords, roles, sessions; disable, unlock, delete."""


for _command in (*user_access.COMMANDS, import_accounts):
    user.add_command(_command)


@user.command(
    epilog=examples(
        'fw user add ann --email ann@example.org --role "System Manager"',
        "fw user add ci --email ci@example.org --password-stdin < password.txt",
    )
)
@click.argument("name")
@click.option("--email", required=True, help="The account's e-mail address.")
@click.option("--full-name", default="", help="The display name.")
@click.option(
    "--role", "roles", multiple=True, type=ROLE, help="A role of the account; may be repeated."
)
@password_stdin
@click.pass_obj
def add(
    context: CommandContext,
    name: str,
    email: str,
    full_name: str,
    roles: tuple[str, ...],
    password_stdin: bool,
) -> None:
    """Add the account NAME, and print the link with which its owner sets a password.

    With --password-stdin the account gets that password at once, and there is no link.
    """
    context.config  # noqa: B018 - report a missing site before asking for a password
    password = take_password(from_stdin=True) if password_stdin else None

    async def make(site: Site) -> str:
        from fw_actors.access.users import add_user

        password_hash = None
        if password is not None:
            password_hash = await site.hash_password(password, name, email)

        def insert(fw: Fw) -> str:
            for role in roles:
                require_known(fw, "Role", role)
            made = add_user(fw, name, email, full_name, roles, password_hash)["name"]
            return _invite(site, fw, made) if password is None else f"created the account {made}"

        return await site.write(ADMINISTRATOR, insert)

    say(context.on_site(make))


def _invite(site: Site, fw: Fw, account: str) -> str:
    """Return the link with which the owner sets the first password."""
    from fw_actors.access.links import LinkKind, Links
    from supervisors.service.site_files import site_url

    links = Links(site.config.auth, site.entropy, site_url(site.config))
    return links.mint(fw.tx, LinkKind.INVITATION, account).url


@user.command("list")
@as_json
@click.pass_obj
def list_accounts(context: CommandContext, as_json: bool) -> None:
    """List all accounts."""
    from fw_actors.access.users import list_users

    with spool() as rows:
        context.read(lambda site, fw: rows.fill(list_users(fw)))
        show(rows, _COLUMNS, json=as_json)


@user.command()
@click.argument("account", metavar="USER", type=USER)
@password_stdin
@click.pass_obj
def passwd(context: CommandContext, account: str, password_stdin: bool) -> None:
    """Set the password of USER, a name or an e-mail.

    Its sessions, API keys and open links end, a lockout is lifted, and a mail notifies the owner.
    """
    if not password_stdin:
        context.on_site(lambda site: _name_and_email(site, account))  # before asking for a password
    password = take_password(from_stdin=password_stdin)

    async def set_password(site: Site) -> str:
        name, email = await _name_and_email(site, account)
        password_hash = await site.hash_password(password, name, email)

        def work(fw: Fw) -> EndedAccess:
            ended = site.passwords.replace_and_unlock(fw, name, password_hash)
            fw.get_doc("User", name)  # it may have been deleted meanwhile
            return ended

        return f"set the password of {name}{_ended_text(await site.write(ADMINISTRATOR, work))}"

    say(context.on_site(set_password))


def _ended_text(ended: EndedAccess) -> str:
    """Return the text about the access that ended, empty if there was none."""
    parts = ((ended.sessions, "session"), (ended.keys, "API key"))
    text = " and ".join(counted(count, unit) for count, unit in parts if count)
    return f"; ended {text}" if text else ""


@user.command()
@click.argument("account", metavar="USER", type=USER)
@click.pass_obj
def unlock(context: CommandContext, account: str) -> None:
    """Lift the lockouts of USER, for its name and its e-mail."""
    from fw_actors.access.users import unlock as lift
    from fw_actors.ops.audit import Action

    def work(site: Site, fw: Fw) -> str:
        known_user(site, fw, account)
        name = lift(fw, site.accounts, site.installation_key, account)
        site.audit.record(fw, Action.UNLOCK, name)
        return name

    say(f"unlocked {context.write(work)}")


@user.command()
@click.argument("account", metavar="USER", type=USER)
@click.pass_obj
def disable(context: CommandContext, account: str) -> None:
    """Disable the account USER: sign-ins are rejected; sessions, API keys and links end."""
    say(f"disabled {_set_enabled(context, account, enabled=False)}")


@user.command()
@click.argument("account", metavar="USER", type=USER)
@click.pass_obj
def enable(context: CommandContext, account: str) -> None:
    """Enable the account USER again; sessions, API keys and links that ended stay ended."""
    say(f"enabled {_set_enabled(context, account, enabled=True)}")


@user.command()
@click.argument("account", metavar="USER", type=USER)
@yes_option
@click.pass_obj
def delete(context: CommandContext, account: str, yes: bool) -> None:
    """Delete the account USER with its sessions, API keys, links and access scopes.

    Its documents, Versions and Audit Events keep its name. fw user disable can be undone.
    """
    name = context.read(lambda site, fw: str(known_user(site, fw, account).name))
    confirm(f"Delete the account {name}?", yes=yes)
    context.write(lambda site, fw: fw.get_doc("User", name).delete())
    say(f"deleted {name}")


def _set_enabled(context: CommandContext, account: str, *, enabled: bool) -> str:
    from fw_actors.access.users import set_enabled

    def work(site: Site, fw: Fw) -> str:
        name = str(known_user(site, fw, account).name)
        return set_enabled(fw, site.accounts, name, enabled)

    return context.write(work)


async def _name_and_email(site: Site, account: str) -> tuple[str, str]:
    def read(fw: Fw) -> tuple[str, str]:
        doc = known_user(site, fw, account)
        return doc.name, doc.email

    return await site.read(ADMINISTRATOR, read)
