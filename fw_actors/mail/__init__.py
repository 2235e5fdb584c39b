"""Mail: messages, their templates, and the transports that carry them."""

from fw_actors.mail.message import (
    FailingWebhook,
    MailMessage,
    NamedKey,
    NewDevice,
    NewKey,
    Notice,
    Template,
    TemplateValues,
    UnsafeHeaderError,
    render,
    subject_of,
)
from fw_actors.mail.transports import (
    LogTransport,
    MailFault,
    MailNotSent,
    MailRefused,
    MethodTransport,
    SmtpTransport,
    Transport,
    load_method,
    probe,
)

__all__ = [
    "FailingWebhook",
    "LogTransport",
    "MailFault",
    "MailMessage",
    "MailNotSent",
    "MailRefused",
    "MethodTransport",
    "NamedKey",
    "NewDevice",
    "NewKey",
    "Notice",
    "SmtpTransport",
    "Template",
    "TemplateValues",
    "Transport",
    "UnsafeHeaderError",
    "load_method",
    "probe",
    "render",
    "subject_of",
]
