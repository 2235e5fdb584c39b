"""Signature and secret (B-124, B-22, B-23, B-24)."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given, settings
from hypothesis import strategies as st

from fw_actors.rules.signing import UnusableSecretError, key_of, mac_of, sign, validate_secret

KEY = b"\x00\xff a key of twenty-four b"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def test_sign_is_hmac_sha256_of_id_timestamp_and_body() -> None:
    """The example of the Standard Webhooks specification 1.0."""
    key = mac_of(key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    signature = sign(key, b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330", b'{"test": 2432232314}')
    assert signature == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


BODIES = st.binary(max_size=200)
IDS = st.text("abcXYZ0189", min_size=1, max_size=27).map("msg_".__add__)
KEYS = st.binary(min_size=1, max_size=80)


@pytest.fixture(scope="module")
def svix_webhook() -> Any:
    """The class of the library, imported here because its import takes 0.4 s."""
    from svix.webhooks import Webhook

    return Webhook


@settings(max_examples=30)
@given(key=KEYS, delivery=IDS, data=st.dictionaries(st.text(), st.text(), max_size=3))
def test_signature_is_accepted_by_official_verifiers(
    svix_webhook: Any, key: bytes, delivery: str, data: dict[str, str]
) -> None:
    """Libraries of the Standard Webhooks convention verify the request (B-125)."""
    now = datetime.now(UTC)
    secret = "whsec_" + base64.b64encode(key).decode()
    body = json.dumps(data)
    timestamp = str(int(now.timestamp()))
    signature = sign(mac_of(key_of(secret)), delivery.encode(), timestamp.encode(), body.encode())
    headers = {
        "webhook-id": delivery,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature.decode(),
    }
    assert standardwebhooks.Webhook(secret).verify(body, headers) == data
    svix_webhook(secret).verify(body, headers)  # raises when it disagrees


@given(KEYS, IDS, BODIES)
def test_signature_equals_official_signature(key: bytes, delivery: str, body: bytes) -> None:
    moment = datetime.fromtimestamp(1_800_000_000, UTC)
    text = body.decode("latin-1")
    theirs = standardwebhooks.Webhook(base64.b64encode(key).decode()).sign(delivery, moment, text)
    assert sign(mac_of(key), delivery.encode(), b"1800000000", text.encode()) == theirs.encode()


@given(KEYS, st.booleans())
def test_key_of_decodes_whsec_with_optional_padding(key: bytes, padded: bool) -> None:
    """Standard base64, padding optional, of at least one byte (B-22)."""
    text = base64.b64encode(key).decode()
    assert key_of("whsec_" + (text if padded else text.rstrip("="))) == key


@given(st.text(min_size=1).filter(lambda s: not s.startswith("whsec_") and s.isprintable()))
def test_key_of_returns_bytes_of_other_secrets(secret: str) -> None:
    """Any other secret is used as its raw bytes (B-23)."""
    assert key_of(secret) == secret.encode()


GOOD = [
    SECRET,
    "x",
    "a passphrase",
    "whsec",
    "WHSEC_abc",
    "v1",
    "v1.x",
    "whsec_AA",
    "s" * 200,
    "a\u00a0\ue000b",
    "a ~b",
]
BAD = [
    ("", "empty"),
    (" x", "white space"),
    ("x ", "white space"),
    ("x\u00a0", "white space"),
    ("x\n", "white space"),
    ("a\tb", "control"),
    ("a\x00b", "control"),
    ("a\x1fb", "control"),
    ("a\x7fb", "control"),
    ("a\x85b", "control"),
    ("a\x9fb", "control"),
    ("a\ud800b", "control"),
    ("a\udfffb", "control"),
    ("v1,abc", "v1,"),
    ("whsec_", "base64"),
    ("whsec_=", "base64"),
    ("whsec_A", "base64"),
    ("whsec_AAAAA", "base64"),
    ("whsec_AA=", "base64"),
    ("whsec_AAAA=", "base64"),
    ("whsec_AA===", "base64"),
    ("whsec_A-_B", "base64"),  # the URL alphabet is not the standard one
    ("whsec_AA AA", "base64"),
    ("whsec_AA==AA", "base64"),
]


@pytest.mark.parametrize("secret", GOOD)
def test_validate_secret_accepts_usable_secrets(secret: str) -> None:
    """Lengths other than 24 to 64 bytes are accepted (B-25)."""
    validate_secret(secret)


@pytest.mark.parametrize(("secret", "reason"), BAD)
def test_validate_secret_refuses_unusable_secrets(secret: str, reason: str) -> None:
    """Outer white space, control characters and a leading `v1,` are refused (B-24)."""
    with pytest.raises(UnusableSecretError, match=reason):
        validate_secret(secret)


@given(st.text(max_size=30))
def test_validated_secret_always_gives_key(secret: str) -> None:
    try:
        validate_secret(secret)
    except UnusableSecretError:
        return
    assert key_of(secret)
