"""The command line `fw` in the process of a test: a process of its own takes ten times as long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from fw_cli.context import CommandContext
from fw_cli.main import cli
from tests.process_log import logging_as_it_was


def run_command(
    folder: Path, environ: Mapping[str, str], *args: str, stdin: str | bytes | None = None
) -> Result:
    """Run a command on the site in `folder`."""
    context = CommandContext(environ, folder)
    with logging_as_it_was():
        return CliRunner().invoke(cli, args, input=stdin, obj=context, prog_name="fw")
