"""Signing keys of Webhooks, and the receivers that their URLs name."""

from __future__ import annotations

from hmac import HMAC
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.documents.vault import UnreadableError, VaultCipher
from fw_actors.errors import ValidationError
from fw_actors.http import parse_endpoint
from fw_actors.rules.signing import UnusableSecretError, key_of, mac_of
from fw_actors.store import Tx
from fw_actors.webhooks.claims import Hook

MAX_KEPT: Final = 1024


class NoSigningKey(Exception):
    """Raised if a request cannot be signed; the message becomes the delivery's `error`."""


class SigningKeys:
    """Decrypts the secrets of Webhooks and caches the keys.

    A sealed value always decrypts to the same secret, so entries never become stale.
    """

    def __init__(self, vault: VaultCipher) -> None:
        self._vault = vault
        self._kept: dict[tuple[str, str, str], HMAC] = {}

    def of(self, hook: Hook) -> HMAC:
        """Return the key that signs a Webhook's requests. Raises: NoSigningKey."""
        if not hook.secret:
            raise NoSigningKey("secret_missing: the webhook has no signing secret.")
        return self._cached(hook.secret, "secret", hook.row_id)

    def old_of(self, hook: Hook, now: int) -> HMAC | None:
        """Return the key that signs beside it at `now` (ms), while a rotation overlaps.

        An old secret that does not open is left out: the current one is what must sign.
        """
        if hook.old_secret is None or hook.old_until is None or now >= hook.old_until:
            return None
        try:
            return self._cached(hook.old_secret, "old_secret", hook.row_id)
        except NoSigningKey:
            return None

    def _cached(self, secret: str, field: str, row_id: str) -> HMAC:
        sealed = (secret, field, row_id)
        key = self._kept.get(sealed)
        if key is None:
            key = self._open(*sealed)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[sealed] = key
        return key

    def _open(self, secret: str, field: str, row_id: str) -> HMAC:
        try:
            return mac_of(key_of(self._vault.open(secret, "Webhook", field, row_id)))
        except UnreadableError as error:
            reason = f"secret_unreadable: the signing secret does not open; {error}."
            raise NoSigningKey(reason) from None
        except UnusableSecretError as error:
            raise NoSigningKey(f"secret_unreadable: {error}") from None


def receivers_of(tx: Tx, registry: Registry) -> dict[str, str]:
    """Return the receiver of each Webhook by name, as `https://host:port`; empty if the URL is
    invalid."""
    c = registry.tables["Webhook"].table.c
    return {str(name): _receiver(url) for name, url in tx.rows(sa.select(c.name, c.url))}


def _receiver(url: str | None) -> str:
    try:
        return str(parse_endpoint(url or "", development=True).origin)  # validated before
    except ValidationError:
        return ""
