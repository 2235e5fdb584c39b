"""A line before TLS has no effect after it.

A STARTTLS that fails closes the connection for good; nothing buffered before it is used after
(O-56).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from fw_actors.mail import MailNotSent
from tests.fw_actors.mail.smtp_kit import MESSAGE, server_context, transport

Secure = Callable[[socket.socket], socket.socket]


class TamperedServer:
    """A server whose answer to STARTTLS an attacker on the way has extended."""

    def __init__(self, answer: bytes, secure: Secure) -> None:
        """`answer` is what the client gets; `secure` is what follows it."""
        self.commands: list[str] = []
        self._answer, self._secure = answer, secure
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._thread.join(30)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError), self._listening.accept()[0] as plain:
            plain.settimeout(30)
            plain.sendall(b"220 mail.test\r\n")
            self._expect(plain, b"250-mail.test\r\n250 STARTTLS\r\n")
            self._expect(plain, self._answer)
            with self._secure(plain) as secured:
                for answer in (b"250 mail.test", b"250 ok", b"250 ok", b"354 go on"):
                    self._expect(secured, answer + b"\r\n")
                while not self._read(secured).endswith(b"\r\n.\r\n"):
                    pass
                secured.sendall(b"250 taken\r\n")
                self._expect(secured, b"221 bye\r\n")

    def _expect(self, connection: socket.socket, answer: bytes) -> None:
        """Read one command, and answer it."""
        command = self._read(connection).decode("latin-1").partition(" ")[0]
        self.commands.append(command.strip().upper())
        connection.sendall(answer)

    def _read(self, connection: socket.socket) -> bytes:
        read = connection.recv(65_536)
        if not read:
            raise ConnectionResetError
        return read


@contextmanager
def tampered(answer: bytes, secure: Secure) -> Iterator[TamperedServer]:
    server = TamperedServer(answer, secure)
    try:
        yield server
    finally:
        server.stop()


def over_tls(connection: socket.socket) -> socket.socket:
    return server_context().wrap_socket(connection, server_side=True)


async def test_starttls_discards_earlier_replies() -> None:
    """An injected reply would shift all that follow by one."""
    injected = b"220 go on\r\n250-injected\r\n250 AUTH PLAIN\r\n"
    with tampered(injected, over_tls) as server:
        await transport(server.port, security="starttls").send(MESSAGE)
    assert server.commands == ["EHLO", "STARTTLS", "EHLO", "MAIL", "RCPT", "DATA", "QUIT"]


@pytest.mark.parametrize("answer", [b"454 not now\r\n", b"220 go on\r\n"])
async def test_failed_starttls_ends_connection(answer: bytes) -> None:
    """Refused, or answered by what is no TLS: nothing goes on in clear text."""

    def in_clear_text(connection: socket.socket) -> socket.socket:
        connection.sendall(b"250 ok\r\n")
        return connection

    with tampered(answer, in_clear_text) as server, pytest.raises(MailNotSent):
        await transport(server.port, security="starttls").send(MESSAGE)
    assert not {"MAIL", "AUTH", "RCPT"} & set(server.commands)
