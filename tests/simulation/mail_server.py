"""The simulated mail server: accepts mail, refuses it, loses the answer, or hangs."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from fw_actors.mail import MailMessage, MailNotSent, MailRefused
from tests.simulation.incarnation import Incarnation

MODES: Final = {
    "healthy": ("take",),
    "busy": ("take", "later", "take slowly", "lose the answer"),
    "down": ("later", "hang"),
    "strict": ("take", "refuse"),
}


@dataclass(frozen=True)
class ReceivedMail:
    """A mail that arrived, with the time and the number of clock changes at that moment."""

    at: float
    wall: int
    jumps: int
    message: MailMessage

    @property
    def token(self) -> str:
        """The token of its link."""
        return (self.message.link or "").partition("#token=")[2]

    @property
    def link(self) -> str:
        """Its kind and its token's hash, as the ledger knows a link."""
        return f"{self.message.template} {hashlib.sha256(self.token.encode()).hexdigest().upper()}"


@dataclass
class SimulatedMailServer:
    """The mail server of all processes of a site; `stamp` returns the ReceivedMail of a message."""

    rng: random.Random
    stamp: Callable[[MailMessage], ReceivedMail]
    mode: str = "healthy"
    mails: list[ReceivedMail] = field(default_factory=list)

    def for_incarnation(self, incarnation: Incarnation) -> VirtualTransport:
        """Return the transport of one process."""
        return VirtualTransport(self, incarnation)

    async def take(self, message: MailMessage, incarnation: Incarnation) -> None:
        """See `Transport.send`."""
        await incarnation.step()
        behaviour = self.rng.choice(MODES[self.mode])
        await trio.sleep(2.0 if behaviour == "take slowly" else self.rng.choice((0.0, 0.02)))
        await incarnation.step()
        if behaviour == "hang":
            await trio.sleep_forever()
        if behaviour == "later":
            raise MailNotSent("smtp: 451 come back later.")
        if behaviour == "refuse":
            raise MailRefused("smtp: 550 nobody here.")
        self.mails.append(self.stamp(message))
        if behaviour == "lose the answer":
            raise MailNotSent("smtp: the connection broke.")
        await incarnation.step()


@dataclass(frozen=True)
class VirtualTransport:
    """See `Transport`."""

    server: SimulatedMailServer
    incarnation: Incarnation

    async def send(self, message: MailMessage) -> None:
        """See `Transport.send`."""
        await self.server.take(message, self.incarnation)
