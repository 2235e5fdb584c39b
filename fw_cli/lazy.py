"""Command groups that list whole sentences, and groups that load their commands on use."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

MAX_HELP_CHARACTERS: Final = 300
"""The maximum length of a sentence in a list of commands."""
_CUTOFF: Final = 0.7  # 0.6, the default, finds that `bogus` is like `logs`


class FullHelpGroup(click.Group):
    """A group whose help does not truncate sentences, and is also shown by `help [COMMAND]`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the error for an unknown one offers the nearest.

        `help COMMAND` is `COMMAND --help`, as people type it elsewhere.
        """
        if args[0] == "help":
            args = [*(word for word in args if word != "help"), "--help"]
        if args == ["--help"]:
            click.echo(ctx.get_help())
            ctx.exit()
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            near = get_close_matches(error.command_name, self.list_commands(ctx), cutoff=_CUTOFF)
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=near, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of their help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        listed = [
            (name, command.get_short_help_str(MAX_HELP_CHARACTERS))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(listed)


class LazyGroup(FullHelpGroup):
    """A group that imports its commands on use: `at` maps a name to "module:attribute".

    This keeps `fw version` fast.
    """

    def __init__(
        self,
        name: str | None,
        at: Mapping[str, str],
        help: str | None = None,
        epilog: str | None = None,
    ) -> None:
        super().__init__(
            name,
            help=help,
            epilog=epilog,
            context_settings={"help_option_names": ["-h", "--help"]},  # also of its commands
        )
        self._at = at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `at`, which is the order of the help."""
        return list(self._at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._at:
            return None
        module, attribute = self._at[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
