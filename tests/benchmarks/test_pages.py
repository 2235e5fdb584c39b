"""The suite `pages`: each of its pages is rendered, beside a few deliveries."""

from __future__ import annotations

from pathlib import Path

import trio

from benchmarks.pages import measured
from benchmarks.rows import Effort
from tests.site_kit import make_config


def test_pages_suite_renders_each_page(tmp_path: Path) -> None:
    effort = Effort(events=1, rounds=1, tell=print)
    found = trio.run(measured, make_config(tmp_path), 1_000, effort)
    assert {"home", "webhook", "list", "attempts"} <= set(found)
    assert all(len(taken) == 1 for taken in found.values())
