"""The programs of docs/python-client.md and docs/python-receiver.md, run as they stand there."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

import fw_client
from fw_client import FwClient
from fw_client.receiver import SeenInSqlite
from tests.fw_client.receiver_kit import BODY, SECRET, post_asgi, post_flask, post_quart, signed
from tests.live_site import PASSWORD, LiveSite

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "python-client.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_client_page_programs_work(
    site: LiveSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FwClient(site.url, user="admin", password=PASSWORD) as admin:
        monkeypatch.setenv("FW_KEY", admin.api_keys.create("guide").key)
    namespace: dict[str, Any] = {"__name__": "guide"}
    for program in BLOCK.findall(PAGE):
        exec(program.replace("https://fw.example.org", site.url), namespace)
    first, title, refused = capsys.readouterr().out.splitlines()
    assert first.startswith("admin wrote ")
    assert (title, refused) == ("Hello", "0 were refused")


RECEIVERS = (DOCS / "python-receiver.md").read_text()


def test_receiver_page_programs_share_handled_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All remember in one file, so what one has handled the others do not."""
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    opened: list[SeenInSqlite] = []

    def noted(path: str) -> SeenInSqlite:
        opened.append(SeenInSqlite(path))
        return opened[-1]

    monkeypatch.setattr("fw_client.receiver.SeenInSqlite", noted)
    now = int(time.time())
    first, second, third = (signed(name=f"msg_{n}", now=now) for n in range(3))
    in_flask, in_quart, in_fastapi = (made_by(program) for program in BLOCK.findall(RECEIVERS))
    for _ in range(2):
        assert post_flask(in_flask, BODY, first) == 204
        assert asyncio.run(post_quart(in_quart, BODY, second)) == 204
        assert asyncio.run(post_asgi(in_fastapi, BODY, third)) == 204
        assert asyncio.run(post_asgi(in_fastapi, BODY, first)) == 204
    assert post_flask(in_flask, BODY + b" ", first) == 401
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"msg_{n} order.paid {{'a': 'ünï'}}" for n in range(3)]
    for seen in opened:
        seen.close()


def made_by(program: str) -> Any:
    """Run a program of the page; return its app."""
    made: dict[str, Any] = {"__name__": "guide"}
    exec(program, made)
    return made["app"]


def test_client_page_names_each_error() -> None:
    errors = {
        name
        for name in fw_client.__all__
        if isinstance(kind := getattr(fw_client, name), type) and issubclass(kind, Exception)
    }
    assert errors - set(re.findall(r"\w+", PAGE)) == set()
