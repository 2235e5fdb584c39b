"""Takes a lone error out of the group that a nursery wraps it in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lone_error() -> Iterator[None]:
    """Around a nursery that is nobody's business: one error comes out as itself, more as a group.

    For blocks such as `open_runtime`, whose callers want to catch what happened in them.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__
