"""The secrets that a request of a Webhook has to be signed by, read from the store itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fw_actors.documents.vault import UnreadableError, VaultCipher
from fw_actors.runtime import SeededEntropy
from tests.simulation.stored import WebhookRow

SECOND_MS: Final = 1000


class Signers:
    """Opens the secrets of Webhooks, sealed with any of the keys that a site had."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._ciphers = [VaultCipher(key, SeededEntropy(1)) for key in keys]

    def of(self, hook: WebhookRow, second: int) -> list[tuple[str, ...]]:
        """Return by which secrets a request may be signed that says that it was made at `second`.

        More than one choice only for the second in which an overlap ends, or if another key opens
        the secret than the one that it was claimed with.
        """
        found: list[tuple[str, ...]] = []
        for cipher in self._ciphers:
            current = _opened(cipher, hook.secret, "secret", hook.row_id)
            if current is None:
                continue
            old = _opened(cipher, hook.old_secret, "old_secret", hook.row_id)
            until = hook.old_until
            if old is not None and until is not None and until > second * SECOND_MS:
                found.append((current, old))
            if old is None or until is None or until < (second + 1) * SECOND_MS:
                found.append((current,))
        return found


def _opened(cipher: VaultCipher, sealed: str | None, field: str, row_id: str) -> str | None:
    try:
        return cipher.open(sealed, "Webhook", field, row_id) if sealed else None
    except UnreadableError:
        return None
