"""The four public routes (A-210)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import TooManyRequestsError
from tests.web.client import AppClient
from tests.web.fakes import SID, TOKEN, FakeGateway

PEER = "203.0.113.9"
BODIES: dict[str, dict[str, Any]] = {
    "forgot-password": {"usr": "ann"},
    "token": {"token": TOKEN},
    "reset-password": {"token": TOKEN, "password": "a password"},
    "accept-invite": {"token": TOKEN, "password": "a password"},
}


@pytest.mark.parametrize("name", BODIES)
async def test_recovery_needs_no_csrf_header_and_no_session(client: AppClient, name: str) -> None:
    """The routes ask for no CSRF header and no session (A-210, H-81)."""
    reply = await client.ask("POST", f"/api/auth/{name}", BODIES[name], csrf=False)
    assert reply.status == 200
    assert reply.header("set-cookie") is None
    assert reply.header("cache-control") == "no-store"


@pytest.mark.parametrize("typed", [" Ann ", "", "  ", "x" * 400, "\u202eann"])
async def test_forgot_password_passes_on_text_and_address(
    client: AppClient, gateway: FakeGateway, typed: str
) -> None:
    """The response is `{ok: true}` to every well-formed request (A-211, A-216)."""
    reply = await client.ask("POST", "/api/auth/forgot-password", {"usr": typed})
    assert reply.json == {"ok": True}
    assert gateway.calls == [("forgot_password", typed, PEER)]


async def test_token_returns_the_purpose_of_a_link(client: AppClient) -> None:
    """A-219."""
    reply = await client.ask("POST", "/api/auth/token", {"token": TOKEN})
    assert reply.json == {
        "kind": "recovery",
        "user": "ann",
        "fullName": "Ann Lee",
        "expires": "2026-02-28T12:00:00.000Z",
    }


async def test_reset_and_acceptance_pass_on_token_password_and_name(
    client: AppClient, gateway: FakeGateway
) -> None:
    """A password is taken as it is, control characters and all (H-14, A-220)."""
    odd = {"token": TOKEN, "password": " \t\x07odd "}
    await client.ask("POST", "/api/auth/reset-password", odd)
    reply = await client.ask("POST", "/api/auth/accept-invite", {**odd, "fullName": "Ann"})
    assert reply.json == {"ok": True}
    assert ("reset_password", TOKEN, " \t\x07odd ", PEER) in gateway.calls
    assert ("accept_invite", TOKEN, " \t\x07odd ", "Ann", PEER) in gateway.calls


@pytest.mark.parametrize("name", ["token", "reset-password", "accept-invite"])
async def test_token_that_is_unknown_is_400(client: AppClient, name: str) -> None:
    reply = await client.ask("POST", f"/api/auth/{name}", {**BODIES[name], "token": "A" * 32})
    assert (reply.status, reply.error["type"]) == (400, "InvalidTokenError")
    assert "extra" not in reply.error


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("forgot-password", {}, "usr"),
        ("forgot-password", {"usr": 1}, "usr"),
        ("forgot-password", {"usr": "a\x00b"}, "usr"),
        ("forgot-password", {"usr": "ann", "more": 1}, "more"),
        ("token", {"token": None}, "token"),
        ("token", {"token": "a\nb"}, "token"),
        ("reset-password", {"token": TOKEN}, "password"),
        ("reset-password", {"token": TOKEN, "password": "x", "fullName": "Ann"}, "fullName"),
        ("accept-invite", {"token": TOKEN, "password": "x", "fullName": "a\r\nb"}, "fullName"),
        ("accept-invite", {"token": TOKEN, "password": "x", "fullName": None}, "fullName"),
        ("accept-invite", {"token": TOKEN, "password": "\ud800"}, "password"),
    ],
)
async def test_recovery_names_the_field_of_a_malformed_body(
    client: AppClient, gateway: FakeGateway, name: str, body: dict[str, Any], field: str
) -> None:
    """A malformed request moves no counter (H-16)."""
    reply = await client.ask("POST", f"/api/auth/{name}", body)
    assert (reply.status, reply.error["type"]) == (400, "BadRequestError")
    assert reply.error["extra"] == {"field": field}
    assert gateway.calls == []


async def test_recovery_ignores_the_session_of_a_manager(client: AppClient) -> None:
    """The public response of `forgot-password` never changes (A-212, A-195)."""
    reply = await client.ask(
        "POST", "/api/auth/forgot-password", {"usr": "ann"}, headers=[("cookie", f"sid={SID}")]
    )
    assert reply.json == {"ok": True}


async def test_token_is_429_over_the_throttle(
    client: AppClient, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(token: str, address: str) -> None:
        raise TooManyRequestsError(12.2)

    monkeypatch.setattr(gateway, "link_facts", refuse)
    reply = await client.ask("POST", "/api/auth/token", {"token": TOKEN})
    assert (reply.status, reply.header("retry-after")) == (429, "13")
    assert reply.error["extra"] == {"retryAfter": 13}


@pytest.mark.parametrize("name", ["token", "reset-password", "accept-invite"])
async def test_link_from_a_full_address_is_refused_by_a_read(
    client: AppClient, gateway: FakeGateway, name: str
) -> None:
    """The look-up of the link charges the address, and a charge is a write (A-82, A-95)."""
    gateway.throttled.add(PEER)
    reply = await client.ask("POST", f"/api/auth/{name}", BODIES[name])
    assert (reply.status, gateway.calls) == (429, [])


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_recovery_accepts_post_only(
    client: AppClient, gateway: FakeGateway, method: str
) -> None:
    """Mail scanners open links, so only a POST is taken (A-188)."""
    reply = await client.ask(method, "/api/auth/reset-password")
    assert (reply.status, gateway.calls) == (405, [])
