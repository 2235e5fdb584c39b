"""smtplib's and the socket's errors as ours: one sentence each, and whether a later try may help.

5xx to the recipient is final (interface §8), and so is 5xx to the message itself; what concerns
the deployment (connection, TLS, AUTH, sender) is tried again, since an operator may mend it.
"""

from __future__ import annotations

import smtplib
import ssl
import unicodedata
from typing import Final

from fw_actors.mail.transport import MailFault, MailNotSent, MailRefused

_PERMANENT: Final = 500
_SHOWN_CHARACTERS: Final = 200


def fault_of(error: Exception) -> MailFault:
    """Return what to raise in the place of an error of smtplib or of the socket."""
    if isinstance(error, smtplib.SMTPException):
        return _fault_of_reply(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return MailNotSent(f"tls: {_plain(error.verify_message)}.")
    if isinstance(error, ssl.SSLError):
        return MailNotSent(f"tls: {_plain(error.reason or 'the handshake failed')}.")
    if isinstance(error, TimeoutError):
        return MailNotSent("timeout: the mail server did not answer in time.")
    if isinstance(error, UnicodeError):
        return MailNotSent("auth: FW_SMTP_USER and FW_SMTP_PASSWORD must be ASCII.")
    reason = error.strerror if isinstance(error, OSError) else None
    return MailNotSent(f"connect: {_plain(reason or 'the connection failed')}.")


def _fault_of_reply(error: smtplib.SMTPException) -> MailFault:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused_recipient(error)
    if isinstance(error, smtplib.SMTPDataError):
        # Without the server's words: a filter may quote the link in them.
        told = f"message: the mail server answered {error.smtp_code}."
        return MailRefused(told) if error.smtp_code >= _PERMANENT else MailNotSent(told)
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return MailNotSent(f"auth: the mail server answered {error.smtp_code}.")
    if isinstance(error, smtplib.SMTPResponseException):
        told = _plain(error.smtp_error)
        return MailNotSent(f"smtp: the mail server answered {error.smtp_code} {told}.")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return MailNotSent(f"smtp: {_plain(str(error))}.")
    return MailNotSent("smtp: the mail server closed the connection.")


def _refused_recipient(error: smtplib.SMTPRecipientsRefused) -> MailFault:
    for code, text in error.recipients.values():
        told = f"recipient: the mail server answered {code} {_plain(text)}."
        return MailRefused(told) if code >= _PERMANENT else MailNotSent(told)
    return MailNotSent("recipient: the mail server refused without a reason.")


def _plain(text: str | bytes) -> str:
    """Return words from outside as one short line without control characters or a final dot."""
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    shown = "".join(c if unicodedata.category(c)[0] not in "CZ" else " " for c in words)
    return " ".join(shown.split())[:_SHOWN_CHARACTERS].rstrip(".")
