"""`fw user invite`, `role` and `sessions`: invitations, roles and sessions of accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, counted, say, show, show_json
from fw_cli.values import ROLE, USER, known_user, require_known

if TYPE_CHECKING:
    from fw_actors.access.administration import UserAdministration
    from fw_actors.access.recovery import SentLink
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_SESSION_COLUMNS: Final = {
    "id": "Session",
    "ip": "Address",
    "userAgent": "Browser",
    "created": "Signed in",
    "lastSeen": "Last used",
    "expires": "Ends",
}


def _administration(context: CommandContext, site: Site) -> UserAdministration:
    """Return the operations on accounts, as in the service."""
    from fw_actors.access.administration import UserAdministration
    from fw_actors.access.links import Links
    from supervisors.service.site_files import site_url

    config = site.config
    links = Links(config.auth, site.entropy, site_url(config))
    return UserAdministration(site, links, context.logger(service=False))


@click.command(
    epilog=examples(
        'fw user invite ann@example.org --name ann --role "System Manager"',
        "fw user invite ann                          # send it again",
    )
)
@click.argument("user", type=USER)
@click.option("--name", help="The new account's name; default: its e-mail address.")
@click.option("--full-name", help="The display name.")
@click.option(
    "--role", "roles", multiple=True, type=ROLE, help="A role of the account; may be repeated."
)
@as_json
@click.pass_obj
def invite(
    context: CommandContext,
    user: str,
    name: str | None,
    full_name: str | None,
    roles: tuple[str, ...],
    as_json: bool,
) -> None:
    """Invite USER by mail: a new account with that address, or an account without a password.

    The service sends the mail; earlier invitations of the account end. If mail goes to the log,
    the link is printed instead. Without mail, use fw user add, which prints a link.
    """
    further = name is not None or full_name is not None or bool(roles)

    def work(site: Site, fw: Fw) -> tuple[str, str, SentLink]:
        from fw_actors.access.accounts import has_password

        operations = _administration(context, site)
        if further and not _is_unknown(site, fw, user):
            raise CommandFailed(
                f"{user} already has an account: --name, --full-name and --role require a new one"
            )
        if further or ("@" in user and _is_unknown(site, fw, user)):
            for role in roles:
                require_known(fw, "Role", role)
            made = operations.invite(fw, user, name, full_name or "", roles)
            return made.user, made.email, made.sent
        if "@" not in user and _is_unknown(site, fw, user):
            try:
                known_user(site, fw, user)
            except CommandFailed as error:
                raise CommandFailed(f"{error} A new account needs an e-mail address.") from None
        account = known_user(site, fw, user)
        if has_password(fw.tx, account.name):
            raise CommandFailed(
                f"{account.name} already has a password: fw user passwd {account.name} sets another"
            )
        return account.name, account.email, operations.resend_invite(fw, account.name)

    user, email, sent = context.write(work)
    if as_json:
        from fw_actors.documents.fields import iso

        link = {} if sent.url is None else {"link": sent.url}
        show_json({"user": user, "email": email, "expires": iso(sent.expires), **link})
    else:
        say(f"queued the invitation of {user} to {email}" if sent.url is None else sent.url)


def _is_unknown(site: Site, fw: Fw, email: str) -> bool:
    from fw_actors.access.users import find_user
    from fw_actors.errors import NotFoundError

    try:
        find_user(fw, site.accounts, email)
    except NotFoundError:
        return True
    return False


@click.command(
    epilog=examples(
        "fw user role ann                                 # show the roles",
        'fw user role ann --add "Event Publisher" --remove Clerk',
    )
)
@click.argument("account", metavar="USER", type=USER)
@click.option("--add", "added", multiple=True, type=ROLE, help="A role to add; may be repeated.")
@click.option(
    "--remove", "removed", multiple=True, type=ROLE, help="A role to remove; may be repeated."
)
@as_json
@click.pass_obj
def role(
    context: CommandContext,
    account: str,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add or remove roles of USER, and print all its roles.

    The last enabled System Manager keeps the role.
    """
    both = set(added) & set(removed)
    if both:
        raise click.UsageError(f"--add and --remove both name {', '.join(sorted(both))}.")

    def work(site: Site, fw: Fw) -> dict[str, Any]:
        user = known_user(site, fw, account)
        if added or removed:
            user = _with_roles(fw, user, added, removed)
        return {"user": user.name, "roles": [row.role for row in user.roles]}

    result = context.write(work) if added or removed else context.read(work)
    if as_json:
        show_json(result)
    else:
        say(f"{result['user']}: {', '.join(result['roles']) or 'no roles'}")


def _with_roles(fw: Fw, user: Any, added: Sequence[str], removed: Sequence[str]) -> Any:
    """Save an account with changed roles; return it. Raises: CommandFailed."""
    from fw_actors.access.accounts import lock_account

    lock_account(fw.tx, user.name)
    for each in added:
        require_known(fw, "Role", each)
    user.reload()  # keeps roles that another transaction has added
    had = [row.role for row in user.roles]
    missing = [each for each in removed if each not in had]
    if missing:
        raise CommandFailed(f"{user.name} does not have the role {', '.join(missing)}")
    kept = [each for each in had if each not in removed]
    user.roles = [{"role": each} for each in dict.fromkeys([*kept, *added])]
    user.save()
    return user


@click.command(
    epilog=examples(
        "fw user sessions ann",
        "fw user sessions ann --end 0ERYgT4q4QkDeICX",
        "fw user sessions ann --end-all --keys      # a stolen laptop",
    )
)
@click.argument("account", metavar="USER", type=USER)
@click.option("--end", "handle", metavar="SESSION", help="End this session.")
@click.option("--end-all", is_flag=True, help="End all sessions.")
@click.option("--keys", is_flag=True, help="With --end-all: end the API keys too.")
@as_json
@click.pass_obj
def sessions(
    context: CommandContext,
    account: str,
    handle: str | None,
    end_all: bool,
    keys: bool,
    as_json: bool,
) -> None:
    """List the live sessions of USER, or end them; ended sessions are refused at once."""
    if handle is not None and end_all:
        raise click.UsageError("--end and --end-all exclude each other.")
    if keys and not end_all:
        raise click.UsageError("--keys requires --end-all.")
    if handle is None and not end_all:
        show(_live_sessions(context, account), _SESSION_COLUMNS, json=as_json)
        return

    def work(site: Site, fw: Fw) -> dict[str, Any]:
        user = str(known_user(site, fw, account).name)
        operations = _administration(context, site)
        if handle is not None:
            operations.revoke_session(fw, user, handle)
            return {"user": user, "sessionsEnded": 1}
        ended = operations.revoke_sessions(fw, user, keys)
        result = {"user": user, "sessionsEnded": ended.sessions}
        return result if ended.keys is None else result | {"keysEnded": ended.keys}

    result = context.write(work)
    if as_json:
        show_json(result)
    else:
        and_keys = f" and {counted(result['keysEnded'], 'API key')}" if keys else ""
        say(f"ended {counted(result['sessionsEnded'], 'session')}{and_keys} of {result['user']}")


def _live_sessions(context: CommandContext, account: str) -> list[dict[str, Any]]:
    from fw_actors.documents.fields import iso

    def read(site: Site, fw: Fw) -> list[Any]:
        user = str(known_user(site, fw, account).name)
        return list(_administration(context, site).sessions(fw, user))

    return [
        {
            "id": each.id,
            "ip": each.ip,
            "userAgent": each.user_agent,
            "created": iso(each.created),
            "lastSeen": iso(each.last_seen),
            "expires": iso(each.expires),
        }
        for each in context.read(read)
    ]


COMMANDS: Final = (invite, role, sessions)
