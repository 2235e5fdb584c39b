"""What the paths under `/api/method/core.services.` have in common (H-100, H-20)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from web.exchange import Exchange
from web.json_input import PLAIN, Texts, read_struct
from web.operations import BodyRule, Operation, Path
from web.response import Answer, iso_time
from web.response_schemas import Done

T = TypeVar("T")
Handle = Callable[[Exchange], Awaitable[Answer]]

SERVICES: Final = "/api/method/core.services."


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an operation that takes no arguments: `{}`, or none at all."""


NO_ARGUMENTS: Final = BodyRule(partial(read_struct, kind=Nothing), may_be_absent=True)


def reading(name: str, handle: Handle, answer: type[msgspec.Struct]) -> Path:
    """Return the path of an operation that only reads: GET serves it as well."""
    post = Operation(handle, body=NO_ARGUMENTS, answer=answer)
    return Path(SERVICES + name, {"POST": post, "GET": Operation(handle, answer=answer)})


def writing(
    name: str,
    handle: Handle,
    kind: type[msgspec.Struct] | None = None,
    *,
    answer: type[msgspec.Struct] = Done,
    texts: Texts = PLAIN,
) -> Path:
    """Return the path of an operation that writes, with the arguments `kind`."""
    body = NO_ARGUMENTS if kind is None else BodyRule(partial(read_struct, kind=kind, texts=texts))
    return Path(SERVICES + name, {"POST": Operation(handle, body=body, answer=answer)})


def given(value: T | msgspec.UnsetType) -> T | None:
    """Return an optional argument, None where it was left out."""
    return None if isinstance(value, msgspec.UnsetType) else value


def time_or_null(milliseconds: int | None) -> str | None:
    """Return a time as JSON shows it, null where there is none."""
    return None if milliseconds is None else iso_time(milliseconds)
