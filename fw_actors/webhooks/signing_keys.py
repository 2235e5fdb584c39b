"""Signing keys of Webhooks, and the rotation of their secrets.

During a rotation both secrets sign for a time (B-350 to B-354). The old secret is stored sealed
beside the new one until that time ends. Each attempt checks the time itself, so that nothing
depends on the Sweeper, which only clears ended secrets.
"""

from __future__ import annotations

import base64
from hmac import HMAC
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.core import Webhook
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.rest import require_version
from fw_actors.documents.tables import table_of
from fw_actors.documents.vault import UnreadableError, VaultCipher
from fw_actors.errors import ValidationError
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.rules import MAX_OVERLAP_HOURS
from fw_actors.rules.signing import PREFIX, UnusableSecretError, key_of, mac_of
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MS_PER_HOUR
from fw_actors.store import Statement, Tx, update_of_times_ahead
from fw_actors.webhooks.claims import StoredWebhook
from fw_actors.webhooks.outage_notices import FwFactory

KEY_CACHE_SIZE: Final = 1024


class NoSigningKey(Exception):
    """Raised if a request cannot be signed; the message becomes the delivery's `error`."""


class SigningKeys:
    """Decrypts the secrets of Webhooks and caches the keys.

    A sealed value always decrypts to the same secret, so entries never become stale.
    """

    def __init__(self, vault: VaultCipher) -> None:
        self._vault = vault
        self._cache: dict[tuple[str, str, str], HMAC] = {}

    def of(self, webhook: StoredWebhook) -> HMAC:
        """Return the key that signs a Webhook's requests. Raises: NoSigningKey."""
        if not webhook.secret:
            raise NoSigningKey("secret_missing: the Webhook has no signing secret.")
        return self._cached(webhook.secret, "secret", webhook.row_id)

    def old_of(self, webhook: StoredWebhook, now: int) -> HMAC | None:
        """Return the old key, which also signs at `now` (ms) during a rotation; else None.

        An old secret that cannot be decrypted is left out: only the current one is required.
        """
        if webhook.old_secret is None or webhook.old_until is None or now >= webhook.old_until:
            return None
        try:
            return self._cached(webhook.old_secret, "old_secret", webhook.row_id)
        except NoSigningKey:
            return None

    def _cached(self, secret: str, field: str, row_id: str) -> HMAC:
        sealed = (secret, field, row_id)
        key = self._cache.get(sealed)
        if key is None:
            key = self._open(*sealed)
            if len(self._cache) >= KEY_CACHE_SIZE:
                self._cache.clear()
            self._cache[sealed] = key
        return key

    def _open(self, secret: str, field: str, row_id: str) -> HMAC:
        try:
            return mac_of(key_of(self._vault.open(secret, "Webhook", field, row_id)))
        except UnreadableError as error:
            reason = f"secret_unreadable: the signing secret cannot be decrypted: {error}."
            raise NoSigningKey(reason) from None
        except UnusableSecretError as error:
            raise NoSigningKey(f"secret_unreadable: {error}") from None


_RANDOM_BYTES: Final = 32
_W: Final = table_of(Webhook).table.c
_ENDED: Final = Statement(
    sa.select(_W.name, _W.old_secret_until)
    .where(_W.old_secret_until <= sa.bindparam("now"))
    .order_by(_W.old_secret_until)
    .limit(1)
)
_CLEAR: Final = Statement(
    sa.update(_W.name.table)
    .where(_W.name == sa.bindparam("webhook"), _W.old_secret_until == sa.bindparam("until"))
    .values(old_secret=None, old_secret_until=None, modified=_W.modified + 1)
)


class SecretRotation(NamedTuple):
    """The result of a rotation: the old secret also signs until `old_until` (None: it no longer
    signs). `modified` is the new version of the Webhook."""

    webhook: str
    old_until: str | None
    modified: str


def new_secret(entropy: Entropy) -> str:
    """Return a new signing secret: whsec_ and 32 random bytes in base64 (B-22)."""
    return PREFIX + base64.b64encode(entropy.bytes(_RANDOM_BYTES)).decode()


def rotate(
    fw: Fw,
    audit: AuditLog,
    webhook: str,
    secret: str,
    overlap_hours: int,
    version: int | None = None,
) -> SecretRotation:
    """Replace the secret of a Webhook; with an overlap the old one also signs for that time.

    A rotation within the overlap of another ends the oldest secret. `version`: as for
    `rest.submit`.

    Raises: ValidationError naming `secret` or `overlap`; NotFoundError; PermissionDeniedError;
        ConflictError.
    """
    if not 0 <= overlap_hours <= MAX_OVERLAP_HOURS:
        raise ValidationError(
            f"overlap must be between 0 and {MAX_OVERLAP_HOURS} hours.", field="overlap"
        )
    doc, stored = fw.documents.load_for_save(fw, "Webhook", webhook)
    require_version(stored, version)
    old, until = "", None
    if overlap_hours:
        old, until = _current_secret(stored, secret), iso(fw.tx.now + overlap_hours * MS_PER_HOUR)
    doc.__dict__.update(secret=secret, old_secret=old, old_secret_until=until)
    with audit.suppressed(fw.tx):
        fw.documents.save(fw, doc, ignore_permissions=False, stored=stored)
    audit.record(fw, Action.ROTATE, webhook, {"overlap_hours": overlap_hours})
    return SecretRotation(webhook, until, str(doc.modified))


def _current_secret(stored: Any, new: str) -> str:
    try:
        current: str = stored.vault("secret") or ""
    except UnreadableError as error:
        raise ValidationError(
            f"The secret in use cannot be kept: {error}. Rotate without an overlap.",
            field="overlap",
        ) from None
    if current == new:
        raise ValidationError("The new secret must differ from the one in use.", field="secret")
    return current


def end_rotation(tx: Tx, handle: FwFactory, audit: AuditLog) -> int:
    """Clear one old secret whose time has ended; return the number of cleared secrets, 0 or 1."""
    row = tx.one(_ENDED, now=tx.now)
    if row is None:
        return 0
    webhook, until = row
    if tx.run(_CLEAR, webhook=webhook, until=until):
        audit.record(handle(tx), Action.ROTATION_END, webhook, {"until": iso(until)})
    return 1


_LATEST: Final[sa.BindParameter[Any]] = sa.bindparam("latest", type_=sa.BigInteger())
_CORRECT: Final = Statement(
    update_of_times_ahead(
        _W.name.table, _W.old_secret_until - MAX_OVERLAP_HOURS * MS_PER_HOUR
    ).values(old_secret_until=_LATEST, modified=_W.modified + 1)
)


def correct_times(tx: Tx, after: int, limit: int) -> int:
    """Correct at most `limit` overlaps that would begin later than `after` (ms) even if they were
    of the maximum length; return how many.

    They last the maximum length from now on: the time of their rotation is not stored (O-163).
    """
    latest = tx.now + MAX_OVERLAP_HOURS * MS_PER_HOUR
    return tx.run(_CORRECT, ahead=after, latest=latest, limit=limit)
