"""Requests and answers as data; a call is a request with the decoder of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from fw_client.errors import ApiError, UnexpectedAnswer, api_error

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response: `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A request that got no response; `sent`: whether it may have reached the service."""

    problem: str
    sent: bool


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation of the service.

    Attributes:
        read: returns the result from the decoded body.
        repeatable: whether a second request has no further effect. Only such a call is sent again
            after a request that may have been carried out.
        body: the JSON to send, encoded.
        read_headers: replaces `read` if the result is in the headers of the answer.
        done_if_repeated: codes of errors which, after a repetition, mean that an earlier request
            was carried out; the result is then `read(None)`.
    """

    method: str
    path: str
    read: Callable[[Any], T] = field(repr=False)
    repeatable: bool = False
    body: bytes | None = field(default=None, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    done_if_repeated: frozenset[str] = frozenset()
    read_headers: Callable[[Mapping[str, str]], T] | None = field(default=None, repr=False)

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def encode(value: object) -> bytes:
    """Return a value as JSON. Raises: TypeError, ValueError for a value without a form in JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def result(call: Call[T], answer: HttpAnswer, repeated: bool) -> T:
    """Return the result in a call's response.

    Args:
        repeated: whether an earlier request of this call may have been carried out.

    Raises: ApiError, UnexpectedAnswer.
    """
    if answer.status >= 400:
        error = error_of(answer)
        if repeated and error.code in call.done_if_repeated:
            return call.read(None)
        raise error
    if not 200 <= answer.status < 300:
        raise UnexpectedAnswer(
            f"{call.method} {call.path} was answered with {answer.status}: the URL of the client "
            "must be the service's own, without a redirect.",
            answer.status,
        )
    try:
        decoded = json.loads(answer.body)
        return call.read_headers(answer.headers) if call.read_headers else call.read(decoded)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnexpectedAnswer(
            f"{call.method} {call.path} was answered with {answer.status} and a body that is not "
            "the service's: does the URL lead to fw?",
            answer.status,
        ) from error


def error_of(answer: HttpAnswer) -> ApiError:
    """Return the error of an answer with a status of 400 or more."""
    try:
        envelope = json.loads(answer.body)
    except (ValueError, RecursionError):
        envelope = None
    request_id = answer.headers.get("x-request-id")
    return api_error(answer.status, envelope, request_id, retry_after(answer))


def retry_after(answer: HttpAnswer) -> float | None:
    """Return the seconds in the answer's Retry-After; None without it, or for a date."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
