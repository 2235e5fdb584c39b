"""One mail handed to an SMTP server, start to end, in a thread that may block (RFC 5321).

STARTTLS that fails ends the connection for good; AUTH in clear text goes to a loopback peer only,
judged on the connected address, which smtplib leaves to its caller.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from email.message import EmailMessage
from ipaddress import IPv6Address, ip_address
from typing import Final

from fw_actors.config import Mail
from fw_actors.mail.smtp_faults import fault_of
from fw_actors.mail.transport import MailFault, MailNotSent, MailRefused

TIMEOUT_SECONDS: Final = 15.0
"""For the connection, and for each of the server's replies."""

Waits = Callable[[smtplib.SMTP], None]


class Conversation:
    """Used once. `deliver` and `greet` block; another thread may call `abort` meanwhile."""

    def __init__(self, mail: Mail, context: ssl.SSLContext) -> None:
        self._mail, self._context = mail, context
        self._smtp: smtplib.SMTP | None = None
        self._aborted = False

    def deliver(self, mail: EmailMessage, sender: str, recipient: str) -> None:
        """Connect, secure, authenticate, send. Raises: MailNotSent, MailRefused."""
        self._converse(lambda smtp: smtp.send_message(mail, sender, [recipient]))

    def greet(self) -> None:
        """Do all but send. Raises: MailNotSent, MailRefused."""
        self._converse(lambda smtp: smtp.noop())

    def abort(self) -> None:
        """Break the connection off, so that `deliver` ends soon and sends nothing more."""
        self._aborted = True
        connected = None if self._smtp is None else self._smtp.sock
        if connected is not None:
            with suppress(OSError):
                # Not SSLSocket.shutdown: that lets the other thread go on in clear text.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _converse(self, act: Callable[[smtplib.SMTP], object]) -> None:
        try:
            smtp = self._connect()
            try:
                self._secure(smtp)
                self._authenticate(smtp)
                self._waits(smtp)
                act(smtp)
                with suppress(OSError):  # it is accepted; how the goodbye goes is no matter
                    smtp.quit()
            finally:
                smtp.close()
        except MailFault:
            raise
        except (OSError, UnicodeError) as error:  # smtplib's errors are OSErrors
            raise fault_of(error) from None

    def _connect(self) -> smtplib.SMTP:
        host, port = self._mail.host or "", self._mail.port
        smtp: smtplib.SMTP
        if self._mail.security == "tls":
            smtp = _Secured(self._waits, host, port, self._context)
        else:
            smtp = _Plain(self._waits, host, port)
        # An address literal (RFC 5321 4.1.4): smtplib would ask DNS for this machine's name.
        smtp.local_hostname = _literal(_open_socket(smtp).getsockname()[0])
        return smtp

    def _waits(self, smtp: smtplib.SMTP) -> None:
        """Take note of what is connected. Either `abort` sees it, or it sees `abort`."""
        self._smtp = smtp
        if self._aborted:
            smtp.close()
            raise MailNotSent("smtp: the try was cut off.")

    def _secure(self, smtp: smtplib.SMTP) -> None:
        if self._mail.security == "starttls":
            smtp.starttls(context=self._context)

    def _authenticate(self, smtp: smtplib.SMTP) -> None:
        if self._mail.user is None or self._mail.password is None:
            return
        connected = _open_socket(smtp)
        if not isinstance(connected, ssl.SSLSocket) and not _is_loopback(connected):
            raise MailRefused(
                "auth: the password is not sent in clear text; set FW_SMTP_SECURITY to starttls "
                "or tls."
            )
        smtp.login(self._mail.user, self._mail.password)


class _Plain(smtplib.SMTP):
    """Says so before it waits for a reply: a greeting without an end has to be broken off too."""

    def __init__(self, waits: Waits, host: str, port: int) -> None:
        self._waits = waits
        super().__init__(host, port, "localhost", timeout=TIMEOUT_SECONDS)

    def getreply(self) -> tuple[int, bytes]:
        self._waits(self)
        return super().getreply()


class _Secured(smtplib.SMTP_SSL):
    """The same over TLS."""

    def __init__(self, waits: Waits, host: str, port: int, context: ssl.SSLContext) -> None:
        self._waits = waits
        super().__init__(host, port, "localhost", timeout=TIMEOUT_SECONDS, context=context)

    def getreply(self) -> tuple[int, bytes]:
        self._waits(self)
        return super().getreply()


def _open_socket(smtp: smtplib.SMTP) -> socket.socket:
    if smtp.sock is None:
        raise smtplib.SMTPServerDisconnected
    return smtp.sock


def _literal(address: str) -> str:
    plain = address.partition("%")[0]
    return f"[IPv6:{plain}]" if ":" in plain else f"[{plain}]"


def _is_loopback(connected: socket.socket) -> bool:
    peer = ip_address(connected.getpeername()[0])
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        return peer.ipv4_mapped.is_loopback
    return peer.is_loopback
