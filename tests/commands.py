"""The command line `fw` in the process of a test: a process of its own takes ten times as long."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog
from click.testing import CliRunner, Result

from fw_cli.context import CommandContext
from fw_cli.main import cli


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Commands set up the process's log; here the process is that of the tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers, root.level = handlers, level
        logging.captureWarnings(False)
        structlog.reset_defaults()


def run_command(
    folder: Path, environ: Mapping[str, str], *args: str, stdin: str | bytes | None = None
) -> Result:
    """Run a command on the site in `folder`."""
    context = CommandContext(environ, folder)
    return CliRunner().invoke(cli, args, input=stdin, obj=context, prog_name="fw")
