"""The signing keys of Webhooks, each opened once for as long as its secret stays the same."""

from __future__ import annotations

from hmac import HMAC
from typing import Final

from fw_actors.documents.vault import UnreadableError, Vault
from fw_actors.rules.signing import UnusableSecretError, key_of, mac_of
from fw_actors.services.delivery_rows import Hook

MOST_KEPT: Final = 1024


class NoSigningKey(Exception):
    """Raised when nothing can be signed; the message is the delivery's `error`."""


class SigningKeys:
    """Opens secrets, and keeps what it opened.

    A sealed secret never changes its meaning, so that nothing has to be forgotten for being old.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._kept: dict[tuple[str, str], HMAC] = {}

    def of(self, hook: Hook) -> HMAC:
        """Return what a Webhook's requests are signed with. Raises: NoSigningKey."""
        if not hook.secret:
            raise NoSigningKey("secret_missing: the webhook has no signing secret.")
        sealed = (hook.secret, hook.row_id)
        key = self._kept.get(sealed)
        if key is None:
            key = self._open(*sealed)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[sealed] = key
        return key

    def _open(self, secret: str, row_id: str) -> HMAC:
        try:
            return mac_of(key_of(self._vault.open(secret, "Webhook", "secret", row_id)))
        except UnreadableError as error:
            reason = f"secret_unreadable: the signing secret does not open; {error}."
            raise NoSigningKey(reason) from None
        except UnusableSecretError as error:
            raise NoSigningKey(f"secret_unreadable: {error}") from None
