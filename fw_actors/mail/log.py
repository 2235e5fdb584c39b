"""Transport `log`: a mail is one line of the log (interface §2, Transport log)."""

from __future__ import annotations

from typing import Final

import trio

from fw_actors.mail.message import MailMessage
from fw_actors.runtime import Log

EVENT: Final = "mail.sent"


class LogTransport:
    """Writes each message's recipient, template and link; never its text."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def send(self, message: MailMessage) -> None:
        """See `Transport.send`; never fails."""
        await trio.lowlevel.checkpoint()
        self.write(message.recipient, message.template, message.link)

    def write(self, recipient: str, template: str, link: str | None) -> None:
        """Write the line of one message."""
        shown = {} if link is None else {"link": link}
        self._log.info(EVENT, recipient=recipient, template=template, **shown)
