"""The built-in DocTypes."""

from fw_actors.documents.core.api_key import APIKey
from fw_actors.documents.core.audit_event import AuditEvent
from fw_actors.documents.core.email_delivery import EmailDelivery
from fw_actors.documents.core.error_log import ErrorLog
from fw_actors.documents.core.user import HasRole, Role, User
from fw_actors.documents.core.user_permission import UserPermission
from fw_actors.documents.core.version import Version
from fw_actors.documents.core.webhook import Webhook
from fw_actors.documents.core.webhook_delivery import WebhookDelivery

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
