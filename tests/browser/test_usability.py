"""The usability of lists and forms: messages are where the user looks, what is typed is what is
stored, and keyboard, screen reader and small screens reach everything (H-157, H-158,
H-166, H-202, H-205, H-210, H-211)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.held_requests import OPERATION, ORDERS, RUN, HeldRequests, make_order
from tests.browser.webhook_kit import HEADERS, emit, make_webhook, status
from tests.live_site import LiveReceiver, eventually

SignIn = Callable[[str], None]
GERMAN_NUMBERS = """
Intl.NumberFormat = class extends Intl.NumberFormat {
  constructor(locale = "de-DE", ...options) { super(locale, ...options); }
};
"""
PHONE: Any = {"width": 360, "height": 640}
SMALL_PHONE: Any = {"width": 320, "height": 640}
MARKED = """
() => [...document.querySelectorAll(".tabs a")].filter((tab) => {
  const { borderBottomColor, backgroundColor } = getComputedStyle(tab);
  const shown = borderBottomColor.match(/[\\d.]+/g);
  return shown.length < 4 && getComputedStyle(document.body).backgroundColor !== borderBottomColor;
}).length
"""


def open_order(page: Page, **fields: Any) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{ORDERS}/{make_order(page, **fields)}")


# Forms


def test_form_shows_message_where_the_user_is(page: Page, sign_in: SignIn) -> None:
    """H-211: the message stood above the form, beyond the edge of the screen."""
    sign_in("sally")
    page.set_viewport_size(PHONE)
    open_order(page, title="Long", lines=[{"item": "a"}] * 8)
    page.get_by_label("Title").fill("Longer")
    message = page.locator("#document > .message")
    page.get_by_role("button", name="Rename").click()
    expect(message).to_have_text("Save your changes first.")
    expect(message).to_be_in_viewport(ratio=1)
    page.get_by_label("Item").last.focus()
    page.route("**/api/resource/**", lambda route: route.abort())
    page.keyboard.press("Control+s")
    expect(message).to_contain_text("did not answer")
    expect(message).to_be_in_viewport(ratio=1)


def test_form_shows_refusal_of_a_hidden_secret(page: Page, sign_in: SignIn) -> None:
    """H-211: beside an input that is hidden until it is changed, it was neither read out nor in
    view."""
    sign_in("sally")
    page.set_viewport_size(PHONE)
    open_order(page, title="Secret", token="stored", lines=[{"item": "a"}] * 8)
    error = {"type": "ValidationError", "message": "Too old.", "extra": {"field": "token"}}
    page.route("**/api/resource/**", lambda route: route.fulfill(status=422, json={"error": error}))
    page.get_by_label("Title").fill("Refused")
    page.keyboard.press("Control+s")
    note = page.get_by_role("alert").filter(has_text="Too old.")
    expect(note).to_be_in_viewport(ratio=1)


def test_name_that_turns_text_turns_only_itself(page: Page, sign_in: SignIn) -> None:
    """A right-to-left override turned the line around, with the user and time of the change."""
    sign_in("sally")
    data = {"title": "\u202eturned"}
    assert page.request.post("/api/resource/Customer", data=data, headers=HEADERS).ok
    page.goto("/app/Customer/%E2%80%AEturned")
    name, changed = (page.locator(f".head {tag}").bounding_box() for tag in ("code", "time"))
    assert name is not None, "no name"
    assert changed is not None, "no time"
    assert name["x"] < changed["x"]


PLACES = """
(element) => [0, element.textContent.length - 1].map((at) => {
  const range = document.createRange();
  range.setStart(element.firstChild, at);
  range.setEnd(element.firstChild, at + 1);
  return range.getBoundingClientRect().left;
})
"""


def test_value_has_the_direction_of_its_text(page: Page, sign_in: SignIn) -> None:
    """H-157: the full stop of a sentence in Hebrew stood before it."""
    sign_in("sally")
    order = make_order(page, title="שלום עולם.")
    page.goto(f"{ORDERS}?name={order}")
    first, full_stop = page.get_by_text("שלום").first.evaluate(PLACES)
    assert full_stop < first
    page.goto(f"{ORDERS}/{order}")
    assert page.get_by_label("Title").evaluate("(e) => getComputedStyle(e).unicodeBidi") == (
        "plaintext"
    )


def test_number_with_comma_is_not_taken_for_another(page: Page, sign_in: SignIn) -> None:
    """H-210: the browser drops the comma, and 1,5 was stored as 15."""
    sign_in("sally")
    open_order(page, title="Comma", lines=[{"item": "a"}])
    rate = page.get_by_label("Rate")
    rate.focus()
    page.keyboard.type("1,5")
    expect(rate).to_have_accessible_description(re.compile("decimal point"))
    page.keyboard.press("Control+s")
    expect(rate).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Backspace")
    page.keyboard.type(".5")
    expect(rate).not_to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(rate).to_have_value("1.5")


def test_error_of_a_row_is_shown_at_its_cell(page: Page, sign_in: SignIn) -> None:
    """H-158: not above the form, and not at a field of the same name."""
    sign_in("sally")
    open_order(page, title="Rows", lines=[{"item": "a"}, {"item": "b"}])
    extra = {"field": "item", "table": "lines", "row": 2}
    error = {"type": "ValidationError", "message": "lines, row 2: No such item.", "extra": extra}
    page.route("**/api/resource/**", lambda route: route.fulfill(status=422, json={"error": error}))
    item = page.get_by_label("Item").nth(1)
    item.fill("c")
    page.keyboard.press("Control+s")
    expect(item).to_have_attribute("aria-invalid", "true")
    expect(item).to_be_focused()
    expect(item).to_have_accessible_description(re.compile("No such item"))


def test_error_is_shown_at_its_field_beside_rows_with_that_field(
    page: Page, sign_in: SignIn
) -> None:
    """A column of a table may have the name of a field of the document."""
    sign_in("sally")
    page.goto("/new/Complaint")
    page.get_by_role("button", name="Add a row").click()
    page.locator("#f-remark").fill("refuse me")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#f-remark")).to_have_accessible_description(
        "A complaint must state something."
    )
    page.on("dialog", lambda dialog: dialog.accept())  # leaving with unsaved changes is asked for


def test_number_is_not_changed_by_scrolling(page: Page, sign_in: SignIn) -> None:
    """H-210: the wheel over a field that has the focus changed its number."""
    sign_in("sally")
    open_order(page, title="Wheel", lines=[{"item": "a", "quantity": 5}])
    quantity = page.get_by_label("Quantity")
    quantity.click()
    page.evaluate(
        "addEventListener('wheel', () => setTimeout(() => { document.title = 'turned'; }, 50))"
    )
    page.mouse.wheel(0, -100)
    expect(page).to_have_title("turned")
    expect(quantity).to_have_value("5")
    expect(quantity).to_be_focused()
    expect(quantity).to_be_editable()


def test_time_that_the_clocks_skip_is_refused(page: Page, sign_in: SignIn) -> None:
    """H-210: half past two became half past three."""
    sign_in("sally")
    open_order(page, title="Summer", called="2026-03-29T01:30:00Z")
    called = page.get_by_label("Called")
    expect(called).to_have_value("2026-03-29T03:30")
    called.fill("2026-03-29T02:30")
    page.keyboard.press("Control+s")
    expect(called).to_have_accessible_description(re.compile("clocks"))


def test_number_that_would_be_stored_as_another_is_refused(page: Page, sign_in: SignIn) -> None:
    """H-210: 2^53 + 1 became 2^53."""
    sign_in("sally")
    open_order(page, title="Many", lines=[{"item": "Nut", "quantity": 1}])
    quantity = page.get_by_label("Quantity").first
    quantity.fill("9007199254740993")
    page.keyboard.press("Control+s")
    expect(quantity).to_have_accessible_description(re.compile("2\\^53"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1e400}', "too large"), ('{"a": -9007199254740993}', "too large"),
        ('{"a": 1, "b": {"a": 2, "a": 3}}', "twice"),
    ],
)  # fmt: skip
def test_json_that_would_be_stored_as_another_is_refused(
    page: Page, sign_in: SignIn, text: str, said: str
) -> None:
    """H-210: the number was stored as null, the first of two values lost."""
    sign_in("sally")
    open_order(page, title="JSON", facts={"old": ['a": b', {"a": 1}]})
    facts = page.get_by_label("Facts")
    facts.fill(text)
    page.keyboard.press("Control+s")
    expect(facts).to_have_accessible_description(re.compile(said))
    facts.fill('{"a": "x\\": 9007199254740993", "b": [{"a": 1}, {"a": -2.5e3}]}')
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved.")).to_be_visible()


def test_sign_out_asks_before_what_is_typed_is_lost(page: Page, sign_in: SignIn) -> None:
    """H-211: the browser asked when the session had ended, and nothing could be saved."""
    sign_in("sally")
    open_order(page, title="Typed")
    page.get_by_label("Title").fill("Not saved")
    page.get_by_role("button", name="Sign out").click()
    question = page.get_by_role("dialog", name="Sign out")
    question.get_by_role("button", name="Cancel").click()
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.get_by_label("Title").fill("Given up")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.type))
    page.get_by_role("button", name="Sign out").click()
    question.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login$"))
    assert dialogs == [], "it was asked once"


def test_link_is_suggested_by_title(page: Page, sign_in: SignIn) -> None:
    """H-208: only names were searched, such as SO-0012, which nobody knows."""
    sign_in("sally")
    page.on("dialog", lambda dialog: dialog.accept())
    for path, label in (("/new/Complaint", "Order"), ("/app/Complaint", "Order")):
        page.goto(path)
        page.get_by_label(label, exact=True).press_sequentially("of day 33")
        option = page.locator("datalist option")
        expect(option).to_have_count(1)
        expect(option).to_have_text("Order of day 33")
        expect(option).to_have_attribute("value", re.compile("^SO-"))


# Lists


def test_refused_list_file_shows_message(page: Page, sign_in: SignIn) -> None:
    """H-211: the browser saved the sign-in page, or the page of an error, as the file."""
    sign_in("admin")
    page.goto(f"{ORDERS}?status=Packed")
    files: list[str] = []
    page.on("download", lambda file: files.append(file.suggested_filename))
    link = page.get_by_role("link", name="CSV", exact=True)
    error = {"type": "OverloadedError", "message": "The service is busy. Try again."}
    page.route("**/export/**", lambda route: route.fulfill(status=503, json={"error": error}))
    link.click()
    expect(page.locator("#trouble")).to_have_text("The service is busy. Try again.")
    page.unroute("**/export/**")
    page.context.clear_cookies()
    link.click()
    expect(page.locator("#trouble")).to_contain_text("Your session has ended.")
    assert files == []
    sign_in("admin")
    with page.expect_download() as begun:
        link.click()
    assert begun.value.suggested_filename == "Sales Order.csv"
    text = begun.value.path().read_text()
    assert text.count("\n") == 1 + text.count(",Packed,") > 20


def test_list_search_is_one_step_back(page: Page, sign_in: SignIn) -> None:
    """H-166: Back led through each part of what had been typed."""
    sign_in("sally")
    page.goto(ORDERS)
    page.get_by_label("Status").select_option("Packed")
    expect(page).to_have_url(re.compile("status=Packed"))
    search = page.get_by_label("Search", exact=True)
    for text in ("d", "day", "day 4"):
        search.press_sequentially(text.removeprefix(search.input_value()))
        expect(page).to_have_url(re.compile(f"_q={text.replace(' ', '%20')}&"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"_q=&.*status=Packed"))
    expect(search).to_have_value("")


def test_filters_button_shows_number_of_filters(page: Page, sign_in: SignIn) -> None:
    """H-202: on a small screen a filtered list looked like the whole one."""
    sign_in("sally")
    page.set_viewport_size(PHONE)
    page.goto(f"{ORDERS}?status=Packed&docstatus=7")  # 7: of a link that was edited
    opener = page.locator("#show-filters")
    expect(opener).to_have_text("Filters (2)")
    opener.click()
    expect(page.get_by_label("State")).to_have_value("7")
    page.get_by_label("State").select_option("")
    expect(opener).to_have_text("Filters (1)")


def test_list_refusal_of_a_stale_link_leads_to_the_list(page: Page, sign_in: SignIn) -> None:
    """H-205: from a bookmark with a filter that no longer exists."""
    sign_in("sally")
    page.goto(f"{ORDERS}?status=Gone&_sort=due")
    page.get_by_role("link", name="Without filters").click()
    expect(page.get_by_role("heading", name="Sales Order")).to_be_visible()
    expect(page).to_have_url(re.compile("Sales%20Order$"))


def test_list_selection_is_shown_and_left_by_keys(page: Page, sign_in: SignIn) -> None:
    """H-157: the box of all stayed ticked, and on a box the keys of the list did nothing."""
    sign_in("admin")
    page.goto("/app/User")
    all_of_page = page.get_by_label("All of this page")
    all_of_page.check()
    gina = page.get_by_label("gina", exact=True)
    gina.uncheck()
    expect(all_of_page).to_be_checked(indeterminate=True)
    page.keyboard.press("j")
    expect(page.locator("tbody tr", has=gina).locator("+ tr th a")).to_be_focused()
    gina.check()
    expect(all_of_page).to_be_checked()


def test_number_of_selected_rows_is_announced(page: Page, sign_in: SignIn) -> None:
    """H-157: the live region of the list stayed as it was."""
    sign_in("admin")
    page.goto("/app/User")
    page.get_by_label("gina", exact=True).check()
    expect(page.locator("[data-selected]")).to_have_text("1 selected.")
    page.get_by_label("gina", exact=True).uncheck()
    expect(page.locator("[data-selected]")).to_have_text("Select rows to act on them.")


def test_numbers_of_scripts_are_written_as_those_of_templates(page: Page, sign_in: SignIn) -> None:
    """1,234 and 1.234 on one page could be read as two numbers."""
    sign_in("admin")
    page.add_init_script(GERMAN_NUMBERS)
    run = {"run": {**RUN, "total": 9000, "done": 1000}}
    page.route(f"{OPERATION}webhooks.replayProgress", lambda route: route.fulfill(json=run))
    page.goto("/app/Webhook%20Delivery")
    expect(page.locator("#run [data-count]")).to_have_text("1,000 of 9,000")


def test_single_keys_can_be_switched_off(page: Page, sign_in: SignIn) -> None:
    """H-157: words that are dictated to a page act as keys (WCAG 2.1.4)."""
    sign_in("hugo")
    page.goto("/account")
    page.get_by_label("Single-key shortcuts").uncheck()
    page.goto("/app")
    page.keyboard.press("/")
    expect(page.get_by_label("Find an id")).not_to_be_focused()
    page.goto("/account")
    page.get_by_label("Single-key shortcuts").check()
    page.keyboard.press("/")
    expect(page.get_by_label("Find an id")).to_be_focused()


def test_list_can_be_acted_on_after_a_failed_reload(page: Page, sign_in: SignIn) -> None:
    """H-158: the buttons stayed off."""
    sign_in("admin")
    page.goto("/app/User")
    page.get_by_label("gina", exact=True).check()
    page.route("**/app/User*", lambda route: route.abort())
    unlock = page.get_by_role("button", name="Unlock 1 account")
    unlock.click()
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    expect(page.locator("#trouble")).to_contain_text("did not answer")
    expect(unlock).to_be_enabled()


def test_page_on_a_phone_stays_where_it_is_while_scripts_load(page: Page, sign_in: SignIn) -> None:
    """The menu was unfolded until then, and the page below it was pulled up under the finger."""
    sign_in("sally")
    page.set_viewport_size(PHONE)
    held = HeldRequests(page, "**/app.js")
    page.goto(ORDERS, wait_until="commit")
    held.arrive()
    title = page.get_by_role("heading", name="Sales Order")
    rows = page.locator("#results")
    before = [each.bounding_box() for each in (title, rows)]
    held.let_go()
    expect(page.get_by_role("button", name="Menu")).to_be_visible()
    expect(page.get_by_role("button", name="Filters")).to_be_enabled()
    assert [each.bounding_box() for each in (title, rows)] == before


def test_list_on_a_phone_shows_status_without_scrolling(
    page: Page, sign_in: SignIn, receiver: LiveReceiver
) -> None:
    """H-202: ids were not broken, and pushed the status of deliveries beyond the edge."""
    sign_in("admin")
    page.set_viewport_size(SMALL_PHONE)
    make_webhook(page, receiver.url, "small.phone", title="A title that is long for a phone")
    delivery = emit(page, "small.phone", {})
    eventually(lambda: status(page, delivery) == "Sent")
    page.goto("/app/Webhook%20Delivery?event=small.phone")
    badge = page.locator("#results tbody .badge").bounding_box()
    assert badge is not None
    assert badge["x"] + badge["width"] <= SMALL_PHONE["width"]


# Operations


def test_account_page_shows_result_in_viewport(page: Page, sign_in: SignIn) -> None:
    """H-211: results and errors stood at the begin of a long page."""
    sign_in("hugo")
    page.set_viewport_size(PHONE)
    page.goto("/account")
    page.get_by_label("Purpose").fill("to be seen")
    page.get_by_role("button", name="Create key").click()
    key = page.locator("#api-keys li").filter(has_text="to be seen")
    key.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    result = page.locator("#flash")
    expect(result).to_have_text("The key has been revoked.")
    expect(result).to_be_in_viewport(ratio=1)


def test_console_shows_error_in_viewport(page: Page, sign_in: SignIn) -> None:
    """H-211."""
    sign_in("admin")
    page.set_viewport_size(PHONE)
    page.goto("/app/console")
    page.route(f"{OPERATION}console.trace", lambda route: route.abort())
    page.get_by_role("button", name=re.compile("^Trace")).last.click()
    message = page.locator("#console-message")
    expect(message).to_contain_text("did not answer")
    expect(message).to_be_in_viewport(ratio=1)


def test_console_shows_errors_as_sentences(page: Page, sign_in: SignIn) -> None:
    """H-209: they began with their word for programs: "status: the receiver answered 503."."""
    sign_in("admin")
    with LiveReceiver(503) as failing:
        make_webhook(page, failing.url, "daily.failed", max_attempts=1)
        delivery = emit(page, "daily.failed", {})
        eventually(lambda: status(page, delivery) == "Failed")
        page.goto("/app/console#failures-part")
        causes = page.locator("#causes tbody tr").filter(has_text="answered 503")
        expect(causes.get_by_text("The receiver answered 503.", exact=True)).to_be_visible()
        causes.get_by_role("link", name="Show and replay").click()
        expect(page.locator("#results tbody tr").filter(has_text=delivery)).to_be_visible()


def test_console_marks_one_tab_in_forced_colours(page: Page, sign_in: SignIn) -> None:
    """H-157: the browser gives transparent borders a colour, and all tabs looked chosen."""
    sign_in("admin")
    page.emulate_media(forced_colors="active")
    page.goto("/app/console")
    expect(page.locator(".tabs [aria-current]")).to_have_count(1)
    marked = page.evaluate(MARKED)
    page.emulate_media(forced_colors="none")
    assert marked == 1


def test_user_page_goes_on_after_a_failed_reload(page: Page, sign_in: SignIn) -> None:
    """H-158: the script ended with an error."""
    sign_in("admin")
    page.goto("/app/User/gina")
    page.route("**/app/User/gina", lambda route: route.abort())
    page.get_by_role("button", name="Send reset link").click()
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#trouble")).to_contain_text("did not answer")
    expect(page.get_by_role("button", name="Send reset link")).to_be_enabled()


def test_delivery_page_keeps_focus_near_a_button_that_goes(page: Page, sign_in: SignIn) -> None:
    """H-167: when the delivery ended, the focus fell to the begin of the page."""
    sign_in("admin")
    make_webhook(page, "http://127.0.0.1:9/", "daily.ended")
    delivery = emit(page, "daily.ended", {})
    page.goto(f"/app/Webhook%20Delivery/{delivery}")
    page.locator("[data-cancel]").focus()
    page.request.post(
        "/api/method/core.services.webhooks.cancel", data={"delivery": delivery}, headers=HEADERS
    )
    expect(page.locator("[data-replay-one]")).to_be_visible()
    expect(page.get_by_role("region", name="State")).to_be_focused()
    expect(page.get_by_role("button", name="Erase")).to_be_enabled()  # it appears with the end


def test_question_reads_out_its_consequence(page: Page, sign_in: SignIn) -> None:
    """H-211: a screen reader read the title and the button only."""
    sign_in("sally")
    open_order(page, title="Asked about")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_have_accessible_description("This cannot be undone.")


def test_text_follows_the_size_that_the_reader_has_set(page: Page, sign_in: SignIn) -> None:
    """H-157: only headings did."""
    sign_in("sally")
    page.goto("/app")
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate("getComputedStyle(document.body).fontSize") == "30px"
