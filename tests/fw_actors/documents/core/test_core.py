"""The built-in DocTypes have the fields that the contract lists (D-220 to D-226)."""

from __future__ import annotations

import pytest

from fw_actors.documents.core import (
    AuditEvent,
    HasRole,
    Role,
    User,
    UserPermission,
    Webhook,
    WebhookDelivery,
)
from fw_actors.documents.handle import DocType
from fw_actors.documents.tables import DocTable
from fw_actors.errors import ValidationError
from fw_actors.store.statement import POSTGRESQL, SQLITE

WEBHOOK = """
enabled Check, url Data, event_type Select, webhook_doctype Data, on_insert Check, on_update Check,
on_submit Check, on_cancel Check, on_trash Check, custom_event Data, secret Vault, timeout Int,
max_attempts Int
"""
DELIVERY = """
webhook Data, event Data, status Select, attempts Int, max_attempts Int, next_attempt Datetime,
last_attempt Datetime, response_status Int, response_body Text, error Data, duration_ms Int,
key Data, reference_doctype Data, reference_name Data, payload Text, sent Datetime
"""
USER = "email Data, fullName Data, language Data, enabled Check, roles Table, new_password Password"

ROWS = [
    (Webhook, WEBHOOK), (WebhookDelivery, DELIVERY), (User, USER), (HasRole, "role Link"),
    (Role, ""), (UserPermission, "user Link, allow Data, for_value Data"),
    (AuditEvent, "action Data, target Data, detail JSON, actor Data, request_id Data"),
]  # fmt: skip


@pytest.mark.parametrize(("doctype", "fields"), ROWS)
def test_core_doctype_declares_fields_of_contract(doctype: type[DocType], fields: str) -> None:
    """The fields of Webhook and Webhook Delivery (B-180) and of the others (D-222,
    D-223, D-225, D-226)."""
    declared = {f"{f.name} {f.type}" for f in doctype.meta.fields.values()}
    assert set(filter(None, (each.strip() for each in fields.split(",")))) <= declared
    assert doctype.meta.problems == ()


def test_webhook_fields_have_contract_defaults_and_limits() -> None:
    """Enabled is 1, the five `on_…` are 0 (B-11, B-16); url has 2048 characters (B-13). There is
    no rate limit and no order by default (B-310, B-320)."""
    fields = Webhook.meta.fields
    defaults = {name: field.default for name, field in fields.items() if field.default is not None}
    assert defaults == {
        "enabled": 1, "timeout": 10, "max_attempts": 6, "rate_limit": 0, "ordering": "none",
    }  # fmt: skip
    required = [name for name, field in fields.items() if field.required]
    # The last two have defaults, but a null would leave a delivery without them.
    assert required == ["url", "event_type", "secret", "timeout", "max_attempts"]
    assert fields["url"].length == 2048


@pytest.mark.parametrize(("field", "low", "high"), [("timeout", 1, 60), ("max_attempts", 1, 10)])
def test_webhook_timeout_and_max_attempts_have_contract_range(
    field: str, low: int, high: int
) -> None:
    """`timeout` is 1 to 60 seconds (B-26), `max_attempts` 1 to 10 (B-27)."""
    declared = Webhook.meta.fields[field]
    assert [declared.accept(value) for value in (low, high)] == [low, high]
    for value in (low - 1, high + 1):
        with pytest.raises(ValidationError):
            declared.accept(value)


def test_webhook_delivery_doctype_is_read_only() -> None:
    """A delivery is read only, but for replay (B-182, D-221)."""
    assert WebhookDelivery.meta.read_only
    assert ("webhook", "key") in WebhookDelivery.meta.unique_together


def test_delivery_indexes_omit_null_key_and_null_reference() -> None:
    """Most events of apps have neither, and every index entry is written with the event."""
    creations = " ".join(
        creation.form(dialect).text.replace('"', "")
        for creation in DocTable(WebhookDelivery.meta).indexes.values()
        for dialect in (SQLITE, POSTGRESQL)
    )
    assert creations.count("(webhook, key) WHERE key IS NOT NULL") == 2
    reference = "(reference_doctype, reference_name) WHERE reference_doctype IS NOT NULL"
    assert creations.count(reference) == 2


def test_audit_event_doctype_is_read_only() -> None:
    assert AuditEvent.meta.read_only


@pytest.mark.parametrize(
    "doctype", [User, Webhook, WebhookDelivery, Role, UserPermission, AuditEvent]
)
def test_core_doctype_grants_no_role_permissions(doctype: type[DocType]) -> None:
    """No user may write their own User record (A-24); only a System Manager may write Webhooks."""
    assert not doctype.meta.permissions
