"""Mail: messages, their templates, and the transports that carry them."""

from fw_actors.mail.log import LogTransport
from fw_actors.mail.message import MailMessage, UnsafeHeaderError
from fw_actors.mail.method import MethodTransport, load_method
from fw_actors.mail.smtp import SmtpTransport, probe
from fw_actors.mail.templates import (
    NamedKey,
    NewKey,
    Notice,
    Template,
    TemplateValues,
    render,
    subject_of,
)
from fw_actors.mail.transport import MailFault, MailNotSent, MailRefused, Transport

__all__ = [
    "LogTransport",
    "MailFault",
    "MailMessage",
    "MailNotSent",
    "MailRefused",
    "MethodTransport",
    "NamedKey",
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
