"""The console's page in Debian's Chromium: its frame intervals, and its thread's work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import CDPSession, Page, expect, sync_playwright

from benchmarks.console.watched import BusyService

CHROMIUM: Final = "/usr/bin/chromium-headless-shell"
WATCH_SECONDS: Final = 5
# Resolves to the milliseconds between frames, from one to the next.
_FRAMES: Final = """
(seconds) => new Promise((resolve) => {
  const found = [];
  const began = performance.now();
  let last = null;
  const frame = (now) => {
    if (last !== null) found.push(now - last);
    last = now;
    if (now - began < seconds * 1000) requestAnimationFrame(frame);
    else resolve(found);
  };
  requestAnimationFrame(frame);
})
"""


@dataclass(frozen=True)
class Smoothness:
    """The smoothness of the page while it was watched."""

    frames: list[float]
    """Milliseconds between frames, the shortest first."""
    busy: float
    """How much of a core the page's own thread took, in per cent."""


@contextmanager
def open_console(busy: BusyService) -> Iterator[Page]:
    """Give the page, once it shows the actors."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            context = browser.new_context(base_url=busy.url)
            context.add_cookies([{"name": "sid", "value": busy.sid, "url": busy.url}])
            page = context.new_page()
            page.goto("/app/console")
            expect(page.get_by_role("rowheader", name="many")).to_be_visible(timeout=60_000)
            yield page
        finally:
            browser.close()


def watch_frames(page: Page) -> Smoothness:
    """Watch the page for some seconds."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _task_seconds(session)
    frames = page.evaluate(_FRAMES, WATCH_SECONDS)
    return Smoothness(sorted(frames), 100 * (_task_seconds(session) - before) / WATCH_SECONDS)


def _task_seconds(session: CDPSession) -> float:
    metrics = {
        each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
    }
    return float(metrics["TaskDuration"])
