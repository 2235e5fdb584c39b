"""The built-in DocTypes."""

from fw_actors.documents.core.access import APIKey, HasRole, Role, User, UserPermission
from fw_actors.documents.core.records import AuditEvent, EmailDelivery, ErrorLog, Version
from fw_actors.documents.core.webhooks import Webhook, WebhookDelivery

CORE = (
    Role,
    HasRole,
    User,
    UserPermission,
    APIKey,
    Webhook,
    WebhookDelivery,
    EmailDelivery,
    AuditEvent,
    Version,
    ErrorLog,
)

__all__ = [
    "CORE",
    "APIKey",
    "AuditEvent",
    "EmailDelivery",
    "ErrorLog",
    "HasRole",
    "Role",
    "User",
    "UserPermission",
    "Version",
    "Webhook",
    "WebhookDelivery",
]
