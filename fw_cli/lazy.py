"""A group of commands that loads each of them when it is used: `fw version` waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click


class LazyGroup(click.Group):
    """A group whose commands stand elsewhere: `at` maps a name to "module:attribute"."""

    def __init__(self, name: str | None, at: Mapping[str, str], help: str | None = None) -> None:
        super().__init__(name, help=help)
        self._at = at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of `at`, which is the order of the help."""
        return list(self._at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._at:
            return None
        module, attribute = self._at[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
