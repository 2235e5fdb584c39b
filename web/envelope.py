"""The one shape of every refusal: `{"error": {"type", "message", "extra"}}` (interface §1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from fw_actors.errors import FwError
from web.json_out import encode

JSON: Final = "application/json; charset=utf-8"

SendBody = Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]
"""Sends a body part by part, by the function that it is given."""


@dataclass(frozen=True)
class Answer:
    """What a handler gives back: the response but for the headers that every response has.

    `cache` stands for the usual `Cache-Control: no-store`. `stream` sends the body part by part
    in place of `body`.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    cache: str | None = None
    stream: SendBody | None = None


def answer_json(value: Any, status: int = 200, *headers: tuple[str, str]) -> Answer:
    """Return `value` as JSON."""
    return Answer(encode(value), status, headers=headers)


def refusal(error: FwError) -> Answer:
    """Return the envelope of a refusal, with the headers that belong to it."""
    shown: dict[str, Any] = {"type": type(error).__name__, "message": error.message}
    if error.extra:
        shown["extra"] = error.extra
    return Answer(encode({"error": shown}), error.status, headers=tuple(error.headers.items()))


def refusal_in(error: BaseException) -> FwError | None:
    """Return the refusal that `error` is, or holds alone when nurseries have wrapped it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, FwError) else None
