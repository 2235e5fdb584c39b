"""Forms: values are stored as typed, and lost or foreign responses are reported (H-158, H-210)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.webhook_kit import HEADERS
from tests.live_site import LiveSite


@pytest.fixture(autouse=True)
def sally(sign_in: Callable[[str], None]) -> None:
    sign_in("sally")


def answering(status: int, body: str) -> Callable[[Route], None]:
    return lambda route: route.fulfill(status=status, body=body)


def test_table_save_leaves_line_breaks_of_unchanged_rows(page: Page) -> None:
    """A browser's field makes LF of every line break (H-210, D-14)."""
    rows = [{"text": "a\r\nb\rc\n"}, {"text": "\n<b>&lt;"}, {"remark": "Before"}]
    made = page.request.post("/api/resource/Complaint", data={"replies": rows}, headers=HEADERS)
    name = made.json()["data"]["name"]
    page.goto(f"/app/Complaint/{name}")
    page.get_by_label("Remark", exact=True).last.fill("Changed")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    saved = page.request.get(f"/api/resource/Complaint/{name}").json()["data"]["replies"]
    assert [row["text"] for row in saved[:2]] == [row["text"] for row in rows[:2]]
    assert saved[2]["remark"] == "Changed"


def test_table_with_number_that_browsers_change_is_not_saved(page: Page, site: LiveSite) -> None:
    """H-210: each row is sent; 2^53 + 1 in one of them became 2^53."""
    rows = [{"remark": "One", "facts": {"id": 1}}, {"remark": "Two"}]
    made = page.request.post("/api/resource/Complaint", data={"replies": rows}, headers=HEADERS)
    name = made.json()["data"]["name"]
    with closing(sqlite3.connect(site.folder / "data" / "fw.db")) as connection, connection:
        change = "UPDATE doc_reply SET facts = ? WHERE parent = ? AND remark = 'One'"
        connection.execute(change, ('{"id": 9007199254740993}', name))
    page.goto(f"/app/Complaint/{name}")
    page.get_by_label("Remark", exact=True).last.fill("Changed")
    page.get_by_role("button", name="Save").click()
    facts = page.get_by_label("Facts").first
    expect(facts).to_have_accessible_description(re.compile("The browser would change this value"))
    facts.fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()


def test_text_beyond_the_length_of_its_field_is_not_cut(page: Page) -> None:
    """The browser would cut a pasted text without a word (H-210)."""
    page.goto("/new/Customer")
    page.get_by_label("Title").fill("Long")
    city = page.get_by_label("City")
    city.focus()
    page.keyboard.insert_text("B" * 141)
    page.get_by_role("button", name="Create").click()
    expect(city).to_have_accessible_description("city must have at most 140 characters.")
    expect(city).to_have_value("B" * 141)
    page.on("dialog", lambda dialog: dialog.accept())


def test_response_of_a_proxy_has_a_message(page: Page) -> None:
    """H-158: its content is a page or JSON of another form, or nothing."""
    page.goto("/new/Customer")
    message = page.locator("#document > .message")
    for status, body, expected in (
        (413, "<h1>Request Entity Too Large</h1>", "This is too large"),
        (429, '{"message": "API rate limit exceeded"}', "too many requests"),
        (403, '{"error": "Forbidden"}', "The service answered 403"),
        (400, '{"error": {}}', "The service answered 400"),
        (502, "", "did not answer"),
        (200, '"OK"', "did not answer"),
    ):
        page.route("**/api/resource/**", answering(status, body))
        page.get_by_label("Title").fill(f"For {status}")
        page.get_by_role("button", name="Create").click()
        expect(message).to_contain_text(expected)
        page.unroute("**/api/resource/**")
    page.on("dialog", lambda dialog: dialog.accept())


def test_refusal_of_a_busy_service_is_no_lost_response(page: Page) -> None:
    """H-158: the service has answered, so that nothing was created."""
    page.goto("/new/Customer")
    page.get_by_label("Title").fill("Not yet")
    refusal = {"error": {"type": "OverloadedError", "message": "Too much to do."}}
    page.route("**/api/resource/Customer", lambda route: route.fulfill(status=503, json=refusal))
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#document > .message")).to_have_text("Too much to do.")
    page.on("dialog", lambda dialog: dialog.accept())


def test_lost_response_of_creation_warns_of_a_second_document(page: Page) -> None:
    """H-158: another try would create the document twice."""
    page.goto("/new/Customer")
    page.get_by_label("Title").fill("Once")
    page.route("**/api/resource/Customer", lambda route: route.fulfill(status=504, body="<h1>"))
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#document > .message")).to_contain_text("may have been created")
    expect(page.get_by_label("Title")).to_have_value("Once")
    page.on("dialog", lambda dialog: dialog.accept())


@pytest.mark.parametrize(("key", "code"), [("S", "KeyS"), ("ы", "KeyS"), ("s", "KeyI")])
def test_form_is_saved_by_keys_of_any_layout(page: Page, key: str, code: str) -> None:
    """Caps Lock is on, or the layout has other letters, or others in their places (H-157)."""
    page.goto("/new/Customer")
    page.evaluate(
        "(keys) => document.body.dispatchEvent(new KeyboardEvent('keydown', keys))",
        {"key": key, "code": code, "ctrlKey": True, "bubbles": True},
    )
    expect(page.get_by_label("Title")).to_have_accessible_description("Title is missing.")
