"""`fw logs`: the log of a service in the background."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Final

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.values import WholeNumber

_MAX_LINES: Final = 100_000
_BLOCK_BYTES: Final = 64 * 1024
_POLL_SECONDS: Final = 0.2


@click.command(
    epilog=examples(
        "fw logs -n 200",
        "fw logs --follow",
        "fw logs -n 10000 | grep 4f1c     # the entries of a request",
    )
)
@click.option(
    "--lines", "-n", type=WholeNumber(1, _MAX_LINES), default=50, show_default=True,
    help="The number of lines from the end.",
)  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Also print new lines, until Ctrl-C.")
@click.pass_obj
def logs(context: CommandContext, lines: int, follow: bool) -> None:
    """Print the end of the log of a service that was started with fw start.

    A service in the foreground writes its log to stderr, under systemd to the journal.
    """
    from supervisors.service.site_files import SitePaths

    path = SitePaths(context.folder).log
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise CommandFailed(
            "There is no data/serve.log, because fw start has not been used here. Under systemd "
            "use: journalctl --unit UNIT"
        ) from None
    stdout = sys.stdout.buffer
    file.seek(_start_of_last(file, lines))
    with suppress(KeyboardInterrupt) if follow else nullcontext():  # its normal end
        while True:
            with file:
                _copy(file, stdout)
                if not follow:
                    return
                _follow_until_replaced(path, file, stdout)
            file = path.open("rb")


def _start_of_last(file: BinaryIO, lines: int) -> int:
    """Return the position at which the last `lines` lines of a file begin.

    Reads backwards in blocks, so that a large file needs neither memory nor time.
    """
    position = file.seek(0, os.SEEK_END)
    file.seek(max(0, position - 1))
    is_complete = file.read() == b"\n"  # else the service has been killed while it wrote
    left = lines + is_complete
    while position:
        size = min(_BLOCK_BYTES, position)
        position -= size
        file.seek(position)
        block = file.read(size)
        end = len(block)
        while (end := block.rfind(b"\n", 0, end)) >= 0:
            left -= 1
            if not left:
                return position + end + 1
    return 0


def _copy(file: BinaryIO, output: BinaryIO) -> None:
    """Copy the rest of a file."""
    while block := file.read(_BLOCK_BYTES):
        output.write(block)
    output.flush()


def _follow_until_replaced(path: Path, file: BinaryIO, output: BinaryIO) -> None:
    """Copy appended lines until another file is at `path`; a truncated file begins anew."""
    while True:
        time.sleep(_POLL_SECONDS)
        _copy(file, output)
        with suppress(FileNotFoundError):
            current = path.stat()
            if current.st_ino != os.fstat(file.fileno()).st_ino:
                _copy(file, output)  # what was written before the rotation
                return
            if current.st_size < file.tell():
                file.seek(0)
