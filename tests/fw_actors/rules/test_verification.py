"""Judging a saved request (C-156)."""

from __future__ import annotations

import json

import pytest
import standardwebhooks

from fw_actors.rules.signing import (
    SavedRequest,
    UnreadableRequest,
    UnusableSecretError,
    event_type_of,
    parse_saved,
    verify_request,
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


def test_verify_request_verifies_officially_signed_request() -> None:
    found = verify_request(SECRET, SavedRequest(signed(age=7), BODY), NOW)
    assert (found.verified, found.faults, found.delivery, found.age) == (True, (), "msg_1", 7.0)


def test_verify_request_accepts_any_matching_signature() -> None:
    headers = signed()
    headers["webhook-signature"] = "v1,AAAA v2,x " + headers["webhook-signature"]
    assert verify_request(SECRET, SavedRequest(headers, BODY), NOW).verified


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (BODY + b"\n", "a line end was added"),
        (json.dumps(json.loads(BODY)).encode(), "reformatted"),
        (BODY.replace(b"1", b"2"), "another secret, or the body was changed"),
    ],
)
def test_verify_request_explains_changed_body(body: bytes, expected: str) -> None:
    found = verify_request(SECRET, SavedRequest(signed(), body), NOW)
    assert not found.verified
    assert expected in found.faults[0]


def test_verify_request_refuses_other_secret() -> None:
    other = "whsec_" + "B" * 43 + "="
    assert not verify_request(other, SavedRequest(signed(), BODY), NOW).verified


def test_verify_request_explains_secret_used_as_text() -> None:
    import base64

    as_text = "whsec_" + base64.b64encode(SECRET.encode()).decode()
    found = verify_request(SECRET, SavedRequest(signed(secret=as_text), BODY), NOW)
    assert "as text" in found.faults[0]


@pytest.mark.parametrize(("age", "expected"), [(301, "ago"), (-301, "ahead")])
def test_verify_request_refuses_request_out_of_tolerance(age: int, expected: str) -> None:
    request = SavedRequest(signed(age=age), BODY)
    found = verify_request(SECRET, request, NOW)
    assert expected in found.faults[0]
    assert verify_request(SECRET, request, NOW, tolerance=None).verified


@pytest.mark.parametrize("age", [300, -300])
def test_verify_request_accepts_request_at_limit_of_tolerance(age: int) -> None:
    assert verify_request(SECRET, SavedRequest(signed(age=age), BODY), NOW).verified


@pytest.mark.parametrize(("tolerance", "expected"), [(0.1, "0.1 s"), (2, "2 s"), (0, "0 s")])
def test_verify_request_names_given_tolerance(tolerance: float, expected: str) -> None:
    found = verify_request(SECRET, SavedRequest(signed(age=3), BODY), NOW, tolerance)
    assert f"but the limit is {expected}." in found.faults[0]


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_verify_request_names_missing_header(name: str) -> None:
    headers = signed()
    del headers[name]
    assert verify_request(SECRET, SavedRequest(headers, BODY), NOW).faults == (
        f"The header {name} is missing.",
    )


def test_verify_request_explains_unusable_headers() -> None:
    headers = {**signed(), "webhook-timestamp": "soon", "webhook-signature": "v2,abc"}
    faults = " ".join(verify_request(SECRET, SavedRequest(headers, BODY), NOW).faults)
    assert "seconds since 1970" in faults
    assert "version v1" in faults


def test_verify_request_refuses_an_unusable_secret_whatever_the_request() -> None:
    for headers in (signed(), {}):
        with pytest.raises(UnusableSecretError):
            verify_request("whsec_!", SavedRequest(headers, BODY), NOW)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("target", [b"/hook", b"https://receiver.test/hook"])
def test_saved_request_is_parsed_as_headers_and_body(end: bytes, target: bytes) -> None:
    lines = [b"POST %b HTTP/1.1" % target, b"Webhook-Id: msg_1", b"X: a: b", b"", b"one\r\n\r\ntwo"]
    assert parse_saved(end.join(lines)) == SavedRequest(
        {"webhook-id": "msg_1", "x": "a: b"}, b"one\r\n\r\ntwo"
    )


def test_saved_request_is_parsed_as_json() -> None:
    saved = json.dumps({"headers": {"Webhook-Id": "m"}, "body": '{"a": 1}'}).encode()
    assert parse_saved(saved) == SavedRequest({"webhook-id": "m"}, b'{"a": 1}')


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_saved_request_with_a_lone_surrogate_is_judged(name: str) -> None:
    """C-156."""
    saved = {"headers": {**signed(), name: "\ud800"}, "body": BODY.decode()}
    found = verify_request(SECRET, parse_saved(json.dumps(saved).encode()), NOW)
    assert not found.verified
    assert found.delivery.encode()


@pytest.mark.parametrize("saved", ["a: b\n\nbody", '{"headers": {"a": "b"}, "body": "body"}'])
def test_saved_request_may_begin_with_a_byte_order_mark(saved: str) -> None:
    assert parse_saved(saved.encode("utf-8-sig")) == SavedRequest({"a": "b"}, b"body")


@pytest.mark.parametrize(
    "content", [b"", b"a: b", b"POST / HTTP/1.1\nno header\n\nbody", b"{", b'{"body": 1}', b"{}"]
)
def test_saved_request_refuses_other_content(content: bytes) -> None:
    with pytest.raises(UnreadableRequest):
        parse_saved(content)


def test_saved_request_refusal_names_line() -> None:
    with pytest.raises(UnreadableRequest, match="Line 3 is not a header"):
        parse_saved(b"POST / HTTP/1.1\na: b\nno header\n\nbody")


@pytest.mark.parametrize(("body", "type"), [(BODY, "a.b"), (b"[1]", ""), (b"x", "")])
def test_event_type_of_reads_body_type(body: bytes, type: str) -> None:
    assert event_type_of(body) == type
