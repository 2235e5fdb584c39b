"""Requests, results and errors as data (H-221, H-222)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from fw_client import calls, errors
from fw_client.errors import ApiError, UnexpectedAnswer
from fw_client.events import EmitInterrupted, Event
from fw_client.models import EventEmitted, UserProfile, read_model
from fw_client.transport import ClientSettings, http_request
from fw_client.wire import Call, HttpAnswer, result

LOCAL = "http://127.0.0.1:8000"
KEY = "fwk_secretsecret"
NESTED = pytest.param(b"[" * 100_000, id="nested")


def refused(status: int, code: str, **extra: Any) -> HttpAnswer:
    envelope = {"error": {"type": code, "message": "No.", "extra": extra}}
    headers = {"x-request-id": "r1", "retry-after": "7"}
    return HttpAnswer(status, headers, json.dumps(envelope).encode())


def error_of(answer: HttpAnswer) -> Exception:
    with pytest.raises(errors.FwClientError) as raised:
        result(calls.profile(), answer, repeated=False)
    return raised.value


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "BadRequestError", errors.BadCall),
        (401, "AuthenticationError", errors.Unauthenticated),
        (403, "PermissionDeniedError", errors.Forbidden),
        (404, "NotFoundError", errors.NotFound),
        (409, "ConflictError", errors.Conflict),
        (409, "DuplicateError", errors.Duplicate),
        (413, "PayloadTooLargeError", errors.BadCall),
        (418, "TeapotError", ApiError),
        (422, "PasswordPolicyError", errors.Invalid),
        (429, "TooManyRequestsError", errors.RateLimited),
        (500, "InternalError", errors.ServiceDefect),
        (503, "OverloadedError", errors.Unavailable),
    ],
)
def test_error_has_type_and_fields_of_response(
    status: int, code: str, kind: type[ApiError]
) -> None:
    error = error_of(refused(status, code, field="title", rule="x"))
    assert type(error) is kind
    assert isinstance(error, ApiError)
    assert (error.status, error.code, error.message) == (status, code, "No.")
    assert (error.field, error.extra["rule"]) == ("title", "x")
    assert (error.request_id, error.retry_after) == ("r1", 7)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "no"}', NESTED])
def test_error_of_proxy_has_its_status(body: bytes) -> None:
    error = error_of(HttpAnswer(502, {}, body))
    assert isinstance(error, errors.Unavailable)
    assert error.code == ""


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"), (200, b"{}"), (200, b"[]"), (200, b"null"), (200, b'{"name": 1}'),
        (300, b""), (302, b""), (304, b""),
    ],
)  # fmt: skip
def test_foreign_response_raises_unexpected_answer(status: int, body: bytes) -> None:
    error = error_of(HttpAnswer(status, {}, body))
    assert isinstance(error, UnexpectedAnswer)
    assert error.status == status


def test_redirect_with_json_body_is_no_success() -> None:
    """A session that a program takes for ended would stay valid."""
    with pytest.raises(UnexpectedAnswer, match="without a redirect"):
        result(calls.revoke_session("s1"), HttpAnswer(302, {}, b"{}"), repeated=False)


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 500, 521])
def test_foreign_error_raises_unexpected_answer(status: int) -> None:
    """H-222: a program that handles NotFound must not take a wrong URL for a missing document."""
    error = error_of(HttpAnswer(status, {}, b"<html>"))
    assert isinstance(error, UnexpectedAnswer)
    assert error.status == status


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, errors.Unavailable), (413, errors.BadCall), (414, errors.BadCall),
        (429, errors.RateLimited), (431, errors.BadCall), (502, errors.Unavailable),
        (503, errors.Unavailable), (504, errors.Unavailable),
    ],
)  # fmt: skip
def test_foreign_error_of_a_clear_status_has_its_class(
    status: int, kind: type[errors.ApiError]
) -> None:
    error = error_of(HttpAnswer(status, {}, b"<html>"))
    assert isinstance(error, kind)
    assert str(error).endswith(f" ({status})")


def test_document_that_is_no_object_raises_unexpected_answer() -> None:
    with pytest.raises(UnexpectedAnswer):
        result(calls.get_document("Note", "a"), HttpAnswer(200, {}, b'{"data": []}'), False)


@pytest.mark.parametrize("page", [b"[1]", b'"text"', b"7", b'{"sessions": [7]}', NESTED])
def test_foreign_list_raises_unexpected_answer(page: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        result(calls.list_sessions(), HttpAnswer(200, {}, page), repeated=False)


@pytest.mark.parametrize(
    "error",
    [
        errors.NotFound(404, "NotFoundError", "No.", {"field": "title"}, "r1", 7.0),
        errors.NotReached("No answer.", sent=True, request_id="r1"),
        UnexpectedAnswer("Not fw.", 302),
        EmitInterrupted([EventEmitted("k1", ("msg_1",))], [Event("order.paid", {}, key="k2")]),
    ],
)
def test_pickled_error_keeps_its_fields(error: errors.FwClientError) -> None:
    """A process pool pickles the error of a worker."""
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert (str(copied), vars(copied)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("until", "seconds"),
    [("Fri, 31 Dec 1999 23:59:59 GMT", 59), ("Fri, 31 Dec 1999 23:58:59 GMT", 0)],
)
def test_retry_after_date_counts_from_the_date_of_the_answer(until: str, seconds: float) -> None:
    """H-224."""
    headers = {"retry-after": until, "date": "Fri, 31 Dec 1999 23:59:00 GMT"}
    error = error_of(HttpAnswer(503, headers, b""))
    assert isinstance(error, errors.Unavailable)
    assert error.retry_after == seconds


@pytest.mark.parametrize("text", ["Fri, 31 Dec 1999 23:59:59 GMT", "\u00b2", "-1", ""])
def test_retry_after_that_is_no_number_is_unknown(text: str) -> None:
    error = error_of(HttpAnswer(503, {"retry-after": text}, b""))
    assert isinstance(error, errors.Unavailable)
    assert error.retry_after is None


@pytest.mark.parametrize("headers", [{"set-cookie": "x=1"}, {}])
def test_sign_in_without_cookie_raises_unexpected_answer(headers: dict[str, str]) -> None:
    with pytest.raises(UnexpectedAnswer):
        result(calls.sign_in("a", "b"), HttpAnswer(200, headers, b"{}"), False)


def test_sign_in_takes_no_cookie_whose_name_ends_alike() -> None:
    headers = {"set-cookie": "xsid=other; Path=/, sid=right; Path=/"}
    assert result(calls.sign_in("a", "b"), HttpAnswer(200, headers, b"{}"), False) == "right"


@pytest.mark.parametrize(
    "call",
    [calls.revoke_session("s"), calls.revoke_key("k"), calls.delete_document("D", "n", None)],
    ids=["session", "key", "document"],
)
def test_repeated_deletion_that_finds_nothing_succeeds(call: Call[None]) -> None:
    """The first one was carried out, and its response was lost."""
    gone = refused(404, "NotFoundError")
    assert result(call, gone, repeated=True) is None
    with pytest.raises(errors.NotFound):
        result(call, gone, repeated=False)


def test_sign_in_is_repeatable() -> None:
    """A second session is harmless."""
    assert calls.sign_in("a", "b").repeatable


@pytest.mark.parametrize(("submit", "sent"), [(True, {"a": 1, "submit": True}), (False, {"a": 1})])
def test_insert_requests_submission_only_if_asked(submit: bool, sent: dict[str, Any]) -> None:
    body = calls.insert_document("D", {"a": 1}, submit).body
    assert body is not None
    assert json.loads(body) == sent


def test_model_ignores_fields_of_newer_service() -> None:
    given = {"name": "a", "email": "", "fullName": "A", "language": "", "roles": ["x"], "new": 1}
    assert read_model(UserProfile, given) == UserProfile("a", "", "A", "", ("x",))


def test_rotated_secret_is_read_from_older_service() -> None:
    """Version 0.2.0 answers no `modified`; without the answer the new secret would be lost."""
    body = b'{"webhook": "w", "secret": "whsec_x", "old_secret_until": null}'
    rotated = result(calls.rotate("w", None, 0, None), HttpAnswer(200, {}, body), False)
    assert (rotated.secret, rotated.old_until, rotated.modified) == ("whsec_x", None, None)


def test_names_are_quoted_in_paths() -> None:
    assert calls.get_document("Sales Order", "a/b?#ü").target == (
        "/api/resource/Sales%20Order/a%2Fb%3F%23%C3%BC"
    )


@pytest.mark.parametrize(("name", "segment"), [(".", "%2E"), ("..", "%2E%2E"), ("a.b", "a.b")])
def test_dots_alone_stay_one_segment_of_the_path(name: str, segment: str) -> None:
    """Otherwise `get("Note", ".")` returned the list of Notes."""
    request = http_request(ClientSettings(LOCAL), calls.get_document("Note", name), None, "r1")
    assert request.url.raw_path.decode() == f"/api/resource/Note/{segment}"


def test_too_long_url_is_refused_with_advice() -> None:
    listed = calls.list_documents("Note", [("name", "in", ["x" * 70_000])], None, None, 20, 0)
    with pytest.raises(ValueError, match="shorter filters"):
        http_request(ClientSettings(LOCAL), listed, None, "r1")


def test_http_request_has_key_or_cookie_with_csrf_header() -> None:
    by_key = http_request(ClientSettings(LOCAL, KEY), calls.replay("msg_1"), None, "r1")
    assert by_key.headers["authorization"] == f"Bearer {KEY}"
    assert "cookie" not in by_key.headers
    by_session = http_request(ClientSettings(LOCAL), calls.replay("msg_1"), "sid1", "r1")
    assert (by_session.headers["cookie"], by_session.headers["x-fw-csrf"]) == ("sid=sid1", "1")
    assert by_session.headers["x-request-id"] == "r1"
    assert by_session.headers["user-agent"].startswith("fw-client")


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("fw.example", {}),
        ("ftp://fw.example", {}),
        ("http://fw.example", {"key": KEY}),
        ("https://user:pass@fw.example", {}),
        ("https://user@fw.example", {}),
        ("https://fw.example/?x=1", {}),
        ("https://fw.example:https", {}),
        ("https://fw.example:70000", {}),
        ("https://fw.example:0", {}),
        ("https://fw.example/\x7f", {}),
        (LOCAL, {"user": "a"}),
        (LOCAL, {"password": "a"}),
        (LOCAL, {"key": KEY, "user": "a", "password": "b"}),
        (LOCAL, {"timeout": 0}),
        (LOCAL, {"timeout": None}),
        (LOCAL, {"timeout": float("inf")}),
        (LOCAL, {"key": ""}),
        (LOCAL, {"key": KEY + "\n"}),
        (LOCAL, {"key": "fwk_\u00fc"}),
    ],
)
def test_client_settings_refuse_unusable_values(url: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ClientSettings(url, **more)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("url", [LOCAL, "http://localhost", "http://[::1]:1", "https://x.example"])
def test_client_settings_accept_https_and_loopback(url: str) -> None:
    assert ClientSettings(url).url == url
    assert ClientSettings("http://fw.internal", allow_http=True).allow_http


@pytest.mark.parametrize(
    ("given", "whole", "connecting"),
    [({}, 30, 5), ({"timeout": 60}, 60, 5), ({"timeout": 0.5}, 0.5, 0.5)],
)
def test_http_request_has_timeouts(given: dict[str, Any], whole: float, connecting: float) -> None:
    """H-224."""
    request = http_request(ClientSettings(LOCAL, **given), calls.profile(), None, "r1")
    timeouts = request.extensions["timeout"]
    assert timeouts == {"connect": connecting, "read": whole, "write": whole, "pool": whole}


@pytest.mark.parametrize(
    ("url", "trusted"),
    [(LOCAL, False), ("https://localhost", True), ("https://x.example", True)],
)
def test_client_settings_trust_environment_except_over_http_to_loopback(
    url: str, trusted: bool
) -> None:
    """H-228; over https a proxy reads nothing, and the environment may name a certificate."""
    assert ClientSettings(url).trust_env is trusted


def test_repr_of_settings_and_calls_contains_no_secret() -> None:
    """H-228."""
    settings = ClientSettings(LOCAL, KEY)
    call: Call[Any] = calls.sign_in("ada", "hunter2hunter2")
    shown = repr((settings, ClientSettings(LOCAL, user="u", password="hunter2hunter2"), call))
    assert KEY not in shown
    assert "hunter2" not in shown
