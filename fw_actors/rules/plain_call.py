"""A call of what an app has written: it runs to its end here, and ends nothing else."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutine
from typing import Any


def call_plainly(what: str, function: Callable[..., Any], /, *args: Any, **arguments: Any) -> Any:
    """Call an app's function and return its value; `what` is its name. Exceptions pass through.

    Raises: RuntimeError where it would end the process (SystemExit and its like), which belongs
        to others too; and where it has left its work undone.
    """
    try:
        value = function(*args, **arguments)
    except Exception:
        raise
    except BaseException as end:  # SystemExit, KeyboardInterrupt, GeneratorExit
        raise RuntimeError(f"{what} would have ended the process") from end
    if is_unawaited(value):
        raise RuntimeError(unawaited_message(what))
    return value


def is_unawaited(value: object) -> bool:
    """Whether a function gave back a coroutine, of which nothing has run; it is closed.

    A function that is declared async is refused at start; behind a decorator it is seen here.
    """
    if not iscoroutine(value):
        return False
    value.close()
    return True


def unawaited_message(what: str) -> str:
    """Return the sentence about such a function."""
    return f"{what} returned a coroutine and did nothing: it must be a plain function"
