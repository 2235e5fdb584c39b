"""Reports errors in Python code that a user passed to a command, without a traceback."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Literal, ParamSpec, TypeVar

from fw_actors.errors import FwError
from fw_cli.errors import CommandFailed

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
            except (FwError, CommandFailed):
                raise
            except SystemExit as end:  # the code may end itself, but not the thread that runs it
                subject = "the expression" if filename == "<expression>" else filename
                with_code = "" if end.code is None else f", with {end.code!r}"
                raise CommandFailed(f"{subject} called exit(){with_code}") from None
            except Exception as error:
                raise CommandFailed(described(error, filename)) from error

        return run

    return wrap


def described(error: Exception, filename: str) -> str:
    """Return an error of such code in a sentence, with the line of the file that raised it."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == filename]
    return f"{filename}, line {lines[-1]}: {what}" if lines else what
