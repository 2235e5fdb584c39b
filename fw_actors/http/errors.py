"""Network errors of an attempt: one class for each network `kind` of B-168.

A sentence names the receiver by host and port at most: no path, query, header or body is ever in
it, so that it may be stored on a delivery and written to a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from fw_actors.http.response import Times


class NetworkError(Exception):
    """An attempt that ended without the head of a response. Raise one of its children.

    `kind` is the word before the colon in a delivery's `error`, `sentence` the text after it.
    """

    kind: ClassVar[str]

    times: Times | None = None
    """How long the steps before it took; set by the sender."""
    address: str = ""
    """The destination of the request, sent or not, as address and port; empty if unknown."""

    def __init__(self, sentence: str) -> None:
        if type(self) is NetworkError:
            raise TypeError("NetworkError is abstract; raise one of its subclasses")
        super().__init__(sentence)
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


class DnsError(NetworkError):
    """Raised when the receiver's name has no address, or none could be found out."""

    kind = "dns"


class ConnectError(NetworkError):
    """Raised when no address of the receiver takes a connection."""

    kind = "connect"


class ForbiddenAddress(ConnectError):
    """Raised when the site's policy refuses every address of the receiver; not to be retried."""


class TlsError(NetworkError):
    """Raised when TLS can't be agreed on, or the receiver's certificate isn't to be trusted."""

    kind = "tls"


class ResponseTimeout(NetworkError):
    """Raised when the deadline passes before the head of a response is complete."""

    kind = "timeout"


class ProtocolError(NetworkError):
    """Raised when a receiver breaks the connection, or its response is not HTTP/1 or too long."""

    kind = "protocol"
