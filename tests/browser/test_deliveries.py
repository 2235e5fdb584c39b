"""Deliveries on pages: found, listed, shown, replayed, cancelled and erased (H-160)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.page_checks import check_page
from tests.browser.webhook_kit import HEADERS, emit, make_webhook, status
from tests.live_site import LiveReceiver, eventually

DELIVERIES = "/app/Webhook%20Delivery"
SHOW_ANEW = """
() => htmx.ajax("GET", `${location.pathname}/recent`, {
  target: "#recent", select: "#recent", swap: "outerHTML",
})
"""


@pytest.fixture(autouse=True)
def admin(sign_in: Callable[[str], None]) -> None:
    sign_in("admin")


def test_delivery_is_found_by_id_in_list(page: Page, receiver: LiveReceiver) -> None:
    """The webhook-id of a request finds the delivery's page (H-163)."""
    make_webhook(page, receiver.url, "page.found")
    delivery = emit(page, "page.found", {})
    emit(page, "page.found", {})
    page.goto(DELIVERIES)
    page.get_by_label("Search", exact=True).fill(f" {delivery}")
    expect(page.locator("#result-count")).to_have_text("1 found.")
    expect(page.get_by_role("link", name=delivery)).to_be_visible()


def test_find_field_opens_page_of_id(page: Page, receiver: LiveReceiver) -> None:
    """H-201."""
    make_webhook(page, receiver.url, "page.jump", title="Jump here")
    delivery = emit(page, "page.jump", {})
    page.goto("/app")
    page.keyboard.press("/")
    page.keyboard.type(delivery)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(delivery))
    page.get_by_label("Find an id").fill("Jump")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Jump here")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("Results for Jump:")
    check_page(page, "find")
    page.locator("main").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("find in the whole desk")
    check_page(page, "keys")


def test_delivery_list_shows_errors_and_fits_screen(page: Page, receiver: LiveReceiver) -> None:
    """H-202, H-203, H-204."""
    hook = make_webhook(page, receiver.url, "page.fits", title="Fits well")
    delivery = emit(page, "page.fits", {})
    eventually(lambda: status(page, delivery) == "Sent")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{DELIVERIES}?webhook={hook}")
    row = page.locator("#results tbody tr").first
    head = re.compile("Status.*Error.*Response.*About", re.DOTALL)
    expect(page.locator("thead")).to_contain_text(head)
    expect(row.get_by_role("link", name="Fits well")).to_have_attribute(
        "href", f"/app/Webhook/{hook}"
    )
    expect(row.locator("time")).to_have_text(re.compile("(sec|min) ago"))
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)"
    )
    page.get_by_label("From").fill("2026-01-01T00:00")
    page.get_by_label("From").blur()
    expect(page).to_have_url(re.compile(r"_from=2025-12-31T23%3A00"))  # Berlin's midnight
    expect(row).to_be_visible()
    page.get_by_label(re.compile("^To ")).fill("2026-02-01T00:00")
    page.get_by_label(re.compile("^To ")).blur()
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(DELIVERIES)
    expect(page.get_by_label("Status")).to_be_hidden()
    assert page.evaluate(
        "document.querySelector('#results tbody tr').getBoundingClientRect().top < 800"
    )
    page.get_by_role("button", name="Filters").click()
    expect(page.get_by_label("Status")).to_be_visible()


def test_delivery_page_shows_result_and_replays(page: Page, receiver: LiveReceiver) -> None:
    """A replay keeps id and body (B-251)."""
    name = make_webhook(page, receiver.url, "page.shown")
    delivery = emit(page, "page.shown", {"total": 12, "who": "Ötzi"})
    eventually(lambda: status(page, delivery) == "Sent")
    page.goto(f"{DELIVERIES}/{delivery}")
    state = page.locator("#delivery .state")
    expect(state).to_contain_text("Sent")
    expect(page.locator("#delivery")).to_contain_text("204")
    expect(page.locator("pre").last).to_contain_text('"who": "Ötzi"')
    check_page(page, "delivery")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("Queued again.")).to_be_visible()
    expect(state).to_contain_text("Sent")
    eventually(lambda: receiver.ids.count(delivery) == 2)
    page.goto(f"/app/Webhook/{name}")
    expect(page.locator("#recent tbody tr")).to_have_count(1)
    mine = page.get_by_role("link", name=delivery)
    mine.focus()
    page.evaluate(SHOW_ANEW)
    expect(mine).to_be_focused()
    check_page(page, "webhook-recent")


def test_failing_delivery_page_shows_error_and_next_attempt(page: Page) -> None:
    with LiveReceiver(503) as failing:
        make_webhook(page, failing.url, "page.retried")
        delivery = emit(page, "page.retried", {})
        page.goto(f"{DELIVERIES}/{delivery}")
        expect(page.locator("#delivery .state")).to_contain_text("Retrying")
        expect(page.locator("#delivery .state")).to_contain_text("next attempt")
        expect(page.locator("#delivery")).to_contain_text("The receiver answered 503.")
        expect(page.get_by_role("button", name="Replay")).to_have_count(0)
        check_page(page, "delivery-retrying")


def test_delivery_page_shows_attempts_as_timeline(page: Page) -> None:
    """Each with its answer and the request as sent; what comes next, and whose replay it is
    (B-185 to B-187)."""
    with LiveReceiver(410, 503) as failing:
        failing.body = b'{"why":"closed for today"}'
        make_webhook(page, failing.url, "page.timeline")
        delivery = emit(page, "page.timeline", {"it's": 1})
        eventually(lambda: status(page, delivery) == "Failed")
        page.goto(f"{DELIVERIES}/{delivery}")
        timeline = page.get_by_role("region", name="Attempts").get_by_role("listitem")
        expect(timeline).to_have_count(2)
        expect(timeline.nth(0)).to_contain_text("410")
        expect(timeline.nth(1)).to_contain_text("Event recorded")
        expect(timeline.nth(1)).to_contain_text(re.compile(r":\d\d:\d\d (CET|CEST|GMT\+[12])"))
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text("Queued again.")).to_be_visible()
        expect(timeline).to_have_count(5)
        expect(timeline.nth(0)).to_contain_text("Next attempt 2 of 6, ")
        expect(timeline.nth(1)).to_contain_text("The receiver answered 503.")
        expect(timeline.nth(2)).to_contain_text("Replayed by admin")
        timeline.nth(1).get_by_text("Request and response").click()
        shown = timeline.nth(1)
        signature = failing.got[-1].headers["webhook-signature"]
        expect(shown).to_contain_text(f"webhook-signature: {signature}")
        expect(shown.locator(".curl")).to_contain_text("curl -i -X POST http://127.0.0.1:")
        expect(shown).to_contain_text('"why": "closed for today"')
        with page.expect_response(lambda response: DELIVERIES in response.url):
            pass  # every two seconds
        expect(shown.locator(".curl")).to_be_visible()
        check_page(page, "delivery-attempts")


def test_attempts_page_lists_and_filters_attempts(page: Page) -> None:
    """H-160, O-302."""
    with LiveReceiver(503, 410) as failing:
        hook = make_webhook(page, failing.url, "page.attempts", title="Attempted")
        sent = [emit(page, "page.attempts", {"n": n}) for n in range(2)]
        eventually(lambda: {status(page, each) for each in sent} == {"Failed", "Retrying"})
        page.goto("/app")
        page.get_by_role("navigation").get_by_role("link", name="Attempts").click()
        page.get_by_label("Webhook", exact=True).select_option("Attempted")
        rows = page.locator("#results tbody tr")
        expect(page.locator("#result-count")).to_have_text("2 found.")
        expect(rows).to_have_count(2)
        check_page(page, "attempts")
        page.get_by_label("Response").fill("410")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("The receiver answered 410.")
        expect(rows).to_contain_text("1, event")
        page.get_by_label("Response").fill("999")
        expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
        check_page(page, "attempts-none")
        page.goto(f"/app/attempts?webhook={hook}&_before=1.1.x")
        page.get_by_role("link", name="Newest").click()
        rows.first.get_by_role("link", name="page.attempts").click()
        expect(page.get_by_role("region", name="Attempts")).to_be_visible()
        refused = page.goto("/app/attempts?code=x")
        assert refused is not None
        assert refused.status == 400


def test_refreshing_page_loses_no_click(page: Page) -> None:
    with LiveReceiver(503) as failing:
        name = make_webhook(page, failing.url, "page.pressed")
        page.goto(f"{DELIVERIES}/{emit(page, 'page.pressed', {})}")
        link = page.locator(f"#delivery a[href$='{name}']")
        link.hover()
        page.mouse.down()
        with page.expect_response(lambda response: DELIVERIES in response.url) as renewed:
            pass  # every two seconds
        renewed.value.finished()
        page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 50))")  # swapped by now
        page.mouse.up()
        expect(page).to_have_url(re.compile(f"/app/Webhook/{name}$"))


def test_refreshing_page_reports_deleted_document_and_stops(page: Page) -> None:
    name = make_webhook(page, "https://example.test/hook", "page.gone")
    page.goto(f"/app/Webhook/{name}")
    gone = page.request.delete(f"/api/resource/Webhook/{name}", headers=HEADERS)
    assert gone.ok
    expect(page.locator("#trouble")).to_contain_text(f"There is no Webhook {name}.")
    expect(page.locator("#recent")).to_contain_text("No deliveries yet")
    expect(page.locator("#recent[hx-trigger]")).to_have_count(0)


def test_refreshing_page_survives_ended_session(page: Page, sign_in: Callable[[str], None]) -> None:
    name = make_webhook(page, "https://example.test/hook", "page.ended")
    page.goto(f"/app/Webhook/{name}")
    page.context.clear_cookies()
    expect(page.locator("#trouble")).to_contain_text("Your session has ended")
    expect(page.locator("#recent")).to_contain_text("No deliveries yet")
    sign_in("admin")
    expect(page.locator("#trouble")).to_be_hidden()


def test_selected_deliveries_are_replayed_with_progress(page: Page, receiver: LiveReceiver) -> None:
    name = make_webhook(page, receiver.url, "page.many")
    sent = [emit(page, "page.many", {"number": number}) for number in range(5)]
    eventually(lambda: all(status(page, each) == "Sent" for each in sent))
    page.goto(f"{DELIVERIES}?webhook={name}&status=Sent")
    expect(page.locator("#results tbody tr")).to_have_count(5)
    expect(page.get_by_role("button", name="Replay selected")).to_be_disabled()
    page.get_by_label("All of this page").check()
    check_page(page, "deliveries")
    page.get_by_role("button", name="Replay 5 deliveries").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    progress = page.locator("[data-progress]")
    expect(progress).to_contain_text("Done. 5 deliveries are queued again.")
    check_page(page, "deliveries-replayed")
    eventually(lambda: all(receiver.ids.count(each) == 2 for each in sent))
    page.goto(f"{DELIVERIES}?webhook={name}&status=Failed")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()


def test_secret_is_rotated_and_body_erased_after_confirmation(
    page: Page, receiver: LiveReceiver
) -> None:
    """O-307."""
    name = make_webhook(page, receiver.url, "page.rotated")
    page.goto(f"/app/Webhook/{name}")
    section = page.locator("#webhook-rotate")
    section.get_by_label("Keep the old secret for").select_option("a week")
    section.get_by_role("button", name="Rotate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("and the old one beside it for a week")
    check_page(page, "webhook-rotate")
    dialog.get_by_role("button", name="Rotate").click()
    made = section.locator("code")
    expect(made).to_have_text(re.compile(r"whsec_"))
    check_page(page, "webhook-rotated")
    secret = made.inner_text()
    page.reload()
    expect(section).to_contain_text("The old secret is valid until")
    assert secret not in page.content()
    delivery = emit(page, "page.rotated", {"private": "Ada"})
    eventually(lambda: status(page, delivery) == "Sent")
    page.goto(f"{DELIVERIES}/{delivery}")
    page.get_by_role("button", name="Erase").click()
    check_page(page, "delivery-erase")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("pre").last).to_contain_text("Ada")
    page.get_by_role("button", name="Erase").click()
    dialog.get_by_role("button", name="Erase").click()
    expect(page.get_by_text("Erased.", exact=True)).to_be_visible()
    expect(page.get_by_text("It cannot be sent again.")).to_be_visible()
    expect(page.get_by_role("button", name="Replay")).to_have_count(0)
    check_page(page, "delivery-erased")


def test_waiting_deliveries_are_cancelled_after_confirmation(
    page: Page, receiver: LiveReceiver
) -> None:
    """One on its page, others from the list (B-368)."""
    name = make_webhook(page, receiver.url, "page.cancelled")
    page.goto(f"/app/Webhook/{name}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    one, *others = [emit(page, "page.cancelled", {"n": n}) for n in range(3)]
    page.goto(f"{DELIVERIES}/{one}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("nothing more is sent")
    check_page(page, "delivery-cancel")
    dialog.get_by_role("button", name="Keep it").click()
    assert status(page, one) == "Queued"
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Cancel the delivery").click()
    expect(page.get_by_text("Cancelled.", exact=True)).to_be_visible()
    expect(page.get_by_text("cancelled this delivery").first).to_be_visible()
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    page.goto(f"{DELIVERIES}?webhook={name}&status=Queued")
    for row in page.locator("#results tbody .pick input").all():
        row.check()
    page.get_by_role("button", name="Cancel 2").click()
    dialog.get_by_role("button", name="Cancel them").click()
    eventually(lambda: [status(page, each) for each in others] == ["Failed", "Failed"])
    assert not set(receiver.ids) & {one, *others}


def test_matching_deliveries_are_replayed_beyond_one_page(
    page: Page, receiver: LiveReceiver
) -> None:
    """Each once, with progress that is left and comes back; a second run has to wait."""
    name = make_webhook(page, receiver.url, "page.all", title="All pages")
    sent = [emit(page, "page.all", {"number": number}) for number in range(53)]
    eventually(lambda: set(receiver.ids) >= set(sent))
    page.goto(DELIVERIES)
    expect(page.locator("#results tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name="that match")).to_have_count(0)
    page.goto(f"{DELIVERIES}?webhook={name}")
    expect(page.locator("#results tbody tr")).to_have_count(50)
    eventually(lambda: all(status(page, each) == "Sent" for each in sent))
    page.get_by_role("button", name="Replay all 53 that match").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("All with Webhook All pages, until ")  # the words of its result
    check_page(page, "deliveries-replay-all")
    dialog.get_by_role("button", name="Replay all").click()
    run = page.get_by_role("region", name="Bulk replay")
    expect(run).to_contain_text("Done. 53 deliveries are queued again.")
    eventually(lambda: all(receiver.ids.count(each) == 2 for each in sent))
    page.goto("/app")
    page.goto(f"{DELIVERIES}?status=Failed")
    expect(run).to_contain_text("Done. 53 deliveries are queued again.")
    check_page(page, "deliveries-replayed-all")
    run.get_by_role("button", name="Close").click()
    page.reload()
    expect(page.get_by_role("heading", name="Webhook Delivery")).to_be_visible()
    expect(run).to_be_hidden()
    page.goto(f"{DELIVERIES}/{sent[0]}")
    page.get_by_role("region", name="Attempts").get_by_role("link", name="bulk replay").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("53 of 53")
    expect(result.locator("dt", has_text="Arrived").locator("+ dd")).to_have_text("53")


def test_bulk_replay_page_shows_outcome_counts(page: Page, receiver: LiveReceiver) -> None:
    """The Webhook's page shows it too; each count links to its deliveries (O-300, O-301)."""
    with LiveReceiver(410, 410, 204, 410) as failing:
        name = make_webhook(page, failing.url, "page.result", title="Results")
        sent = [emit(page, "page.result", {"number": number}) for number in range(2)]
        eventually(lambda: all(status(page, each) == "Failed" for each in sent))
        page.goto(f"{DELIVERIES}?webhook={name}&error=status: the receiver answered 410.")
        page.get_by_role("button", name="Replay all 2 that match").click()
        expect(page.get_by_role("dialog")).to_contain_text(
            'Webhook Results, Error "The receiver answered 410", until '
        )
        page.keyboard.press("Escape")
        page.goto(f"{DELIVERIES}?webhook={name}&status=Failed&_since=1h")
        page.get_by_role("button", name="Replay all 2 that match").click()
        page.get_by_role("dialog").get_by_role("button", name="Replay all").click()
        run = page.get_by_role("region", name="Bulk replay")
        expect(run).to_contain_text("Done. 2 deliveries are queued again.")
        run.get_by_role("link", name="Result").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(
            "Webhook Results, Status Failed, since 2"
        )
        facts = page.get_by_role("region", name="Result")
        for label in ("Arrived", "Failed again"):
            expect(facts.locator("dt", has_text=label).locator("+ dd")).to_have_text("1")
        check_page(page, "replay")
        facts.locator("dt", has_text="Failed again").locator("+ dd a").click()
        expect(page.locator("#results tbody tr")).to_have_count(1)
        expect(page.locator("#results tbody tr")).to_contain_text("Failed")
        page.goto("/app/replays")
        expect(page.locator("tbody tr").first).to_contain_text("Webhook Results")
        check_page(page, "replays")
        page.goto(f"/app/Webhook/{name}")
        line = page.get_by_role("region", name="Bulk replays").get_by_role("listitem").first
        expect(line).to_contain_text("2 replayed, 1 arrived, 1 failed again, 0 still open")
        check_page(page, "webhook-replays")
        page.goto("/app/replays/unknown")
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()
