"""Judging a saved request (C-156)."""

from __future__ import annotations

import json

import pytest
import standardwebhooks

from fw_actors.rules.signing import (
    SavedRequest,
    UnreadableRequest,
    event_type_of,
    judge,
    parse_saved,
)

SECRET = "whsec_" + "A" * 43 + "="
BODY = b'{"type":"a.b","data":{"n":1}}'
NOW = 1_800_000_000_000


def signed(body: bytes = BODY, secret: str = SECRET, age: int = 0) -> dict[str, str]:
    """The headers that the official library makes."""
    import datetime

    at = datetime.datetime.fromtimestamp(NOW // 1000 - age, datetime.UTC)
    signature = standardwebhooks.Webhook(secret).sign("msg_1", at, body.decode())
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(NOW // 1000 - age),
        "webhook-signature": signature,
    }


def test_a_request_that_the_official_library_signed_is_verified() -> None:
    found = judge(SECRET, SavedRequest(signed(age=7), BODY), NOW)
    assert (found.verified, found.faults, found.delivery, found.age) == (True, (), "msg_1", 7.0)


def test_one_of_several_signatures_is_enough() -> None:
    headers = signed()
    headers["webhook-signature"] = "v1,AAAA v2,x " + headers["webhook-signature"]
    assert judge(SECRET, SavedRequest(headers, BODY), NOW).verified


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (BODY + b"\n", "a line end was added"),
        (json.dumps(json.loads(BODY)).encode(), "written anew"),
        (BODY.replace(b"1", b"2"), "another secret, or the body was changed"),
    ],
)
def test_a_changed_body_is_told(body: bytes, told: str) -> None:
    found = judge(SECRET, SavedRequest(signed(), body), NOW)
    assert not found.verified
    assert told in found.faults[0]


def test_another_secret_is_told() -> None:
    other = "whsec_" + "B" * 43 + "="
    assert not judge(other, SavedRequest(signed(), BODY), NOW).verified


def test_a_secret_used_as_text_is_told() -> None:
    import base64

    as_text = "whsec_" + base64.b64encode(SECRET.encode()).decode()
    found = judge(SECRET, SavedRequest(signed(secret=as_text), BODY), NOW)
    assert "as text" in found.faults[0]


@pytest.mark.parametrize(("age", "told"), [(301, "ago"), (-301, "ahead")])
def test_an_old_or_early_request_is_refused_unless_any_age_will_do(age: int, told: str) -> None:
    request = SavedRequest(signed(age=age), BODY)
    found = judge(SECRET, request, NOW)
    assert told in found.faults[0]
    assert judge(SECRET, request, NOW, tolerance=None).verified


@pytest.mark.parametrize(("tolerance", "told"), [(0.1, "0.1 s"), (2, "2 s"), (0, "0 s")])
def test_an_old_request_is_told_the_tolerance_that_was_given(tolerance: float, told: str) -> None:
    found = judge(SECRET, SavedRequest(signed(age=3), BODY), NOW, tolerance)
    assert f"more than {told} is not accepted" in found.faults[0]


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_told(name: str) -> None:
    headers = signed()
    del headers[name]
    assert judge(SECRET, SavedRequest(headers, BODY), NOW).faults == (
        f"The header {name} is missing.",
    )


def test_unusable_headers_are_told() -> None:
    headers = {**signed(), "webhook-timestamp": "soon", "webhook-signature": "v2,abc"}
    faults = " ".join(judge(SECRET, SavedRequest(headers, BODY), NOW).faults)
    assert "seconds since 1970" in faults
    assert "version v1" in faults


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_saved_request_is_headers_and_body(end: bytes) -> None:
    lines = [b"POST /hook HTTP/1.1", b"Webhook-Id: msg_1", b"X: a: b", b"", b"one\r\n\r\ntwo"]
    assert parse_saved(end.join(lines)) == SavedRequest(
        {"webhook-id": "msg_1", "x": "a: b"}, b"one\r\n\r\ntwo"
    )


def test_a_saved_request_may_be_json() -> None:
    saved = json.dumps({"headers": {"Webhook-Id": "m"}, "body": '{"a": 1}'}).encode()
    assert parse_saved(saved) == SavedRequest({"webhook-id": "m"}, b'{"a": 1}')


@pytest.mark.parametrize(
    "content", [b"", b"a: b", b"POST / HTTP/1.1\nno header\n\nbody", b"{", b'{"body": 1}', b"{}"]
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableRequest):
        parse_saved(content)


@pytest.mark.parametrize(("body", "type"), [(BODY, "a.b"), (b"[1]", ""), (b"x", "")])
def test_the_type_of_an_event_is_found(body: bytes, type: str) -> None:
    assert event_type_of(body) == type
