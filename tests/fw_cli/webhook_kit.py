"""Webhooks that tests of the command line make."""

from __future__ import annotations

from typing import Any

from tests.fw_cli.conftest import CommandLine
from tests.live_site import SECRET


def make_hook(fw: CommandLine, url: str, **fields: Any) -> str:
    given = "".join(f", {key}={value!r}" for key, value in fields.items())
    name: str = fw.json(
        "eval",
        f'fw.new_doc("Webhook", event_type="Custom", custom_event="a.b", secret="{SECRET}", '
        f'url="{url}"{given}).insert().name',
        "--commit",
    )
    return name
