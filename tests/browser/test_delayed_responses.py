"""Pages whose scripts or responses are late, lost or out of order: nothing done meanwhile is lost,
done twice or shown wrongly (H-158, H-166, H-167, H-168).

The module has more than 500 lines because each script of the pages is tested with late responses,
by the same means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, Route, expect

from tests.browser.held_requests import JOB, OPERATION, ORDERS, RUN, HeldRequests, make_order
from tests.browser.press_twice import press_twice
from tests.browser.webhook_kit import HEADERS, emit, make_webhook, status
from tests.live_site import PASSWORD, LiveReceiver, LiveSite, eventually

SignIn = Callable[[str], None]
COUNT_OBSERVED = """
globalThis.observed = [];
globalThis.ResizeObserver = class extends ResizeObserver {
  observe(box) {
    observed.push(box);
    super.observe(box);
  }
};
"""
COME_BACK = """
() => {
  for (const event of ["pagehide", "pageshow"]) {
    dispatchEvent(new PageTransitionEvent(event, { persisted: true }));
  }
}
"""
RELOAD = """
() => {
  const target = `#${document.querySelector("[hx-trigger^=every]").id}`;
  htmx.ajax("GET", location.pathname, { source: target, target, select: target, swap: "outerHTML" })
    .catch(() => {});
}
"""
SEEN = """
(state) => {
  Object.defineProperty(document, "visibilityState", { configurable: true, value: state });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


def stored(page: Page, name: str) -> dict[str, Any]:
    found: dict[str, Any] = page.request.get(f"/api/resource/Sales Order/{name}").json()["data"]
    return found


def open_held(page: Page, path: str, script: str) -> HeldRequests:
    """Open the page without one of its scripts."""
    held = HeldRequests(page, f"**/{script}")
    page.goto(path, wait_until="commit")
    held.arrive()
    return held


def middle(locator: Any) -> tuple[float, float]:
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def select_two(page: Page) -> None:
    page.goto("/app/User")
    for name in ("gina", "hugo"):
        page.get_by_label(name, exact=True).check()
    page.get_by_role("button", name="Unlock 2 accounts").click()


def jobs_answer(*numbers: int) -> str:
    return json.dumps({"jobs": [{**JOB, "id": number} for number in numbers]})


def test_document_changes_typed_while_scripts_load_are_saved(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    name = make_order(page, title="Early", called="2026-05-01T08:30:00Z", urgent=1, status="New")
    held = open_held(page, f"{ORDERS}/{name}", "document.js")
    page.get_by_label("Title").fill("Typed early")
    page.get_by_label("Called").fill("2026-05-02T09:00")
    page.get_by_label("Urgent").uncheck()
    page.get_by_label("Status").select_option("")
    held.let_go()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    saved = stored(page, name)
    expected = ("Typed early", "2026-05-02T07:00:00.000Z", 0, None)
    assert tuple(saved[each] for each in ("title", "called", "urgent", "status")) == expected


def test_document_left_and_opened_again_shows_stored_values(page: Page, sign_in: SignIn) -> None:
    """What the browser filled in would be saved over what others have saved meanwhile."""
    sign_in("sally")
    name = make_order(page, title="Shared", status="New", notes="ours")
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{ORDERS}/{name}")
    page.get_by_label("Notes").fill("Mine")
    page.get_by_label("Status").select_option("Shipped")
    page.get_by_role("link", name="Customer", exact=True).click()
    expect(page).to_have_url(re.compile("Customer$"))
    path = f"/api/resource/Sales Order/{name}"
    assert page.request.put(path, data={"status": ""}, headers=HEADERS).ok
    page.go_back()
    expect(page.get_by_role("button", name="Save")).to_be_enabled()
    expect(page.get_by_label("Status")).to_have_value("")
    expect(page.get_by_label("Notes")).to_have_value("ours")


def test_document_typed_on_during_save_shows_what_is_saved(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    name = make_order(page, title="Slow")
    page.goto(f"{ORDERS}/{name}")
    notes = page.get_by_label("Notes")
    notes.fill("first")
    held = HeldRequests(page, "**/api/resource/**")
    page.get_by_role("button", name="Save").click()
    held.arrive()
    page.mouse.click(*middle(notes))
    page.keyboard.type(" second")
    shown = notes.input_value()
    held.let_go()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert stored(page, name)["notes"] == shown


def test_refused_save_returns_focus(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    name = make_order(page, title="Refused")
    page.goto(f"{ORDERS}/{name}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.route("**/api/resource/**", lambda route: route.abort())
    page.get_by_label("Title").fill("Again")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("did not answer")
    expect(page.get_by_label("Title")).to_be_focused()


def test_response_that_ends_early_shows_message(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.goto("/new/Customer")
    page.get_by_label("Title").fill("Cut")
    page.route("**/api/resource/**", lambda route: route.fulfill(status=201, body='{"data": {'))
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").first).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())


def test_leaving_document_with_invalid_json_is_asked_about(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.goto("/new/Sales%20Order")
    page.get_by_label("Facts").fill("{no json yet")
    dialogs: list[str] = []

    def go(dialog: Dialog) -> None:
        dialogs.append(dialog.type)
        dialog.accept()

    page.on("dialog", go)
    page.get_by_role("link", name="Customer", exact=True).click()
    expect(page).to_have_url(re.compile("Customer$"))
    assert dialogs == ["beforeunload"]


def test_old_time_in_table_survives_save(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    packed = "0900-01-01T00:00:00.000Z"
    name = make_order(page, title="Old", lines=[{"item": "A", "packed": packed}, {"item": "B"}])
    page.goto(f"{ORDERS}/{name}")
    page.get_by_label("Item").last.fill("C")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert stored(page, name)["lines"][0]["packed"] == packed


def test_failed_sign_out_shows_message(page: Page, sign_in: SignIn) -> None:
    """Somebody who leaves the computer must know that the session goes on."""
    sign_in("sally")
    page.goto("/app")
    page.route("**/api/logout", lambda route: route.fulfill(status=503, body="{}"), times=1)
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#trouble")).to_contain_text("503")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login$"))


def test_suggestions_belong_to_typed_text(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.goto("/new/Sales%20Order")
    held = HeldRequests(page, "**/api/resource/Customer?*")
    customer = page.get_by_label("Customer")
    customer.focus()
    held.arrive()
    customer.fill("Café")
    held.arrive(2)
    held.routes[1].continue_()
    options = page.locator(f"#{customer.get_attribute('list')} option")
    expect(options).to_have_count(1)
    with page.expect_response("**/api/resource/Customer?*"):
        held.routes[0].continue_()
    page.wait_for_timeout(100)
    expect(options).to_have_count(1)
    page.on("dialog", lambda dialog: dialog.accept())


def test_table_is_observed_once_however_often_a_part_is_reloaded(
    page: Page, sign_in: SignIn
) -> None:
    """A page that stays open for days must not grow."""
    page.add_init_script(COUNT_OBSERVED)
    sign_in("admin")
    page.goto("/app/User")
    expect(page.get_by_label("gina", exact=True)).to_be_visible()
    page.evaluate("for (const _ of [1, 2]) document.dispatchEvent(new Event('htmx:afterSwap'))")
    assert page.evaluate("[observed.length, new Set(observed).size]") == [1, 1]


def test_reloaded_part_keeps_focus_and_selection(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    with LiveReceiver(503) as failing:
        name = make_webhook(page, failing.url, "slow.focus")
        delivery = emit(page, "slow.focus", {})
        eventually(lambda: status(page, delivery) == "Retrying")
        page.goto(f"/app/Webhook%20Delivery/{delivery}")
        parts = f"**/app/Webhook%20Delivery/{delivery}"
        link = page.locator(f"#delivery a[href$='{name}']")
        link.focus()
        error = page.locator("#delivery .message.warn")
        for _ in range(2):
            with page.expect_response(parts) as renewed:
                pass  # every two seconds
            renewed.value.finished()
            page.wait_for_timeout(100)
            expect(link).to_be_focused()
        error.evaluate("(each) => getSelection().selectAllChildren(each)")
        with page.expect_response(parts) as renewed:
            pass
        renewed.value.finished()
        page.wait_for_timeout(100)
        assert page.evaluate("getSelection().toString()") == error.inner_text()
        page.route(parts, lambda route: route.abort(), times=1)
        page.evaluate(RELOAD)
        expect(page.locator("#trouble")).to_contain_text("did not answer")
        page.evaluate(RELOAD)
        expect(page.locator("#trouble")).to_be_hidden()  # nothing has changed meanwhile


def test_questions_are_asked_one_after_another(page: Page, sign_in: SignIn) -> None:
    sign_in("gina")
    page.goto("/account")
    for label in ("first key", "second key"):
        page.get_by_label("Purpose").fill(label)
        page.get_by_role("button", name="Create key").click()
        expect(page.locator("#api-keys li").filter(has_text=label)).to_be_visible()
    held = HeldRequests(page, f"{OPERATION}profile.changeMyPassword")
    page.get_by_label("Current password", exact=True).fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill("another good password")
    page.get_by_role("button", name="Change password").click()
    held.arrive()
    key = page.locator("#api-keys li").filter(has_text="first key")
    key.get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Revoke this key?")
    held.routes[0].fulfill(json={})
    page.wait_for_timeout(200)
    expect(dialog).to_contain_text("Revoke this key?")


def test_next_api_key_is_described_while_one_is_made(page: Page, sign_in: SignIn) -> None:
    sign_in("gina")
    page.goto("/account")
    held = HeldRequests(page, f"{OPERATION}api_keys.createMyAPIKey")
    purpose = page.get_by_label("Purpose")
    purpose.fill("this one")
    page.get_by_role("button", name="Create key").click()
    held.arrive()
    purpose.fill("the next one")
    held.routes[0].continue_()
    expect(page.locator("#api-keys li").filter(has_text="this one")).to_be_visible()
    expect(purpose).to_have_value("the next one")
    expect(purpose).to_be_focused()


def test_rows_are_not_selected_after_going_back(page: Page, sign_in: SignIn) -> None:
    """The browser would select other rows: those that have their places now."""
    sign_in("admin")
    page.goto("/app/User")
    page.get_by_label("gina", exact=True).check()
    page.get_by_role("link", name="Role", exact=True).click()
    expect(page).to_have_url(re.compile("Role$"))
    page.go_back()
    expect(page.get_by_role("button", name="Invite")).to_be_enabled()
    expect(page.get_by_label("gina", exact=True)).not_to_be_checked()


def test_filter_chosen_while_list_is_renewed_takes_effect(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    select_two(page)
    act = HeldRequests(page, f"{OPERATION}users.unlockUser")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    act.arrive(2)
    held = HeldRequests(page, "**/app/User?*_state=disabled*")
    page.get_by_label("State", exact=True).select_option("Disabled")
    held.arrive()
    with page.expect_response("**/app/User"):
        act.let_go()
    expect(page.get_by_text("Done. 2 accounts are unlocked.")).to_be_visible()
    held.let_go()
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()


def test_filter_chosen_while_replay_ends_takes_effect(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    runs = [{**RUN, "state": "running"}, {**RUN, "state": "done", "ended": "2026-01-01T00:01:00Z"}]
    page.route(
        f"{OPERATION}webhooks.replayProgress", lambda route: route.fulfill(json={"run": runs[0]})
    )
    page.goto("/app/Webhook%20Delivery")
    expect(page.get_by_text("1 of 9")).to_be_visible()
    held = HeldRequests(page, "**/app/Webhook%20Delivery?*event=slow.nobody*")
    page.get_by_label("Event").fill("slow.nobody")
    held.arrive()
    with page.expect_response("**/app/Webhook%20Delivery"):
        runs.pop(0)
    page.wait_for_timeout(100)
    held.let_go()
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()


def test_failed_search_is_repeated_by_enter(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.goto(ORDERS)
    page.route(f"**{ORDERS}?*", lambda route: route.fulfill(status=503), times=1)
    page.get_by_label("Search", exact=True).fill("day 4")
    expect(page.locator("#trouble")).to_contain_text("Try again")
    page.keyboard.press("Enter")
    expect(page.locator("#results tbody tr")).to_have_count(11)
    expect(page.locator("#trouble")).to_be_hidden()


def test_rows_selected_while_scripts_load_can_be_acted_on(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    held = open_held(page, "/app/User", "list.js")
    page.get_by_label("gina", exact=True).check()
    held.let_go()
    expect(page.get_by_role("button", name="Unlock 1 account")).to_be_enabled()


def test_result_of_bulk_act_is_shown_beside_another_list(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    select_two(page)
    held = HeldRequests(page, f"{OPERATION}users.unlockUser")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    held.arrive(2)
    page.get_by_label("State", exact=True).select_option("Disabled")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    held.let_go()
    expect(page.get_by_text("Done. 2 accounts are unlocked.")).to_be_visible()


def test_bulk_action_confirmed_beside_another_list_is_done(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    page.goto("/app/User")
    for name in ("gina", "hugo"):
        page.get_by_label(name, exact=True).check()
    held = HeldRequests(page, "**/app/User?*")
    page.get_by_label("State", exact=True).select_option("Disabled")
    held.arrive()
    page.get_by_role("button", name="Unlock 2 accounts").click()
    held.let_go()
    expect(page.locator("#result-count")).to_have_text("Nothing found.")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    expect(page.get_by_text("Done. 2 accounts are unlocked.")).to_be_visible()


def test_leaving_page_during_bulk_act_is_asked_about(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    select_two(page)
    held = HeldRequests(page, f"{OPERATION}users.unlockUser")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    held.arrive(2)
    dialogs: list[str] = []

    def stay(dialog: Dialog) -> None:
        dialogs.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    page.get_by_role("link", name="Console").click(no_wait_after=True)
    page.wait_for_timeout(100)
    held.let_go()
    expect(page.get_by_text("Done. 2 accounts are unlocked.")).to_be_visible()
    assert dialogs == ["beforeunload"]
    page.get_by_role("link", name="Console").click()
    expect(page).to_have_url(re.compile("console"))
    assert len(dialogs) == 1


def test_bulk_action_leaves_focus_in_field(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    select_two(page)
    held = HeldRequests(page, f"{OPERATION}users.unlockUser")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    held.arrive(2)
    page.get_by_label("Find an id").fill("wri")
    held.let_go()
    expect(page.get_by_text("Done. 2 accounts are unlocked.")).to_be_visible()
    page.keyboard.type("tten on")
    expect(page.get_by_label("Find an id")).to_have_value("written on")


def test_list_after_bulk_act_says_that_nothing_matches(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    with LiveReceiver(410, 204) as receiver:
        hook = make_webhook(page, receiver.url, "slow.bulk")
        delivery = emit(page, "slow.bulk", {})
        eventually(lambda: status(page, delivery) == "Failed")
        page.goto(f"/app/Webhook%20Delivery?webhook={hook}&status=Failed")
        page.get_by_label(delivery, exact=True).check()
        page.get_by_role("button", name="Replay 1 delivery").click()
        page.get_by_role("dialog").get_by_role("button", name="Replay").click()
        expect(page.get_by_text("Done. 1 delivery is queued again.")).to_be_visible()
        expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()


def test_invitation_typed_after_double_click_stays(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    page.goto("/app/User")
    held = HeldRequests(page, "**/api/resource/Role?*")
    page.get_by_role("button", name="Invite").dblclick()
    held.arrive()
    page.wait_for_timeout(100)
    held.routes[0].continue_()
    email = page.get_by_label("E-mail", exact=True)
    email.fill("otto@example.test")
    page.get_by_role("dialog").get_by_label("Event Publisher").check()
    for late in held.routes[1:]:
        late.continue_()
    page.wait_for_timeout(200)
    expect(email).to_have_value("otto@example.test")
    expect(page.get_by_role("dialog").get_by_label("Event Publisher")).to_be_checked()


def test_failed_stop_of_replay_shows_message(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    page.route(
        f"{OPERATION}webhooks.replayProgress",
        lambda route: route.fulfill(json={"run": {**RUN, "state": "running"}}),
    )
    page.route(f"{OPERATION}webhooks.stopReplay", lambda route: route.abort())
    page.goto("/app/Webhook%20Delivery")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#trouble")).to_contain_text("did not answer")


def test_small_screen_filters_open_when_scripts_are_late(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    page.set_viewport_size({"width": 390, "height": 844})
    held = open_held(page, ORDERS, "list.js")
    opener = page.get_by_role("button", name="Filters")
    expect(page.locator("body")).to_have_class(re.compile("scripted"))
    expect(opener).to_be_disabled()
    held.let_go()
    opener.click()
    expect(page.get_by_label("Status")).to_be_visible()


def test_password_typed_while_scripts_load_is_complete(page: Page) -> None:
    held = open_held(page, "/login", "login.js")
    password = page.get_by_label("Password", exact=True)
    password.focus()
    page.keyboard.type("abc")
    held.let_go()
    expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_enabled()
    page.keyboard.type("def")
    expect(password).to_have_value("abcdef")


def test_link_that_could_not_be_checked_is_checked_again(page: Page, site: LiveSite) -> None:
    output = site.fw("user", "add", "ludo", "--email", "ludo@example.test", "--role", "Sales")
    found = re.search(r"#token=\S+", output)
    assert found is not None
    page.route("**/api/auth/token", lambda route: route.abort(), times=1)
    page.goto(f"/accept-invite{found.group()}")
    expect(page.get_by_role("alert")).to_contain_text("did not answer")
    expect(page.get_by_role("heading", name="This link no longer works")).to_be_hidden()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()


def invited(site: LiveSite, *names: str) -> list[str]:
    """Invite accounts; return the fragments of their links."""
    fragments = []
    for name in names:
        output = site.fw("user", "add", name, "--email", f"{name}@example.test", "--role", "Sales")
        found = re.search(r"#token=\S+", output)
        assert found is not None
        fragments.append(found.group())
    return fragments


def test_page_of_second_link_shows_its_account(page: Page, site: LiveSite) -> None:
    tokens = invited(site, "mara", "nils")
    held = HeldRequests(page, "**/api/auth/token")
    page.goto(f"/accept-invite{tokens[0]}")
    held.arrive()
    page.evaluate("(token) => { location.hash = token; }", tokens[1])
    held.arrive(2)
    held.routes[1].continue_()
    expect(page.locator("[data-user]")).to_contain_text("nils")
    with page.expect_response("**/api/auth/token"):
        held.routes[0].continue_()
    page.wait_for_timeout(100)
    expect(page.locator("[data-user]")).to_contain_text("nils")


def test_page_of_second_link_has_nothing_entered_for_first(page: Page, site: LiveSite) -> None:
    """The account of the second link got the full name of the first one."""
    first, second = invited(site, "olga", "paul")
    page.goto(f"/accept-invite{first}")
    name, password = page.get_by_label("Full name"), page.get_by_label("New password", exact=True)
    name.fill("Olga")
    password.fill("a long password")
    held = HeldRequests(page, "**/api/auth/token")
    page.evaluate("(token) => { location.hash = token; }", second)
    held.arrive()
    expect(page.get_by_role("heading", name="Welcome")).to_be_hidden()  # of the first account
    held.let_go()
    expect(page.locator("[data-user]")).to_contain_text("paul")
    expect(name).to_have_value("")
    expect(password).to_have_value("")


def test_page_of_second_link_ignores_late_response_of_first(page: Page, site: LiveSite) -> None:
    first, second = invited(site, "quin", "rosa")
    page.goto(f"/accept-invite{first}")
    page.get_by_label("New password", exact=True).fill("a long password")
    held = HeldRequests(page, "**/api/auth/accept-invite")
    page.get_by_role("button", name="Set password").click()  # a key before the first frame is lost
    held.arrive()
    page.evaluate("(token) => { location.hash = token; }", second)
    expect(page.locator("[data-user]")).to_contain_text("rosa")
    with page.expect_response("**/api/auth/accept-invite"):
        held.let_go()
    page.wait_for_timeout(100)
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()


def test_session_begins_once_despite_late_page(page: Page) -> None:
    posts: list[str] = []
    page.on("request", lambda sent: posts.append(sent.url) if sent.method == "POST" else None)
    page.goto("/login")
    page.get_by_label("Name or e-mail").fill("hugo")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press_twice(page, "[data-scripted=login]", "**/app")
    expect(page.get_by_role("heading", name="Desk")).to_be_visible()
    assert len(posts) == 1


def test_sign_in_can_be_pressed_after_coming_back(page: Page) -> None:
    """The browser may show the page out of its memory, as it was left."""
    page.goto("/login")
    page.get_by_label("Name or e-mail").fill("hugo")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.route("**/app", lambda route: route.fulfill(status=204))  # the page stays
    button = page.get_by_role("button", name="Sign in", exact=True)
    with page.expect_response("**/app"):
        button.click()
    expect(button).to_have_attribute("aria-busy", "true")
    page.evaluate(COME_BACK)
    expect(button).not_to_have_attribute("aria-busy", "true")


def test_list_shows_that_it_is_requested(page: Page, sign_in: SignIn) -> None:
    """On a slow network nothing told that a filter had been taken."""
    sign_in("sally")
    page.goto(ORDERS)
    held = HeldRequests(page, "**/app/Sales%20Order?**")
    page.get_by_label("Status").select_option("Packed")
    held.arrive()
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#results")).to_have_css("opacity", "0.6")
    page.get_by_label("Status").select_option("Shipped")
    held.arrive(2)
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    held.let_go()
    expect(page).to_have_url(re.compile("status=Shipped"))
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")


def test_console_comes_back_after_refused_stream(page: Page, sign_in: SignIn) -> None:
    """A proxy answers 502 and a starting service 503 while the service restarts."""
    sign_in("admin")
    page.route("**/app/console/events", lambda route: route.fulfill(status=503), times=1)
    page.goto("/app/console")
    expect(page.locator("#live")).to_have_text(re.compile("^live"))
    expect(page.get_by_role("link", name="Sign in again")).to_be_hidden()


def test_console_states_why_its_stream_is_refused(page: Page, sign_in: SignIn) -> None:
    """H-172: the 17th console was "lost" for ever, without a word of the other 16."""
    sign_in("admin")
    error = {"type": "OverloadedError", "message": "16 consoles are open."}
    refusals = [{"error": error}]

    def refuse(route: Route) -> None:
        if refusals:
            route.fulfill(status=503, json=refusals[0])
        else:
            route.fallback()

    page.route("**/app/console/events", refuse)
    page.goto("/app/console")
    expect(page.locator("#console-message")).to_have_text("16 consoles are open.")
    expect(page.locator("#live")).to_have_text("not connected, trying again")
    refusals.clear()
    expect(page.locator("#live")).to_have_text(re.compile("^live"))
    expect(page.locator("#console-message")).to_be_hidden()


def test_console_holds_no_stream_while_it_is_hidden(page: Page, sign_in: SignIn) -> None:
    """Six forgotten tabs took all connections of the browser, and 16 all streams (H-172)."""
    sign_in("admin")
    page.clock.install()
    page.goto("/app/console")
    expect(page.locator("#live")).to_have_text(re.compile("^live"))
    page.evaluate(SEEN, "hidden")
    page.clock.fast_forward(61_000)
    expect(page.locator("#live")).to_have_text("connecting")
    page.evaluate(SEEN, "visible")
    expect(page.locator("#live")).to_have_text(re.compile("^live"))


def test_console_replaces_a_stream_that_is_silent(page: Page, sign_in: SignIn) -> None:
    """A connection that died in a sleeping computer was "live" until the system gave it up."""
    sign_in("admin")
    page.clock.install()
    held = HeldRequests(page, "**/app/console/events")
    page.goto("/app/console")
    held.arrive()
    page.clock.fast_forward(33_000)
    expect(page.locator("#live")).to_have_text("connection lost, trying again")
    page.clock.fast_forward(4_000)
    held.arrive(2)
    held.let_go()
    expect(page.locator("#live")).to_have_text(re.compile("^live"))


def test_page_without_its_scripts_says_so(page: Page, sign_in: SignIn) -> None:
    """H-166: without the script that all others import there was no message."""
    late = page.locator(".unscripted")
    for path, script in (("/login", "forms.js"), ("/app/User", "app.js")):
        page.route(f"**/{script}", lambda route: route.abort())
        page.goto(path)
        expect(page.locator("button[data-scripted]").first).to_be_disabled()
        expect(late).to_be_hidden()  # they may be on their way
        page.evaluate("for (const each of document.getAnimations()) each.finish()")
        expect(late).to_be_in_viewport(ratio=1)
        page.unroute(f"**/{script}")
        sign_in("admin")
    page.goto("/app/User")
    expect(page.get_by_role("button", name="Invite")).to_be_enabled()
    page.evaluate("for (const each of document.getAnimations()) each.finish()")
    expect(late).to_be_hidden()
    page.route("**/htmx-*.js", lambda route: route.abort())
    page.reload()
    expect(page.locator("#trouble")).to_contain_text("could not be loaded")


def test_console_of_ended_session_leads_to_sign_in(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    page.goto("/app/console")
    expect(page.locator("#live")).to_have_text(re.compile("^live"))
    page.context.clear_cookies()
    page.route("**/app/console/events", lambda route: route.fulfill(status=401), times=1)
    page.evaluate(COME_BACK)
    expect(page.get_by_role("link", name="Sign in again")).to_be_visible()
    expect(page.locator("#live")).to_have_text("ended")


def test_console_trouble_is_over_when_jobs_are_shown_again(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    page.route(f"{OPERATION}jobs.list", lambda route: route.abort(), times=1)
    page.goto("/app/console#jobs-part")
    message = page.locator("#console-message")
    expect(message).to_contain_text("did not answer")
    page.locator("#jobs-filters").dispatch_event("change")  # as after 5 seconds
    expect(message).to_be_hidden()


def test_console_keeps_focus_when_row_above_goes(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    bodies = [jobs_answer(3, 2, 1), jobs_answer(2, 1)]

    def answer(route: Route) -> None:
        route.fulfill(body=bodies[0], content_type="application/json")

    page.route(f"{OPERATION}jobs.list", answer)
    page.goto("/app/console#jobs-part")
    cancel = page.locator("#jobs tr[data-key='2']").get_by_role("button", name="Cancel")
    cancel.focus()
    bodies.pop(0)
    page.locator("#jobs-filters").dispatch_event("change")  # as after 5 seconds
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    expect(cancel).to_be_focused()


def test_console_job_is_retried_once_by_double_click(page: Page, sign_in: SignIn) -> None:
    """The second one would be refused, and the refusal shown."""
    sign_in("admin")
    page.route(
        f"{OPERATION}jobs.list",
        lambda route: route.fulfill(body=jobs_answer(1), content_type="application/json"),
    )
    held = HeldRequests(page, f"{OPERATION}jobs.retry")
    page.goto("/app/console#jobs-part")
    page.get_by_role("button", name="Retry 1").dblclick()
    held.arrive()
    page.wait_for_timeout(100)
    assert len(held.routes) == 1
    held.routes[0].fulfill(json={})
    expect(page.get_by_text("1: Due now.")).to_be_visible()


def test_delivery_is_replayed_once_despite_late_page(
    page: Page, sign_in: SignIn, receiver: LiveReceiver
) -> None:
    sign_in("admin")
    make_webhook(page, receiver.url, "slow.once")
    delivery = emit(page, "slow.once", {})
    eventually(lambda: status(page, delivery) == "Sent")
    path = f"/app/Webhook%20Delivery/{delivery}"
    page.goto(path)
    sent: list[str] = []

    def answer(route: Route) -> None:
        sent.append(route.request.url)
        route.fulfill(json={})

    page.route(f"{OPERATION}webhooks.replay", answer)
    press_twice(page, "[data-replay-one]", f"**{path}")
    expect(page.get_by_text("Queued again.")).to_be_visible()
    assert len(sent) == 1


def test_act_on_account_leaves_focus_in_field(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    page.goto("/app/User/bea")
    held = HeldRequests(page, f"{OPERATION}users.sendPasswordReset")
    page.get_by_role("button", name="Send reset link").click()
    held.arrive()
    page.get_by_label("Full name").fill("Bea ")
    held.routes[0].fulfill(json={"link": None})
    expect(page.get_by_text("The reset link has been sent")).to_be_visible()
    page.wait_for_timeout(300)
    page.keyboard.type("Busier")
    expect(page.get_by_label("Full name")).to_have_value("Bea Busier")
    page.on("dialog", lambda dialog: dialog.accept())


def test_document_changed_meanwhile_is_not_submitted_unseen(page: Page, sign_in: SignIn) -> None:
    sign_in("sally")
    name = make_order(page, title="Seen")
    page.goto(f"{ORDERS}/{name}")
    path = f"/api/resource/Sales Order/{name}"
    assert page.request.put(path, data={"title": "Never seen"}, headers=HEADERS).ok
    page.get_by_role("button", name="Submit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since")
    assert stored(page, name)["docstatus"] == 0


@pytest.mark.parametrize("act", ["Submit", "Cancel document", "Rename", "Delete"])
def test_document_changed_immediately_before_an_act_keeps_the_change(
    page: Page, sign_in: SignIn, act: str
) -> None:
    """The service compares the versions in the transaction of the act: no change comes between
    (H-168, D-120)."""
    sign_in("sally")
    name = make_order(page, title="Seen", submit=act == "Cancel document")
    page.goto(f"{ORDERS}/{name}")
    path = f"/api/resource/Sales Order/{name}"
    before = stored(page, name)["docstatus"]

    def change(route: Route) -> None:
        if route.request.method != "GET":
            assert page.request.put(path, data={"notes": "Never seen"}, headers=HEADERS).ok
        route.continue_()

    page.route(f"**/api/resource/Sales%20Order/{name}**", change)
    page.get_by_role("button", name=act, exact=True).click()
    dialog = page.get_by_role("dialog")
    if act == "Rename":
        dialog.get_by_label("New name").fill("Unseen")
    dialog.get_by_role("button", name=act, exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since")
    kept = stored(page, name)
    assert (kept["notes"], kept["docstatus"]) == ("Never seen", before)


def test_script_that_cannot_be_loaded_shows_message(page: Page, sign_in: SignIn) -> None:
    """Its buttons stay disabled."""
    sign_in("sally")
    page.route("**/document.js", lambda route: route.abort())
    page.goto("/new/Customer")
    expect(page.get_by_role("button", name="Create")).to_be_disabled()
    expect(page.locator("#trouble")).to_contain_text("Reload the page")


def test_part_of_another_version_is_not_shown(page: Page, sign_in: SignIn) -> None:
    """H-169: the page keeps what it shows, and asks for a reload, which ends this."""

    def upgraded(route: Route) -> None:
        response = route.fetch()
        headers = {**response.headers, "x-fw-assets": "/static/0123456789abcdef"}
        route.fulfill(response=response, headers=headers)

    sign_in("admin")
    page.goto("/app/User")
    gina, state = page.get_by_label("gina", exact=True), page.get_by_label("State", exact=True)
    expect(gina).to_be_visible()
    page.route("**/app/User?*", upgraded)
    state.select_option("Disabled")
    expect(page.locator("#trouble")).to_contain_text("has been updated. Reload the page.")
    expect(gina).to_be_visible()
    page.unroute("**/app/User?*")
    page.goto("/app/User")
    state.select_option("Disabled")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    expect(page.locator("#trouble")).to_be_hidden()


def test_page_of_a_network_is_not_taken_for_an_upgrade(page: Page, sign_in: SignIn) -> None:
    """A network may answer with its own sign-in page; the list stays (H-158)."""
    sign_in("admin")
    page.goto("/app/User")
    state = page.get_by_label("State", exact=True)
    page.route("**/app/User?*", lambda route: route.fulfill(status=200, body="<h1>Welcome"))
    state.select_option("Disabled")
    expect(page.locator("#trouble")).to_contain_text("did not answer")
    expect(page.get_by_label("gina", exact=True)).to_be_visible()
