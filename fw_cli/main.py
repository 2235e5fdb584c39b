"""The command line `fw`: its commands, and the handler of all their errors (C-100).

Apart from fw_actors.config, only this module reads the environment; it passes it on.
"""

from __future__ import annotations

import os
import posix
import sys
from pathlib import Path
from typing import Any, Final

import click

from fw_cli.context import CommandContext
from fw_cli.errors import command_error
from fw_cli.examples import examples
from fw_cli.lazy import LazyGroup
from fw_cli.own_environment import forbid_core_dumps, take_secrets

COMMANDS: Final = {
    "init": "fw_cli.init:init",
    "serve": "fw_cli.service:serve",
    "start": "fw_cli.service:start",
    "stop": "fw_cli.service:stop",
    "restart": "fw_cli.service:restart",
    "status": "fw_cli.service:status",
    "logs": "fw_cli.logs:logs",
    "worker": "fw_cli.service:worker",
    "migrate": "fw_cli.migration:migrate",
    "demo": "fw_cli.demo:demo",
    "user": "fw_cli.user:user",
    "key": "fw_cli.key:key",
    "webhooks": "fw_cli.webhooks:webhooks",
    "jobs": "fw_cli.jobs:jobs",
    "apply": "fw_cli.declared:apply",
    "diff": "fw_cli.declared:diff",
    "export": "fw_cli.declared:export",
    "audit": "fw_cli.audit:audit",
    "doctor": "fw_cli.doctor:doctor",
    "sweep": "fw_cli.sweep:sweep",
    "eval": "fw_cli.evaluation:evaluate",
    "exec": "fw_cli.evaluation:execute",
    "shell": "fw_cli.shell:shell",
    "console": "fw_cli.console:console",
    "backup": "fw_cli.backup:backup",
    "restore": "fw_cli.restore:restore",
    "vault": "fw_cli.vault:vault",
    "completion": "fw_cli.completion:completion",
    "version": "fw_cli.version:version",
}


class Root(LazyGroup):
    """The command `fw` itself: turns every exception of a command into a message and an exit code.

    0: success, 1: rejected or failed, 2: usage error; never a traceback (C-100).
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, EOFError):
            raise
        except BrokenPipeError:
            raise  # `fw user list | head -1`: click ends quietly
        except (Exception, BaseExceptionGroup) as error:
            context = ctx.find_object(CommandContext) or CommandContext({}, Path())
            raise command_error(
                error, debugging=context.debugging, scrubber=context.scrubber
            ) from None


def _print_version(ctx: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Do what `fw version` does."""
    if requested:
        command = cli.get_command(ctx, "version")
        assert command is not None
        ctx.invoke(command)
        ctx.exit()


cli: Final = Root(
    "fw",
    COMMANDS,
    help="Accounts, sign-in and signed outgoing webhooks, for the site whose fw.json is here "
    "(FW_CONFIG names another file). fw COMMAND --help describes each command.",
    epilog=examples(
        "fw init shop && cd shop      # a site: fw.json, .env and a key",
        "fw start                     # the service, in the background",
        'fw user add ann --email ann@example.org --role "System Manager"',
        "fw doctor                    # problems and their remedies",
    ),
)


cli.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version, as fw version does.",
    )
)


def main() -> None:
    """Run the command line, and exit.

    Removes secrets from the process's own environment, because apps and the programs that they
    start must not see them (C-84), and keeps them out of core dumps.
    """
    forbid_core_dumps()
    environ, hidden = take_secrets(os.environ, posix.environ)
    try:
        cwd = Path.cwd()
    except OSError as error:  # another process has deleted it
        sys.exit(f"fw: the working directory cannot be used: {error.strerror}")
    cli.main(prog_name="fw", obj=CommandContext(environ, cwd, exposed=not hidden))
