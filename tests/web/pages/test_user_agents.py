"""A list of sessions names browsers in a few words."""

from __future__ import annotations

import pytest

from web.pages.account import shown_agent

CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CHROME + "Chrome/141.0.0.0 Safari/537.36", "Chrome on Windows"),
        (CHROME + "Chrome/141.0.0.0 Safari/537.36 Edg/141.0", "Edge on Windows"),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
         "Firefox on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/604.1",
         "Safari on iPhone"),
        ("curl/8.14.1", "curl/8.14.1"),
        ("x" * 100, "x" * 60),
        ("", "Unknown program"),
    ],
)  # fmt: skip
def test_shown_agent_names_browser_and_system(text: str, shown: str) -> None:
    assert shown_agent(text) == shown
