"""Which fields of a document never leave in an event. Source: spec, Redaction of `data.doc`."""

from __future__ import annotations

from enum import Enum
from typing import Final

_NAMES: Final = frozenset({"password", "password_hash", "new_password", "api_secret", "secret"})
_SUFFIXES: Final = ("_password", "_secret")


class Treatment(Enum):
    """What an event shows of a field."""

    SHOWN = "as it is"
    BLANKED = "null (rule 1)"
    CONFIGURED = 'null, or {"configured": true} when a secret is stored (rule 2)'
    REMOVED = "not at all (rule 3)"


def treatment(fieldname: str, fieldtype: str, permlevel: int) -> Treatment:
    """Return what an event shows of a field, decided once per DocType.

    Removal by permlevel comes first; a Vault field named like a secret follows the Vault rule
    (interface §8, Documents).
    """
    if permlevel > 0:
        return Treatment.REMOVED
    if fieldtype == "Vault":
        return Treatment.CONFIGURED
    if fieldtype == "Password" or fieldname in _NAMES or fieldname.endswith(_SUFFIXES):
        return Treatment.BLANKED
    return Treatment.SHOWN


def is_secret(fieldname: str, fieldtype: str) -> bool:
    """Whether a field's value never leaves, whoever may read it and at whatever permlevel."""
    return treatment(fieldname, fieldtype, 0) is not Treatment.SHOWN
