"""Transport `smtp`: a mail server, spoken to by smtplib in a bounded number of threads.

Source: spec, Authentication 9; interface §6 (FW_SMTP_*), §8; pitfalls, Mail.
"""

from __future__ import annotations

import ssl
from typing import Final

import trio

from fw_actors.config import Mail
from fw_actors.mail.message import MailMessage
from fw_actors.mail.mime import as_email, envelope_sender
from fw_actors.mail.smtp_conversation import Conversation
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Clock, Entropy

AT_ONCE: Final = 4
_ID_BYTES: Final = 12


class SmtpTransport:
    """Opens a connection for each message, at most four at once."""

    def __init__(
        self,
        mail: Mail,
        clock: Clock,
        entropy: Entropy,
        *,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`context`: how certificates are verified; None takes the system's trust store."""
        self._mail, self._clock, self._entropy = mail, clock, entropy
        self._context = context or ssl.create_default_context()
        self._places = trio.CapacityLimiter(AT_ONCE)

    async def send(self, message: MailMessage) -> None:
        """See `Transport.send`."""
        mail = as_email(
            message,
            sender=self._mail.sender,
            now=self._clock.now(),
            unique=record_id(self._entropy.bytes(_ID_BYTES)),
        )
        conversation = Conversation(self._mail, self._context)
        try:
            await trio.to_thread.run_sync(
                conversation.deliver,
                mail,
                envelope_sender(self._mail.sender),
                message.recipient,
                abandon_on_cancel=True,
                limiter=self._places,  # a place is taken until the thread has ended
            )
        except trio.Cancelled:
            conversation.abort()
            raise


async def probe(mail: Mail, context: ssl.SSLContext) -> None:
    """Connect, secure and sign in as for a message, and send none; for `fw doctor`.

    Raises: MailNotSent, MailRefused.
    """
    conversation = Conversation(mail, context)
    try:
        await trio.to_thread.run_sync(conversation.greet, abandon_on_cancel=True)
    except trio.Cancelled:
        conversation.abort()
        raise
