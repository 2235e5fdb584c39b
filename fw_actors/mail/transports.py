"""Mail transports: their interface, and the transports `log`, `method` and `smtp`.

`smtp` uses smtplib in a bounded number of threads. A failed STARTTLS ends the connection. AUTH
without TLS is allowed only to a loopback peer, by the connected address; smtplib leaves this check
to its caller.

A 5xx response to the recipient or to the message is final. An error of the deployment (connection,
TLS, AUTH, sender) is retried, since an operator may correct it (O-59).
"""

from __future__ import annotations

import binascii
import importlib
import re
import smtplib
import socket
import ssl
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from ipaddress import IPv6Address, ip_address
from typing import Any, BinaryIO, ClassVar, Final, Protocol

import trio

from fw_actors.config import Mail
from fw_actors.errors import (
    ConfigurationError,
    OverloadedError,
    UnawaitedCoroutineError,
    refuse_coroutine,
    runs_later,
)
from fw_actors.mail.message import (
    MailMessage,
    UnsafeHeaderError,
    as_email,
    envelope_sender,
    sent_address,
)
from fw_actors.rules.identifiers import record_id
from fw_actors.rules.safe_output import raised_at
from fw_actors.runtime import Clock, Entropy, Log


class MailFault(Exception):
    """Raised for a message that was not sent; it is abstract.

    The text is the `error` of an Email Delivery: it begins with the kind and a colon, and contains
    no part of the message.
    """

    final: ClassVar[bool] = False


class MailNotSent(MailFault):
    """Raised if a retry may succeed."""


class MailRefused(MailFault):
    """Raised if a retry cannot succeed: the recipient is refused permanently, or sending is
    forbidden.
    """

    final = True


class Transport(Protocol):
    """Sends mail from the site."""

    async def send(self, message: MailMessage) -> None:
        """Send one message; when this returns, another system is responsible for it.

        After a cancellation it is unknown whether the message was sent, but it is not sent later.

        Raises: MailNotSent, MailRefused.
        """


EVENT: Final = "mail.sent"


class LogTransport:
    """Writes each message's recipient, template and link; never its text."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def send(self, message: MailMessage) -> None:
        """Log the message instead of sending it; never fails."""
        await trio.lowlevel.checkpoint()
        self.write(message.recipient, message.template, message.link)

    def write(self, recipient: str, template: str, link: str | None) -> None:
        """Write the line of one message."""
        shown = {} if link is None else {"link": link}
        self._log.info(EVENT, recipient=recipient, template=template, **shown)


METHODS_AT_ONCE: Final = 2

Method = Callable[[Any, dict[str, str | None]], object]


RunWithFw = Callable[[Callable[[Any], None]], Awaitable[None]]
"""Runs a function with the handle `fw` in a thread that it may block (O-57)."""


class MethodTransport:
    """Calls the function for each message, at most two at once; an exception is a retry."""

    def __init__(self, path: str, method: Method, run: RunWithFw) -> None:
        """`path` is the dotted path of the function, for error texts."""
        self._path, self._method, self._run = path, method, run
        self._limiter = trio.CapacityLimiter(METHODS_AT_ONCE)

    async def send(self, message: MailMessage) -> None:
        """Call the function with the message; see `Transport.send`."""
        async with self._limiter:
            await self._run(lambda fw: self._call(fw, message))

    def _call(self, fw: Any, message: MailMessage) -> None:
        try:
            refuse_coroutine(self._path, self._method(fw, message.as_dict()))
        except OverloadedError:
            raise MailNotSent(f"method: {self._path} found the store overloaded.") from None
        except UnawaitedCoroutineError as error:
            raise MailNotSent(f"method: {error}.") from None
        except BaseException as error:  # KeyboardInterrupt too would end the process
            # Not its text, which the app composes and which may contain the link.
            raise MailNotSent(f"method: {self._path} raised {raised_at(error)}.") from None


def load_method(path: str) -> Method:
    """Return the function under a dotted path. Raises: ConfigurationError."""
    module, _, name = path.rpartition(".")
    try:
        method = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # anything that an app's top level raises
        problem = f"FW_MAIL_METHOD: {module} cannot be imported: {type(error).__name__}: {error}"
        raise ConfigurationError([problem]) from error
    if not callable(method):
        raise ConfigurationError([f"FW_MAIL_METHOD: {module} has no function {name}."])
    if runs_later(method):
        problem = f"FW_MAIL_METHOD: {path} must be a plain function: not async, without yield."
        raise ConfigurationError([problem])
    function: Method = method
    return function


_PERMANENT: Final = range(500, 600)
_VALID: Final = range(200, 600)
_INVALID: Final = "the mail server sent an invalid reply."
_SHOWN_CHARACTERS: Final = 200


def fault_of(error: Exception) -> MailFault:
    """Return the mail error for an error of smtplib or of the socket."""
    if isinstance(error, smtplib.SMTPException) and not _is_timeout(error.__context__):
        return _fault_of_reply(error)
    if isinstance(error, ssl.SSLError):
        verified = getattr(error, "verify_message", None)
        return MailNotSent(f"tls: {_plain(verified or error.reason or 'the handshake failed')}.")
    if _is_timeout(error) or _is_timeout(error.__context__):  # smtplib hides it behind its own
        return MailNotSent("timeout: the mail server did not answer in time.")
    if isinstance(error, binascii.Error):
        return MailNotSent("auth: the mail server sent an invalid challenge.")
    reason = error.strerror if isinstance(error, OSError) else None
    return MailNotSent(f"connect: {_plain(reason or 'the connection failed')}.")


def _is_timeout(error: BaseException | None) -> bool:
    return isinstance(error, TimeoutError)


def _fault_of_reply(error: smtplib.SMTPException) -> MailFault:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused_recipient(error)
    if isinstance(error, smtplib.SMTPDataError):
        # Without the server's text, in which a filter may quote the link.
        return _fault_of_code("message", error.smtp_code, b"")
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return MailNotSent(f"auth: the mail server answered {error.smtp_code}.")
    if isinstance(error, smtplib.SMTPResponseException):
        return MailNotSent(str(_fault_of_code("smtp", error.smtp_code, error.smtp_error)))
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return MailNotSent("smtp: the mail server closed the connection.")
    return MailNotSent(f"smtp: {_plain(str(error))}.")  # smtplib's own words


def _fault_of_code(kind: str, code: int, words: str | bytes) -> MailFault:
    if code not in _VALID:
        return MailNotSent(f"{kind}: {_INVALID}")
    sentence = f"{kind}: the mail server answered {f'{code} {_plain(words)}'.rstrip()}."
    return MailRefused(sentence) if code in _PERMANENT else MailNotSent(sentence)


def _refused_recipient(error: smtplib.SMTPRecipientsRefused) -> MailFault:
    for recipient, (code, words) in error.recipients.items():
        # Without the address, which most servers quote: the log has the error, but no recipient.
        quoted = re.compile(re.escape(recipient.encode("utf-8", "replace")), re.IGNORECASE)
        return _fault_of_code("recipient", code, quoted.sub(b"recipient", words))
    return MailNotSent("recipient: the mail server refused without a reason.")


def _plain(text: str | bytes) -> str:
    """Return a server's text as a short line without control characters or a final dot."""
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    shown = "".join(c if unicodedata.category(c)[0] not in "CZ" else " " for c in words)
    return " ".join(shown.split())[:_SHOWN_CHARACTERS].rstrip(".")


TIMEOUT_SECONDS: Final = 15.0
"""The time limit of the connection, and of each reply but the one to the message."""

ACCEPTANCE_SECONDS: Final = 30.0
"""For the reply to the message. A server may scan it first, and accept it although nobody waits any
more: a retry would send it again, with a new link that ends the one sent before (O-62). RFC 5321
4.5.3.2.6 wants 10 minutes; the attempt ends earlier (O-63)."""

QUIT_SECONDS: Final = 2.0
"""For the reply to QUIT: after the message is accepted, the attempt must not time out."""

MAX_REPLY_BYTES: Final = 64 * 1024

BeforeReply = Callable[[smtplib.SMTP], None]


class SmtpSession:
    """One SMTP session. `deliver` and `greet` block; another thread may call `abort`."""

    def __init__(self, mail: Mail, context: ssl.SSLContext) -> None:
        self._mail, self._context = mail, context
        self._smtp: smtplib.SMTP | None = None
        self._aborted = False

    def deliver(self, mail: EmailMessage, sender: str, recipient: str) -> None:
        """Connect, start TLS, authenticate and send. Raises: MailNotSent, MailRefused."""
        self._run(lambda smtp: smtp.send_message(mail, sender, [recipient]))

    def greet(self) -> None:
        """Do all steps of `deliver` but sending. Raises: MailNotSent, MailRefused."""

        def introduce(smtp: smtplib.SMTP) -> None:
            smtp.ehlo_or_helo_if_needed()  # without AUTH smtplib would leave it to the message
            smtp.noop()

        self._run(introduce)

    def abort(self) -> None:
        """Break the connection, so that `deliver` ends soon and sends nothing more."""
        self._aborted = True
        connected = None if self._smtp is None else self._smtp.sock
        if connected is not None:
            with suppress(OSError):
                # Not SSLSocket.shutdown, after which the other thread would continue without TLS.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _run(self, act: Callable[[smtplib.SMTP], object]) -> None:
        try:
            smtp = self._connect()
            try:
                self._secure(smtp)
                self._authenticate(smtp)
                self._before_reply(smtp)
                act(smtp)
                with suppress(OSError):  # the message is accepted; a failing QUIT does not matter
                    _open_socket(smtp).settimeout(QUIT_SECONDS)
                    smtp.quit()
            finally:
                smtp.close()
        except MailFault:
            raise
        except (OSError, binascii.Error) as error:  # smtplib's are OSErrors
            raise fault_of(error) from None

    def _connect(self) -> smtplib.SMTP:
        host, port = self._mail.host or "", self._mail.port
        smtp: smtplib.SMTP
        if self._mail.security == "tls":
            smtp = _Secured(self._before_reply, host, port, self._context)
        else:
            smtp = _Plain(self._before_reply, host, port)
        # An address literal (RFC 5321 4.1.4): smtplib would ask DNS for this machine's name.
        smtp.local_hostname = _literal(_open_socket(smtp).getsockname()[0])
        return smtp

    def _before_reply(self, smtp: smtplib.SMTP) -> None:
        """Store the connection, so that `abort` can close it; close it if `abort` came first."""
        self._smtp = smtp
        if self._aborted:
            smtp.close()
            raise MailNotSent("smtp: the attempt was aborted.")

    def _secure(self, smtp: smtplib.SMTP) -> None:
        if self._mail.security == "starttls":
            smtp.starttls(context=self._context)

    def _authenticate(self, smtp: smtplib.SMTP) -> None:
        if self._mail.user is None or self._mail.password is None:
            return
        connected = _open_socket(smtp)
        if not isinstance(connected, ssl.SSLSocket) and not is_loopback_peer(connected):
            raise MailRefused(
                "auth: the password is not sent in clear text; set FW_SMTP_SECURITY to starttls "
                "or tls."
            )
        smtp.login(self._mail.user, self._mail.password)


class _BoundedReplies:
    """The stream of a server's replies, of which each may have `MAX_REPLY_BYTES`.

    smtplib reads the lines of a reply until the last one, however many there are. An aborted
    connection ends only when no more bytes arrive.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = MAX_REPLY_BYTES

    def begin(self) -> None:
        """Begin a reply."""
        self._left = MAX_REPLY_BYTES

    def readline(self, limit: int) -> bytes:
        """Return the next line, or `limit` bytes of it. Raises: MailNotSent."""
        line = self._stream.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise MailNotSent(f"smtp: a reply must have at most {MAX_REPLY_BYTES:,} bytes.")
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


@contextmanager
def _bounded_reply(smtp: smtplib.SMTP) -> Iterator[None]:
    """Limit the reply that is read in the block; a longer one closes the connection."""
    if smtp.file is None:  # a new connection, or TLS has begun
        smtp.file = _BoundedReplies(_open_socket(smtp).makefile("rb"))
    smtp.file.begin()
    try:
        yield
    except MailNotSent:
        smtp.close()
        raise


class _Plain(smtplib.SMTP):
    """Registers the connection before each reply, so that a stuck greeting can be aborted."""

    def __init__(self, before_reply: BeforeReply, host: str, port: int) -> None:
        self._before_reply = before_reply
        super().__init__(host, port, "localhost", timeout=TIMEOUT_SECONDS)

    def getreply(self) -> tuple[int, bytes]:
        self._before_reply(self)
        with _bounded_reply(self):
            return super().getreply()

    def data(self, msg: Any) -> tuple[int, bytes]:
        _open_socket(self).settimeout(ACCEPTANCE_SECONDS)
        return super().data(msg)


class _Secured(smtplib.SMTP_SSL):
    """Like `_Plain`, over TLS."""

    def __init__(
        self, before_reply: BeforeReply, host: str, port: int, context: ssl.SSLContext
    ) -> None:
        self._before_reply = before_reply
        super().__init__(host, port, "localhost", timeout=TIMEOUT_SECONDS, context=context)

    def getreply(self) -> tuple[int, bytes]:
        self._before_reply(self)
        with _bounded_reply(self):
            return super().getreply()

    def data(self, msg: Any) -> tuple[int, bytes]:
        _open_socket(self).settimeout(ACCEPTANCE_SECONDS)
        return super().data(msg)


def _open_socket(smtp: smtplib.SMTP) -> socket.socket:
    if smtp.sock is None:
        raise smtplib.SMTPServerDisconnected
    return smtp.sock


def _literal(address: str) -> str:
    plain = address.partition("%")[0]
    return f"[IPv6:{plain}]" if ":" in plain else f"[{plain}]"


def is_loopback_peer(connected: socket.socket) -> bool:
    peer = ip_address(connected.getpeername()[0])
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        return peer.ipv4_mapped.is_loopback
    return peer.is_loopback


SMTP_AT_ONCE: Final = 4
_ID_BYTES: Final = 12


class SmtpTransport:
    """Opens a connection for each message, at most four at once."""

    def __init__(
        self, mail: Mail, clock: Clock, entropy: Entropy, *, context: ssl.SSLContext | None = None
    ) -> None:
        """`context` verifies certificates; None: by the system's trust store."""
        self._mail, self._clock, self._entropy = mail, clock, entropy
        self._context = context or ssl.create_default_context()
        self._limiter = trio.CapacityLimiter(SMTP_AT_ONCE)

    async def send(self, message: MailMessage) -> None:
        """Send one message over a connection of its own; see `Transport.send`."""
        try:
            mail = as_email(
                message,
                sender=self._mail.sender,
                now=self._clock.now(),
                unique=record_id(self._entropy.bytes(_ID_BYTES)),
            )
        except UnsafeHeaderError as error:  # of the sender or of the site's name in the subject
            raise MailNotSent(f"header: {error}") from None
        session = SmtpSession(self._mail, self._context)
        try:
            await trio.to_thread.run_sync(
                session.deliver,
                mail,
                envelope_sender(self._mail.sender),
                sent_address(message.recipient),
                abandon_on_cancel=True,
                limiter=self._limiter,  # held until the thread has ended
            )
        except trio.Cancelled:
            session.abort()
            raise


async def probe(mail: Mail, context: ssl.SSLContext) -> None:
    """Connect, secure and sign in as for a message, and send none; for `fw doctor`.

    Raises: MailNotSent, MailRefused.
    """
    session = SmtpSession(mail, context)
    try:
        await trio.to_thread.run_sync(session.greet, abandon_on_cancel=True)
    except trio.Cancelled:
        session.abort()
        raise
