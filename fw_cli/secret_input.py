"""Takes a secret for a command: from stdin, from FW_SECRET_<NAME>, or a random one.

Secrets are never taken from arguments: every user of the machine can see these, and the shell's
history keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fw_cli.errors import CommandFailed
from fw_cli.own_environment import PREFIX

if TYPE_CHECKING:
    from fw_actors.config import Config
    from fw_cli.context import CommandContext

F = TypeVar("F", bound=Callable[..., Any])

_NAME: Final = re.compile("[A-Z0-9_]+")


def secret_options(command: F) -> F:
    """Add the options for the source of a Webhook's secret."""
    from_stdin = click.option(
        "--secret-stdin", is_flag=True, help="Read the secret from the first line of stdin."
    )
    from_environment = click.option(
        "--secret-env",
        metavar="NAME",
        help="Take the secret from the environment variable FW_SECRET_<NAME>.",
    )
    return from_stdin(from_environment(command))


def read_secret(context: CommandContext, *, from_stdin: bool, variable: str | None) -> str | None:
    """Return the secret that the options name; None if they name none.

    A secret from stdin needs no site: a developer of a receiver may have none.

    Raises: click.UsageError for both options at once; CommandFailed if there is no secret.
    """
    if from_stdin and variable is not None:
        raise click.UsageError("--secret-stdin and --secret-env exclude each other.")
    if from_stdin:
        from fw_cli.passwords import first_line

        secret = first_line("secret", "--secret-stdin")
        if not secret:
            raise CommandFailed("--secret-stdin was given, but the first line of stdin is empty")
        return secret
    return None if variable is None else secret_of(context.config, variable)


def secret_of(config: Config, variable: str) -> str:
    """Return the secret of a variable, named with or without FW_SECRET_.

    Raises: CommandFailed for a name that no variable can have, or if it is not set.
    """
    from fw_actors.config import SITE_KEY_VARIABLES

    name = variable.upper().removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise CommandFailed(f"a variable's name must match {PREFIX}[A-Z0-9_]+")
    if f"{PREFIX}{name}" in SITE_KEY_VARIABLES:
        raise CommandFailed(f"{PREFIX}{name} is the site's own key; a Webhook must not use it")
    value = config.secrets.get(name.lower())
    if value is None:
        raise CommandFailed(f"{PREFIX}{name[:60]} is not set in this process's environment")
    return value


def warn_of_short(secret: str) -> None:
    """Warn on stderr of a secret that is easier to guess than a random one."""
    from fw_actors.rules.signing import KEY_BYTES, UnusableSecretError, key_of

    try:
        size = len(key_of(secret))
    except UnusableSecretError:
        return  # the site refuses it
    if size < KEY_BYTES[0]:
        click.echo(
            f"warning: the secret has only {size} bytes and may be guessed; use 32 random bytes",
            err=True,
        )
