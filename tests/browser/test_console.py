"""The console page: the actors and receivers of the process, and acts, each an Audit Event."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.held_requests import RECEIVER, VIEW
from tests.browser.page_checks import check_page
from tests.live_site import PASSWORD, SECRET, LiveReceiver, LiveSite, eventually

SignIn = Callable[[str], None]
HEADERS = {"X-FW-CSRF": "1"}


@pytest.fixture(autouse=True)
def admin(sign_in: SignIn) -> None:
    sign_in("admin")


def row(page: Page, board: str, name: str) -> Any:
    header = page.get_by_role("rowheader", name=name, exact=True)
    return page.locator(f"#{board} tbody tr").filter(has=header)


def tab(page: Page, title: str) -> None:
    page.get_by_role("navigation", name="Parts of the console").get_by_text(title).click()


def enqueue(site: LiveSite, error: str) -> int:
    """Return the number of a job that failed once, and is due in an hour."""
    with closing(sqlite3.connect(site.folder / "data" / "fw.db", isolation_level=None)) as database:
        later = round(time.time() * 1000) + 3_600_000
        made = database.execute(
            "INSERT INTO fw_job (queue, function, next_at, created, error)"
            " VALUES ('app', 'shop.x', ?, ?, ?)",
            (later, later, error),
        )
    return made.lastrowid or 0


def audited(page: Page, action: str) -> list[dict[str, Any]]:
    query = (
        f'/api/resource/Audit Event?filters=[["action","=","{action}"]]&fields=["target","actor"]'
    )
    found: list[dict[str, Any]] = page.request.get(query).json()["data"]
    return found


def make_webhook(page: Page, receiver: LiveReceiver) -> str:
    """Make a Webhook for `console.seen`; return the origin of its receiver."""
    hook = {"event_type": "Custom", "custom_event": "console.seen", "secret": SECRET}
    made = page.request.post(
        "/api/resource/Webhook", data={**hook, "url": receiver.url}, headers=HEADERS
    )
    assert made.ok, made.text()
    return receiver.url.removesuffix("/hook")


def emit(page: Page, name: str = "console.seen") -> str:
    """Return the delivery of an event."""
    event = {"name": name, "data": {}}
    emitted = page.request.post(
        "/api/method/core.services.webhooks.emit", data=event, headers=HEADERS
    )
    assert emitted.ok, emitted.text()
    (delivery,) = emitted.json()["deliveries"]
    return str(delivery)


def fail_one(page: Page) -> str:
    """Return a delivery that has failed: its receiver answered 400."""
    with LiveReceiver(400) as refusing:
        hook = {"event_type": "Custom", "custom_event": "console.failed", "secret": SECRET}
        made = page.request.post(
            "/api/resource/Webhook", data={**hook, "url": refusing.url}, headers=HEADERS
        )
        assert made.ok, made.text()
        delivery = emit(page, "console.failed")
        eventually(lambda: len(refusing.got) == 1)
    return delivery


@pytest.fixture
def receiver() -> Iterator[LiveReceiver]:
    """A receiver of this test alone, without deliveries of other tests."""
    with LiveReceiver(204) as receiver:
        yield receiver


def test_console_shows_actors_and_receivers_and_acts_on_them(
    page: Page, receiver: LiveReceiver
) -> None:
    origin = make_webhook(page, receiver)
    emit(page)
    eventually(lambda: len(receiver.got) == 1)
    page.goto("/app/console")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.locator("#graph-deliveries [data-begin]")).to_have_text(re.compile("ago$"))
    for name in ("service", "dispatcher", "mailer", "outcomes", "deliveries", "lockouts"):
        expect(row(page, "tree", name).get_by_text("running")).to_be_visible()
    tab(page, "Receivers")
    expect(page.locator("#tree")).to_be_hidden()
    expect(row(page, "receivers", origin).get_by_text("healthy")).to_be_visible()

    row(page, "receivers", origin).get_by_role("button", name="Pause").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Pause").press("Enter")
    expect(row(page, "receivers", origin).get_by_text("paused")).to_be_visible()
    expect(row(page, "receivers", origin).get_by_role("button", name="Resume")).to_be_focused()
    delivery = emit(page)
    expect(row(page, "receivers", origin).locator("td").nth(2)).to_have_text("1")  # waiting
    check_page(page, "console-receivers")
    tab(page, "Deliveries")
    expect(row(page, "upcoming", delivery)).to_be_visible()
    assert len(receiver.got) == 1
    tab(page, "Actors")
    row(page, "tree", "dispatcher").get_by_role("button", name="Trace").click()
    check_page(page, "console")
    tab(page, "Traces")
    expect(page.get_by_label("Messages to dispatcher")).to_contain_text("Poll()")
    tab(page, "Receivers")
    row(page, "receivers", origin).get_by_role("button", name="Resume").click()
    expect(row(page, "receivers", origin).get_by_text("healthy")).to_be_visible()
    eventually(lambda: receiver.ids.count(delivery) == 1)
    expect(row(page, "upcoming", delivery)).to_have_count(0)

    tab(page, "Actors")
    restarts = row(page, "tree", "mailer").locator("td").nth(3)
    expect(restarts).to_have_text("0")
    row(page, "tree", "mailer").get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(restarts).to_have_text("1")
    expect(row(page, "tree", "mailer").get_by_text("running")).to_be_visible()

    assert audited(page, "console.pause") == [{"target": origin, "actor": "admin"}]
    assert audited(page, "console.resume") == [{"target": origin, "actor": "admin"}]
    assert audited(page, "console.trace") == [{"target": "dispatcher", "actor": "admin"}]
    assert audited(page, "console.restart") == [{"target": "mailer", "actor": "admin"}]


def test_console_unlocks_identifier_and_replays_failure(page: Page, site: LiveSite) -> None:
    for _ in range(3):
        httpx.post(f"{site.url}/api/login", json={"usr": "demo", "pwd": "x"}, headers=HEADERS)
    page.goto("/app/console#locks-title")  # as the desk's home leads there
    row(page, "locks", "demo").get_by_role("button", name="Unlock").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").press("Enter")
    expect(row(page, "locks", "demo")).to_have_count(0)
    expect(page.get_by_role("heading", name="Lockouts")).to_be_focused()
    freed = {"usr": "demo", "pwd": PASSWORD}
    assert httpx.post(f"{site.url}/api/login", json=freed, headers=HEADERS).status_code == 200

    failed = fail_one(page)
    tab(page, "Failures")
    page.set_viewport_size({"width": 320, "height": 640})
    box = row(page, "failed", failed).get_by_role("button", name="Replay").bounding_box()
    assert box is not None, "no button"
    assert box["x"] + box["width"] <= 320, "beyond the edge"
    cause = page.locator("#causes tbody tr").filter(has_text="the receiver answered 400")
    expect(cause.locator("td").nth(1)).to_have_text("1")
    check_page(page, "console-failures")
    row(page, "failed", failed).get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.get_by_text(f"{failed}: Queued again.")).to_be_visible()
    assert audited(page, "console.unlock") == [{"target": "demo", "actor": "admin"}]
    replayed = {"target": failed, "actor": "admin"}
    assert replayed in audited(page, "webhook.replay")


def show(page: Page, view: dict[str, Any], part: str) -> None:
    """Open a part of the console with a view of a service that does not exist."""
    data = f"data: {json.dumps(view)}\n\n"
    page.route(
        "**/app/console/events",
        lambda route: route.fulfill(body=data, content_type="text/event-stream"),
    )
    page.goto(f"/app/console#{part}")


def test_console_names_webhooks_by_their_titles(page: Page) -> None:
    """And a deleted one by its id."""
    delivery = {"event": "e", "status": "Retrying", "attempts": 1, "at": VIEW["at"]}
    store = {
        **VIEW["store"],
        "webhookLabels": {"wh1": "Shop"},
        "inFlight": [{**delivery, "delivery": "d1", "webhook": "wh1"}],
        "upcoming": [{**delivery, "delivery": "d2", "webhook": "wh1"}],
        "failed": [{**delivery, "delivery": "d3", "webhook": "wh2", "error": "status: 503"}],
        "pausedWebhooks": [{"webhook": "wh1", "since": VIEW["at"], "until": None}],
    }
    show(page, {**VIEW, "store": store}, "deliveries-part")
    for board, key in (("flight", "d1"), ("upcoming", "d2"), ("paused", "wh1")):
        link = page.locator(f'#{board} tr[data-key="{key}"] a', has_text="Shop")
        expect(link).to_have_attribute("href", "/app/Webhook/wh1")
    expect(page.locator('#failed tr[data-key="d3"]')).to_contain_text("wh2")


def test_console_offers_no_pause_of_receiver_known_from_the_store_alone(page: Page) -> None:
    """It was refused with 404 for each receiver that failed before the last restart."""
    cold = {**RECEIVER, "origin": "https://cold.test:443", "window": 0, "limit": 0}
    show(page, {**VIEW, "receivers": [RECEIVER, cold]}, "receivers-part")
    warm = row(page, "receivers", "https://x.test:443")
    expect(warm.get_by_role("button", name="Pause")).to_be_visible()
    expect(row(page, "receivers", "https://cold.test:443")).to_contain_text("failing")
    expect(row(page, "receivers", "https://cold.test:443").get_by_role("button")).to_have_count(0)


def test_console_is_for_system_managers_only(page: Page, sign_in: SignIn) -> None:
    page.context.clear_cookies()
    page.goto("/app/console")
    expect(page).to_have_url(re.compile(r"/login\?next="))
    sign_in("sally")
    page.goto("/app/console")
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    assert page.request.get("/app/console/events").status == 403
    for act, body in (
        ("pause", {"receiver": "https://x.test:443"}),
        ("resume", {"receiver": "https://x.test:443"}),
        ("restart", {"actor": "mailer"}),
        ("trace", {"actor": "mailer"}),
        ("unlock", {"user": "demo"}),
    ):
        path = f"/api/method/core.services.console.{act}"
        assert page.request.post(path, data=body, headers=HEADERS).status == 403


def test_console_act_on_unknown_target_answers_404(page: Page) -> None:
    for act, body in (
        ("pause", {"receiver": "https://x.test:443"}),
        ("restart", {"actor": "deliveries"}),
        ("trace", {"actor": "nobody"}),
        ("unlock", {"user": "nobody"}),
    ):
        path = f"/api/method/core.services.console.{act}"
        answer = page.request.post(path, data=body, headers=HEADERS)
        assert (answer.status, answer.json()["error"]["type"]) == (404, "NotFoundError")


def test_console_filters_and_cancels_scheduled_job(page: Page, site: LiveSite) -> None:
    """Each act is an Audit Event (O-223)."""
    number = enqueue(site, error="RuntimeError: " + "a long explanation " * 20)
    page.goto("/app/console#jobs-part")
    job = row(page, "jobs", str(number))
    expect(job).to_contain_text("scheduled")
    shown = job.get_by_text("a long explanation").bounding_box()
    assert shown is not None, "no error"
    assert shown["width"] < 400, "on one line, which puts the further columns far beyond the edge"
    assert shown["height"] < 100, "all of its lines"
    page.get_by_label("State").select_option("failed")
    expect(job).to_have_count(0)
    page.get_by_label("State").select_option("")
    expect(job).to_be_visible()
    check_page(page, "console-jobs")
    job.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(job).to_have_count(0)
    assert audited(page, "job.cancel") == [{"target": str(number), "actor": "admin"}]


WIDER: Final = """
() => [...document.querySelectorAll("#tree .scroll")]
  .filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => [each.scrollWidth, each.clientWidth])
"""


def test_console_actors_fit_the_window(page: Page) -> None:
    """H-170: with long names, large numbers and an error, no column is beyond the edge."""
    node = {
        "kind": "actor", "state": "suspended", "rate": 1234.5, "restarts": 123, "depth": 1024,
        "lastError": "RuntimeError: unexpectedly-long", "capacity": 1024, "alive": 10000,
        "handled": 123456789, "failed": 12345, "level": 2,
    }  # fmt: skip
    nodes = [
        {**node, "name": name, "path": name, "kind": kind}
        for name, kind in (("console_history@16", "actor"), ("deliveries@16", "pool"))
    ]
    page.set_viewport_size({"width": 1280, "height": 800})
    show(page, {**VIEW, "tree": nodes}, "actors-part")
    expect(row(page, "tree", "console_history@16")).to_be_visible()
    assert page.evaluate(WIDER) == []
