"""The errors of calls: an error of the service, an unexpected answer, or no answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final


class FwClientError(Exception):
    """Base class of all errors of this package, except TypeError and ValueError for arguments.

    An error can be pickled, so that a process pool can raise it in the process that waits.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # `Exception` would call the constructor with `args`, which is the text alone.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(
    kind: type[FwClientError], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> FwClientError:
    """Return a pickled error."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class NotReached(FwClientError):
    """Raised when no answer came: no connection, a broken one, or a timeout.

    `sent`: whether the request may have reached the service and been carried out. `request_id`: the
    id of the request in the service's log, if it arrived.
    """

    def __init__(self, message: str, *, sent: bool, request_id: str) -> None:
        super().__init__(message)
        self.sent, self.request_id = sent, request_id


class UnexpectedAnswer(FwClientError):
    """Raised for an answer that is not from fw: the URL is wrong, or a proxy has answered.

    `status`: the HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ApiError(FwClientError):
    """Raised for an error response of the service; the subclasses distinguish the kinds.

    `status`: the HTTP status. `code`: the service's `error.type`, such as `ConflictError`; empty if
    a proxy has answered. `message`: one sentence for people. `field`: the argument or field at
    fault. `extra`: further facts from the service. `request_id`: the id of the request in the
    service's log. `retry_after`: the seconds to wait, if the service has named them. `repeated`:
    whether an earlier request of the same call may have been carried out; its response was lost.
    """

    repeated = False

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        extra: Mapping[str, Any] = MappingProxyType({}),
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status, self.code, self.message = status, code, message
        self.extra, self.request_id, self.retry_after = dict(extra), request_id, retry_after
        kind = f"{status} {code}" if code else str(status)
        super().__init__(
            f"{message} ({kind}, request {request_id})" if request_id else f"{message} ({kind})"
        )

    @property
    def field(self) -> str | None:
        """The argument or field at fault, if the service named one."""
        name = self.extra.get("field")
        return name if isinstance(name, str) else None


class BadCall(ApiError):
    """400, 405, 413, 414, 415, 431: the request is malformed or too large; `field` names the
    argument."""


class Unauthenticated(ApiError):
    """401: a wrong name, password or API key, or the session has ended."""


class Forbidden(ApiError):
    """403: the caller is authenticated but not permitted."""


class NotFound(ApiError):
    """404: no such document, delivery, key or operation."""


class Conflict(ApiError):
    """409: the state does not permit the operation, such as a save over a newer version."""


class Duplicate(Conflict):
    """409: a name or a unique value is taken."""


class Invalid(ApiError):
    """422: a value breaks a rule; `field` names it."""


class RateLimited(ApiError):
    """429: too many attempts; `retry_after` is the wait in seconds."""


class Unavailable(ApiError):
    """408, 502, 503, 504: the service is busy, starting or not reachable."""


class ServiceDefect(ApiError):
    """500: a defect of the service; quote `request_id` to report it."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = MappingProxyType(
    {
        400: BadCall,
        401: Unauthenticated,
        403: Forbidden,
        404: NotFound,
        405: BadCall,
        408: Unavailable,
        409: Conflict,
        413: BadCall,
        414: BadCall,
        415: BadCall,
        422: Invalid,
        429: RateLimited,
        431: BadCall,
        500: ServiceDefect,
        502: Unavailable,
        503: Unavailable,
        504: Unavailable,
    }
)
_TOO_LONG: Final = "The URL is too long: give fewer or shorter filters."
_UNAVAILABLE: Final = "The service is not available: a proxy has answered in its place."
_WITHOUT_ENVELOPE: Final[Mapping[int, str]] = MappingProxyType(
    {
        408: _UNAVAILABLE,
        413: "The request is larger than a proxy in front of the service allows.",
        414: _TOO_LONG,
        429: "A proxy in front of the service refuses requests. Try again later.",
        431: _TOO_LONG,
        502: _UNAVAILABLE,
        503: _UNAVAILABLE,
        504: _UNAVAILABLE,
    }
)
"""The messages of answers without the service's envelope."""


def api_error(
    status: int,
    envelope: object,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """Return the error of an answer.

    Args:
        envelope: the decoded body, `{"error": {"type", "message", "extra"}}`; any other body is
            from a proxy between client and service.
    """
    details = envelope.get("error") if isinstance(envelope, dict) else None
    if not isinstance(details, dict):
        details = {}
    code = str(details.get("type", ""))
    extra = details.get("extra")
    kind = Duplicate if code == "DuplicateError" else _BY_STATUS.get(status, ApiError)
    return kind(
        status,
        code,
        str(details.get("message", _WITHOUT_ENVELOPE.get(status, "The answer is not from fw."))),
        extra if isinstance(extra, dict) else {},
        request_id,
        retry_after,
    )
