"""Values encrypted at rest with a key derived from FW_SECRET_KEY (AES-256-GCM, HKDF-SHA-256).

A value is bound to its DocType, field and row, so that a ciphertext that was copied elsewhere
cannot be decrypted. It begins with an id of its key, which distinguishes a changed key from a
damaged value.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fw_actors.errors import ValidationError
from fw_actors.runtime import Entropy

VERSION: Final = "v1"
NOT_ENCRYPTED: Final = "it was stored before the field was a Vault, or by SQL, and is not encrypted"
"""The reason why a text that `VaultCipher.seal` has not returned is unreadable."""
_NONCE_BYTES: Final = 12
_KEY_ID_CHARACTERS: Final = 8


class UnreadableError(Exception):
    """Raised when a stored value cannot be decrypted: no key, another key, or damage."""


class VaultCipher:
    """Encrypts and decrypts Vault fields; both fail without a key."""

    def __init__(self, secret_key: str | None, entropy: Entropy) -> None:
        self._entropy = entropy
        self._cipher: AESGCM | None = None
        self._key_id = ""
        if secret_key:
            key = HKDF(SHA256(), length=32, salt=None, info=b"fw vault v1").derive(
                secret_key.encode()
            )
            self._cipher = AESGCM(key)
            self._key_id = hashlib.sha256(b"fw key id" + key).hexdigest()[:_KEY_ID_CHARACTERS]

    @property
    def key_id(self) -> str:
        """The id with which values under this key begin; empty without a key."""
        return self._key_id

    def seal(self, text: str, doctype: str, field: str, row: str) -> str:
        """Return a text encrypted for the column of a field.

        The result is bound to DocType, field and `row`, the random id of the row.

        Raises: ValidationError without a key.
        """
        if self._cipher is None:
            raise ValidationError(
                f"{field} cannot be written: FW_SECRET_KEY is not set in the environment.",
                field=field,
            )
        nonce = self._entropy.bytes(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, text.encode(), _binding(doctype, field, row))
        return ":".join((VERSION, self._key_id, base64.b64encode(nonce + sealed).decode()))

    def open(self, stored: str | bytes, doctype: str, field: str, row: str) -> str:
        """Return the text that `seal` encrypted for the same DocType, field and row.

        `stored` is bytes if raw SQL has written them (SQLite).

        Raises: UnreadableError.
        """
        if self._cipher is None:
            raise UnreadableError("FW_SECRET_KEY is not set")
        if not isinstance(stored, str):
            raise UnreadableError("the stored value is damaged")
        version, _, rest = stored.partition(":")
        key_id, _, text = rest.partition(":")
        if version != VERSION or len(key_id) != _KEY_ID_CHARACTERS:
            raise UnreadableError(NOT_ENCRYPTED)
        if key_id != self._key_id:
            raise UnreadableError("it was written with another FW_SECRET_KEY")
        try:
            data = base64.b64decode(text, validate=True)
            plain = self._cipher.decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], _binding(doctype, field, row)
            )
        except (InvalidTag, binascii.Error, ValueError):
            raise UnreadableError("the stored value is damaged") from None
        return plain.decode()


def _binding(doctype: str, field: str, row: str) -> bytes:
    return f"{doctype}\x00{field}\x00{row}".encode()
