"""Errors that a browser and axe-core report about pages, and screenshots of pages."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import ConsoleMessage, Error, Page

HERE: Final = Path(__file__).parent
AXE: Final = (HERE / "vendor" / "axe-core-4.14.1.min.js").read_text()
SCREENSHOTS: Final = HERE / "screenshots"
TAKES_SCREENSHOTS: Final = "SCREENSHOTS" in os.environ  # a tenth of the time of a run
WATCHER: Final = """
document.addEventListener("securitypolicyviolation", (event) => {
  const { violatedDirective, blockedURI, sourceFile, lineNumber } = event;
  reportViolation(`${violatedDirective} ${blockedURI} ${sourceFile}:${lineNumber}`);
});
"""
# Loading the style sheet once more takes half of a run, and finds locked orientations only,
# which are the same at every width.
RUN_AXE: Final = """
async (preload) => {
  const found = await axe.run(document, { preload, resultTypes: ["violations", "incomplete"] });
  const shown = (nodes) => nodes.map((node) => node.html).join(" ; ");
  // A lone symbol is no text to axe.
  const symbol = (node) => ["shortTextContent", "nonBmp"].includes(node.any[0]?.data?.messageKey);
  // A cell that its scrolled table cuts off looks like the other cells of its column and row.
  const cut = (node) => node.any[0]?.data?.messageKey === "elmPartiallyObscured"
    && node.any[0].relatedNodes.every((each) => each.html.startsWith('<div class="scroll'));
  const unseen = found.incomplete.filter(({ id }) => id === "color-contrast").map((rule) => ({
    ...rule, nodes: rule.nodes.filter((node) => !symbol(node) && !cut(node)),
  })).filter((rule) => rule.nodes.length);
  const described = ({ id, help, nodes }) => `${id}: ${help}: ${shown(nodes)}`;
  return [...found.violations, ...unseen].map(described);
}
"""
TOO_WIDE: Final = """
(width) => document.documentElement.scrollWidth <= width ? []
  : [...document.body.querySelectorAll("*")]
  .filter((each) => each.getBoundingClientRect().right > width && !each.closest(".scroll *"))
  .map((each) => each.outerHTML.slice(0, 120))
"""
# A fresh message lies over other text for a while, whose contrast axe cannot see.
SETTLE: Final = """
() => document.querySelector(".news")?.classList.remove("fresh")
"""
WIDTHS: Final = (360, 1280)
HEIGHT: Final = 800
Scheme = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, Scheme]] = ("light", "dark")
# A refused call is part of many tests; the browser notes each in its console. htmx notes it as
# well, and each request that a newer one replaces or that has no response.
EXPECTED: Final = (
    "Failed to load resource", "Response Status Error Code", "htmx:afterRequest", "htmx:sendAbort",
    "htmx:sendError",
)  # fmt: skip


class PageErrors:
    """Collects what a page did wrong."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def violated(self, text: str) -> None:
        """Take note of a violation of the Content-Security-Policy."""
        self.found.append(f"violation: {text}")

    def failed(self, error: Error) -> None:
        """Take note of an error that a script left uncaught."""
        self.found.append(f"error: {error.message}")

    def said(self, message: ConsoleMessage) -> None:
        """Take note of what the console shows as an error or a warning."""
        if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
            self.found.append(f"{message.type}: {message.text}")


def check_page(page: Page, name: str) -> None:
    """Check the page as it stands: nothing wider than the screen, nothing that axe-core objects
    to, in light and dark, narrow and wide."""
    before: Any = page.viewport_size
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.evaluate(SETTLE)
            too_wide = page.evaluate(TOO_WIDE, width)
            assert not too_wide, (name, width, too_wide)
            if TAKES_SCREENSHOTS:
                _take_screenshot(page, width, f"{name}-{width}-{scheme}.png")
            if (scheme == "dark") == (width == WIDTHS[0]):  # both schemes, both widths
                objections = page.evaluate(RUN_AXE, scheme == "light")
                assert not objections, (name, width, scheme, objections)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(before)


def _take_screenshot(page: Page, width: int, name: str) -> None:
    """Keep a picture of the whole page: in a third of the time of Playwright's, which lays it out
    anew."""
    session = page.context.new_cdp_session(page)
    height = session.send("Page.getLayoutMetrics")["cssContentSize"]["height"]
    taken = session.send(
        "Page.captureScreenshot",
        {
            "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
            "captureBeyondViewport": True,
            "optimizeForSpeed": True,
        },
    )
    session.detach()
    SCREENSHOTS.mkdir(exist_ok=True)
    (SCREENSHOTS / name).write_bytes(base64.b64decode(taken["data"]))
