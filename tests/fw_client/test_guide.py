"""The programs of docs/python-client.md, run as they stand there, on a service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fw_client
from fw_client import FwClient
from tests.live_site import PASSWORD, LiveSite

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "python-client.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_page_work(
    site: LiveSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FwClient(site.url, user="admin", password=PASSWORD) as admin:
        monkeypatch.setenv("FW_KEY", admin.api_keys.create("guide").key)
    told: dict[str, Any] = {"__name__": "guide"}
    for program in BLOCK.findall(PAGE):
        exec(program.replace("https://fw.example.org", site.url), told)
    first, title, refused = capsys.readouterr().out.splitlines()
    assert first.startswith("admin wrote ")
    assert (title, refused) == ("Hello", "0 were refused")


def test_the_page_names_each_error() -> None:
    errors = {
        name
        for name in fw_client.__all__
        if isinstance(kind := getattr(fw_client, name), type) and issubclass(kind, Exception)
    }
    assert errors - set(re.findall(r"\w+", PAGE)) == set()
