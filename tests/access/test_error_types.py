"""Every `error.type`, each met once over HTTP in the one envelope (H-50, H-51 to H-67)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.http_site import PEER, HttpSite
from tests.web.client import AppClient, ClientResponse

Scenario = Callable[[HttpSite, str], Awaitable[ClientResponse]]
ROWS: dict[str, tuple[int, Scenario]] = {}


def row(kind: str, status: int) -> Callable[[Scenario], Scenario]:
    """Register a scenario, which causes the error `kind`."""

    def enter(scenario: Scenario) -> Scenario:
        ROWS[kind] = (status, scenario)
        return scenario

    return enter


@row("BadRequestError", 400)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.op("users.unlockUser", {"usr": "x"}, sid=sid)


@row("InvalidTokenError", 400)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.ask("POST", "/api/auth/token", {"token": "x" * 32})


@row("AuthenticationError", 401)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.login("boss", "wrong")


@row("PermissionDeniedError", 403)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.ask("PUT", "/api/resource/User/boss", {"fullName": "x"}, sid=sid)


@row("CSRFError", 403)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.op("sessions.revokeMyOtherSessions", sid=sid, csrf=False)


@row("NotFoundError", 404)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.op("sessions.revokeMySession", {"id": "x"}, sid=sid)


@row("MethodNotAllowedError", 405)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.ask("GET", "/api/login")


@row("RequestTimeoutError", 408)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    lines = [("X-FW-CSRF", "1"), ("Content-Type", "application/json"), ("Content-Length", "9")]
    return await AppClient(site.app, PEER).send("POST", "/api/login", lines, [b"{"], ends=False)


@row("PayloadTooLargeError", 413)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.ask("POST", "/api/login", b" " * 65_537)


@row("UnsupportedMediaTypeError", 415)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    lines = [("X-FW-CSRF", "1"), ("Content-Type", "text/plain"), ("Content-Length", "2")]
    return await AppClient(site.app, PEER).send("POST", "/api/login", lines, [b"{}"])


@row("DuplicateError", 409)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.op("users.invite", {"email": "boss@example.test"}, sid=sid)


@row("ConflictError", 409)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.op("users.resendInvite", {"user": "boss"}, sid=sid)


@row("ValidationError", 422)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    return await site.op("api_keys.createMyAPIKey", {"label": "x", "days": 0}, sid=sid)


@row("PasswordPolicyError", 422)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    body = {"name": "ann", "email": "ann@example.test", "new_password": "short"}
    return await site.ask("POST", "/api/resource/User", body, sid=sid)


@row("TooManyRequestsError", 429)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    *_, last = [await site.login("nobody", "wrong") for _ in range(5)]
    return last


@row("OverloadedError", 503)
async def _(site: HttpSite, sid: str) -> ClientResponse:
    site.service.gateway.drain()
    return await site.ask("GET", "/api/ready")


@pytest.mark.parametrize("kind", ROWS)
async def test_error_types_are_in_the_envelope(site: HttpSite, kind: str) -> None:
    status, scenario = ROWS[kind]
    await site.add_account("boss", "System Manager")
    reply = await scenario(site, await site.sid("boss"))
    error: dict[str, Any] = reply.error
    assert (reply.status, error["type"]) == (status, kind)
    assert reply.header("cache-control") == "no-store"
    assert reply.header("x-request-id") is not None
    if status in (429, 503):
        assert int(reply.header("retry-after") or 0) >= 1
    if status == 429:
        assert error["extra"] == {"retryAfter": int(reply.header("retry-after") or 0)}


async def test_error_of_a_defect_shows_only_its_request_id(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of a 500 holds nothing but the request id (H-66)."""

    async def broken(attempt: object) -> None:
        raise ValueError("a secret of the inside")

    monkeypatch.setattr(site.service.gateway, "sign_in", broken)
    reply = await site.login("x", "y", headers=[("X-Request-Id", "r-1")])
    assert (reply.status, reply.error["type"]) == (500, "InternalError")
    assert "r-1" in reply.error["message"]
    assert b"secret" not in reply.body


def test_error_table_has_every_type() -> None:
    """The table of errors, written out (H-51, H-52, H-53, H-54, H-55, H-56, H-57, H-58,
    H-59, H-60, H-61, H-62, H-63, H-64, H-65, H-66, H-67)."""
    assert {*ROWS, "InternalError"} == {
        "BadRequestError", "InvalidTokenError", "AuthenticationError", "PermissionDeniedError",
        "CSRFError", "NotFoundError", "MethodNotAllowedError", "RequestTimeoutError",
        "PayloadTooLargeError", "UnsupportedMediaTypeError", "DuplicateError", "ConflictError",
        "ValidationError", "PasswordPolicyError", "TooManyRequestsError", "OverloadedError",
        "InternalError",
    }  # fmt: skip
