"""What a mail transport offers, and how it fails."""

from __future__ import annotations

from typing import ClassVar, Protocol

from fw_actors.mail.message import MailMessage


class MailFault(Exception):
    """A message that was not sent. The text is an Email Delivery's `error`: it begins with the
    fault's kind and a colon, and holds no part of the message. Raise one of its children."""

    final: ClassVar[bool] = False


class MailNotSent(MailFault):
    """Raised when a later try may succeed."""


class MailRefused(MailFault):
    """Raised when no later try can: the recipient is refused for good, or we must not send."""

    final = True


class Transport(Protocol):
    """A way that mail leaves the site."""

    async def send(self, message: MailMessage) -> None:
        """Send one message; it is out of our hands when this returns.

        Cancelled, the message may or may not have gone out; nothing is left running that could
        send it much later.

        Raises: MailNotSent, MailRefused.
        """
