"""Transports `log` and `method` (O-54, O-57)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.errors import ConfigurationError, OverloadedError
from fw_actors.mail import LogTransport, MailMessage, MailNotSent, MethodTransport, load_method
from tests.mail_kit import RecordingLog

LINK = "https://desk.example/reset-password#token=secret"
MESSAGE = MailMessage("recovery", "anna@x.test", "Hello", f"go to {LINK}", "<p>go</p>", LINK)
PLAIN = MailMessage("password_changed", "anna@x.test", "Hello", "changed", "<p>changed</p>")


async def test_log_transport_writes_single_log_entry() -> None:
    log = RecordingLog()
    transport = LogTransport(log)
    await transport.send(MESSAGE)
    await transport.send(PLAIN)
    assert log.entries == [
        ("mail.sent", {"recipient": "anna@x.test", "template": "recovery", "link": LINK}),
        ("mail.sent", {"recipient": "anna@x.test", "template": "password_changed"}),
    ]


def transport(method: Callable[..., object]) -> MethodTransport:
    async def run(fn: Callable[[Any], None]) -> None:
        await trio.lowlevel.checkpoint()
        fn("the handle")

    return MethodTransport("shop.mail.send", method, run)


async def test_method_transport_passes_handle_and_message() -> None:
    got: list[object] = []
    await transport(lambda fw, message: got.append((fw, message))).send(MESSAGE)
    assert got == [
        (
            "the handle",
            {
                "template": "recovery",
                "recipient": "anna@x.test",
                "subject": "Hello",
                "text": f"go to {LINK}",
                "html": "<p>go</p>",
                "link": LINK,
            },
        )
    ]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, OverloadedError])
async def test_method_transport_hides_text_of_exception(
    error: type[BaseException],
) -> None:
    def method(fw: object, message: dict[str, str]) -> None:
        raise error(message["text"])

    with pytest.raises(MailNotSent) as fault:
        await transport(method).send(MESSAGE)
    assert str(fault.value).startswith("method: shop.mail.send ")
    assert "secret" not in str(fault.value)
    assert not fault.value.final


async def test_method_transport_refuses_coroutine_result() -> None:
    async def later() -> None: ...

    with pytest.raises(MailNotSent, match=r"^method: shop.mail.send returned a coroutine"):
        await transport(lambda fw, message: later()).send(MESSAGE)


def test_load_method_finds_dotted_path() -> None:
    assert load_method("os.path.join") is __import__("os").path.join


@pytest.mark.parametrize(
    ("path", "expected"),
    [("no_such_app.send", "cannot be imported"), ("os.path.no_such", "has no function no_such"),
     ("os.sep", "has no function sep"), ("broken_mail_app.send", "ZeroDivisionError"),
     ("ending_mail_app.send", "SystemExit"), ("async_mail_app.send", "plain function"),
     ("async_mail_app.step", "plain function"), ("async_mail_app.flow", "plain function")],
)  # fmt: skip
def test_load_method_refuses_uncallable_path(
    path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At start, because a call of the last three would run none of their code (D-145)."""
    (tmp_path / "broken_mail_app.py").write_text("1 / 0\n")
    (tmp_path / "ending_mail_app.py").write_text("raise SystemExit\n")
    (tmp_path / "async_mail_app.py").write_text(
        "async def send(fw, message): ...\n"
        "def step(fw, message): yield\n"
        "async def flow(fw, message): yield\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match="FW_MAIL_METHOD: ") as error:
        load_method(path)
    assert expected in str(error.value)
