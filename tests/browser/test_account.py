"""My account: profile, password, sessions and API keys (H-151, A-240)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.held_requests import HeldRequests
from tests.browser.page_checks import check_page
from tests.live_site import PASSWORD, LiveSite

SignIn = Callable[[str], None]
HEADERS = {"X-FW-CSRF": "1"}
CHANGED = "another good password"


@contextmanager
def another_session(site: LiveSite, name: str, agent: str) -> Iterator[httpx.Client]:
    headers = {**HEADERS, "User-Agent": agent}
    with httpx.Client(base_url=site.url, headers=headers, timeout=30) as client:
        answer = client.post("/api/login", json={"usr": name, "pwd": PASSWORD})
        assert answer.status_code == 200
        yield client


def test_account_page_changes_profile(page: Page, sign_in: SignIn) -> None:
    sign_in("carl")
    page.goto("/account")
    page.get_by_label("Full name").fill("Carl Changed")
    page.get_by_label("Language").fill("de")
    page.get_by_role("button", name="Save profile").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Full name")).to_have_value("Carl Changed")


def test_account_page_explains_its_keys_on_a_question_mark(page: Page, sign_in: SignIn) -> None:
    """As every page of the desk (H-157); the ids of a page are unique."""
    sign_in("carl")
    page.goto("/account")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("find in the whole desk")
    assert (
        page.evaluate("""() => {
      const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
      return ids.filter((id, at) => ids.indexOf(id) !== at);
    }""")
        == []
    )


def test_account_page_lists_and_ends_sessions(page: Page, site: LiveSite, sign_in: SignIn) -> None:
    sign_in("carl")
    with (
        another_session(site, "carl", "curl/8.0") as one,
        another_session(site, "carl", "Mozilla/5.0 (X11; Linux) Firefox/140.0") as two,
    ):
        page.goto("/account")
        sessions = page.locator("#sessions li")
        own = sessions.filter(has_text="this one")
        expect(own).to_have_count(1)
        expect(own.get_by_role("button")).to_have_count(0)
        check_page(page, "account")
        sessions.filter(has_text="curl/8.0").get_by_role("button").click()
        expect(page.get_by_text("The session has ended.")).to_be_visible()
        expect(sessions.filter(has_text="curl/8.0")).to_have_count(0)
        assert one.get("/api/boot").json()["user"] is None
        expect(sessions.filter(has_text="Firefox on Linux")).to_have_count(1)
        page.get_by_role("button", name="End all others").click()
        page.get_by_role("dialog").get_by_role("button", name="End them").click()
        expect(sessions).to_have_count(1)
        expect(page.locator("#sessions-title")).to_be_focused()  # the button is gone
        assert two.get("/api/boot").json()["user"] is None


def test_api_key_is_shown_once_works_and_is_revoked(
    page: Page, site: LiveSite, sign_in: SignIn
) -> None:
    """The key is shown this once (A-267)."""
    sign_in("carl")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/account")
    page.get_by_label("Purpose").fill("nightly export")
    page.get_by_label("Days until it expires").fill("30")
    page.get_by_role("button", name="Create key").click()
    shown = page.locator("#made-key code")
    expect(shown).to_have_text(re.compile(r"^fwk_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}$"))
    key = shown.inner_text()
    page.locator("#made-key").get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == key
    expect(page.locator("#api-keys li")).to_contain_text("never used")
    check_page(page, "account-key")
    bearer = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{site.url}/api/boot", headers=bearer).json()["user"]["name"] == "carl"
    page.reload()
    assert key not in page.content()
    page.locator("#api-keys li").filter(has_text="nightly export").get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("No keys yet.")).to_be_visible()
    assert httpx.get(f"{site.url}/api/boot", headers=bearer).status_code == 401


def test_account_page_keeps_typed_text_and_new_key_during_its_actions(
    page: Page, site: LiveSite, sign_in: SignIn
) -> None:
    """A key is shown once: a page that is read again would lose it before it is copied (H-158)."""
    sign_in("carl")
    with another_session(site, "carl", "curl/8.0"), another_session(site, "carl", "Wget/1.0"):
        page.goto("/account")
        page.get_by_label("Purpose").fill("old program")
        page.get_by_role("button", name="Create key").click()
        expect(page.locator("#api-keys li").filter(has_text="old program")).to_be_visible()
        page.get_by_label("Purpose").fill("new program")
        page.get_by_role("button", name="Create key").click()
        expect(page.locator("#api-keys li").filter(has_text="new program")).to_be_visible()
        key = page.locator("#made-key code").inner_text()
        page.get_by_label("Full name").fill("Typed before")
        sessions = page.locator("#sessions li")
        sessions.filter(has_text="curl/8.0").get_by_role("button").click()
        expect(sessions.filter(has_text="curl/8.0")).to_have_count(0)
        expect(page.get_by_label("Full name")).to_have_value("Typed before")
        expect(page.get_by_role("heading", name="Sessions")).to_be_focused()
        page.locator("#api-keys li").filter(has_text="old program").get_by_role("button").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.get_by_text("The key has been revoked.")).to_be_visible()
        expect(page.locator("#api-keys li")).to_have_count(1)
        page.get_by_role("button", name="End all others").click()
        page.get_by_role("dialog").get_by_role("button", name="End them").click()
        expect(sessions).to_have_count(1)
        expect(page.get_by_role("button", name="End all others")).to_be_hidden()
        expect(page.locator("#made-key code")).to_have_text(key)
        expect(page.locator("#made-key code")).to_be_visible()
        expect(page.get_by_label("Full name")).to_have_value("Typed before")
        page.locator("#api-keys li").get_by_role("button").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.get_by_text("No keys yet.")).to_be_visible()
        expect(page.locator("#made-key")).to_be_hidden()
        expect(page.get_by_role("button", name="Revoke all")).to_be_hidden()
        expect(page.get_by_label("Full name")).to_have_value("Typed before")
        check_page(page, "account-kept")


def test_api_key_is_selected_without_clipboard(page: Page, sign_in: SignIn) -> None:
    """Browsers have one on https and localhost alone."""
    sign_in("carl")
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.goto("/account")
    page.get_by_label("Purpose").fill("by hand")
    page.get_by_role("button", name="Create key").click()
    page.locator("#made-key").get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Selected: copy it")).to_be_visible()
    key = page.locator("#made-key code").inner_text()
    assert page.evaluate("getSelection().toString()") == key
    page.locator("#api-keys li").filter(has_text="by hand").get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("No keys yet.")).to_be_visible()


@pytest.mark.parametrize(
    ("answer", "expected", "status"),
    [
        ("Enter", "your API keys have been revoked", 401),
        ("Escape", "your API keys still work", 200),
    ],
)
def test_password_change_asks_whether_to_revoke_api_keys(
    page: Page, site: LiveSite, sign_in: SignIn, answer: str, expected: str, status: int
) -> None:
    """A change of one's own password leaves API keys (A-249); by keyboard alone (H-157)."""
    user = {"Enter": "dora", "Escape": "edna"}[answer]
    sign_in(user)
    page.goto("/account")
    page.get_by_label("Purpose").fill("CI")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#made-key code")).to_have_text(re.compile("^fwk_"))
    key = page.locator("#made-key code").inner_text()
    page.get_by_label("Current password", exact=True).fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill(CHANGED)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Revoke all keys")).to_be_focused()
    check_page(page, "account-keys")
    page.keyboard.press(answer)
    expect(page.get_by_text(expected)).to_be_visible()
    bearer = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{site.url}/api/boot", headers=bearer).status_code == status


def test_password_change_asks_about_key_that_is_not_listed_yet(page: Page, sign_in: SignIn) -> None:
    """The list is requested again after each action, one request after the other."""
    sign_in("carl")
    page.goto("/account")
    held = HeldRequests(page, "**/account")
    page.get_by_label("Purpose").fill("not listed")
    page.get_by_role("button", name="Create key").click()
    held.arrive()
    page.route("**/*profile.changeMyPassword", lambda route: route.fulfill(json={}))
    page.get_by_label("Current password", exact=True).fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill(CHANGED)
    with page.expect_response("**/*profile.changeMyPassword"):
        page.get_by_role("button", name="Change password").click()
    page.wait_for_timeout(100)
    held.let_go()
    page.get_by_role("dialog").get_by_role("button", name="Keep the keys").click()
    row = page.locator("#api-keys li").filter(has_text="not listed")
    expect(row.get_by_role("button")).to_be_enabled()
    row.get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)


def test_password_change_names_errors_beside_fields(page: Page, sign_in: SignIn) -> None:
    sign_in("carl")
    page.goto("/account")
    current = page.get_by_label("Current password", exact=True)
    new = page.get_by_label("New password", exact=True)
    button = page.get_by_role("button", name="Change password")
    current.fill("not this one")
    new.fill("carl")
    button.click()
    expect(new).to_have_accessible_description(re.compile("not good enough"))
    new.fill(CHANGED)
    button.click()
    expect(current).to_have_accessible_description(re.compile("wrong|current"))
    expect(new).to_have_value(CHANGED)
    current.fill(PASSWORD)
    button.click()
    expect(page.get_by_text("Your password has been changed.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Name or e-mail").fill("carl")
    page.get_by_label("Password", exact=True).fill(CHANGED)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page).to_have_url(re.compile("/app$"))


def test_new_api_key_stays_shown_when_lists_cannot_be_reloaded(page: Page, sign_in: SignIn) -> None:
    """The list of before does not have the key, which is shown only once (A-267)."""
    sign_in("gina")
    page.goto("/account")
    page.route("**/account", lambda route: route.fulfill(status=503, body="<h1>Overloaded</h1>"))
    page.get_by_label("Purpose").fill("kept")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#trouble")).to_be_visible()
    expect(page.locator("#made-key code")).to_be_visible()


def test_api_key_that_has_ended_meanwhile_leaves_the_list(page: Page, sign_in: SignIn) -> None:
    """In another tab it was revoked; the question could only be cancelled."""
    sign_in("gina")
    path = "/api/method/core.services.api_keys."
    made = page.request.post(
        f"{path}createMyAPIKey", data={"label": "in two tabs"}, headers=HEADERS
    )
    page.goto("/account")
    name = made.json()["key"].split("_")[1]
    assert page.request.post(f"{path}revokeMyAPIKey", data={"name": name}, headers=HEADERS).ok
    page.get_by_role("button", name="Revoke the key in two tabs").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.locator("#api-keys")).not_to_contain_text("in two tabs")


def test_password_change_without_session_marks_no_field(page: Page, sign_in: SignIn) -> None:
    """The password may be right: the message is above the form."""
    sign_in("gina")
    page.goto("/account")
    page.get_by_label("Current password", exact=True).fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill(CHANGED)
    page.context.clear_cookies()
    page.get_by_role("button", name="Change password").click()
    expect(page.locator("#change-password > .message")).to_contain_text("Your session has ended")
    expect(page.locator("[aria-invalid]")).to_have_count(0)
