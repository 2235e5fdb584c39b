"""The built-in DocTypes."""

from fw_actors.documents.core.audit_event import AuditEvent
from fw_actors.documents.core.email_delivery import EmailDelivery
from fw_actors.documents.core.user import HasRole, Role, User
from fw_actors.documents.core.user_permission import UserPermission
from fw_actors.documents.core.webhook import Webhook
from fw_actors.documents.core.webhook_delivery import WebhookDelivery

CORE = (
    Role,
    HasRole,
    User,
    UserPermission,
    Webhook,
    WebhookDelivery,
    EmailDelivery,
    AuditEvent,
)

__all__ = [
    "CORE",
    "AuditEvent",
    "EmailDelivery",
    "HasRole",
    "Role",
    "User",
    "UserPermission",
    "Webhook",
    "WebhookDelivery",
]
