"""The error envelope and its table, written out (H-50, H-51 to H-67)."""

from __future__ import annotations

import json

import pytest

from fw_actors import errors
from fw_actors.errors import FwError
from web.response import error_in, error_response

TABLE = [
    (errors.BadRequestError("Wrong.", field="a"), 400, {"field": "a"}),
    (errors.BadRequestError("Wrong."), 400, None),
    (errors.InvalidTokenError(), 400, None),
    (errors.AuthenticationError(), 401, {"reason": "noSession"}),
    (errors.PermissionDeniedError(), 403, None),
    (errors.CSRFError(), 403, None),
    (errors.NotFoundError("Gone."), 404, None),
    (errors.MethodNotAllowedError(("GET",)), 405, None),
    (errors.RequestTimeoutError(), 408, None),
    (errors.PayloadTooLargeError(1024), 413, None),
    (errors.UnsupportedMediaTypeError(), 415, None),
    (errors.DuplicateError("Taken."), 409, None),
    (errors.ConflictError("Changed."), 409, None),
    (errors.ValidationError("Wrong.", field="url"), 422, {"field": "url"}),
    (errors.PasswordPolicyError("Short.", rule="tooShort"), 422, {"rule": "tooShort"}),
    (errors.TooManyRequestsError(0.2), 429, {"retryAfter": 1}),
    (errors.OverloadedError(), 503, None),
    (errors.InternalError("r-1"), 500, None),
]


@pytest.mark.parametrize(("error", "status", "extra"), TABLE)
def test_error_response_has_status_type_and_extra(
    error: FwError, status: int, extra: dict[str, object] | None
) -> None:
    answer = error_response(error)
    shown = json.loads(answer.body)["error"]
    assert answer.status == status
    assert shown["type"] == type(error).__name__
    assert shown["message"]
    assert shown.get("extra") == extra


def test_error_response_has_the_status_of_the_class() -> None:
    """An attribute that an app sets on the error, such as a ticket's status, is none of HTTP: the
    connection was closed without a response (D-196)."""
    error = errors.ConflictError("The ticket is closed.")
    vars(error)["status"] = "closed"
    assert error_response(error).status == 409


def test_error_response_has_the_headers_of_the_error() -> None:
    assert dict(error_response(errors.TooManyRequestsError(12.1)).headers) == {"Retry-After": "13"}
    assert dict(error_response(errors.OverloadedError()).headers) == {"Retry-After": "1"}
    assert dict(error_response(errors.MethodNotAllowedError(("GET", "PUT"))).headers) == {
        "Allow": "GET, PUT"
    }


def test_error_in_finds_an_error_inside_groups() -> None:
    error = errors.NotFoundError("Gone.")
    assert error_in(error) is error
    assert error_in(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert error_in(ExceptionGroup("", [error, ValueError()])) is None
    assert error_in(ValueError()) is None
