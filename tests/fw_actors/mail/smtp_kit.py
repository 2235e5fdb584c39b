"""A mail and the transport that sends it to a server of the test."""

from __future__ import annotations

import ssl
from typing import Any

import trustme

from fw_actors.config import Mail
from fw_actors.mail import MailMessage, SmtpTransport
from fw_actors.runtime import SeededEntropy, SystemClock

LINK = "https://desk.example/reset-password#token=" + "t0ken_-x" * 4
MESSAGE = MailMessage(
    "recovery", "anna@example.test", "A néw password", f"Grüße,\n\n{LINK}\n", "<p>Grüße</p>", LINK
)
CA = trustme.CA()


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    return context


def mail_settings(port: int, **changes: Any) -> Mail:
    facts: dict[str, Any] = {
        "transport": "smtp", "method": None, "sender": "Desk <desk@example.test>",
        "host": "127.0.0.1", "port": port, "user": None, "password": None, "security": "none",
        **changes,
    }  # fmt: skip
    return Mail(**facts)


def transport(port: int, *, trusting: bool = True, **changes: Any) -> SmtpTransport:
    settings, context = mail_settings(port, **changes), ssl.create_default_context()
    if trusting:
        CA.configure_trust(context)
    return SmtpTransport(settings, SystemClock(), SeededEntropy(1), context=context)
