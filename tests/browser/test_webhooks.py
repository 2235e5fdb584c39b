"""Webhooks on pages (H-160, B-10)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.browser.page_checks import check_page
from tests.browser.webhook_kit import HEADERS, emit, make_webhook, status
from tests.live_site import LiveReceiver, eventually


@pytest.fixture(autouse=True)
def admin(sign_in: Callable[[str], None]) -> None:
    sign_in("admin")


def test_webhook_form_shows_applicable_fields_and_generates_secret(
    page: Page, receiver: LiveReceiver
) -> None:
    """`secret` is never returned by a read (B-20, H-161); the form makes one of `whsec_` (B-22)."""
    page.goto("/new/Webhook")
    page.get_by_label("URL", exact=True).fill(receiver.url)
    page.get_by_label("Event type").select_option("Custom")
    expect(page.get_by_label("Custom event")).to_be_visible()
    expect(page.get_by_label("DocType", exact=True)).to_be_hidden()
    page.get_by_label("Event type").select_option("Document")
    expect(page.get_by_label("Custom event")).to_be_hidden()
    watched = page.get_by_label("DocType", exact=True)
    assert "Webhook Delivery" not in watched.inner_text()
    watched.select_option("Sales Order")
    page.get_by_role("button", name="Create").click()
    secret = page.locator("[data-secret=secret] input")
    expect(secret).to_have_accessible_description(re.compile("Secret is missing."))
    page.get_by_role("button", name="Generate a strong one").click()
    expect(secret).not_to_have_accessible_description(re.compile("missing"))
    made = page.locator("[data-made] code").inner_text()
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", made)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_label("Inserted")).to_have_accessible_description(
        re.compile("Select at least one event: Inserted")
    )
    page.get_by_label("Inserted").check()
    check_page(page, "webhook-new")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("configured")).to_be_visible()
    assert made not in page.content()
    page.get_by_role("button", name="Send a test event").click()
    expect(page.get_by_text("The receiver answered 204.")).to_be_visible()
    expect(page.locator(".times dt")).to_contain_text(["Connect", "Response"])
    expect(page.locator(".times dt", has_text="TLS")).to_have_count(0)  # over http
    check_page(page, "webhook")
    page.get_by_label("Timeout (seconds)").fill("99")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Timeout (seconds)")).to_be_focused()
    page.get_by_label("Timeout (seconds)").fill("20")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.get_by_text("configured")).to_be_visible()


def test_webhook_page_states_what_disabling_and_deletion_do(page: Page) -> None:
    """In the words of the command line: waiting deliveries fail."""
    name = make_webhook(page, "https://x.test/", "page.stated")
    page.goto(f"/app/Webhook/{name}")
    expect(page.get_by_label("Enabled")).to_have_accessible_description(
        re.compile("waiting deliveries fail")
    )
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("and waiting deliveries fail.")


def test_failed_test_event_shows_status(page: Page) -> None:
    with LiveReceiver(500) as broken:
        name = make_webhook(page, broken.url, "broken.tested")
        page.goto(f"/app/Webhook/{name}")
        page.get_by_role("button", name="Send a test event").click()
        expect(page.locator("[data-result]")).to_contain_text("500")


def test_webhook_page_pauses_and_resumes_webhook(page: Page, receiver: LiveReceiver) -> None:
    """B-305"""
    name = make_webhook(page, receiver.url, "page.paused")
    page.goto(f"/app/Webhook/{name}")
    page.get_by_label("For", exact=True).select_option("an hour")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".state")).to_have_text("paused")
    paused = page.locator("#webhook-pause").get_attribute("data-paused")
    since, until = map(datetime.fromisoformat, (paused or "").split())
    assert until - since == timedelta(hours=1)
    check_page(page, "webhook-paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(".state")).to_have_text("untried")


def test_webhook_page_keeps_typed_text_during_its_actions(
    page: Page, receiver: LiveReceiver
) -> None:
    """What was typed stays, and can be saved afterwards (H-158)."""
    name = make_webhook(page, receiver.url, "page.typed")
    page.goto(f"/app/Webhook/{name}")
    title = page.get_by_label("Title")
    title.fill("Typed before")
    page.get_by_role("button", name="Pause").click()
    resume = page.get_by_role("button", name="Resume")
    expect(resume).to_be_focused()
    expect(page.locator(".state")).to_have_text("paused")
    expect(page.get_by_text("Paused.", exact=True)).to_be_visible()
    resume.click()
    expect(page.get_by_role("button", name="Pause")).to_be_focused()
    expect(page.locator(".state")).to_have_text("untried")
    page.get_by_role("button", name="Send a test event").click()
    expect(page.get_by_text("The receiver answered 204.")).to_be_visible()
    expect(title).to_have_value("Typed before")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(title).to_have_value("Typed before")


def test_webhook_page_saves_after_rotation_of_its_secret(
    page: Page, receiver: LiveReceiver
) -> None:
    """The rotation makes a version of its own, which the page knows (H-158, H-168)."""
    name = make_webhook(page, receiver.url, "page.kept")
    page.goto(f"/app/Webhook/{name}")
    page.get_by_label("Title").fill("Typed before")
    page.locator("#rotate-secret").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    expect(page.locator("#webhook-rotate code")).to_have_text(re.compile(r"whsec_"))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.get_by_label("Title")).to_have_value("Typed before")


def test_webhook_changed_by_another_user_is_not_rotated_unseen(
    page: Page, receiver: LiveReceiver
) -> None:
    """Otherwise the next save of the page would revert the other change unseen (H-168)."""
    name = make_webhook(page, receiver.url, "page.changed")
    page.goto(f"/app/Webhook/{name}")
    path = f"/api/resource/Webhook/{name}"
    assert page.request.put(path, data={"title": "Theirs"}, headers=HEADERS).ok
    page.get_by_label("Title").fill("Typed before")
    page.locator("#rotate-secret").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Rotate").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_label("Title")).to_have_value("Typed before")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").first).to_contain_text("has changed since")
    page.on("dialog", lambda dialog: dialog.accept())  # leaving with unsaved changes is asked for


def test_failing_webhook_is_shown_on_desk_list_and_page(page: Page) -> None:
    """By its title, since when and why, with counts (B-240, B-241, H-164)."""
    with LiveReceiver(410) as failing:
        name = make_webhook(page, failing.url, "page.failing", title="Billing of Bozen")
        sent = [emit(page, "page.failing", {"n": n}) for n in range(3)]
        eventually(lambda: all(status(page, each) == "Failed" for each in sent))
        page.goto("/app")
        attention = page.get_by_role("region", name="Needs attention")
        expect(attention).to_contain_text(
            re.compile(
                r"Billing of Bozen fails: 3 attempts in a row, 0 waiting since \d+ \w+ \d{4}"
            )
        )
        expect(attention).to_contain_text("The receiver answered 410.")
        check_page(page, "home-attention")
        page.goto("/app/Webhook?_q=Billing")
        row = page.locator("#results tbody tr")
        expect(row).to_contain_text("Billing of Bozen")
        expect(row).to_contain_text("failing")
        expect(row).to_contain_text("0 sent, 3 failed (0 %)")
        check_page(page, "webhooks")
        row.get_by_role("link", name="Billing of Bozen").click()
        state = page.get_by_role("region", name="State")
        expect(state).to_contain_text(re.compile(r"3 failed in a row since \d+ \w+ \d{4}, "))
        expect(state.get_by_role("img")).to_be_visible()
        check_page(page, "webhook-failing")
        page.goto("/app/Webhook%20Delivery")
        page.get_by_label("Webhook", exact=True).select_option("Billing of Bozen")
        expect(page).to_have_url(re.compile(f"webhook={name}"))
        expect(page.locator("#results tbody tr")).to_have_count(3)
        expect(page.locator("#results tbody tr").first).to_contain_text("Billing of Bozen")
