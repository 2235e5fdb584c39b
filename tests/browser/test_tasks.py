"""Tasks of an operator without the documentation, counted in clicks (H-209)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.webhook_kit import emit, make_webhook, status
from tests.live_site import LiveReceiver, eventually

HEADERS = {"X-FW-CSRF": "1"}


@pytest.fixture(autouse=True)
def admin(sign_in: Callable[[str], None]) -> None:
    sign_in("admin")


class ClickCounter:
    """Clicks, and counts them; typing is free."""

    def __init__(self) -> None:
        self.clicks = 0

    def click(self, place: Locator) -> None:
        self.clicks += 1
        place.click()

    def choose(self, place: Locator, option: str) -> None:
        self.clicks += 1
        place.select_option(option)


def test_failing_receiver_is_found_and_replayed_in_few_clicks(page: Page) -> None:
    """Finding a failing receiver takes 3 clicks; replaying the last hour takes 5 (H-209)."""
    with LiveReceiver(410, 410, 410, 204) as receiver:
        make_webhook(page, receiver.url, "task.replayed", title="Stock of Meran")
        missed = [emit(page, "task.replayed", {"n": n}) for n in range(3)]
        eventually(lambda: all(status(page, each) == "Failed" for each in missed))
        counter = ClickCounter()
        page.goto("/app")
        counter.click(page.get_by_role("link", name=re.compile("Stock of Meran fails")))
        expect(page.get_by_role("region", name="State")).to_contain_text(
            "The receiver answered 410."
        )
        expect(page.locator("#webhook-state")).to_be_in_viewport()
        assert counter.clicks <= 3

        counter = ClickCounter()
        page.goto("/app")
        counter.click(page.get_by_role("link", name=re.compile("failed in the last day")))
        counter.choose(page.get_by_label("Webhook", exact=True), "Stock of Meran")
        counter.choose(page.get_by_label("Created", exact=True), "In the last hour")
        expect(page).to_have_url(re.compile("_since=1h"))  # what was found before is gone
        counter.click(page.get_by_role("button", name="Replay all 3 that match"))
        counter.click(page.get_by_role("dialog").get_by_role("button", name="Replay all"))
        expect(page.get_by_role("region", name="Bulk replay")).to_contain_text("Done.")
        assert counter.clicks <= 5
        eventually(lambda: all(status(page, each) == "Sent" for each in missed))


def test_newer_filter_replaces_pending_search(page: Page) -> None:
    """A late response neither replaces nor delays the newer one (H-163)."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.goto("/app/Webhook%20Delivery")
    page.route(re.compile("status=Failed.*_since=&"), hold)
    with page.expect_request(re.compile("status=Failed.*_since=&")):
        page.get_by_label("Status", exact=True).select_option("Failed")
    page.get_by_label("Created", exact=True).select_option("In the last hour")
    expect(page).to_have_url(re.compile("status=Failed.*_since=1h"))
    assert len(held) == 1, "the older one was never answered"


def test_delivery_is_found_by_id_in_one_click(page: Page, receiver: LiveReceiver) -> None:
    """H-209."""
    make_webhook(page, receiver.url, "task.found")
    delivery = emit(page, "task.found", {})
    page.goto("/app")
    counter = ClickCounter()
    counter.click(page.get_by_label("Find an id, a name or a text"))
    page.keyboard.type(delivery)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="task.found")).to_be_visible()
    assert counter.clicks == 1


def test_document_page_shows_users_of_its_changes(page: Page) -> None:
    """On its page, and at its address when it is gone (H-209)."""
    path = "/api/resource/Customer"
    made = page.request.post(path, data={"title": "Short-lived", "city": "Bozen"}, headers=HEADERS)
    name = made.json()["data"]["name"]
    page.request.put(f"{path}/{name}", data={"city": "Meran"}, headers=HEADERS)
    page.goto(f"/app/Customer/{name}")
    entries = page.get_by_role("region", name="History").locator(".history > li")
    expect(entries).to_have_count(2)
    expect(entries.first).to_contain_text(re.compile("admin.*City: Bozen → Meran", re.DOTALL))
    expect(entries.last).to_contain_text(re.compile("admin.*Created", re.DOTALL))
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("/app/Customer$"))
    page.goto(f"/app/Customer/{name}")
    expect(page.locator("main")).to_contain_text(re.compile("Deleted by admin"))
