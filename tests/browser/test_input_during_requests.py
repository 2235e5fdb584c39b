"""Responses that arrive late, or never, while the user goes on working: nothing typed is lost, and
the focus stays where the user has put it (H-158, H-166, H-167)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.browser.held_requests import JOB, OPERATION, ORDERS, RUN, HeldRequests, make_order
from tests.browser.webhook_kit import HEADERS, make_webhook
from tests.live_site import PASSWORD, LiveSite

SignIn = Callable[[str], None]
SKIP = """
() => new Promise((resolve) => {
  addEventListener("hashchange", () => setTimeout(resolve), { once: true });
  document.querySelector(".skip").click();
})
"""
COPY = """
async () => {
  const { copy } = await import(document.querySelector("script[src*='app.js']").src);
  const button = document.createElement("button");
  button.id = "line";
  button.innerHTML = 'Copy<span class="away"> the line for curl</span>';
  document.querySelector("main").append(button);
  await copy("x", button);
}
"""


def answer_jobs(page: Page, found: Callable[[Any], Iterable[int]]) -> None:
    """Answer the list of jobs with the numbers that `found` returns for the body of a request."""

    def answer(route: Route) -> None:
        jobs = [{**JOB, "id": number} for number in found(route.request.post_data_json)]
        route.fulfill(json={"jobs": jobs})

    page.route(f"{OPERATION}jobs.list", answer)


def test_sign_in_that_does_not_arrive_keeps_password(page: Page) -> None:
    """H-158: only a refusal empties the field."""
    page.goto("/login")
    page.route("**/api/login", lambda route: route.abort(), times=1)
    page.get_by_label("Name or e-mail").fill("sally")
    page.get_by_label("Password", exact=True).fill("typed once")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("did not answer")
    expect(page.get_by_label("Password", exact=True)).to_have_value("typed once")


def test_sign_in_refused_late_loses_nothing_typed_meanwhile(page: Page) -> None:
    """H-167: the form takes nothing while it waits; then it has the focus again."""
    page.goto("/login")
    held = HeldRequests(page, "**/api/login")
    name, password = page.get_by_label("Name or e-mail"), page.get_by_label("Password", exact=True)
    name.fill("saly")
    password.fill("wrong")
    page.keyboard.press("Enter")
    held.arrive()
    name.click(force=True)
    page.keyboard.type("not taken")
    error = {"type": "AuthenticationError", "message": "The name or password is wrong."}
    held.routes[0].fulfill(status=401, json={"error": error})
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.keyboard.type("next")
    expect(name).to_have_value("saly")
    expect(password).to_have_value("next")


def test_link_page_sets_the_password_that_it_shows(page: Page, site: LiveSite) -> None:
    """H-167: what was typed after Enter was shown, and no part of the password."""
    output = site.fw("user", "add", "pia", "--email", "pia@example.test", "--role", "Sales")
    found = re.search(r"#token=\S+", output)
    assert found is not None
    urls: list[str] = []
    page.on("request", lambda sent: urls.append(sent.url) if "auth/token" in sent.url else None)
    page.goto(f"/accept-invite{found.group()}")
    password = page.get_by_label("New password", exact=True)
    password.fill("a long password")
    held = HeldRequests(page, "**/api/auth/accept-invite")
    page.keyboard.press("Enter")
    held.arrive()
    page.keyboard.type(" with an end")
    shown = password.input_value()
    held.let_go()
    expect(page.get_by_role("heading", name="Your password is set")).to_be_focused()
    data = {"usr": "pia", "pwd": shown}
    assert page.request.post("/api/login", data=data, headers=HEADERS).ok
    page.evaluate(SKIP)
    expect(page.get_by_role("heading", name="Your password is set")).to_be_visible()
    assert len(urls) == 1


def test_new_api_key_takes_focus_from_no_other_form(page: Page, sign_in: SignIn) -> None:
    """H-167."""
    sign_in("hugo")
    page.goto("/account")
    held = HeldRequests(page, f"{OPERATION}api_keys.createMyAPIKey")
    page.get_by_label("Purpose").fill("late")
    page.get_by_role("button", name="Create key").click()
    held.arrive()
    name = page.get_by_label("Full name")
    name.fill("Hu")
    held.routes[0].continue_()
    expect(page.locator("#made-key code")).to_be_visible()
    page.keyboard.type("go")
    expect(name).to_have_value("Hugo")


def test_refused_api_key_takes_focus_from_no_other_form(page: Page, sign_in: SignIn) -> None:
    """H-167: a password would be typed into a legible field."""
    sign_in("hugo")
    page.goto("/account")
    held = HeldRequests(page, f"{OPERATION}api_keys.createMyAPIKey")
    page.get_by_label("Purpose").fill("refused")
    page.get_by_role("button", name="Create key").click()
    held.arrive()
    password = page.get_by_label("Current password", exact=True)
    password.fill("se")
    error = {"type": "ValidationError", "message": "Refused.", "extra": {"field": "label"}}
    held.routes[0].fulfill(status=422, json={"error": error})
    expect(page.locator("#make-key").get_by_text("Refused.")).to_be_visible()
    page.keyboard.type("cret")
    expect(password).to_have_value("secret")


def test_api_key_with_invalid_days_is_not_made(page: Page, sign_in: SignIn) -> None:
    """H-158: "30-" counted as an empty field, and the key never expired."""
    sign_in("hugo")
    page.goto("/account")
    page.get_by_label("Purpose").fill("for a month")
    days = page.get_by_label("Days until it expires")
    days.focus()
    page.keyboard.type("30-")
    page.get_by_role("button", name="Create key").click()
    expect(days).to_have_accessible_description(re.compile("enter a number", re.IGNORECASE))


def test_late_question_is_not_answered_by_typed_text(page: Page, sign_in: SignIn) -> None:
    """H-167: the space of a text revoked all keys."""
    sign_in("hugo")
    page.goto("/account")
    page.get_by_label("Purpose").fill("kept")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#api-keys li").filter(has_text="kept")).to_be_visible()
    held = HeldRequests(page, f"{OPERATION}profile.changeMyPassword")
    page.get_by_label("Current password", exact=True).fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill("another good password")
    page.get_by_role("button", name="Change password").click()
    held.arrive()
    page.get_by_label("Full name").fill("Hugo")
    held.routes[0].fulfill(json={})
    expect(page.get_by_role("heading", name="Revoke your API keys too?")).to_be_focused()
    page.keyboard.type(" H")
    page.keyboard.press("Escape")
    expect(page.get_by_text("your API keys still work")).to_be_visible()


def test_refused_save_leaves_focus_elsewhere(page: Page, sign_in: SignIn) -> None:
    """H-167."""
    sign_in("sally")
    name = make_order(page, title="Elsewhere")
    page.goto(f"{ORDERS}/{name}")
    page.on("dialog", lambda dialog: dialog.accept())
    held = HeldRequests(page, "**/api/resource/**")
    page.get_by_label("Title").fill("Again")
    page.keyboard.press("Enter")
    held.arrive()
    find = page.get_by_label("Find an id")
    find.fill("an")
    held.routes[0].abort()
    expect(page.get_by_role("alert").first).to_contain_text("did not answer")
    page.keyboard.type("other")
    expect(find).to_have_value("another")


def test_document_with_time_beyond_year_9999_is_refused_beside_its_field(
    page: Page, sign_in: SignIn
) -> None:
    """A save that cannot begin must say so (H-158)."""
    sign_in("sally")
    name = make_order(page, title="Far")
    page.goto(f"{ORDERS}/{name}")
    page.on("dialog", lambda dialog: dialog.accept())
    called = page.get_by_label("Called")
    called.fill("20266-05-01T09:00")
    page.get_by_role("button", name="Save").click()
    expect(called).to_have_attribute("aria-invalid", "true")


def test_question_waits_for_its_work_despite_escape(page: Page, sign_in: SignIn) -> None:
    """H-158: a second Escape cannot be prevented in Chromium; the result was not shown."""
    sign_in("sally")
    name = make_order(page, title="Gone")
    page.goto(f"{ORDERS}/{name}")
    held = HeldRequests(page, "**/api/resource/**")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    held.arrive()
    for _ in range(3):
        page.keyboard.press("Escape")
    held.routes[0].continue_()
    expect(page.get_by_text("Deleted.")).to_be_visible()


def test_failed_sign_out_shows_message_until_next_try(page: Page, sign_in: SignIn) -> None:
    """A part of the page that is loaded meanwhile is no answer to it."""
    sign_in("sally")
    page.goto("/app")
    page.route("**/api/logout", lambda route: route.abort(), times=1)
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#trouble")).to_contain_text("did not answer")
    page.evaluate("dispatchEvent(new Event('htmx:afterSwap'))")  # as every 5 seconds on some pages
    assert page.locator("#trouble").is_visible()


def test_stopped_replay_keeps_focus_in_its_panel(page: Page, sign_in: SignIn) -> None:
    """H-157: a button that goes takes the focus with it."""
    sign_in("admin")
    filters = [["status", "=", "Failed"], ["error", "is null"], ["code", "is null", False]]
    runs: list[dict[str, Any]] = [{**RUN, "filters": filters}]
    page.route(
        f"{OPERATION}webhooks.replayProgress", lambda route: route.fulfill(json={"run": runs[0]})
    )

    def stop(route: Route) -> None:
        runs[0] = {**RUN, "state": "stopped", "ended": "2026-01-01T00:01:00Z"}
        route.fulfill(json={"run": runs[0]})

    page.route(f"{OPERATION}webhooks.stopReplay", stop)
    page.goto("/app/Webhook%20Delivery")
    run = page.locator("#run")
    expect(run).to_contain_text("Status Failed, Error is null, Code is not null, started by admin")
    expect(run.locator("[data-count]")).to_have_text("1 of 9")
    page.locator("[data-stop-run]").press("Enter")
    expect(page.locator("[data-close-run]")).to_be_focused()
    expect(run.locator("[data-count]")).to_have_text("")
    page.keyboard.press("Enter")
    expect(page.locator("#run")).to_be_hidden()
    expect(page.locator("#main")).to_be_focused()


def test_stopped_replay_stays_closed_despite_late_response(page: Page, sign_in: SignIn) -> None:
    """H-167: the next response about its progress opened the panel again."""
    sign_in("admin")
    states = ["running"]
    page.route(
        f"{OPERATION}webhooks.replayProgress",
        lambda route: route.fulfill(json={"run": {**RUN, "state": states[-1]}}),
    )
    ended = {**RUN, "state": "stopped", "ended": "2026-01-01T00:00:01Z"}
    page.route(f"{OPERATION}webhooks.stopReplay", lambda route: route.fulfill(json={"run": ended}))
    page.goto("/app/Webhook%20Delivery")
    page.locator("#run").get_by_role("button", name="Stop").click()
    page.locator("#run").get_by_role("button", name="Close").click()
    states.append("stopped")
    with page.expect_response(f"{OPERATION}webhooks.replayProgress") as response:
        expect(page.locator("#run")).to_be_hidden()
    assert response.value.json()["run"]["state"] == "stopped"
    page.wait_for_timeout(100)
    expect(page.locator("#run")).to_be_hidden()


def test_console_keeps_tab_when_content_is_skipped_to(page: Page, sign_in: SignIn) -> None:
    """H-157: the link of each page led to the first tab; "#%" stopped the page."""
    sign_in("admin")
    answer_jobs(page, lambda _: (1,))
    page.goto("/app/console#%")
    expect(page.locator("#live")).to_have_text(re.compile("^live"))
    page.get_by_role("navigation", name="Parts of the console").get_by_text("Jobs").click()
    expect(page.locator("#jobs")).to_be_visible()
    page.evaluate(SKIP)
    assert page.locator("#jobs").is_visible()


def test_console_keeps_focus_when_pressed_button_goes(page: Page, sign_in: SignIn) -> None:
    """H-157."""
    sign_in("admin")
    answer_jobs(page, lambda urls: (1,) if "before" in urls else range(50, 0, -1))
    page.goto("/app/console#jobs-part")
    title = page.locator("#jobs h2")
    for label in ("Older", "Newest"):
        button = page.get_by_role("button", name=label)
        button.press("Enter")
        expect(button).to_be_hidden()
        expect(title).to_be_focused()


def test_console_keeps_focus_when_row_goes_behind_its_question(page: Page, sign_in: SignIn) -> None:
    """H-157."""
    sign_in("admin")
    numbers = [2, 1]
    answer_jobs(page, lambda _: numbers)
    page.route(f"{OPERATION}jobs.cancel", lambda route: route.fulfill(json={}))
    page.goto("/app/console#jobs-part")
    page.locator("#jobs tr[data-key='2']").get_by_role("button", name="Cancel").click()
    numbers.remove(2)
    page.locator("#jobs-filters").dispatch_event("change")  # as after 5 seconds
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#jobs h2")).to_be_focused()


def test_console_keeps_focus_when_row_moves(page: Page, sign_in: SignIn) -> None:
    """H-157: a row that is moved loses the focus."""
    sign_in("admin")
    numbers = [2, 1]
    answer_jobs(page, lambda _: numbers)
    page.goto("/app/console#jobs-part")
    button = page.locator("#jobs tr[data-key='1']").get_by_role("button", name="Cancel")
    button.focus()
    numbers.reverse()
    page.locator("#jobs-filters").dispatch_event("change")  # as after 5 seconds
    expect(page.locator("#jobs tbody tr").first).to_have_attribute("data-key", "1")
    expect(button).to_be_focused()


def test_copy_button_keeps_its_name_for_screen_readers(page: Page, sign_in: SignIn) -> None:
    """H-157."""
    sign_in("sally")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/app")
    page.clock.install()
    page.evaluate(COPY)
    line = page.locator("#line")
    expect(line).to_have_text("Copied the line for curl")
    page.clock.run_for(5000)
    expect(line).to_have_text("Copy the line for curl")


def test_countdown_of_lock_is_read_out_at_its_start_and_end(page: Page) -> None:
    """H-157: a screen reader read it out each second."""
    page.clock.install()
    page.goto("/login")
    error = {"type": "TooManyRequestsError", "message": "…", "extra": {"retryAfter": 3}}
    page.route("**/api/login", lambda route: route.fulfill(status=429, json={"error": error}))
    page.get_by_label("Name or e-mail").fill("sally")
    page.get_by_label("Password", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    message = page.get_by_role("alert")
    expect(message).to_have_text("Too many attempts. Try again in 3 seconds.")
    assert message.get_attribute("aria-live") is None
    page.clock.run_for(1000)
    expect(message).to_have_text("Too many attempts. Try again in 2 seconds.")
    expect(message).to_have_attribute("aria-live", "off")
    page.clock.run_for(3000)
    expect(message).to_have_text("You can try again now.")
    assert message.get_attribute("aria-live") is None


def test_forgot_password_page_shows_the_name_that_it_has_sent(page: Page) -> None:
    """H-167."""
    page.goto("/forgot-password")
    held = HeldRequests(page, "**/api/auth/forgot-password")
    page.get_by_label("Name or e-mail").fill("sally")
    page.keyboard.press("Enter")
    held.arrive()
    page.keyboard.type(" and more")
    expect(page.get_by_label("Name or e-mail")).to_have_value("sally")
    held.let_go()
    expect(page.locator("#sent strong")).to_have_text("sally")


def test_document_is_not_saved_by_keys_beside_a_question(page: Page, sign_in: SignIn) -> None:
    """H-167: Ctrl+S saved the form behind the question."""
    sign_in("sally")
    name = make_order(page, title="Asked")
    page.goto(f"{ORDERS}/{name}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_label("Title").fill("Not saved yet")
    page.get_by_role("button", name="Delete").click()
    saves: list[str] = []
    page.on("request", lambda sent: saves.append(sent.url) if sent.method == "PUT" else None)
    page.keyboard.press("Control+s")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert saves == []
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved.")).to_be_visible()


def test_console_row_never_moves_focus_to_another_action(page: Page, sign_in: SignIn) -> None:
    """A job that became scheduled had "Retry" where "Cancel" had the focus."""
    sign_in("admin")
    states = ["ready", "scheduled"]

    def answer(route: Route) -> None:
        state = states.pop(0) if len(states) > 1 else states[0]
        route.fulfill(json={"jobs": [{**JOB, "id": 1, "state": state}]})

    page.route(f"{OPERATION}jobs.list", answer)
    page.goto("/app/console#jobs-part")
    row = page.locator("#jobs tr[data-key='1']")
    row.get_by_role("button", name="Cancel").focus()
    page.get_by_role("combobox", name="State").dispatch_event("change")
    expect(row.get_by_role("button", name="Retry")).to_be_visible()
    expect(row.get_by_role("button", name="Cancel")).to_be_focused()


def test_console_counts_cancelled_jobs_although_a_later_batch_failed(
    page: Page, sign_in: SignIn
) -> None:
    """H-158."""
    sign_in("admin")
    answer_jobs(page, lambda _: (1,))
    answers = [{"changed": 500, "next": 9}, None, {"changed": 7, "next": 8}, None]

    def cancel(route: Route) -> None:
        body = answers.pop(0)
        error = {"error": {"type": "OverloadedError", "message": "The service is busy."}}
        route.fulfill(status=200 if body else 503, json=body or error)

    page.route(f"{OPERATION}jobs.cancelMatching", cancel)
    page.goto("/app/console#jobs-part")
    page.get_by_role("button", name="Cancel all").click()
    question = page.get_by_role("dialog")
    for left in (2, 0):
        question.get_by_role("button", name="Cancel all").click()
        expect(question.get_by_role("alert")).to_have_text("The service is busy.")
        assert len(answers) == left
    question.get_by_role("button", name="Keep them").click()
    expect(page.locator("#flash")).to_have_text("507 jobs are cancelled.")


def test_console_does_not_read_jobs_of_a_hidden_tab(page: Page, sign_in: SignIn) -> None:
    """An action that ended after its tab was left began to read them again."""
    sign_in("admin")
    answer_jobs(page, lambda _: (1,))
    page.goto("/app/console#jobs-part")
    held = HeldRequests(page, f"{OPERATION}jobs.cancel")
    job = page.locator("#jobs tr[data-key='1']")
    job.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    held.arrive()
    page.evaluate("location.hash = '#'")
    expect(page.locator("#jobs")).to_be_hidden()
    reads: list[str] = []
    page.on("request", lambda sent: reads.append(sent.url) if "jobs.list" in sent.url else None)
    held.routes[0].fulfill(json={})
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve))")
    assert reads == []


def test_webhook_page_follows_a_change_during_its_reload(page: Page, sign_in: SignIn) -> None:
    """B-305: the buttons of the panel stayed disabled, because htmx delays the second request."""
    sign_in("admin")
    name = make_webhook(page, "http://127.0.0.1:9/", "changed.twice")
    page.clock.install()
    page.goto(f"/app/Webhook/{name}")
    expect(page.get_by_role("button", name="Pause")).to_be_enabled()
    pattern = f"**/app/Webhook/{name}"
    reloads = HeldRequests(page, pattern)

    def pause(seconds: int | None, shown: str) -> None:
        path = "/api/method/core.services.webhooks.pause"
        body = {"webhook": name, "seconds": seconds}
        assert page.request.post(path, data=body, headers=HEADERS).ok
        page.clock.run_for(5000)
        state = page.locator("#webhook-state")
        expect(state).to_have_attribute("data-paused", re.compile(shown))

    pause(None, r"Z $")
    reloads.arrive()
    answer = reloads.routes[0].fetch()
    pause(900, r"Z \S")
    reloads.routes[0].fulfill(response=answer)
    reloads.let_go()
    panel = page.get_by_role("region", name="Pause")
    expect(panel).to_contain_text(re.compile(r", until (?!resumed)"))
    expect(panel.get_by_role("button", name="Resume")).to_be_enabled()


def test_webhook_page_follows_pauses_by_other_users(page: Page, sign_in: SignIn) -> None:
    """B-305: its panel offered to pause what was paused."""
    sign_in("admin")
    name = make_webhook(page, "http://127.0.0.1:9/", "paused.elsewhere")
    page.clock.install()
    page.goto(f"/app/Webhook/{name}")
    page.get_by_label("Title").fill("being typed")
    for act, offered in (("pause", "Resume"), ("resume", "Pause")):
        path = f"/api/method/core.services.webhooks.{act}"
        assert page.request.post(path, data={"webhook": name}, headers=HEADERS).ok
        page.clock.run_for(5000)
        expect(page.get_by_role("button", name=offered)).to_be_enabled()
    page.keyboard.type(" still")
    expect(page.get_by_label("Title")).to_have_value("being typed still")
    page.on("dialog", lambda dialog: dialog.accept())
