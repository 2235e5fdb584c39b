"""A message in the form that goes over the wire (RFC 5322, RFC 2045)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from typing import Final

from fw_actors.mail.message import MailMessage, judge_header

# 7-bit bodies (quoted-printable where needed): no server has to know 8BITMIME.
_POLICY: Final = SMTP.clone(cte_type="7bit")


def envelope_sender(sender: str) -> str:
    """Return the bare address of `Desk <desk@example.org>`."""
    return parseaddr(sender)[1]


def as_email(message: MailMessage, *, sender: str, now: int, unique: str) -> EmailMessage:
    """Return the mail. `now` in ms; `unique` makes its Message-ID.

    Raises: UnsafeHeaderError.
    """
    judge_header("sender", sender)
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = sender
    mail["To"] = message.recipient  # judged: one bare address
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(datetime.fromtimestamp(now // 1000, UTC))
    mail["Message-ID"] = f"<{unique}@{envelope_sender(sender).rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers to it
    mail.set_content(message.text)
    mail.add_alternative(message.html, subtype="html")
    return mail
