"""Reports errors in Python code that a user passed to a command, without a traceback."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Final, Literal, ParamSpec, TypeVar

from fw_actors.errors import FwError, OverloadedError
from fw_actors.rules.safe_output import app_frame, raised_at
from fw_cli.errors import CommandFailed

_EXPRESSION: Final = "<expression>"

P = ParamSpec("P")
R = TypeVar("R")


def compiled(source: str | bytes, filename: str, mode: Literal["eval", "exec"]) -> CodeType:
    """Compile the code before anything is opened. Raises: CommandFailed, naming the line."""
    try:
        return compile(source, filename, mode, dont_inherit=True)
    except SyntaxError as error:
        raise CommandFailed(f"{filename}, line {error.lineno or 1}: {error.msg}") from None
    except ValueError as error:  # a NUL, or bytes of another encoding
        raise CommandFailed(f"{filename}: {error}") from None


def shielded(filename: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a function that runs such code: any error of the code becomes a CommandFailed.

    Its message names the error and, for a file, the line that raised it.
    """

    def wrap(fn: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fn)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return fn(*args, **kwargs)
            except (CommandFailed, OverloadedError):
                raise  # the second is not about the code
            except FwError as error:
                raise _located(error, filename) from error
            except SystemExit as end:  # the code may end itself, but not the thread that runs it
                subject = "the expression" if filename == _EXPRESSION else filename
                with_code = "" if end.code is None else f", with {end.code!r}"
                raise CommandFailed(f"{subject} called exit(){with_code}") from None
            except Exception as error:
                raise CommandFailed(described(error, filename)) from error

        return run

    return wrap


def described(error: Exception, filename: str) -> str:
    """Return an error of such code in a sentence, with the line of the file that raised it.

    If it was raised in another file, such as the hook of an app, the line of that file follows.
    """
    description, line = type(error).__name__, _line(error, filename)
    place = app_frame(error)
    if place is not None and place.filename not in (filename, _EXPRESSION):
        description = raised_at(error)
    if str(error):
        description = f"{description}: {error}"
    return description if line is None else f"{filename}, line {line}: {description}"


def _located(error: FwError, filename: str) -> FwError | CommandFailed:
    """Return a refusal with the line of the file that it passed through; an expression has one."""
    line = None if filename == _EXPRESSION else _line(error, filename)
    return error if line is None else CommandFailed(f"{filename}, line {line}: {error}")


def _line(error: Exception, filename: str) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == filename), None)
