"""What a Webhook's requests are signed with: spec, Webhook Delivery status; interface §7."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from fw_actors.documents.vault import Vault
from fw_actors.runtime import SeededEntropy
from fw_actors.services.deliveries import Hook
from fw_actors.services.signing_keys import MOST_KEPT, NoSigningKey, SigningKeys

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
KEY = b"0123456789abcdef0123456789abcdef"


def make_vault(secret_key: str | None = "a key of the tests, forty characters long") -> Vault:
    return Vault(secret_key, SeededEntropy(1))


def hook(secret: str | None, row_id: str = "row1") -> Hook:
    return Hook("hook", True, "https://receiver.example/", 10, secret, row_id)


def sealed(vault: Vault, secret: str = SECRET, row_id: str = "row1") -> str:
    return vault.seal(secret, "Webhook", "secret", row_id)


def test_the_key_is_what_the_secret_says() -> None:
    vault = make_vault()
    assert SigningKeys(vault).of(hook(sealed(vault))) == KEY


def test_a_secret_is_opened_once_for_as_long_as_it_stays_the_same() -> None:
    vault = make_vault()
    watched = Mock(wraps=vault)
    keys, first = SigningKeys(watched), hook(sealed(vault))
    assert [keys.of(first), keys.of(first)] == [KEY, KEY]
    assert watched.open.call_count == 1


def test_a_changed_secret_signs_at_once() -> None:
    """Interface §7: each attempt uses the Webhook's secret of that moment."""
    vault = make_vault()
    keys = SigningKeys(vault)
    keys.of(hook(sealed(vault)))
    assert keys.of(hook(sealed(vault, "another secret"))) == b"another secret"


def test_a_secret_that_was_moved_to_another_row_does_not_sign() -> None:
    vault = make_vault()
    keys = SigningKeys(vault)
    moved = sealed(vault)
    keys.of(hook(moved))
    with pytest.raises(NoSigningKey, match=r"^secret_unreadable: "):
        keys.of(hook(moved, "row2"))


@pytest.mark.parametrize("missing", [None, ""])
def test_a_webhook_without_a_secret_has_no_key(missing: str | None) -> None:
    with pytest.raises(NoSigningKey, match=r"^secret_missing: "):
        SigningKeys(make_vault()).of(hook(missing))


@pytest.mark.parametrize("secret_key", [None, "another key of forty characters, or nearly so"])
def test_without_the_key_that_sealed_it_a_secret_does_not_sign(secret_key: str | None) -> None:
    with pytest.raises(NoSigningKey, match=r"^secret_unreadable: "):
        SigningKeys(make_vault(secret_key)).of(hook(sealed(make_vault())))


def test_what_is_kept_is_bounded() -> None:
    vault = make_vault()
    keys = SigningKeys(vault)
    for number in range(MOST_KEPT + 10):
        keys.of(hook(sealed(vault, row_id=str(number)), str(number)))
    assert len(keys._kept) <= MOST_KEPT
