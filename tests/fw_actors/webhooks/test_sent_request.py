"""The request of an attempt as it is shown to users (B-186)."""

from __future__ import annotations

import shlex

from fw_actors import __version__
from fw_actors.webhooks.diagnostics import MAX_IN_LINE, SentRequest, sent_request


def request(payload: str) -> SentRequest:
    return sent_request("https://x.test/hook", "msg_1", 1_800_000_000, "v1,AA==", payload)


def test_sent_request_curl_survives_shell_parsing() -> None:
    payload = """{"a":"it's $HOME; `rm`"}"""
    words = shlex.split(request(payload).curl)
    assert words[:5] == ["curl", "-i", "-X", "POST", "https://x.test/hook"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "-H"] == [
        "content-type: application/json",
        f"user-agent: fw-webhooks/{__version__}",
        "webhook-id: msg_1",
        "webhook-timestamp: 1800000000",
        "webhook-signature: v1,AA==",
    ]
    assert words[-2:] == ["--data-binary", payload]


def test_sent_request_curl_names_file_for_long_body() -> None:
    words = shlex.split(request("x" * (MAX_IN_LINE + 1)).curl)
    assert words[-2:] == ["--data-binary", "@payload.json"]
