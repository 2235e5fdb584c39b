"""Reports the errors of a command: one line per problem on stderr, and exit code 1.

Modules are imported on use, because a successful command needs none of them.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fw_actors.rules.safe_output import Scrubber


class CommandFailed(Exception):
    """Raised by a command for its own errors; the message is for users."""


class CommandError(click.ClickException):
    """The end of a command that was rejected or has failed."""

    exit_code = 1

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self._lines = lines

    def show(self, file: IO[Any] | None = None) -> None:
        from fw_actors.rules.safe_output import escaped

        for line in self._lines:
            click.echo(f"fw: {escaped(line)}", file=file, err=file is None)


def command_error(error: BaseException, *, debugging: bool, scrubber: Scrubber) -> Exception:
    """Return the exception that ends a command after `error`: a `CommandError`, or an Abort.

    Exception groups, as trio raises them, are replaced by their members. `debugging` adds the
    traceback of a defect; `scrubber` removes the site's secrets from all output.
    """
    if is_interrupt(error):
        return click.Abort()
    leaves = list(_leaves(error))
    lines = [scrubber.scrub_known(line) for leaf in leaves for line in _lines(leaf, debugging)]
    return CommandError(list(dict.fromkeys(lines)))


def is_interrupt(error: BaseException) -> bool:
    """Return whether `error` is or contains Ctrl-C."""
    return any(isinstance(leaf, KeyboardInterrupt) for leaf in _leaves(error))


def is_store_away(error: BaseException) -> bool:
    """Return whether a site could not be opened only because its store does not answer now."""
    from fw_actors.errors import DatabaseUnreachableError, OverloadedError

    return all(
        isinstance(leaf, DatabaseUnreachableError | OverloadedError) for leaf in _leaves(error)
    )


def is_defect(error: BaseException) -> bool:
    """Return whether `error` contains a defect: neither an expected error nor Ctrl-C."""
    return any(
        _expected_lines(leaf) is None and not isinstance(leaf, KeyboardInterrupt)
        for leaf in _leaves(error)
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _lines(error: BaseException, debugging: bool) -> list[str]:
    lines = _expected_lines(error)
    if lines is not None:
        return lines
    summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if not debugging and isinstance(error, OSError) and error.strerror:
        return [_refusal_of_system(error)]
    if not debugging:
        return [f"internal error: {summary} (FW_LOG_LEVEL=debug shows where)"]
    trace = "".join(traceback.format_exception(error)).splitlines()
    return [f"internal error: {summary}", *(f"  | {line}" for line in trace)]


def _refusal_of_system(error: OSError) -> str:
    """Return the sentence for a full disk, a missing permission and the like."""
    if error.filename is None:
        return str(error.strerror)
    return f"cannot open {os.fsdecode(error.filename)}: {error.strerror}"


def _expected_lines(error: BaseException) -> list[str] | None:
    """Return the lines of an expected error; None for a defect."""
    from fw_cli.extras import advice

    if isinstance(error, ModuleNotFoundError):
        text = advice(error)
        return None if text is None else [text]
    from fw_actors.errors import ConfigurationError, FwError
    from supervisors import SupervisorFailed
    from supervisors.service.site_files import ServiceError, StartFailed

    if isinstance(error, ConfigurationError):
        return list(error.problems)
    if isinstance(error, StartFailed):
        return [str(error), *(f"  | {line}" for line in error.lines)]
    if isinstance(error, (FwError, ServiceError, SupervisorFailed, CommandFailed)):
        return [str(error)]
    return None
