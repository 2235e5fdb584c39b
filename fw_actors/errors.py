"""The errors that callers see: one class for each `error.type` (H-51 to H-67).

The web layer builds the envelope from `status`, the class's name, the message and `extra`; the
command line prints the message. A message is one sentence for people and states the rule.

The module also has `runs_later` and `refuse_coroutine`, for all packages that call functions of
apps, and `required_type`, which words msgspec's errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from inspect import (
    isasyncgen,
    isasyncgenfunction,
    iscoroutine,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
)
from math import ceil
from typing import Any, ClassVar, Final, Self

import msgspec

RETRY_OVERLOADED_SECONDS: Final = 1
QUERY_TIMEOUT: Final = "queryTimeout"
"""`extra.reason` of the OverloadedError for a query that took too long."""
NO_SESSION: Final = "noSession"
"""`extra.reason` of the AuthenticationError for a request without a session, or whose session has
ended."""


_WRONG_TYPE: Final = re.compile(r"Expected `([a-z |]+)`, got `\w+`(?: - at `\$([^`]*)`)?")
_TYPE_NAMES: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def required_type(error: msgspec.ValidationError) -> tuple[str, str] | None:
    """Return the place of a value of a wrong type, and the type that it must have.

    The place is a path such as `.lines[0].item`, empty for the value itself; the type is in words,
    such as "text or null". None if the error is of another kind.
    """
    match = _WRONG_TYPE.fullmatch(str(error))
    if match is None:
        return None
    types = (_TYPE_NAMES.get(each, each) for each in match[1].split(" | "))
    return match[2] or "", " or ".join(types)


def _whole(text: str) -> str:
    """Escape lone surrogates, which a message may contain but a response cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _reworded(value: Any, reword: Callable[[str], str]) -> Any:
    """Return `value` as JSON with its texts reworded; what has no form in JSON becomes text."""
    if isinstance(value, str):
        return reword(value)
    if isinstance(value, int | float | None):
        return value
    if isinstance(value, dict):
        return {reword(str(key)): _reworded(inner, reword) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_reworded(inner, reword) for inner in value]
    return _reworded(msgspec.to_builtins(value, enc_hook=str), reword)


class FwError(Exception):
    """An error that callers see. Raise one of its subclasses, or derive from one: a `status` of
    its own must be one of an error, 400 to 599.

    `extra` holds details for programs (`extra.field`, `extra.retryAfter`); if empty, it is absent.
    """

    status: ClassVar[int] = 500
    retry_after: int | None = None
    """Seconds after which the caller may retry, if known."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a status with which no response can be sent. Raises: TypeError."""
        super().__init_subclass__(**options)
        status: object = cls.status
        if not isinstance(status, int) or not 400 <= status <= 599:
            raise TypeError(f"status of {cls.__name__} must be a whole number from 400 to 599")
        cls.status = int(status)  # of a member of `HTTPStatus`

    def __init__(self, message: str, field: str | None = None, **extra: object) -> None:
        if type(self) is FwError:
            raise TypeError("FwError is abstract; raise one of its subclasses")
        self.message = _whole(str(message))  # an app may pass the exception that it caught
        super().__init__(self.message)
        if field is not None:
            extra = {"field": field, **extra}
        self.extra = _reworded(extra, _whole)

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers of this error's response."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    @property
    def details(self) -> dict[str, Any]:
        """The content of the envelope's `error`: type, message and, if there is any, extra."""
        shown: dict[str, Any] = {"type": type(self).__name__, "message": self.message}
        return {**shown, "extra": self.extra} if self.extra else shown

    def reworded(self, reword: Callable[[str], str]) -> Self:
        """Return this error with `reword` applied to its texts; itself if nothing changes."""
        message = reword(self.message)
        extra = _reworded(self.extra, reword)
        if message == self.message and extra == self.extra:
            return self
        return self._copy(message, extra)

    def within(self, place: str) -> Self:
        """Return a copy whose message, and field if it has one, are those of a part of a request.

        `place`: the part, such as `events[3]`, which is the field of an error without one.
        """
        field = self.extra.get("field")
        extra = {**self.extra, "field": f"{place}.{field}" if field else place}
        return self._copy(f"{place}: {self.message}", extra)

    def _copy(self, message: str, extra: dict[str, Any]) -> Self:
        """Return a copy without a call of the class, whose subclasses have other arguments."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.message, copy.extra, copy.args = message, extra, (message,)
        return copy

    def locate(self, table: str, row: int) -> None:
        """Add the place of the field at fault: its child table, and its row, from 1."""
        self.message = f"{table}, row {row}: {self.message}"
        self.args = (self.message,)
        self.extra = {**self.extra, "table": table, "row": row}


class BadRequestError(FwError):
    """Raised when a request is malformed: its body, or a missing or unknown argument.

    `field` names the argument, if a single one is wrong.
    """

    status = 400


class InvalidTokenError(FwError):
    """Raised when the token of a link is unknown, expired, used or of the other kind."""

    status = 400

    def __init__(self) -> None:
        super().__init__("This link is no longer valid. Ask for a new one.")


class AuthenticationError(FwError):
    """Raised when a name, a password or an API key is wrong, or the request has no session."""

    status = 401

    def __init__(self, message: str | None = None, reason: str | None = None) -> None:
        """Without a `message`, the request has no session. `reason`: for `extra`, if any."""
        if message is None:
            message, reason = "Sign in first.", NO_SESSION
        super().__init__(message, None, **({} if reason is None else {"reason": reason}))

    @property
    def headers(self) -> dict[str, str]:
        """The scheme of API keys (RFC 9110 15.5.2), for which browsers ask for no password."""
        return {"WWW-Authenticate": "Bearer"}


class PermissionDeniedError(FwError):
    """Raised when the caller is authenticated but not permitted."""

    status = 403

    def __init__(self, message: str = "You are not allowed to do this.") -> None:
        super().__init__(message)


class CSRFError(FwError):
    """Raised when a request that may change something lacks the CSRF header."""

    status = 403

    def __init__(
        self, message: str = "Send the header X-FW-CSRF with any non-empty value."
    ) -> None:
        super().__init__(message)


class NotFoundError(FwError):
    """Raised when a path, document, delivery, session handle or key does not exist."""

    status = 404


class MethodNotAllowedError(FwError):
    """Raised when a path does not accept the verb."""

    status = 405

    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)
        super().__init__(f"This path accepts {' or '.join(self.allowed)}.")

    @property
    def headers(self) -> dict[str, str]:
        return {"Allow": ", ".join(self.allowed)}


class RequestTimeoutError(FwError):
    """Raised when a request's body does not arrive in time."""

    status = 408

    def __init__(self) -> None:
        super().__init__("The request's body did not arrive in time. Send it again.")


class PayloadTooLargeError(FwError):
    """Raised when a request's body is larger than its path accepts."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request's body is larger than {limit // 1024} KiB.")


class UnsupportedMediaTypeError(FwError):
    """Raised when a body is not declared as JSON, or has a content coding."""

    status = 415

    def __init__(self, message: str = "Send the body as application/json in UTF-8.") -> None:
        super().__init__(message)


class DuplicateError(FwError):
    """Raised when a name, a unique value or an emit `key` is taken."""

    status = 409


class ConflictError(FwError):
    """Raised when the state of a document or other object does not allow the operation."""

    status = 409


class ValidationError(FwError):
    """Raised when a document or a value breaks a rule; hooks of apps raise it to refuse a change.

    `field` names the field, if a single one is wrong.
    """

    status = 422


class PasswordPolicyError(FwError):
    """Raised when a password is refused; `extra.rule` names the rule.

    `rule` is tooShort, tooLong, blank, equalsAccountName, common or breached.
    """

    status = 422

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message, rule=rule)


class TooManyRequestsError(FwError):
    """Raised when an identifier or address has used up its attempts.

    `retry_after` is in seconds.
    """

    status = 429
    retry_after: int

    def __init__(self, retry_after: float) -> None:
        seconds = self.retry_after = max(1, ceil(retry_after))
        super().__init__(f"Too many attempts. Try again in {seconds} s.", retryAfter=seconds)


class OverloadedError(FwError):
    """Raised when a bounded queue is full or the store cannot take a write. Nothing was changed,
    unless the message states otherwise."""

    status = 503
    retry_after: int
    is_of_store: bool = False
    """Whether the store has refused a transaction, which may succeed later without a change of its
    code: not raised by an app, nor for a query that took too long."""

    def __init__(
        self,
        message: str = "The service is busy. Try again in a moment.",
        retry_after: float = RETRY_OVERLOADED_SECONDS,
        **extra: object,
    ) -> None:
        self.retry_after = max(1, ceil(retry_after))
        super().__init__(message, None, **extra)


def session_ended() -> AuthenticationError:
    """Return the error of a request whose session has ended."""
    return AuthenticationError("Your session has ended. Sign in again.", NO_SESSION)


def store_refusal(message: str) -> OverloadedError:
    """Return the error of a statement that the store cannot run at the moment."""
    error = OverloadedError(message)
    error.is_of_store = True
    return error


def is_store_refusal(error: BaseException) -> bool:
    """Return whether the store has refused a statement, for whatever transaction."""
    return isinstance(error, OverloadedError) and error.is_of_store


def query_timeout(seconds: float) -> OverloadedError:
    """Return the error of a query that was ended after `seconds` (`ops.queryTimeoutSeconds`)."""
    return OverloadedError(
        f"The query took longer than {seconds:g} seconds; narrow its filters.", reason=QUERY_TIMEOUT
    )


def is_query_timeout(error: FwError) -> bool:
    """Return whether a query took too long; it would again, whatever the store's state."""
    return bool(error.extra.get("reason") == QUERY_TIMEOUT)


def too_many_consoles(limit: int) -> OverloadedError:
    """Return the error for a console beyond the first `limit`."""
    return OverloadedError(
        f"The limit of open consoles ({limit}) is reached. Close one and try again."
    )


class InternalError(FwError):
    """Raised when a defect occurs; the message contains only the request id."""

    status = 500

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"An internal error occurred. Include the request id {request_id} in a report."
        )


class ConfigurationError(Exception):
    """Raised when the site cannot be opened as configured; reports all problems at once.

    Not a response to a request: the command line prints one problem per line and exits with 1.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class DatabaseUnreachableError(ConfigurationError):
    """Raised when the server of the database cannot be reached, or its file was moved away; it may
    be back soon."""


class UnawaitedCoroutineError(RuntimeError):
    """Raised for a function of an app that returned a coroutine or a generator, none of which has
    run."""

    def __init__(self, function: str, returned: str) -> None:
        super().__init__(
            f"{function} returned {returned} and did nothing: it must be a plain function"
        )


def runs_later(function: Callable[..., Any]) -> bool:
    """Whether a call only makes an object that runs the function: a coroutine or a generator."""
    return (
        iscoroutinefunction(function)
        or isgeneratorfunction(function)
        or isasyncgenfunction(function)
    )


def refuse_coroutine(function: str, value: object) -> None:
    """Close the coroutine or generator that `function`, which must be a plain function, has
    returned.

    A function that `runs_later` is refused at start; this finds one that a decorator hides.
    Raises: UnawaitedCoroutineError.
    """
    if iscoroutine(value):
        value.close()
        raise UnawaitedCoroutineError(function, "a coroutine")
    if isgenerator(value):
        value.close()
        raise UnawaitedCoroutineError(function, "a generator")
    if isasyncgen(value):  # which needs no close before its first step
        raise UnawaitedCoroutineError(function, "an asynchronous generator")
