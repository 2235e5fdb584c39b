"""The key that an attempt signs with (B-127, B-167, B-169)."""

from __future__ import annotations

import base64
import hmac

import pytest
from msgspec.structs import replace

from fw_actors.documents.vault import VaultCipher
from fw_actors.rules.signing import sign
from fw_actors.runtime import SeededEntropy
from fw_actors.webhooks.claims import StoredWebhook
from fw_actors.webhooks.signing_keys import KEY_CACHE_SIZE, NoSigningKey, SigningKeys

ENTROPY = SeededEntropy(1)
VAULT = VaultCipher("a key", ENTROPY)


def hook(
    secret: str | None = "a signing secret", row: str = "r", vault: VaultCipher = VAULT
) -> StoredWebhook:
    sealed = None if secret is None else vault.seal(secret, "Webhook", "secret", row)
    return StoredWebhook("w", True, "https://x.test", 10, sealed, row)


def signed(keys: SigningKeys, secret: str) -> bytes:
    """Return the signature of the same message with the secret of a Webhook."""
    return sign(keys.of(hook(secret)), b"msg_1", b"1800000000", b"{}")


def by(key: bytes) -> bytes:
    """Return the signature of the same message by a key."""
    mac = hmac.digest(key, b"msg_1.1800000000.{}", "sha256")
    return b"v1," + base64.b64encode(mac)


def test_signing_key_is_decrypted_secret() -> None:
    """A secret of `whsec_` is decoded (B-22); any other is its raw bytes (B-23)."""
    keys = SigningKeys(VAULT)
    assert signed(keys, "raw") == signed(keys, "raw") == by(b"raw")
    assert signed(keys, "whsec_AAEC") == by(b"\x00\x01\x02")


def test_signing_key_can_sign_repeatedly() -> None:
    key = SigningKeys(VAULT).of(hook("raw"))
    assert sign(key, b"msg_0", b"1", b"other") != by(b"raw")
    assert sign(key, b"msg_1", b"1800000000", b"{}") == by(b"raw")


def test_changed_secret_gives_another_signing_key() -> None:
    """Each attempt signs with the current secret (B-127)."""
    keys = SigningKeys(VAULT)
    assert [signed(keys, secret) for secret in ("one", "two", "one")] == [
        by(key) for key in (b"one", b"two", b"one")
    ]


UNSIGNABLE = [  # Webhook, site's key, how the error begins
    (hook(None), "a key", "secret_missing: "),
    (replace(hook(), secret=""), "a key", "secret_missing: "),
    (hook(), None, "secret_unreadable: "),
    (hook(), "another key", "secret_unreadable: "),
    (replace(hook(), row_id="elsewhere"), "a key", "secret_unreadable: "),
    (replace(hook(), secret="damaged"), "a key", "secret_unreadable: "),
    (hook("whsec_***"), "a key", "secret_unreadable: "),
]


@pytest.mark.parametrize(("webhook", "key", "error"), UNSIGNABLE)
def test_signing_keys_name_missing_or_unreadable_secret(
    webhook: StoredWebhook, key: str | None, error: str
) -> None:
    """A missing or changed key is `secret_unreadable`, nothing stored `secret_missing` (B-169)."""
    with pytest.raises(NoSigningKey, match=f"^{error}") as reason:
        SigningKeys(VaultCipher(key, ENTROPY)).of(webhook)
    assert "signing secret" not in str(reason.value).replace("the signing secret", "").replace(
        "no signing secret", ""
    )


def test_old_secret_signs_until_its_end() -> None:
    """The overlap ends at its time (B-352)."""
    old = VAULT.seal("old", "Webhook", "old_secret", "r")
    keys, webhook = SigningKeys(VAULT), replace(hook(), old_secret=old, old_until=1_000)
    key = keys.old_of(webhook, 999)
    assert key is not None
    assert sign(key, b"msg_1", b"1800000000", b"{}") == by(b"old")
    assert keys.old_of(webhook, 1_000) is None


def test_unreadable_old_secret_is_left_out() -> None:
    """Only the current one is required: the delivery is sent, with one signature."""
    webhook = replace(hook(), old_secret="damaged", old_until=1_000)
    assert SigningKeys(VAULT).old_of(webhook, 999) is None


def test_signing_keys_cache_is_bounded() -> None:
    keys, first = SigningKeys(VAULT), hook("raw")
    key = keys.of(first)
    assert keys.of(first) is key
    for number in range(KEY_CACHE_SIZE):
        keys.of(hook(f"secret {number}"))
    assert keys.of(first) is not key
