"""The pages for sign-in, recovery and invitation (H-150, H-151)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.page_checks import check_page
from tests.live_site import PASSWORD, LiveSite, eventually

NEW_PASSWORD = "a new and better one"


def fill_sign_in(page: Page, usr: str, pwd: str) -> None:
    page.get_by_label("Name or e-mail").fill(usr)
    page.get_by_label("Password", exact=True).fill(pwd)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_sign_in_page_shows_notice_and_demo_account(page: Page) -> None:
    """The notice is shown as written, with its line breaks (A-341, A-342)."""
    page.goto("/login")
    notice = page.locator(".notice")
    assert notice.inner_text() == (
        "Maintenance on Sunday, 6:00 to 8:00.\nQuestions: help@example.test"
    )
    expect(page.get_by_role("heading", name="Demo account")).to_be_visible()
    expect(page.locator(".demo")).to_contain_text("demo")
    check_page(page, "login")


def test_root_redirects_to_sign_in_and_back_to_wanted_page(page: Page) -> None:
    page.goto("/")
    expect(page).to_have_url(re.compile(r"/login$"))
    page.goto("/app/Sales%20Order?status=Packed")
    expect(page).to_have_url(re.compile(r"/login\?next="))
    fill_sign_in(page, "sally", PASSWORD)
    expect(page).to_have_url(re.compile(r"/app/Sales%20Order\?status=Packed$"))
    page.goto("/login")
    expect(page).to_have_url(re.compile(r"/app$"))


def test_sign_in_page_reports_ended_session(page: Page, site: LiveSite) -> None:
    """H-154."""
    page.context.add_cookies([{"name": "sid", "value": "x" * 32, "url": site.url}])
    page.goto("/app/Sales%20Order?status=Packed")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended.")
    check_page(page, "login-ended")
    fill_sign_in(page, "sally", PASSWORD)
    expect(page).to_have_url(re.compile(r"/app/Sales%20Order\?status=Packed$"))


@pytest.mark.parametrize("next_path", ["//evil.test/x", "https://evil.test/", "/\\evil.test"])
def test_sign_in_redirects_to_no_other_site(page: Page, next_path: str) -> None:
    """A sign-in leads to a path of this site and nowhere else (H-155)."""
    page.goto(f"/login?next={next_path}")
    fill_sign_in(page, "sally@example.test", PASSWORD)
    expect(page).to_have_url(re.compile(r"^http://127.0.0.1:\d+/app$"))


def test_second_session_cookie_redirects_to_sign_in(page: Page, site: LiveSite) -> None:
    """The cookie is set by a sibling host: two cookies `sid` lock no user out (A-173)."""
    page.goto("/login")
    fill_sign_in(page, "sally", PASSWORD)
    expect(page).to_have_url(re.compile(r"/app$"))
    tossed: Any = {"name": "sid", "value": "tossed", "domain": "127.0.0.1", "path": "/app"}
    page.context.add_cookies([tossed])
    page.goto("/app")
    expect(page).to_have_url(re.compile(r"/login$"))
    assert page.context.cookies() == []
    fill_sign_in(page, "sally", PASSWORD)
    expect(page).to_have_url(re.compile(r"/app$"))
    expect(page.get_by_role("link", name="Sales Order").first).to_be_visible()


def test_demo_account_signs_in_by_one_click(page: Page) -> None:
    page.goto("/login")
    page.get_by_role("button", name="Sign in with it").click()
    expect(page).to_have_url(re.compile(r"/app$"))


def test_wrong_password_is_reported_and_name_kept(page: Page) -> None:
    page.goto("/login")
    fill_sign_in(page, "nobody at all", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    expect(page.get_by_label("Name or e-mail")).to_have_value("nobody at all")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    check_page(page, "login-wrong")


def test_lockout_message_shows_remaining_minutes(page: Page) -> None:
    """The page shows the minutes of `error.extra.retryAfter` (H-65, A-69), and the end of the
    lock."""
    page.clock.install()
    page.goto("/login")
    for _ in range(2):
        with page.expect_response("**/api/login") as answer:
            fill_sign_in(page, "somebody to lock", "wrong")
        assert answer.value.status == 401
        expect(page.get_by_role("alert")).to_contain_text("wrong")
    fill_sign_in(page, "somebody to lock", "wrong")
    expect(page.get_by_role("alert")).to_have_text("Too many attempts. Try again in 15 minutes.")
    check_page(page, "login-locked")
    page.clock.fast_forward(60_000)
    expect(page.get_by_role("alert")).to_have_text("Too many attempts. Try again in 14 minutes.")
    page.clock.fast_forward(14 * 60_000)
    expect(page.get_by_role("alert")).to_have_text("You can try again now.")


def test_empty_sign_in_fields_are_named_without_request(page: Page) -> None:
    page.goto("/login")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_label("Name or e-mail")).to_have_accessible_description(
        "Name or e-mail is missing."
    )
    expect(page.get_by_label("Name or e-mail")).to_be_focused()
    page.keyboard.type("s")
    expect(page.get_by_text("Name or e-mail is missing.")).to_have_count(0)


def test_sign_in_page_works_by_keyboard(page: Page) -> None:
    page.goto("/login")
    expect(page.get_by_label("Name or e-mail")).to_be_focused()
    page.keyboard.type("sally")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Show password")).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_label("Password", exact=True)).to_have_attribute("type", "text")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/app$"))


def test_forgot_password_page_answers_unknown_name_alike(page: Page) -> None:
    """The answer is the same for everybody (A-212)."""
    page.goto("/login")
    page.get_by_role("link", name="Forgot your password?").click()
    check_page(page, "forgot")
    page.get_by_label("Name or e-mail").fill("who is that")
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()
    expect(page.get_by_role("heading", name="Check your mail")).to_be_focused()
    check_page(page, "forgot-sent")


def recovery_link(page: Page, site: LiveSite, usr: str) -> str:
    """Ask for a recovery link by the page; return it from the log."""
    log = site.folder / "serve.log"
    before = len(log.read_text())
    page.goto("/forgot-password")
    page.get_by_label("Name or e-mail").fill(usr)
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()
    found = eventually(lambda: re.search(r"http\S+#token=[\w-]+", log.read_text()[before:]))
    assert found is not None
    return found.group()


def test_recovery_link_sets_password_once(page: Page, site: LiveSite) -> None:
    """The token stands in the fragment (A-189), and is out of sight at once (H-156)."""
    link = recovery_link(page, site, "bea")
    page.goto(link)
    expect(page.get_by_role("heading", name="Set a new password")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/reset-password$"))
    expect(page.locator("[data-user]")).to_have_text("Bea Busy (bea)")
    password = page.get_by_label("New password", exact=True)
    password.fill("short")
    expect(page.locator("[data-rule=tooShort]")).to_have_attribute("data-state", "broken")
    page.get_by_role("button", name="Set new password").click()
    expect(password).to_have_accessible_description(re.compile("at least 8 characters"))
    check_page(page, "reset")
    password.fill("BEA")
    expect(page.locator("[data-rule=equalsAccountName]")).to_have_attribute("data-state", "broken")
    password.fill(NEW_PASSWORD)
    expect(page.locator("[data-rule=tooShort]")).to_have_attribute("data-state", "kept")
    page.get_by_role("button", name="Set new password").click()
    expect(page.get_by_role("heading", name="Your password is set")).to_be_visible()
    expect(password).to_be_hidden()
    check_page(page, "reset-done")
    page.get_by_role("link", name="Sign in").click()
    fill_sign_in(page, "bea", NEW_PASSWORD)
    expect(page).to_have_url(re.compile(r"/app$"))
    page.context.clear_cookies()
    page.goto(link)
    expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
    check_page(page, "reset-spent")


def test_password_equal_to_email_is_refused_by_service(page: Page, site: LiveSite) -> None:
    """A password may not equal name or e-mail (A-134); the page does not know the e-mail."""
    page.goto(recovery_link(page, site, "demo"))
    page.get_by_label("New password", exact=True).fill("DEMO@example.test")
    page.get_by_role("button", name="Set new password").click()
    expect(page.get_by_label("New password", exact=True)).to_have_accessible_description(
        re.compile("must not equal the account's name or e-mail")
    )


@pytest.mark.parametrize("path", ["/reset-password", "/accept-invite"])
@pytest.mark.parametrize("fragment", ["", "#token=", "#token=nonsense", "#other=1"])
def test_invalid_link_page_reports_unusable_link(page: Page, path: str, fragment: str) -> None:
    page.goto(path + fragment)
    expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
    expect(page).to_have_url(re.compile(path + "$"))


def test_invitation_sets_name_and_password(page: Page, site: LiveSite) -> None:
    """An accepted invitation sets the password (A-231) and does not sign the person in (A-222)."""
    output = site.fw("user", "add", "ivy", "--email", "ivy@example.test", "--role", "Sales")
    found = re.search(r"http\S+#token=\S+", output)
    assert found is not None
    page.goto(site.url + "/accept-invite#" + found.group().partition("#")[2])
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    page.get_by_label("Full name").fill("Ivy Invited")
    page.get_by_label("New password", exact=True).fill(NEW_PASSWORD)
    check_page(page, "invitation")
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("heading", name="Your password is set")).to_be_visible()
    assert page.context.cookies() == []
    page.get_by_role("link", name="Sign in").click()
    fill_sign_in(page, "ivy@example.test", NEW_PASSWORD)
    expect(page).to_have_url(re.compile(r"/app$"))
    page.goto("/account")
    expect(page.get_by_label("Full name")).to_have_value("Ivy Invited")


def test_sign_in_pages_without_script_name_javascript(browser: Any, site: LiveSite) -> None:
    context = browser.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    for path in ("/login", "/forgot-password", "/reset-password", "/accept-invite"):
        page.goto(path)
        assert "This page needs JavaScript" in page.locator("body").inner_text()
    context.close()


def test_link_token_is_sent_only_in_bodies(
    page: Page, site: LiveSite, sign_in: Callable[[str], None]
) -> None:
    """No request, server log or Referer holds the token (H-156, A-189)."""
    seen: list[str] = []
    page.on("request", lambda request: seen.append(json.dumps([request.url, request.headers])))
    link = recovery_link(page, site, "sally")
    seen.clear()
    page.goto(link)
    expect(page.get_by_role("heading", name="Set a new password")).to_be_visible()
    token = link.partition("token=")[2]
    assert seen
    assert not [text for text in seen if token in text.replace(link, "")]
