"""Transport `smtp` against a real server (O-55, O-56, O-59)."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio

from fw_actors.mail import MailMessage, MailNotSent, MailRefused, probe, transports
from tests.fw_actors.mail.smtp_kit import (
    LINK,
    MESSAGE,
    mail_settings,
    server_context,
    transport,
)
from tests.fw_actors.mail.smtp_server import MailServer

Make = Callable[..., MailServer]


@pytest.fixture
def make() -> Iterator[Make]:
    """A factory of servers; all are stopped at the end."""
    made: list[MailServer] = []

    def make(**options: Any) -> MailServer:
        made.append(MailServer(**options))
        return made[-1]

    yield make
    for server in made:
        server.stop()


async def test_smtp_transport_sends_whole_mail(make: Make) -> None:
    server = make()
    await transport(server.port).send(MESSAGE)
    ((sender, recipients, mail),) = server.mails
    assert (sender, recipients) == ("desk@example.test", ["anna@example.test"])
    assert mail["From"] == "Desk <desk@example.test>"
    assert (mail["To"], mail["Subject"]) == ("anna@example.test", "A néw password")
    assert mail["Message-ID"].endswith("@example.test>")
    assert mail["Date"]
    assert mail["Auto-Submitted"] == "auto-generated"
    text, html = (mail.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None
    assert text.get_content().replace("\r\n", "\n") == MESSAGE.text
    assert html.get_content().strip() == MESSAGE.html
    assert server.names == ["[127.0.0.1]"]


@pytest.mark.parametrize("how", ["starttls", "tls"])
async def test_smtp_connection_verifies_certificate(make: Make, how: str) -> None:
    server = make(**{how: server_context()})
    await transport(server.port, security=how).send(MESSAGE)
    assert len(server.mails) == 1
    with pytest.raises(MailNotSent, match="tls: "):
        await transport(server.port, security=how, trusting=False).send(MESSAGE)
    with pytest.raises(MailNotSent, match="tls: "):  # the name counts as well
        await transport(server.port, security=how, host="localhost").send(MESSAGE)
    assert len(server.mails) == 1


async def test_smtp_transport_requires_offered_starttls(make: Make) -> None:
    server = make()
    with pytest.raises(MailNotSent, match="STARTTLS"):
        await transport(server.port, security="starttls").send(MESSAGE)
    assert server.commands == []


@pytest.mark.parametrize("how", ["none", "starttls", "tls"])
async def test_smtp_auth_goes_to_loopback_or_over_tls(make: Make, how: str) -> None:
    contexts = {} if how == "none" else {how: server_context()}
    server = make(users={"desk": "s3cret"}, **contexts)
    account: dict[str, Any] = {"user": "desk", "password": "s3cret"}
    await transport(server.port, security=how, **account).send(MESSAGE)
    assert server.auths == [("desk", "s3cret")]
    assert len(server.mails) == 1


async def test_smtp_auth_is_refused_in_clear_text(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sign-in in clear text; decided by the connected address, not on the name (O-55)."""
    server = make(users={"desk": "s3cret"})
    monkeypatch.setattr(transports, "is_loopback_peer", lambda connected: False)
    with pytest.raises(MailRefused, match=r"auth: .*clear text"):
        await transport(server.port, user="desk", password="s3cret").send(MESSAGE)
    assert (server.auths, server.commands) == ([], [])


@pytest.mark.parametrize(
    ("peer", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
     ("::ffff:192.0.2.1", False), ("192.0.2.1", False), ("2001:db8::1", False),
     ("fe80::1%lo", False)],
)  # fmt: skip
def test_is_loopback_peer_covers_mapped_addresses(peer: str, loopback: bool) -> None:
    class ConnectedPeer:
        def getpeername(self) -> tuple[str, int]:
            return (peer, 25)

    assert transports.is_loopback_peer(ConnectedPeer()) is loopback  # type: ignore[arg-type]


async def test_smtp_auth_failure_hides_password(make: Make) -> None:
    server = make(users={"desk": "s3cret"})
    with pytest.raises(MailNotSent, match="auth: the mail server answered 535") as fault:
        await transport(server.port, user="desk", password="wr0ng").send(MESSAGE)
    assert "wr0ng" not in str(fault.value)


@pytest.mark.parametrize(
    ("command", "answer", "final", "expected"),
    [
        ("RCPT", "550 no mailbox", True, "recipient: the mail server answered 550 no mailbox."),
        ("RCPT", "450 greylisted\r", False, "recipient: the mail server answered 450 greylisted."),
        ("MAIL", "553 not you", False, "smtp: the mail server answered 553 not you."),
        ("DATA", f"554 spam: {LINK}", True, "message: the mail server answered 554."),
        ("DATA", "451 come back later", False, "message: the mail server answered 451."),
    ],
)  # fmt: skip
async def test_smtp_refusal_is_final_or_retried(
    make: Make, command: str, answer: str, final: bool, expected: str
) -> None:
    """5xx to the recipient is final (O-59); no part of the link is shown (D-225)."""
    server = make()
    server.refuse[command] = answer.strip()
    with pytest.raises(MailRefused if final else MailNotSent) as fault:
        await transport(server.port).send(MESSAGE)
    assert str(fault.value) == expected


async def test_smtp_refusal_shows_no_recipient(make: Make) -> None:
    """Most servers quote the address; the log has the error of each attempt."""
    server = make()
    server.refuse["RCPT"] = "550 5.1.1 <Anna@Example.TEST>: user unknown"
    with pytest.raises(MailRefused) as fault:
        await transport(server.port).send(MESSAGE)
    reply = "550 5.1.1 <recipient>: user unknown"
    assert str(fault.value) == f"recipient: the mail server answered {reply}."


async def test_unreachable_smtp_server_is_retried() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(MailNotSent, match="connect: Connection refused"):
            await transport(taken.getsockname()[1]).send(MESSAGE)


async def test_smtp_hang_up_is_retried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def hang_up() -> None:
            connected, _ = await trio.to_thread.run_sync(listening.accept)
            connected.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang_up)
            with pytest.raises(MailNotSent, match="smtp: the mail server closed the connection"):
                await transport(listening.getsockname()[1]).send(MESSAGE)


GREETED = (b"220 mail.test\r\n", b"250-mail.test\r\n250 AUTH CRAM-MD5\r\n")
AT_RECIPIENT = (*GREETED, b"250 OK\r\n")


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ((*GREETED, b"334 abc\r\n"), "auth: the mail server sent an invalid challenge."),
        ((b"220 mail.test\r\n", b"250-mail.test\r\n250 AUTH XOAUTH2\r\n"),
         "smtp: No suitable authentication method found."),
        ((b"HTTP/1.1 400 Bad Request\r\n",), "smtp: the mail server sent an invalid reply."),
        ((*AT_RECIPIENT, b"OK\r\n"), "recipient: the mail server sent an invalid reply."),
        ((*AT_RECIPIENT, b"650 odd\r\n"), "recipient: the mail server sent an invalid reply."),
        ((*AT_RECIPIENT, b"250 OK\r\n", b"999 odd\r\n"),
         "message: the mail server sent an invalid reply."),
        ((b"220 mail.test\r\n", None), "timeout: the mail server did not answer in time."),
    ],
)  # fmt: skip
async def test_invalid_smtp_replies_are_retried(
    monkeypatch: pytest.MonkeyPatch, replies: tuple[bytes | None, ...], expected: str
) -> None:
    """Only a valid 5xx reply is final (O-59), and the error names the cause (O-145)."""
    monkeypatch.setattr(transports, "TIMEOUT_SECONDS", 1.0)
    account: dict[str, Any] = {} if len(replies) > 3 else {"user": "desk", "password": "s3cret"}
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rb") as commands, suppress(OSError):
                for each in replies:
                    if each is not None:
                        connected.sendall(each)
                    commands.readline()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, reply)
            with pytest.raises(MailNotSent) as fault:
                await transport(listening.getsockname()[1], **account).send(MESSAGE)
    assert str(fault.value) == expected


async def test_smtp_server_that_ignores_quit_has_accepted_message() -> None:
    """Waiting for it could use up the time of the attempt, and the mail be sent again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        replies = (b"220 mail.test", *[b"250 OK"] * 3, b"354 go on", b"250 accepted")

        def reply() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rb") as commands:
                for each in replies:
                    connected.sendall(each + b"\r\n")
                    while each.startswith(b"354") and commands.readline() != b".\r\n":
                        pass
                    if not each.startswith(b"354"):
                        commands.readline()
                commands.read()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, reply)
            with trio.fail_after(transports.TIMEOUT_SECONDS / 2):
                await transport(listening.getsockname()[1]).send(MESSAGE)


async def test_smtp_server_may_take_longer_to_accept_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O-63: what it accepts after an attempt has ended is sent twice."""
    monkeypatch.setattr(transports, "TIMEOUT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rb") as commands:
                for each in (b"220 mail.test", *[b"250 OK"] * 3, b"354 go on"):
                    connected.sendall(each + b"\r\n")
                    commands.readline()
                while commands.readline() != b".\r\n":
                    pass
                time.sleep(1.5)
                with suppress(OSError):
                    connected.sendall(b"250 accepted\r\n")
                    commands.read()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, reply)
            await transport(listening.getsockname()[1]).send(MESSAGE)


async def test_cancelled_smtp_attempt_closes_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        heard: list[bytes] = []

        async def listen() -> None:
            connected, _ = await trio.to_thread.run_sync(listening.accept)
            with connected:
                connected.sendall(b"220 mail.test\r\n")
                await trio.to_thread.run_sync(connected.recv, 1000)  # EHLO, never answered
                cancelled.set()
                heard.append(await trio.to_thread.run_sync(connected.recv, 1000))

        cancelled = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            async with trio.open_nursery() as trying:
                trying.start_soon(transport(listening.getsockname()[1]).send, MESSAGE)
                await cancelled.wait()
                trying.cancel_scope.cancel()
    assert heard == [b""]


def greet_endlessly(connected: socket.socket) -> None:
    with connected, suppress(OSError):
        while True:
            connected.sendall(b"220-and another line\r\n")


async def test_smtp_reply_without_end_is_refused() -> None:
    """O-59: only the last line of a reply ends it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)

        async def listen() -> None:
            connected, _ = await trio.to_thread.run_sync(listening.accept)
            await trio.to_thread.run_sync(greet_endlessly, connected)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            with pytest.raises(MailNotSent, match="a reply must have at most 65,536 bytes"):
                await transport(listening.getsockname()[1]).send(MESSAGE)


async def test_cancelled_smtp_attempt_leaves_endless_greeting() -> None:
    """A thread left behind would hold one of the four slots for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def listen() -> None:
            connected, _ = await trio.to_thread.run_sync(listening.accept)
            greeted.set()
            await trio.to_thread.run_sync(greet_endlessly, connected)

        greeted = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            async with trio.open_nursery() as trying:
                trying.start_soon(transport(listening.getsockname()[1]).send, MESSAGE)
                await greeted.wait()
                trying.cancel_scope.cancel()


async def test_smtp_unicode_address_requires_server_support(make: Make) -> None:
    """RFC 6531: SMTPUTF8 is asked for where it is needed."""
    server = make()
    unicode = MailMessage("recovery", "ünï@example.test", "Hello", "text", "<p>html</p>", LINK)
    with pytest.raises(MailNotSent, match="internationalized"):
        await transport(server.port).send(unicode)


async def test_smtp_international_domain_requires_no_server_support(make: Make) -> None:
    """O-64: the server has no SMTPUTF8."""
    server = make()
    mail = MailMessage("recovery", "anna@Bücher.test", "Hello", "text", "<p>html</p>", LINK)
    await transport(server.port).send(mail)
    ((_, recipients, sent),) = server.mails
    assert recipients == [sent["To"]] == ["anna@xn--bcher-kva.test"]


async def test_smtp_domain_without_ascii_form_requires_server_support(make: Make) -> None:
    server = make()
    mail = MailMessage("recovery", "anna@\N{SNOWMAN}.test", "Hello", "text", "<p>html</p>", LINK)
    with pytest.raises(MailNotSent, match="internationalized"):
        await transport(server.port).send(mail)


async def test_smtp_transport_sends_no_encoded_line_end(make: Make) -> None:
    """An encoded word in the site's name could begin another header (O-60)."""
    server = make()
    subject = "Your account at =?utf-8?q?x=0D=0ABcc=3A_b=40x=2Etest?="
    mail = MailMessage("recovery", "anna@example.test", subject, "text", "<p>html</p>", LINK)
    with pytest.raises(MailNotSent, match="header: Subject contains"):
        await transport(server.port).send(mail)
    assert server.mails == []


async def test_smtp_probe_signs_in_without_sending(make: Make) -> None:
    """Doctor reports the live mail transport without sending (O-133)."""
    server = make(users={"desk": "right"})
    mail = mail_settings(server.port, user="desk", password="right")
    await probe(mail, ssl.create_default_context())
    assert (server.auths, server.mails) == ([("desk", "right")], [])
    with pytest.raises(MailNotSent, match="auth"):
        await probe(replace(mail, password="wrong"), ssl.create_default_context())


async def test_smtp_probe_introduces_itself_without_credentials(make: Make) -> None:
    """A server that refuses the EHLO of a mail must refuse that of the doctor (O-133)."""
    server = make()
    await probe(mail_settings(server.port), ssl.create_default_context())
    assert server.names == ["[127.0.0.1]"]
