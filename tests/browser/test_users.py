"""Operations of System Managers on accounts, on their pages (H-160)."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.page_checks import check_page
from tests.live_site import PASSWORD, LiveSite

HEADERS = {"X-FW-CSRF": "1"}


@pytest.fixture(autouse=True)
def admin(sign_in: Callable[[str], None]) -> None:
    sign_in("admin")


def test_user_invitation_shows_link_to_manager(page: Page) -> None:
    """The link is handed back to a System Manager with transport `log` alone (A-195).

    Roles are chosen from a list, and the page offers what applies (A-382, A-383).
    """
    page.goto("/app/User")
    check_page(page, "users")
    page.get_by_role("button", name="Invite").click()
    page.get_by_label("E-mail", exact=True).fill("sally@example.test")
    page.get_by_role("dialog").get_by_role("button", name="Invite").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_label("E-mail", exact=True).fill("nina@example.test")
    page.get_by_role("dialog").get_by_label("Event Publisher").check()
    page.get_by_role("dialog").get_by_role("button", name="Invite").click()
    link = page.locator("dialog code")
    expect(link).to_have_text(re.compile(r"/accept-invite#token="))
    check_page(page, "user-invited")
    page.get_by_role("button", name="Done").click()
    expect(page).to_have_url(re.compile(r"/app/User/nina%40example.test$"))
    expect(page.locator("#flash")).to_have_text("Invited.")
    expect(page.locator("[data-table=roles] tbody input").first).to_have_value("Event Publisher")
    acts = page.locator("#user-acts")
    expect(acts).to_contain_text("The link works until")
    expect(acts.get_by_role("button")).to_have_text(["Send again"])  # the one act that applies
    page.get_by_role("button", name="Send again").click()
    expect(link).to_have_text(re.compile(r"/accept-invite#token="))
    page.get_by_role("button", name="Done").click()
    page.goto("/app/User?name=nina@example.test")
    expect(page.locator("#results tbody")).to_contain_text("invited")


def test_account_without_mail_requires_typed_name(page: Page) -> None:
    """A random one would stand in every record (H-160)."""
    page.goto("/app/User")
    page.get_by_role("link", name="New without mail").click()
    page.get_by_label("E-mail").fill("mia@example.test")
    page.get_by_role("button", name="Create").click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_accessible_description(re.compile("Name is missing."))
    name.fill("mia")
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile("/app/User/mia$"))


def test_user_search_finds_text_in_any_field(page: Page) -> None:
    """A part of a name, of an e-mail or of a full name; an id as it stands (H-163)."""
    page.goto("/app/User")
    for typed in ("sally@exam", "Sally Sel", "sall"):
        page.get_by_role("searchbox", name="Search").fill(typed)
        expect(page.locator("#result-count")).to_have_text("1 found.")
        expect(page.locator("#results tbody")).to_contain_text("sally")
        page.get_by_role("searchbox", name="Search").fill("no account is called this")
        expect(page.locator("#result-count")).to_have_text("Nothing found.")


def test_dialog_is_confirmed_by_enter_and_closed_by_escape(page: Page) -> None:
    """Dialogs are usable by keyboard; a refusal is shown beside its field and keeps the input."""
    page.goto("/app/User")
    invite = page.get_by_role("button", name="Invite")
    invite.press("Enter")
    typed = page.get_by_label("E-mail", exact=True)
    expect(typed).to_be_focused()
    page.keyboard.type("sally@example.test")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    expect(typed).to_have_value("sally@example.test")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(invite).to_be_focused()


def test_account_is_unlocked_signed_out_and_reset(page: Page, site: LiveSite) -> None:
    """`users.unlockUser` clears both spellings (A-293)."""
    right, wrong = {"usr": "demo", "pwd": PASSWORD}, {"usr": "demo", "pwd": "wrong"}
    with httpx.Client(base_url=site.url, headers=HEADERS, timeout=30) as client:
        assert client.post("/api/login", json=right).status_code == 200
        statuses = [client.post("/api/login", json=wrong).status_code for _ in range(3)]
        assert statuses == [401, 401, 429]
        page.goto("/app/User/demo")
        check_page(page, "user")
        expect(page.locator("#user-acts")).to_contain_text(
            re.compile(r"Locked until \d+ \w+ \d{4}, ")
        )
        page.get_by_role("button", name="Unlock").click()
        expect(page.get_by_text("The account may sign in again.")).to_be_visible()
        expect(page.get_by_role("button", name="Unlock")).to_have_count(0)
        expect(page.get_by_role("heading", name="Account", exact=True)).to_be_focused()
        assert client.post("/api/login", json=right).status_code == 200
        page.get_by_label("API keys too").check()
        page.get_by_role("button", name="End all sessions").click()
        assert client.get("/api/boot").json()["user"] is not None  # until it is confirmed
        expect(page.get_by_role("dialog")).not_to_contain_text("your own account")
        page.get_by_role("button", name="End them").click()
        expect(page.get_by_text(re.compile("sessions? ha(s|ve) ended"))).to_be_visible()
        expect(page.get_by_text("0 API keys have ended")).to_be_visible()
        assert client.get("/api/boot").json()["user"] is None
    page.get_by_role("button", name="Send reset link").click()
    expect(page.locator("dialog code")).to_have_text(re.compile(r"/reset-password#token="))
    page.get_by_role("button", name="Done").click()


def test_reset_link_for_own_account_keeps_session(page: Page) -> None:
    """Only the end of one's own sessions leads to the sign-in page. Without a clipboard the link
    is selected."""
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.goto("/app/User/admin")
    page.get_by_role("button", name="Send reset link").click()
    link = page.locator("dialog code")
    expect(link).to_have_text(re.compile(r"/reset-password#token="))
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Selected: copy it")).to_be_visible()
    assert page.evaluate("getSelection().toString()") == link.inner_text()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("button", name="Send reset link")).to_be_enabled()
    expect(page).to_have_url(re.compile("/app/User/admin$"))


def test_roles_are_edited_on_user_page_for_managers_only(
    page: Page, sign_in: Callable[[str], None]
) -> None:
    page.goto("/app/User/bea")
    page.get_by_role("button", name="Add a row").click()
    page.locator("[data-table=roles] tbody tr").last.get_by_label("Role").fill("Event Publisher")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.locator("[data-table=roles] tbody tr")).to_have_count(2)
    page.context.clear_cookies()
    sign_in("sally")
    page.goto("/app/User/bea")
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()


def test_sessions_of_selected_accounts_end_after_confirmation(page: Page, site: LiveSite) -> None:
    """By keyboard too; the list is limited to a state, and exported (O-304 to O-306)."""
    right = {"usr": "gina", "pwd": PASSWORD}
    with httpx.Client(base_url=site.url, headers=HEADERS, timeout=30) as client:
        assert client.post("/api/login", json=right).status_code == 200
        page.goto("/app/User")
        page.get_by_label("State", exact=True).select_option("Active")
        expect(page).to_have_url(re.compile("_state=active"))
        expect(page.locator("#result-count")).to_have_text(re.compile("found"))
        end = page.get_by_role("button", name="End sessions of selected")
        expect(end).to_be_disabled()
        for name in ("gina", "hugo"):
            page.get_by_label(name, exact=True).focus()
            page.keyboard.press("Space")
        page.get_by_role("button", name="End sessions of 2 accounts").press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("End the sessions of 2 accounts?")
        check_page(page, "users-end-sessions")
        page.keyboard.press("Escape")
        assert client.get("/api/boot").json()["user"] is not None
        page.get_by_role("button", name="End sessions of 2 accounts").click()
        dialog.get_by_role("button", name="End them").click()
        expect(page.locator("[data-progress]")).to_contain_text("Done. 2 accounts are signed out.")
        check_page(page, "users-signed-out")
        assert client.get("/api/boot").json()["user"] is None
    page.get_by_label("State", exact=True).select_option("Disabled")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.goto("/app/User?_state=active")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV", exact=True).click()
    assert download.value.suggested_filename == "User.csv"
    assert "gina" in download.value.path().read_text()


def test_unknown_path_keeps_menu(page: Page) -> None:
    """H-205."""
    page.goto("/nowhere/at/all")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    expect(page.get_by_role("navigation", name="Document types")).to_be_visible()
    check_page(page, "unknown-path")


def test_bulk_action_stops_when_session_has_ended(page: Page) -> None:
    """The remaining rows were tried too, and refused one by one."""
    urls: list[str] = []
    ended = {"type": "AuthenticationError", "message": "Sign in.", "extra": {"reason": "noSession"}}

    def refuse(route: Route) -> None:
        urls.append(route.request.url)
        route.fulfill(status=401, json={"error": ended})

    page.route("**/api/method/core.services.users.unlockUser", refuse)
    page.goto("/app/User")
    page.locator("#results [data-all]").check()
    page.get_by_role("button", name=re.compile(r"Unlock \d+ accounts")).click()
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    expect(page.locator("[data-progress]")).to_contain_text("Stopped. 0 accounts are unlocked.")
    assert 1 <= len(urls) <= 4 < page.locator("#results tbody tr").count()
    untried = page.locator("#results tbody tr").count() - len(urls)
    expect(page.locator("[data-progress]")).to_contain_text(f"{untried} not tried.")


@pytest.mark.parametrize("status", [0, 504])
def test_bulk_action_names_rows_without_answer(page: Page, status: int) -> None:
    """They were said to be "not unlocked", although only the response may be lost, or a proxy
    may have waited too short for it."""

    def lose(route: Route) -> None:
        if status:
            route.fulfill(status=status, body="<h1>Gateway Timeout</h1>")
        else:
            route.abort()

    page.route("**/api/method/core.services.users.unlockUser", lose)
    page.goto("/app/User")
    for name in ("gina", "hugo"):
        page.get_by_label(name, exact=True).check()
    page.get_by_role("button", name="Unlock 2 accounts").click()
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    expect(page.locator("[data-progress]").get_by_role("status")).to_have_text(
        "Stopped. 0 accounts are unlocked. For 2 the service did not answer: check whether they"
        " are unlocked."
    )
