"""Verifying what was received (H-229, H-230)."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks

from fw_client.receiver import NotAnEvent, NotGenuine, signing_key, verify
from fw_client.receiver.signatures import read_event
from tests.fw_client.receiver_kit import BODY, NOW, OTHER, SECRET, signed

SECRETS = [SECRET, "whsec_YWI", "a plain secret", "sécret-ключ"]


def checked(headers: dict[str, str], *secrets: str, now: float = NOW, body: bytes = BODY) -> str:
    return verify([signing_key(each) for each in secrets or (SECRET,)], headers, body, now)


@pytest.mark.parametrize("secret", SECRETS)
def test_signature_of_service_is_genuine(secret: str) -> None:
    assert checked(signed(secret), secret) == "msg_1"


def test_signature_of_standardwebhooks_library_is_genuine() -> None:
    signature = standardwebhooks.Webhook(SECRET).sign(
        "msg_1", datetime.fromtimestamp(NOW, UTC), BODY.decode()
    )
    assert checked({**signed(OTHER), "webhook-signature": signature}) == "msg_1"


def test_verify_accepts_any_matching_secret_and_signature() -> None:
    headers = signed()
    assert checked(headers, OTHER, SECRET) == "msg_1"
    several = f"v1,AAAA v1a,x {headers['webhook-signature']}"
    assert checked({**headers, "webhook-signature": several}) == "msg_1"


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "msg_2"},
        {"webhook-id": ""},
        {"webhook-id": "x" * 257},
        {"webhook-timestamp": str(NOW + 1)},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "²"},
        {"webhook-timestamp": "1" * 300},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,ü"},
        {"webhook-signature": "v1,AAAA " * 50},
    ],
)
def test_changed_request_is_not_genuine(changed: dict[str, str]) -> None:
    with pytest.raises(NotGenuine):
        checked({**signed(), **changed})


def test_signature_without_version_is_not_genuine() -> None:
    bare = signed()["webhook-signature"].removeprefix("v1,")
    with pytest.raises(NotGenuine):
        checked({**signed(), "webhook-signature": bare})


def test_signature_of_other_body_or_secret_is_not_genuine() -> None:
    with pytest.raises(NotGenuine):
        checked(signed(), body=BODY + b" ")
    with pytest.raises(NotGenuine):
        checked(signed(), OTHER)


@pytest.mark.parametrize("off", [-300, 300])
def test_timestamp_may_be_off_by_five_minutes(off: int) -> None:
    assert checked(signed(), now=NOW + off) == "msg_1"
    with pytest.raises(NotGenuine, match="300 s off"):
        checked(signed(), now=NOW + off + (1 if off > 0 else -1))


def test_verify_compares_at_most_sixteen_signatures() -> None:
    genuine = signed()["webhook-signature"]
    assert checked({**signed(), "webhook-signature": "v1,A " * 15 + genuine}) == "msg_1"
    with pytest.raises(NotGenuine):
        checked({**signed(), "webhook-signature": "v1,A " * 16 + genuine})


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_!!!!", "whsec_a", "whsec_YWI!YWI=", "whsec_YWJj!!!!"]
)
def test_unusable_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="secret") as refused:
        signing_key(secret)
    assert "!!!!" not in str(refused.value)


def test_webhook_id_has_1_to_256_characters() -> None:
    assert checked(signed(name="x" * 256)) == "x" * 256
    for name in ("", "x" * 257):
        with pytest.raises(NotGenuine, match="webhook-id is missing, or longer than 256"):
            checked(signed(name=name))


def test_secret_needs_no_base64_padding() -> None:
    assert signing_key(SECRET.rstrip("=")) == base64.b64decode(SECRET.removeprefix("whsec_"))


def test_read_event_returns_sent_fields() -> None:
    event = read_event("msg_1", BODY)
    assert (event.id, event.type, event.data) == ("msg_1", "order.paid", {"a": "ünï"})
    assert event.timestamp == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    assert event.body == BODY


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", b"[" * 100_000,
     b'{"type": 1, "timestamp": "2026-01-01T00:00:00Z", "data": {}}',
     b'{"type": "a", "timestamp": "2026-01-01T00:00:00Z", "data": []}',
     b'{"type": "a", "timestamp": 5, "data": {}}'],
)  # fmt: skip
def test_read_event_refuses_malformed_body(body: Any) -> None:
    with pytest.raises(NotAnEvent):
        read_event("msg_1", body)
