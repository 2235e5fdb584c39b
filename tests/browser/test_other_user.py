"""A page that is still open when another user signs in in the same browser (H-83)."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.webhook_kit import HEADERS

SignIn = Callable[[str], None]
REFUSED = "This request was made as sally, but hugo is signed in now. Reload the page, or sign in"


def has_full_name(page: Page, name: str) -> bool:
    path = "/api/method/core.services.profile.getMyProfile"
    answer = page.request.post(path, data={}, headers=HEADERS)
    profile: dict[str, object] = answer.json()
    return profile["fullName"] == name


def test_page_of_former_user_changes_nothing_of_the_new_one(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.goto("/account")
    sign_in("hugo")
    page.get_by_label("Full name").fill("Sally Saved")
    page.get_by_role("button", name="Save profile").click()
    expect(page.locator("#profile").get_by_role("alert")).to_contain_text(REFUSED)
    expect(page.get_by_label("Full name")).to_have_value("Sally Saved")
    page.get_by_label("Purpose").fill("sally's export")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#make-key").get_by_role("alert")).to_contain_text(REFUSED)
    assert has_full_name(page, "Hugo")
    page.reload()
    expect(page.get_by_role("heading", name="My account")).to_be_visible()
    expect(page.get_by_text("sally's export")).to_have_count(0)

    sign_in("sally")
    page.goto("/account")
    sign_in("hugo")
    sign_in("sally")  # the same user in a new session
    page.get_by_role("button", name="Save profile").click()
    expect(page.get_by_text("Saved.")).to_be_visible()


def test_page_of_former_user_shows_nothing_of_the_new_one(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.goto("/app/Sales%20Order")
    before = page.locator("#results").inner_html()
    sign_in("hugo")
    page.get_by_role("searchbox", name="Search").fill("day 60")
    expect(page.locator("#trouble")).to_contain_text(REFUSED)
    assert page.locator("#results").inner_html() == before


def test_console_of_former_user_shows_nothing_to_the_new_one(page: Page, sign_in: SignIn) -> None:
    """H-83: the stream of events named no user."""
    sign_in("admin")
    page.goto("/app/console")
    expect(page.locator("#live")).to_have_text(re.compile("^live"))
    sign_in("hugo")
    with page.expect_request("**/app/console/events") as asked:
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    assert asked.value.headers["x-fw-user"] == "admin"
    expect(page.locator("#console-message")).to_contain_text("as admin, but hugo is signed in now")
    expect(page.locator("#live")).to_have_text("ended")


def test_page_of_former_user_signs_the_browser_out(page: Page, sign_in: SignIn) -> None:
    """After a sign-out nobody is signed in in this browser."""
    sign_in("sally")
    page.goto("/account")
    sign_in("hugo")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    page.goto("/account")
    page.wait_for_url("**/login?**")
