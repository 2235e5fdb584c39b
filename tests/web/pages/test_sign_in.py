"""Pages as responses: headers, redirects, errors (H-33, H-154)."""

from __future__ import annotations

import re

import pytest

from tests.web.client import AppClient
from tests.web.fakes import SID, FakeGateway, app_of

PAGES = ["/login", "/forgot-password", "/reset-password", "/accept-invite"]


@pytest.mark.parametrize("path", PAGES)
async def test_page_is_html_under_a_strict_policy(client: AppClient, path: str) -> None:
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
async def test_page_has_no_inline_script_or_style(client: AppClient, path: str) -> None:
    """H-153."""
    text = (await client.ask("GET", path)).body.decode()
    assert "<style" not in text
    assert not re.search(r"\sstyle=|\son[a-z]+=", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)


async def test_root_redirects_to_the_desk_or_to_sign_in(client: AppClient) -> None:
    """`/` leads to `/login` or to `/app` (H-150)."""
    guest, known = await client.ask("GET", "/"), await client.ask("GET", "/", sid=SID)
    assert (guest.status, guest.header("Location")) == (303, "/login")
    assert (known.status, known.header("Location")) == (303, "/app")


async def test_page_redirects_a_guest_to_sign_in_and_back(
    client: AppClient,
) -> None:
    reply = await client.ask("GET", "/app/Sales%20Order?status=New")
    assert reply.status == 303
    assert reply.header("Location") == "/login?next=/app/Sales%2520Order%3Fstatus%3DNew"
    assert reply.header("Set-Cookie") is None


async def test_page_clears_the_cookie_of_an_ended_session(client: AppClient) -> None:
    reply = await client.ask("GET", "/app", sid="x" * 32)
    assert (reply.status, reply.header("Location")) == (303, "/login?ended=1")
    assert (reply.header("Set-Cookie") or "").startswith("sid=; Max-Age=0")
    expected = b"Your session has ended."
    assert expected in (await client.ask("GET", "/login?ended=1")).body
    assert expected not in (await client.ask("GET", "/login")).body
    reply = await client.ask("GET", "/app/Note", sid="x" * 32)
    assert reply.header("Location") == "/login?next=/app/Note&ended=1"


async def test_login_page_redirects_a_signed_in_user(client: AppClient) -> None:
    reply = await client.ask("GET", "/login?next=/app/Order", sid=SID)
    assert (reply.status, reply.header("Location")) == (303, "/app/Order")


BROWSER = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]


async def test_error_page_is_sent_to_a_browser(client: AppClient) -> None:
    reply = await client.ask("GET", "/login?unknown=1", headers=BROWSER)
    assert (reply.status, reply.header("Content-Type")) == (400, "text/html; charset=utf-8")
    assert b"Unknown query parameter" in reply.body
    wrong = await client.ask("POST", "/login", headers=BROWSER)
    assert (wrong.status, wrong.header("Allow")) == (405, "GET, HEAD, OPTIONS")
    assert b"<h1>" in wrong.body


@pytest.mark.parametrize("path", ["/", "/login", "/reset-password", "/accept-invite", "/app"])
async def test_error_page_is_the_envelope_for_other_clients(client: AppClient, path: str) -> None:
    """An error is a page only for a client that accepts HTML (H-154, H-56, H-57)."""
    for headers in ([], [("Accept", "*/*")]):
        reply = await client.ask("POST", path, headers=headers)
        assert (reply.status, reply.error["type"]) == (405, "MethodNotAllowedError")
        assert reply.header("Allow") == "GET, HEAD, OPTIONS"


async def test_login_page_escapes_the_notice(gateway: FakeGateway) -> None:
    """The notice is plain text (A-341)."""
    login = {"notice": "<b>one</b>\ntwo", "demoUser": 'a"b', "demoPassword": "c'd"}
    text = (await AppClient(app_of(gateway, login=login)).ask("GET", "/login")).body.decode()
    assert "&lt;b&gt;one&lt;/b&gt;\ntwo" in text
    assert 'data-user="a&#34;b"' in text


async def test_login_page_shows_a_demo_account_only_if_set(client: AppClient) -> None:
    assert b"Demo account" not in (await client.ask("GET", "/login")).body


async def test_link_page_shows_the_password_policy(gateway: FakeGateway) -> None:
    strict = AppClient(app_of(gateway, min_password_length=11, refuse_common_passwords=True))
    for path in ("/reset-password", "/accept-invite"):
        body = (await strict.ask("GET", path)).body
        assert b"At least 11 characters" in body
        assert b"None of the most common passwords" in body
        assert b"most common" not in (await AppClient(app_of(gateway)).ask("GET", path)).body


@pytest.mark.parametrize("path", PAGES)
async def test_form_without_its_script_puts_nothing_into_the_address(
    client: AppClient, path: str
) -> None:
    """No password in a query: the button waits for the script, and the form would be a POST."""
    text = (await client.ask("GET", path)).body.decode()
    assert re.findall(r"<form[^>]*>", text)
    assert all('method="post"' in form for form in re.findall(r"<form[^>]*>", text))
    submits = re.findall(r'<button[^>]*type="submit"[^>]*>', text)
    assert submits
    assert all(" disabled " in button for button in submits)
