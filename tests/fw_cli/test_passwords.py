"""Passwords are asked for or read with --password-stdin, never arguments (C-101)."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from fw_cli.errors import CommandFailed
from fw_cli.passwords import take_password
from tests.fw_cli.conftest import PASSWORD


@pytest.mark.parametrize(
    ("stdin", "password"),
    [
        (b"plain\n", "plain"),
        (b"plain\r\n", "plain"),
        (b"plain", "plain"),
        (b"  blanks \t\n", "  blanks \t"),
        (b"one\r\r\n", "one\r"),
        (b"cr at the end\r", "cr at the end\r"),
        (b"first\nsecond\n", "first"),
        (b"\n", ""),
        ("ünï\u2028\n".encode(), "ünï\u2028"),
        (b"nul\0\n", "nul\0"),
        (b"\xef\xbb\xbfafter a byte order mark\n", "after a byte order mark"),
    ],
)
def test_take_password_reads_one_line_unchanged(
    stdin: bytes, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    assert take_password(from_stdin=True) == password


@pytest.mark.parametrize(("stdin", "message"), [(b"", "empty"), (b"\xff\n", "UTF-8")])
def test_take_password_refuses_empty_or_undecodable_stdin(
    stdin: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    with pytest.raises(CommandFailed, match=message):
        take_password(from_stdin=True)


def test_take_password_without_terminal_names_stdin_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    with pytest.raises(CommandFailed, match="--password-stdin"):
        take_password(from_stdin=False)


def typed(*lines: str) -> tuple[int, str]:
    """Have a password taken in a terminal of its own and type; exit code and what was shown.

    The password is written backwards at the end, to distinguish it from an echo.
    """
    terminal, inner = pty.openpty()
    program = "from fw_cli.passwords import take_password as t; print(t(from_stdin=False)[::-1])"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    shown = b""
    waiting = list(lines)
    while True:
        try:
            chunk = os.read(terminal, 1000)
        except OSError:  # Linux's way to say that the other side has closed
            break
        shown += chunk
        if chunk.rstrip().endswith(b":") and waiting:
            os.write(terminal, waiting.pop(0).encode() + b"\n")
    os.close(terminal)
    return process.wait(), shown.decode()


def test_password_prompt_asks_twice_without_echo() -> None:
    code, shown = typed(PASSWORD, "something else", PASSWORD, PASSWORD)
    assert code == 0, shown
    assert "do not match" in shown
    assert PASSWORD not in shown
    assert "something else" not in shown
    assert shown.split()[-4:] == PASSWORD[::-1].split()
