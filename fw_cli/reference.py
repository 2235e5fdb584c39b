"""The command-line reference of the documentation, generated from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from fw_cli.examples import examples_of
from fw_cli.main import cli

_HEAD: Final = (
    "# Command line\n"
    "`fw` works on the site in the current folder; `FW_CONFIG` names another one. From a clean "
    "clone it is `scripts/fw`. It exits 0 on success, 1 if the command was rejected or has failed "
    "(the reason is on stderr), and 2 on a usage error. `--json` prints machine-readable output. "
    "Passwords are prompted for or read from stdin, never taken as arguments.\n\n"
    "This page is generated from the commands' own help.\n"
)


def command_line() -> str:
    """Return the whole page with every command, in the order of `fw --help`."""
    return "\n".join([_HEAD, *_commands(cli, "fw")])


def _commands(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        elif not command.hidden:
            yield _command(command, f"{path} {name}")


def _command(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}", f"```text\n{usage}\n```", _paragraphs(command.help or "")]
    options = list(_options(command, context))
    if options:
        parts.append("\n".join(["| Option | |", "|---|---|", *options]))
    if lines := examples_of(command):
        parts.append("\n".join(["```sh", *lines, "```"]))
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph of click's help."""
    return "\n\n".join(plain(" ".join(part.split())) for part in text.strip().split("\n\n"))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None and record[0] != "--help":
            yield f"| `{record[0].replace('|', chr(92) + '|')}` | {plain(record[1])} |"


def plain(text: str) -> str:
    """Escape what Markdown would interpret, such as `<` and `|`."""
    for character in "\\<>|*[]_":
        text = text.replace(character, f"\\{character}")
    return text
