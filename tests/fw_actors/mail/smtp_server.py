"""A real SMTP server on loopback for tests: aiosmtpd, with STARTTLS, TLS and AUTH as wanted."""

from __future__ import annotations

import asyncio
import ssl
import threading
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult


class SmtpConversation(SMTP):
    """One client's conversation; its transports, of which STARTTLS adds one, are in `opened`."""

    def __init__(self, opened: list[asyncio.WriteTransport], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._opened.append(transport)
        super().connection_made(transport)


class MailServer:
    """Keeps what it is sent; `refuse` maps a command (RCPT, DATA, MAIL) to the answer it gets."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: dict[str, str] | None = None,
        starttls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.commands: list[str] = []
        self.refuse: dict[str, str] = {}
        self.auths: list[tuple[str, str]] = []
        self.names: list[str] = []
        self.mails: list[tuple[str, list[str], EmailMessage]] = []
        self._users, self._starttls = users, starttls
        self._opened: list[asyncio.WriteTransport] = []
        self._loop = asyncio.new_event_loop()
        listening = self._loop.create_server(self._connection, host, port, ssl=tls)
        self._server = self._loop.run_until_complete(listening)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        self._loop.run_until_complete(self._cut_off())
        self._loop.close()

    async def _cut_off(self) -> None:
        """End what clients left open, without a farewell: TLS would wait for theirs."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for transport in self._opened:
            transport.abort()
        await asyncio.sleep(0)  # sockets are closed by the calls that `abort` leaves behind

    def _connection(self) -> SmtpConversation:
        more: dict[str, Any] = {}
        if self._users is not None:
            more = {"authenticator": self.authenticate, "auth_require_tls": False}
        return SmtpConversation(
            self._opened, self, hostname="mail.test", tls_context=self._starttls, loop=self._loop,
            **more,
        )  # fmt: skip

    def authenticate(self, server: Any, session: Any, envelope: Any, how: str, data: Any) -> Any:
        pair = (data.login.decode(), data.password.decode())
        self.auths.append(pair)
        return AuthResult(success=(self._users or {}).get(pair[0]) == pair[1], handled=False)

    async def handle_EHLO(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        self.names.append(hostname)
        return responses

    async def handle_MAIL(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        self.commands.append("MAIL")
        envelope.mail_from = address
        return self.refuse.get("MAIL", "250 OK")

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        self.commands.append("RCPT")
        if "RCPT" not in self.refuse:
            envelope.rcpt_tos.append(address)
        return self.refuse.get("RCPT", "250 OK")

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        self.commands.append("DATA")
        if "DATA" not in self.refuse:
            mail = BytesParser(EmailMessage, policy=default).parsebytes(envelope.content)
            self.mails.append((envelope.mail_from, list(envelope.rcpt_tos), mail))
        return self.refuse.get("DATA", "250 OK")
