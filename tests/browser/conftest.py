"""A browser, a running service with something in it, and pages that watch for violations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.page_checks import WATCHER, PageErrors
from tests.live_site import PASSWORD, LiveReceiver, LiveSite

CHROMIUM = "/usr/bin/chromium-headless-shell"
PATIENCE_MS = 60_000
SECONDS = 300  # of one test with the fixtures it is the first to use, on a slow and busy machine
HERE = Path(__file__).parent
POLICY = {
    "site": {"name": "Blue Bottle"},
    "auth": {"addressAttempts": 10_000, "recoveryAttempts": 10_000, "maxLoginAttempts": 3},
    "login": {
        "notice": "Maintenance on Sunday, 6:00 to 8:00.\nQuestions: help@example.test",
        "demoUser": "demo",
        "demoPassword": PASSWORD,
    },
    "ops": {"backoffSeconds": 3600},
    "apps": ["shop"],
}
FURNISH = """
for name, full, role in (
    ("admin", "Ada Admin", "System Manager"),
    ("sally", "Sally Seller", "Sales"),
    ("demo", "Demo", "Sales"),
    ("bea", "Bea Busy", "Sales"),
    ("carl", "Carl Changing", "Sales"),
    ("dora", "Dora", "Sales"),
    ("edna", "Edna", "Sales"),
    ("gina", "Gina", "Sales"),
    ("hugo", "Hugo", "Sales"),
):
    email = f"{name}@example.test"
    user = fw.new_doc("User", name=name, email=email, fullName=full, roles=[{"role": role}])
    user.new_password = PASSWORD
    user.insert()
for title in ("Anders & Sons", "Brasserie Clément", "Café Ötzi"):
    fw.new_doc("Customer", title=title, city="Bozen").insert()
for number in range(1, 61):
    fw.new_doc(
        "Sales Order", title=f"Order of day {number}", customer="Café Ötzi",
        status=("New", "Packed", "Shipped")[number % 3], urgent=number % 2,
        due=f"2026-03-{number % 28 + 1:02d}",
        lines=[{"item": f"Beans {n}", "quantity": n, "rate": 9.5} for n in (1, 2)],
    ).insert()
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; Playwright's own is never fetched."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A service that runs for all tests of this folder, with users and documents."""
    folder = tmp_path_factory.mktemp("browser")
    with LiveSite(folder, apps=("shop",)) as site:
        (folder / "fw.json").write_text(json.dumps(POLICY))
        shutil.copy(HERE / "shop.py", folder / "shop.py")
        (folder / "furnish.py").write_text(FURNISH.replace("PASSWORD", repr(PASSWORD)))
        site.fw("exec", "furnish.py", "--commit")
        site.start(FW_MODE="development")
        yield site
        assert site.end() == 0


@pytest.fixture(scope="package")
def receiver() -> Iterator[LiveReceiver]:
    """A receiver that takes everything."""
    with LiveReceiver(204) as receiver:
        yield receiver


@pytest.fixture(scope="package")
def page_errors() -> PageErrors:
    """The errors of the pages of a test."""
    return PageErrors()


@pytest.fixture(scope="package")
def profile(browser: Browser, site: LiveSite, page_errors: PageErrors) -> Iterator[BrowserContext]:
    """A browser's profile for all tests, so that scripts and styles are fetched once."""
    context = browser.new_context(
        base_url=site.url, locale="en-GB", timezone_id="Europe/Berlin", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    context.expose_function("reportViolation", page_errors.violated)
    context.add_init_script(WATCHER)
    yield context
    context.close()


@pytest.fixture
def context(profile: BrowserContext) -> BrowserContext:
    """The browser profile, without a signed-in user."""
    profile.clear_cookies()
    profile.clear_permissions()
    return profile


@pytest.fixture
def page(context: BrowserContext, site: LiveSite, page_errors: PageErrors) -> Iterator[Page]:
    """A tab; what it may not do (Content-Security-Policy, errors in scripts) fails the test."""
    page = context.new_page()
    forget = {"origin": site.url, "storageTypes": "local_storage"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", forget)
    page_errors.found.clear()
    page.on("pageerror", page_errors.failed)
    page.on("console", page_errors.said)
    yield page
    page.close()
    assert page_errors.found == []


@pytest.fixture
def sign_in(context: BrowserContext) -> Callable[[str], None]:
    """Sign a user in by the API, so that only the tests of the sign-in page need the page."""

    def go(name: str) -> None:
        data: dict[str, Any] = {"usr": name, "pwd": PASSWORD}
        answer = context.request.post("/api/login", data=data, headers={"X-FW-CSRF": "1"})
        assert answer.ok, answer.text()

    return go
