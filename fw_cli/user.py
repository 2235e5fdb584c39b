"""`fw user`: adds and lists accounts, sets passwords, unlocks, disables and enables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.examples import examples
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, say, show
from fw_cli.passwords import password_stdin, take_password

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
    """Accounts: add and list them, set a password, unlock, disable and enable."""


@user.command(
    epilog=examples(
        'fw user add ann --email ann@example.org --role "System Manager"',
        "fw user add ci --email ci@example.org --password-stdin < password.txt",
    )
)
@click.argument("name")
@click.option("--email", required=True, help="The account's e-mail address.")
@click.option("--full-name", default="", help="The name for display.")
@click.option("--role", "roles", multiple=True, help="A role of the account; may be repeated.")
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

        if password is None:
            return await site.write(ADMINISTRATOR, invite_by(site))
        password_hash = await site.hash_password(password, name, email)

        def insert(fw: Fw) -> str:
            made = add_user(fw, name, email, full_name, roles, password_hash)
            return f"made the account {made['name']}"

        return await site.write(ADMINISTRATOR, insert)

    def invite_by(site: Site) -> Callable[[Fw], str]:
        from fw_actors.access.links import Links
        from fw_actors.access.types import LinkKind
        from fw_actors.access.users import add_user
        from supervisors.service.site_files import site_url

        links = Links(site.registry, site.config.auth, site.entropy, site_url(site.config))

        def invite(fw: Fw) -> str:
            made = add_user(fw, name, email, full_name, roles)
            return links.mint(fw.tx, LinkKind.INVITATION, made["name"]).url

        return invite

    say(context.on_site(make))


@user.command("list")
@as_json
@click.pass_obj
def list_accounts(context: CommandContext, as_json: bool) -> None:
    """List all accounts."""

    async def read(site: Site) -> list[dict[str, Any]]:
        from fw_actors.access.users import list_users

        return await site.read(ADMINISTRATOR, list_users)

    show(context.on_site(read), _COLUMNS, json=as_json)


@user.command()
@click.argument("who")
@password_stdin
@click.pass_obj
def passwd(context: CommandContext, who: str, password_stdin: bool) -> None:
    """Set the password of WHO, a name or an e-mail.

    Its sessions, API keys and open links end, a lockout is lifted, and a mail notifies the owner.
    """
    if not password_stdin:
        context.on_site(lambda site: _named(site, who))  # before asking for a password
    password = take_password(from_stdin=password_stdin)

    async def set_password(site: Site) -> str:
        name, email = await _named(site, who)
        password_hash = await site.hash_password(password, name, email)

        def work(fw: Fw) -> EndedAccess:
            ended = site.passwords.replace_and_unlock(fw, name, password_hash)
            fw.get_doc("User", name)  # it may have been deleted meanwhile
            return ended

        return f"set the password of {name}{_ended_text(await site.write(ADMINISTRATOR, work))}"

    say(context.on_site(set_password))


def _ended_text(ended: EndedAccess) -> str:
    """Return the text about the access that ended, empty if there was none."""
    counted = (
        f"{count} {unit}{'' if count == 1 else 's'}"
        for count, unit in ((ended.sessions, "session"), (ended.keys, "API key"))
        if count
    )
    text = " and ".join(counted)
    return f"; ended {text}" if text else ""


@user.command()
@click.argument("who")
@click.pass_obj
def unlock(context: CommandContext, who: str) -> None:
    """Lift the lockouts of WHO, of its name and its e-mail."""

    async def use(site: Site) -> str:
        from fw_actors.access.users import unlock as lift
        from fw_actors.ops.audit import Action

        def work(fw: Fw) -> str:
            name = lift(fw, site.accounts, site.installation_key, who)
            site.audit.record(fw, Action.UNLOCK, name)
            return name

        return await site.write(ADMINISTRATOR, work)

    say(f"unlocked {context.on_site(use)}")


@user.command()
@click.argument("who")
@click.pass_obj
def disable(context: CommandContext, who: str) -> None:
    """Disable the account WHO: sign-ins are rejected; sessions, API keys and links end."""
    say(f"disabled {_set_enabled(context, who, enabled=False)}")


@user.command()
@click.argument("who")
@click.pass_obj
def enable(context: CommandContext, who: str) -> None:
    """Enable the account WHO again; what ended when it was disabled is not restored."""
    say(f"enabled {_set_enabled(context, who, enabled=True)}")


def _set_enabled(context: CommandContext, who: str, *, enabled: bool) -> str:
    async def use(site: Site) -> str:
        from fw_actors.access.users import set_enabled

        return await site.write(
            ADMINISTRATOR, lambda fw: set_enabled(fw, site.accounts, who, enabled)
        )

    return context.on_site(use)


async def _named(site: Site, who: str) -> tuple[str, str]:
    from fw_actors.access.users import named

    def read(fw: Fw) -> tuple[str, str]:
        found = named(fw, site.accounts, who)
        return found.name, found.email

    return await site.read(ADMINISTRATOR, read)
