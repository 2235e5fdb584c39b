"""The rows of redaction, written out again (B-90, B-91, B-92,
B-93)."""

from __future__ import annotations

import pytest

from fw_actors.rules.safe_output import FieldRedaction, is_secret, redaction_of

ROWS = [  # field, type, permlevel, what an event shows
    ("title", "Data", 0, "SHOWN"),
    ("whatever", "Password", 0, "BLANKED"),
    ("password", "Data", 0, "BLANKED"),
    ("password_hash", "Data", 0, "BLANKED"),
    ("new_password", "Data", 0, "BLANKED"),
    ("api_secret", "Data", 0, "BLANKED"),
    ("secret", "Data", 0, "BLANKED"),
    ("smtp_password", "Text", 0, "BLANKED"),
    ("client_secret", "JSON", 0, "BLANKED"),
    ("db_secret", "Table", 0, "BLANKED"),
    ("token", "Vault", 0, "CONFIGURED"),
    ("secret", "Vault", 0, "CONFIGURED"),
    ("margin", "Float", 1, "REMOVED"),
    ("margin", "Float", 9, "REMOVED"),
    ("secret", "Vault", 1, "REMOVED"),
    ("password", "Password", 2, "REMOVED"),
    ("lines", "Table", 1, "REMOVED"),
]


@pytest.mark.parametrize(("field", "kind", "permlevel", "shown"), ROWS)
def test_redaction_depends_on_type_name_and_permlevel(
    field: str, kind: str, permlevel: int, shown: str
) -> None:
    """Removal comes first (B-90), a Vault follows the Vault rule (B-91), then names
    (B-92)."""
    assert redaction_of(field, kind, permlevel) is FieldRedaction[shown]


@pytest.mark.parametrize(
    "field", ["secrets", "password_hint", "secretary", "passwords", "token", "api_key", "Password"]
)
def test_redaction_keeps_all_other_fields(field: str) -> None:
    """Rule 4 of redaction (B-93)."""
    assert redaction_of(field, "Data", 0) is FieldRedaction.SHOWN


@pytest.mark.parametrize(
    ("field", "kind", "secret"),
    [
        ("whatever", "Password", True),
        ("token", "Vault", True),
        ("password_hash", "Data", True),
        ("db_secret", "Data", True),
        ("title", "Data", False),
        ("lines", "Table", False),
    ],
)
def test_is_secret_covers_versions_and_exports(field: str, kind: str, secret: bool) -> None:
    """A secret is absent from Versions and exports (D-70, D-16, D-223)."""
    assert is_secret(field, kind) is secret
