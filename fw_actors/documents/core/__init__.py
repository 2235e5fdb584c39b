"""The built-in DocTypes."""

from fw_actors.documents.core.email_delivery import EmailDelivery
from fw_actors.documents.core.user import HasRole, Role, User
from fw_actors.documents.core.webhook import Webhook
from fw_actors.documents.core.webhook_delivery import WebhookDelivery

CORE = (Role, HasRole, User, Webhook, WebhookDelivery, EmailDelivery)

__all__ = ["CORE", "EmailDelivery", "HasRole", "Role", "User", "Webhook", "WebhookDelivery"]
