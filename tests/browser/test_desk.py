"""Lists and forms made from DocTypes, the pages of daily work (H-158, H-160)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.held_requests import ORDERS, make_order
from tests.browser.page_checks import check_page
from tests.browser.press_twice import press_twice
from tests.browser.webhook_kit import HEADERS
from tests.live_site import LiveSite

SignIn = Callable[[str], None]


@pytest.fixture(autouse=True)
def sally(sign_in: SignIn) -> None:
    """Sales: everything of Sales Order but permlevel 1."""
    sign_in("sally")


def shown_rows(page: Page) -> Any:
    return page.locator("#results tbody tr")


def sid_of(page: Page) -> str:
    return next(c["value"] for c in page.context.cookies() if c.get("name") == "sid")


def test_desk_navigation_shows_permitted_doctypes(page: Page) -> None:
    page.goto("/app")
    navigation = page.get_by_role("navigation", name="Document types")
    expect(navigation.get_by_role("link", name="Sales Order")).to_be_visible()
    expect(navigation.get_by_role("link", name="Webhook", exact=True)).to_have_count(0)
    expect(navigation.get_by_role("link", name="Console")).to_have_count(0)
    check_page(page, "desk")


def test_small_screen_menu_opens_and_closes(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto("/app")
    menu = page.get_by_role("button", name="Menu")
    navigation = page.get_by_role("navigation", name="Document types")
    expect(navigation).to_be_hidden()
    menu.click()
    expect(navigation).to_be_visible()
    expect(menu).to_have_attribute("aria-expanded", "true")
    check_page(page, "desk-menu")
    menu.click()
    expect(navigation).to_be_hidden()
    menu.click()
    expect(navigation).to_be_visible()
    page.keyboard.press("Escape")
    expect(navigation).to_be_hidden()
    expect(menu).to_be_focused()


def test_list_links_next_and_previous_page(page: Page) -> None:
    page.goto(ORDERS)
    expect(shown_rows(page)).to_have_count(50)
    check_page(page, "list")
    page.get_by_role("link", name="Next").click()
    expect(page).to_have_url(re.compile(r"_page=2"))
    page.get_by_role("link", name="Previous").click()
    expect(page).not_to_have_url(re.compile(r"_page=2"))


def test_list_is_filtered_by_chosen_option(page: Page) -> None:
    page.goto(ORDERS)
    page.get_by_label("Status").select_option("Packed")
    expect(page).to_have_url(re.compile(r"status=Packed"))
    expect(page.get_by_text("1\N{EN DASH}20 of 20")).to_be_visible()


def test_list_search_keeps_filter_and_reports_count(page: Page) -> None:
    page.goto(f"{ORDERS}?status=Packed")
    page.get_by_label("Search", exact=True).fill("day 4")
    expect(shown_rows(page)).to_have_count(5)
    expect(page.locator("#result-count")).to_have_text("5 found.")


def test_list_is_sorted_by_clicked_column(page: Page) -> None:
    page.goto(f"{ORDERS}?status=Packed")
    with page.expect_navigation():
        page.get_by_role("link", name="Due", exact=True).click()
    head = page.get_by_role("columnheader", name="Due", exact=True)
    expect(head).to_have_attribute("aria-sort", "ascending")


def test_list_without_matches_offers_all_rows(page: Page) -> None:
    page.goto(ORDERS)
    page.get_by_label("Search", exact=True).fill("nothing is called this")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    check_page(page, "list-nothing")
    page.get_by_role("link", name="Show all").click()
    expect(shown_rows(page)).to_have_count(50)


def test_list_beyond_last_page_offers_first_page(page: Page) -> None:
    """An address may be kept while rows go."""
    page.goto(f"{ORDERS}?_page=9&status=Packed")
    expect(page.get_by_role("heading", name="Nothing on this page")).to_be_visible()
    page.get_by_role("link", name="First page").click()
    expect(page.get_by_text("1\N{EN DASH}20 of 20")).to_be_visible()


def test_list_is_filtered_by_recent_creation(page: Page) -> None:
    """All that match since then can be replayed, too (H-165)."""
    page.goto(f"{ORDERS}?status=Packed")
    page.get_by_label("Created").select_option("In the last hour")
    expect(page).to_have_url(re.compile("_since=1h"))
    expect(page.locator("#result-count")).to_have_text(re.compile(r"^\d+ found\.$"))
    answer = page.goto(f"{ORDERS}?_since=yesterday")
    assert answer is not None
    assert answer.status == 400


def test_search_field_sends_no_request_at_blur(page: Page) -> None:
    """A response between press and release of the next click would replace the clicked element."""
    page.goto(ORDERS)
    page.get_by_label("Search", exact=True).fill("day 4")
    expect(shown_rows(page)).to_have_count(11)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.get_by_label("Search", exact=True).blur()
    page.get_by_label("Customer").fill("nobody")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_label("Customer").blur()
    page.get_by_label("Status").select_option("Packed")
    expect(page).to_have_url(re.compile("status=Packed"))
    lists = [url for url in urls if url.startswith(page.url.partition("?")[0])]
    assert len(lists) == 2, "one for the typed customer, one for the chosen status"


def test_list_filters_work_without_script(browser: Browser, page: Page, site: LiveSite) -> None:
    context = browser.new_context(base_url=site.url, java_script_enabled=False)
    context.add_cookies([{"name": "sid", "value": sid_of(page), "url": site.url}])
    plain = context.new_page()
    plain.goto(ORDERS)
    plain.get_by_label("Status").select_option("Shipped")
    plain.locator("noscript button").click()
    expect(plain).to_have_url(re.compile(r"status=Shipped"))
    assert plain.locator("#results tbody tr").count() == 20
    context.close()


@pytest.mark.parametrize(
    ("path", "status", "title"),
    [
        ("/app/Nothing", 404, "Not found"),
        ("/nowhere/at/all", 404, "Not found"),
        ("/app/Webhook", 403, "Not allowed"),
        (ORDERS + "/SO-9999", 404, "Not found"),
        (ORDERS + "?_page=x", 400, "The request failed"),
        (ORDERS + "?margin=1", 400, "The request failed"),
    ],
)
def test_refusal_is_shown_on_page_with_menu(page: Page, path: str, status: int, title: str) -> None:
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == status
    expect(page.get_by_role("heading", name=title)).to_be_visible()
    expect(page.get_by_role("link", name="Back to the start")).to_be_visible()
    expect(page.get_by_role("navigation")).to_have_count(1)  # the menu stays (H-205)
    check_page(page, f"refused-{status}")


def fill_order(page: Page, title: str) -> None:
    page.goto("/new/Sales%20Order")
    page.get_by_label("Title").fill(title)
    page.get_by_label("Customer").fill("Café Ötzi")
    page.get_by_label("Status").select_option("Packed")
    page.get_by_label("Due", exact=True).fill("2026-05-04")
    page.get_by_label("Called").fill("2026-05-01T10:30:00")
    page.get_by_label("Urgent").check()
    page.get_by_label("Notes").fill("Two lines:\nring first.")
    page.get_by_label("Facts").fill('{"floor": 3}')
    for number, item in enumerate(("Beans", "Filters")):
        page.get_by_role("button", name="Add a row").click()
        row = page.locator("[data-table=lines] tbody tr").nth(number)
        row.get_by_label("Item").fill(item)
        row.get_by_label("Quantity").fill(str(number + 2))


def open_order(page: Page, *acts: str) -> None:
    """Open the form of a new order with two lines, after `acts`: submit, cancel."""
    lines = [{"item": item} for item in ("Beans", "Filters")]
    name = make_order(page, title="Made by hand", urgent=1, lines=lines)
    for act in acts:
        done = page.request.post(f"/api/resource/Sales Order/{name}/{act}", headers=HEADERS)
        assert done.ok, done.text()
    page.goto(f"{ORDERS}/{name}")


def shown_lines(page: Page) -> Any:
    return page.locator("[data-table=lines] tbody tr")


def test_new_form_creates_document_with_rows(page: Page) -> None:
    fill_order(page, "Made by hand")
    check_page(page, "form-new")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status").first).to_have_text("Created.")
    expect(page.get_by_label("Called")).to_have_value("2026-05-01T10:30")
    expect(page.get_by_label("Facts")).to_have_value('{\n  "floor": 3\n}')
    expect(shown_lines(page)).to_have_count(2)


def test_form_omits_field_of_other_permission_level(page: Page) -> None:
    open_order(page)
    expect(page.get_by_label("Title")).to_be_visible()
    expect(page.get_by_label("Margin")).to_have_count(0)


def test_form_saves_changed_field_and_removed_row(page: Page) -> None:
    open_order(page)
    shown_lines(page).nth(0).get_by_role("button", name="Remove this row").click()
    page.get_by_label("Urgent").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_have_text("Saved.")
    expect(shown_lines(page)).to_have_count(1)
    expect(shown_lines(page).get_by_label("Item")).to_have_value("Filters")
    expect(page.get_by_label("Urgent")).not_to_be_checked()
    check_page(page, "form")


def test_submit_button_submits_after_confirmation(page: Page) -> None:
    open_order(page)
    page.get_by_role("button", name="Submit").click()
    check_page(page, "dialog")
    page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Submitted", exact=True)).to_be_visible()


def test_form_of_submitted_document_locks_fields_and_rows(page: Page) -> None:
    open_order(page, "submit")
    expect(page.get_by_label("Title")).not_to_be_editable()
    expect(shown_lines(page).nth(0).get_by_label("Item")).not_to_be_editable()
    expect(page.get_by_role("button", name="Remove this row")).to_have_count(0)


def test_form_of_submitted_document_saves_fields_allowed_on_submit(page: Page) -> None:
    open_order(page, "submit")
    page.get_by_label("Notes").fill("still open to change")
    packed = shown_lines(page).nth(0).get_by_label("Packed")
    packed.fill("2026-05-02T09:00:00")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_have_text("Saved.")
    expect(page.get_by_label("Notes")).to_have_value("still open to change")
    expect(packed).to_have_value("2026-05-02T09:00")


def test_cancel_button_cancels_after_confirmation(page: Page) -> None:
    open_order(page, "submit")
    page.get_by_role("button", name="Cancel document").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel document").click()
    expect(page.get_by_text("Cancelled", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)


def test_delete_button_deletes_and_opens_list(page: Page) -> None:
    open_order(page, "submit", "cancel")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile(r"/app/Sales%20Order$"))


def test_history_shows_changes_of_child_rows(page: Page, sign_in: SignIn) -> None:
    sign_in("admin")
    fill_order(page, "With a history")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status").first).to_have_text("Created.")
    lines = page.locator("[data-table=lines] tbody tr")
    lines.nth(1).get_by_label("Quantity").fill("5")
    lines.nth(0).get_by_role("button", name="Remove this row").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_have_text("Saved.")
    history = page.get_by_role("region", name="History")
    expect(history).to_contain_text("Lines, Quantity: 3 → 5")
    expect(history).to_contain_text("Lines, row removed: Item: Beans, Quantity: 2 → nothing")
    page.get_by_label("Urgent").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(history).to_contain_text("Urgent: Yes → No")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    expect(history).to_contain_text("State: Draft → Submitted")
    expect(history.get_by_role("listitem").last).to_contain_text("admin")
    expect(history).to_contain_text("Created")
    check_page(page, "history")


def test_form_shows_refusal_beside_field_and_keeps_input(page: Page) -> None:
    fill_order(page, "refuse me")
    page.get_by_role("button", name="Create").click()
    title = page.get_by_label("Title")
    expect(title).to_have_accessible_description("No order is called that.")
    expect(title).to_be_focused()
    expect(page.get_by_label("Notes")).to_have_value("Two lines:\nring first.")
    check_page(page, "form-refused")
    page.get_by_label("Facts").fill("{no json")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_label("Facts")).to_have_accessible_description("This is not JSON.")
    page.get_by_label("Facts").fill("")
    title.fill("")
    item = page.locator("[data-table=lines]").get_by_label("Item").first
    item.fill("")
    page.get_by_role("button", name="Create").click()
    expect(title).to_have_accessible_description("Title is missing.")
    expect(title).to_be_focused()
    expect(item).to_have_accessible_description("Item is missing.")
    page.on("dialog", lambda dialog: dialog.accept())  # leaving with unsaved changes is asked for


def test_conflicting_save_is_refused_and_keeps_input(page: Page, site: LiveSite) -> None:
    """A save over a newer `modified` is refused (D-120), and nothing typed is lost (H-158)."""
    page.goto(ORDERS + "/SO-0001")
    page.get_by_label("Title").fill("Mine")
    headers = {"X-FW-CSRF": "1"}
    other = page.request.put(
        "/api/resource/Sales Order/SO-0001", data={"title": "Theirs"}, headers=headers
    )
    assert other.ok
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").first).to_contain_text("has changed since")
    expect(page.get_by_label("Title")).to_have_value("Mine")
    page.on("dialog", lambda dialog: dialog.accept())


def test_save_of_deleted_document_keeps_input(page: Page) -> None:
    """H-158, H-168: it was refused with "There is no …", without what to do."""
    name = make_order(page, title="Short-lived")
    page.goto(f"{ORDERS}/{name}")
    page.get_by_label("Title").fill("Typed before")
    assert page.request.delete(f"/api/resource/Sales Order/{name}", headers=HEADERS).ok
    page.get_by_role("button", name="Save").click()
    message = page.locator("#document > .message")
    expect(message).to_contain_text("deleted or renamed meanwhile. Your input is kept here")
    expect(page.get_by_label("Title")).to_have_value("Typed before")
    page.on("dialog", lambda dialog: dialog.accept())


@pytest.mark.parametrize("cookie", ["gone", "stale"])
def test_ended_session_keeps_input_of_form(page: Page, cookie: str) -> None:
    """The sentence that saves the work is shown without a cookie, and with one that is over."""
    page.goto(ORDERS + "/SO-0002")
    page.get_by_label("Title").fill("Typed before")
    (sid,) = (each for each in page.context.cookies() if each["name"] == "sid")
    page.context.clear_cookies()
    if cookie == "stale":
        page.context.add_cookies([{**sid, "value": "s" * 32}])  # type: ignore[typeddict-item]
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").first).to_contain_text("Your input is kept")
    expect(page.get_by_label("Title")).to_have_value("Typed before")
    page.on("dialog", lambda dialog: dialog.accept())


def test_failed_list_request_keeps_rows_and_shows_reason(page: Page, sign_in: SignIn) -> None:
    """Long work, empty lists, errors: what happened is said, and nothing typed is lost."""
    page.goto(ORDERS)
    trouble = page.locator("#trouble")
    page.context.clear_cookies()
    page.get_by_label("Status").select_option("Packed")
    expect(trouble).to_contain_text("Your session has ended")
    expect(shown_rows(page)).to_have_count(50)
    sign_in("sally")
    page.get_by_label("Status").select_option("Shipped")
    expect(trouble).to_be_hidden()
    page.get_by_label("Search", exact=True).fill("x" * 1001)
    expect(trouble).to_contain_text("at most 1,000 characters")
    expect(page.get_by_label("Search", exact=True)).to_have_value("x" * 1001)


def test_table_save_leaves_unchanged_rows_exact(page: Page) -> None:
    """Child rows are sent as whole lists (D-14): each goes back as exactly as it came."""
    first = {"item": "First", "rate": 1234567.0, "packed": "2026-10-25T00:30:00.123Z", "seal": "s"}
    body = {"title": "Exact", "lines": [first, {"item": "Last", "rate": 1e22}]}
    data = page.request.post(
        "/api/resource/Sales Order", data=body, headers={"X-FW-CSRF": "1"}
    ).json()["data"]
    page.goto(f"{ORDERS}/{data['name']}")
    expect(page.get_by_text("configured")).to_have_count(0)
    page.get_by_label("Item").last.fill("Changed")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    saved = page.request.get(f"/api/resource/Sales Order/{data['name']}").json()["data"]["lines"]
    fields = ("name", "item", "quantity", "rate", "packed", "seal")
    expected = [data["lines"][0], {**data["lines"][1], "item": "Changed"}]
    assert [[row[f] for f in fields] for row in saved] == [
        [row[f] for f in fields] for row in expected
    ]


def test_emptied_field_of_new_form_takes_no_default(page: Page) -> None:
    page.goto("/new/Sales%20Order")
    page.get_by_label("Title").fill("Without a state")
    page.get_by_label("Status").select_option("")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("Created.")).to_be_visible()
    expect(page.get_by_label("Status")).to_have_value("")


def test_document_is_created_once_despite_late_response(page: Page) -> None:
    posts: list[str] = []
    page.on("request", lambda sent: posts.append(sent.url) if sent.method == "POST" else None)
    page.goto("/new/Customer")
    page.get_by_label("Title").fill("Once")
    press_twice(page, "button[form=document]", "**/app/Customer/Once")
    expect(page.get_by_text("Created.")).to_be_visible()
    assert len(posts) == 1


def test_filters_chosen_while_scripts_load_take_effect(page: Page) -> None:
    """On a slow line the form is usable before its scripts are (H-166)."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/htmx-*.js", hold)
    with page.expect_request("**/htmx-*.js"):
        page.goto(ORDERS, wait_until="commit")
    page.get_by_label("Status").select_option("Packed")
    page.get_by_label("Search", exact=True).fill("day 4")
    page.get_by_label("From").fill("2020-01-01T00:00")
    held[0].continue_()
    expect(page).to_have_url(re.compile(r"_q=day%204.*status=Packed.*_from=2019-12-31T23%3A00"))
    expect(shown_rows(page)).to_have_count(5)


def test_filters_show_what_was_requested_after_going_back(page: Page) -> None:
    """The browser does not fill in later choices: the list would not be theirs (H-166)."""
    page.goto(ORDERS)
    for status in ("Packed", "Shipped"):
        page.get_by_label("Status").select_option(status)
        expect(page).to_have_url(re.compile(f"status={status}"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"status=Packed"))
    expect(page.get_by_label("Status")).to_have_value("Packed")
    expect(shown_rows(page).filter(has_text="Packed").first).to_be_visible()
    expect(shown_rows(page).filter(has_not_text="Packed")).to_have_count(0)


def test_dialog_stays_open_until_its_request_ends(page: Page) -> None:
    """Escape calls nothing back: the page would show a document that is gone."""
    headers = {"X-FW-CSRF": "1"}
    made = page.request.post("/api/resource/Sales Order", data={"title": "Go"}, headers=headers)
    name = made.json()["data"]["name"]
    page.goto(f"{ORDERS}/{name}")
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method == "DELETE":
            held.append(route)
        else:
            route.continue_()

    page.route(f"**/api/resource/Sales%20Order/{name}*", hold)
    page.get_by_role("button", name="Delete").click()
    with page.expect_request(lambda request: request.method == "DELETE"):
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    held[0].continue_()
    expect(page.get_by_text("Deleted.")).to_be_visible()


def test_sign_out_button_ends_session(page: Page) -> None:
    page.goto("/app")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile(r"/login$"))
    page.goto("/app")
    expect(page).to_have_url(re.compile(r"/login$"))
