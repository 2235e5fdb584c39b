"""Pages as answers: headers, redirects, refusals (H-33, H-154)."""

from __future__ import annotations

import re

import pytest

from tests.web.client import AppClient
from tests.web.fakes import SID, FakeGateway, app_of

PAGES = ["/login", "/forgot-password", "/reset-password", "/accept-invite"]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_html_under_a_strict_policy(client: AppClient, path: str) -> None:
    reply = await client.ask("GET", path)
    assert reply.status == 200
    assert reply.header("Content-Type") == "text/html; charset=utf-8"
    policy = reply.header("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.header("Referrer-Policy") == "no-referrer"
    assert reply.header("X-Content-Type-Options") == "nosniff"
    assert reply.header("Cache-Control") == "no-store"


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_holds_no_inline_script_or_style(client: AppClient, path: str) -> None:
    text = (await client.ask("GET", path)).body.decode()
    assert "<style" not in text
    assert not re.search(r"\sstyle=|\son[a-z]+=", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)


async def test_the_front_door_leads_to_the_desk_or_to_sign_in(client: AppClient) -> None:
    """`/` leads to `/login` or to `/app` (H-150)."""
    guest, known = await client.ask("GET", "/"), await client.ask("GET", "/", sid=SID)
    assert (guest.status, guest.header("Location")) == (303, "/login")
    assert (known.status, known.header("Location")) == (303, "/app")


async def test_a_page_for_the_signed_in_leads_a_guest_to_sign_in_and_back(
    client: AppClient,
) -> None:
    reply = await client.ask("GET", "/app/Sales%20Order?status=New")
    assert reply.status == 303
    assert reply.header("Location") == "/login?next=/app/Sales%2520Order%3Fstatus%3DNew"
    assert reply.header("Set-Cookie") is None


async def test_a_session_that_has_ended_is_taken_away(client: AppClient) -> None:
    reply = await client.ask("GET", "/app", sid="x" * 32)
    assert (reply.status, reply.header("Location")) == (303, "/login")
    assert (reply.header("Set-Cookie") or "").startswith("sid=; Max-Age=0")


async def test_who_is_signed_in_needs_no_sign_in_page(client: AppClient) -> None:
    reply = await client.ask("GET", "/login?next=/app/Order", sid=SID)
    assert (reply.status, reply.header("Location")) == (303, "/app/Order")


BROWSER = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]


async def test_a_refusal_of_a_page_is_a_page_to_a_browser(client: AppClient) -> None:
    reply = await client.ask("GET", "/login?unknown=1", headers=BROWSER)
    assert (reply.status, reply.header("Content-Type")) == (400, "text/html; charset=utf-8")
    assert b"Unknown query parameter" in reply.body
    wrong = await client.ask("POST", "/login", headers=BROWSER)
    assert (wrong.status, wrong.header("Allow")) == (405, "GET, HEAD, OPTIONS")
    assert b"<h1>" in wrong.body


@pytest.mark.parametrize("path", ["/", "/login", "/reset-password", "/accept-invite", "/app"])
async def test_a_refusal_of_a_page_is_the_envelope_to_whom_asks_for_no_page(
    client: AppClient, path: str
) -> None:
    """Every refusal is in the envelope, or a page for who asks for one (H-154, H-56, H-57)."""
    for headers in ([], [("Accept", "*/*")]):
        reply = await client.ask("POST", path, headers=headers)
        assert (reply.status, reply.error["type"]) == (405, "MethodNotAllowedError")
        assert reply.header("Allow") == "GET, HEAD, OPTIONS"


async def test_the_notice_is_shown_as_written_and_never_as_html(gateway: FakeGateway) -> None:
    """The notice is plain text (A-341)."""
    login = {"notice": "<b>one</b>\ntwo", "demoUser": 'a"b', "demoPassword": "c'd"}
    text = (await AppClient(app_of(gateway, login=login)).ask("GET", "/login")).body.decode()
    assert "&lt;b&gt;one&lt;/b&gt;\ntwo" in text
    assert 'data-user="a&#34;b"' in text


async def test_no_demo_account_is_offered_unless_there_is_one(client: AppClient) -> None:
    assert b"Demo account" not in (await client.ask("GET", "/login")).body


async def test_the_policy_of_the_site_is_told(gateway: FakeGateway) -> None:
    strict = AppClient(app_of(gateway, min_password_length=11, refuse_common_passwords=True))
    for path in ("/reset-password", "/accept-invite"):
        told = (await strict.ask("GET", path)).body
        assert b"At least 11 characters" in told
        assert b"None of the most common passwords" in told
        assert b"most common" not in (await AppClient(app_of(gateway)).ask("GET", path)).body


@pytest.mark.parametrize("path", PAGES)
async def test_a_form_that_is_sent_before_its_script_is_there_tells_no_address_what_it_holds(
    client: AppClient, path: str
) -> None:
    """No password in a query: the button waits for the script, and the form would be a POST."""
    text = (await client.ask("GET", path)).body.decode()
    assert re.findall(r"<form[^>]*>", text)
    assert all('method="post"' in form for form in re.findall(r"<form[^>]*>", text))
    submits = re.findall(r'<button[^>]*type="submit"[^>]*>', text)
    assert submits
    assert all(" disabled " in button for button in submits)
