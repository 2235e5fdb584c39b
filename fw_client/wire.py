"""Requests and answers as data; a call is a request with the decoder of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from fw_client.errors import ApiError, UnexpectedAnswer, api_error

T = TypeVar("T")
FOREIGN: Final = frozenset({408, 413, 414, 429, 431, 502, 503, 504})
"""Statuses whose meaning is the same if a proxy has answered in place of the service. (The service
itself answers 431 without its envelope.)"""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response: `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def reason(self) -> str:
        """The reason for sending the request again."""
        return f"the answer was {self.status}"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A request that got no response.

    `sent`: whether it may have reached the service. `final`: whether the next one would fail alike.
    """

    problem: str
    sent: bool
    final: bool = False

    @property
    def reason(self) -> str:
        """The reason for sending the request again."""
        return self.problem


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation of the service.

    Attributes:
        read: returns the result from the decoded body.
        repeatable: whether a second request has no further effect. Only such a call is sent again
            after a request that may have been carried out.
        body: the JSON to send, encoded.
        read_answer: replaces `read` if the result also depends on the headers of the answer; it
            gets them and the decoded body.
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
    read_answer: Callable[[Mapping[str, str], Any], T] | None = field(default=None, repr=False)

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def encode(value: object) -> bytes:
    """Return a value as JSON. Raises: TypeError, ValueError for a value without a form in JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("The value is nested too deeply for JSON.") from None
    return text.encode()


def result(call: Call[T], answer: HttpAnswer, repeated: bool) -> T:
    """Return the result in a call's response.

    Args:
        repeated: whether an earlier request of this call may have been carried out.

    Raises: ApiError, UnexpectedAnswer.
    """
    if answer.status >= 400:
        error = error_of(answer)
        error.repeated = repeated
        if repeated and error.code in call.done_if_repeated:
            return call.read(None)
        if not error.code and answer.status not in FOREIGN:
            raise _foreign(call, answer)
        raise error
    if not 200 <= answer.status < 300:
        raise UnexpectedAnswer(
            f"{call.method} {call.path} was answered with {answer.status}: the URL of the client "
            "must be the service's own, without a redirect.",
            answer.status,
        )
    try:
        decoded = json.loads(answer.body)
        return call.read_answer(answer.headers, decoded) if call.read_answer else call.read(decoded)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _foreign(call, answer) from error


def _foreign(call: Call[Any], answer: HttpAnswer) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"{call.method} {call.path} was answered with {answer.status} and a body that is not "
        "the service's: does the URL lead to fw?",
        answer.status,
    )


def error_of(answer: HttpAnswer) -> ApiError:
    """Return the error of an answer with a status of 400 or more."""
    try:
        envelope = json.loads(answer.body)
    except (ValueError, RecursionError):
        envelope = None
    request_id = answer.headers.get("x-request-id")
    return api_error(answer.status, envelope, request_id, retry_after(answer))


def retry_after(answer: HttpAnswer) -> float | None:
    """Return the seconds in the answer's Retry-After; None without a valid one.

    A date is compared with the `Date` of the same answer, so that the clock of this machine does
    not matter; without a `Date` it is not valid.
    """
    text = answer.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text)
    until, now = _unix_time(text), _unix_time(answer.headers.get("date", ""))
    return None if until is None or now is None else max(0.0, until - now)


def _unix_time(text: str) -> float | None:
    parsed = parsedate_tz(text)
    try:
        return None if parsed is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError):
        return None
