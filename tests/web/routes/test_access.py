"""Sign-in, sign-out, boot, the own profile (A-40, A-160, A-340, A-241)."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from fw_actors.config import ProxyTrustPolicy
from fw_actors.errors import TooManyRequestsError
from tests.web.client import AppClient
from tests.web.fakes import PASSWORD, SID, FakeGateway, app_of
from web.settings import login_screen

GOOD = {"usr": "ann", "pwd": PASSWORD}
PROFILE = "/api/method/core.services.profile.getMyProfile"
ANN = {
    "name": "ann",
    "email": "ann@example.test",
    "fullName": "Ann Lee",
    "language": "en",
    "roles": ["Sales User"],
}


async def test_sign_in_returns_the_user_and_sets_the_cookie(client: AppClient) -> None:
    reply = await client.ask("POST", "/api/login", GOOD)
    assert reply.status == 200
    assert reply.json == {
        "ok": True,
        "user": "ann",
        "fullName": "Ann Lee",
        "expires": "2026-02-28T12:00:00.000Z",
    }
    cookie = f"sid={SID}; Max-Age=2592000; Path=/; HttpOnly; SameSite=Lax"
    assert reply.header("Set-Cookie") == cookie
    assert SID.encode() not in reply.body


async def test_sign_in_passes_on_address_agent_and_old_session(
    client: AppClient, gateway: FakeGateway
) -> None:
    headers = [("User-Agent", "Browser/1"), ("X-Request-Id", "r-1")]
    await client.ask("POST", "/api/login", GOOD, headers=headers, sid="old")
    attempt = gateway.attempts[0]
    assert (attempt.usr, attempt.pwd, attempt.address) == ("ann", PASSWORD, "203.0.113.9")
    assert (attempt.user_agent, attempt.old_sid, attempt.request_id) == ("Browser/1", "old", "r-1")
    assert PASSWORD not in repr(attempt)


async def test_sign_in_passes_on_name_and_password_as_typed(
    client: AppClient, gateway: FakeGateway
) -> None:
    """The password is taken as received (A-111); the name's canonical form is not the edge's."""
    await client.ask("POST", "/api/login", {"usr": " Änn ", "pwd": " \0\tü "})
    assert (gateway.attempts[0].usr, gateway.attempts[0].pwd) == (" Änn ", " \0\tü ")


async def test_sign_in_uses_the_address_of_a_trusted_proxy(gateway: FakeGateway) -> None:
    trust = ProxyTrustPolicy(networks=(ip_network("10.0.0.0/8"),))
    app = app_of(gateway, trust=trust)
    headers = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-Proto", "https")]
    for peer in ("10.0.0.1", "203.0.113.9"):
        reply = await AppClient(app, peer).ask("POST", "/api/login", GOOD, headers=headers)
        assert ("; Secure" in (reply.header("Set-Cookie") or "")) is (peer == "10.0.0.1")
    assert [a.address for a in gateway.attempts] == ["198.51.100.1", "203.0.113.9"]


@pytest.mark.parametrize(
    ("policy", "url", "secure"),
    [
        (None, "https://fw.example.test", True),
        (None, "http://fw.example.test", False),
        (True, "http://fw.example.test", True),
        (False, "https://fw.example.test", False),
    ],
)
async def test_sign_in_cookie_is_secure_by_policy_or_url(
    gateway: FakeGateway, policy: bool | None, url: str, secure: bool
) -> None:
    """The table of the site's URL and secureCookie (A-171)."""
    client = AppClient(app_of(gateway, secure_cookie=policy, url=url))
    for path in ("/api/login", "/api/logout"):
        cookie = (await client.ask("POST", path, GOOD if path == "/api/login" else {})).header(
            "Set-Cookie"
        )
        assert (cookie or "").endswith("; Secure") is secure


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"usr": "a"}, "pwd"),
        ({"pwd": "b"}, "usr"),
        ({"usr": "a", "pwd": 12345678}, "pwd"),
        ({"usr": ["a"], "pwd": "b"}, "usr"),
        ({"usr": "a", "pwd": None}, "pwd"),
        ({"usr": "a", "pwd": "b", "remember": True}, "remember"),
        ({"usr": "", "pwd": "b"}, "usr"),
        ({"usr": " \u00a0", "pwd": "b"}, "usr"),
        ({"usr": "a\nb", "pwd": "b"}, "usr"),
        ({"usr": "a\0", "pwd": "b"}, "usr"),
        ({"usr": "a", "pwd": "\ud800"}, "pwd"),
        (b'{"usr": "a", "pwd": "b", "pwd": "c"}', "pwd"),
        (b"", None),
        (b"[]", None),
    ],
)
async def test_sign_in_makes_no_attempt_of_a_malformed_body(
    client: AppClient, gateway: FakeGateway, body: object, field: str | None
) -> None:
    """A malformed request moves no counter (H-16, A-34)."""
    reply = await client.ask("POST", "/api/login", body)
    assert (reply.status, reply.error["type"]) == (400, "BadRequestError")
    assert reply.error.get("extra", {}).get("field") == field
    assert not gateway.attempts


@pytest.mark.parametrize("usr", ["", " \u00a0"])
async def test_sign_in_without_a_name_from_a_full_address_is_429(
    client: AppClient, gateway: FakeGateway, usr: str
) -> None:
    """The name is a value, and the address comes before values (H-21, A-90)."""
    gateway.throttled.add("203.0.113.9")
    reply = await client.ask("POST", "/api/login", {"usr": usr, "pwd": "b"})
    assert (reply.status, reply.header("retry-after")) == (429, "60")


async def test_sign_in_counts_an_empty_password(client: AppClient, gateway: FakeGateway) -> None:
    """The token is validated before the password that comes with it (A-186, A-187)."""
    reply = await client.ask("POST", "/api/login", {"usr": "ann", "pwd": ""})
    assert (reply.status, reply.error["type"]) == (401, "AuthenticationError")
    assert len(gateway.attempts) == 1
    assert reply.header("Set-Cookie") is None


async def test_sign_in_of_a_locked_identifier_has_retry_after(
    client: AppClient, gateway: FakeGateway
) -> None:
    gateway.refuse = TooManyRequestsError(869.2)
    reply = await client.ask("POST", "/api/login", GOOD)
    assert (reply.status, reply.header("Retry-After")) == (429, "870")
    assert reply.error["extra"] == {"retryAfter": 870}


async def test_sign_out_ends_the_session_and_clears_the_cookie(
    client: AppClient, gateway: FakeGateway
) -> None:
    """A-161."""
    bodies: tuple[object, ...] = ({}, None)
    for body in bodies:
        reply = await client.ask("POST", "/api/logout", body, sid=SID)
        assert (reply.status, reply.json) == (200, {"ok": True})
        cleared = "sid=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax"
        assert reply.header("Set-Cookie") == cleared
        assert reply.header("Clear-Site-Data") == '"cache", "storage"'
    assert gateway.ended == [SID, SID]


async def test_sign_out_without_a_session_succeeds(client: AppClient, gateway: FakeGateway) -> None:
    assert (await client.ask("POST", "/api/logout", {})).json == {"ok": True}
    assert gateway.ended == []


async def test_sign_out_takes_no_arguments(client: AppClient, gateway: FakeGateway) -> None:
    reply = await client.ask("POST", "/api/logout", {"all": True}, sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": "all"})
    assert gateway.ended == []


async def test_boot_returns_the_sign_in_screen_to_a_guest(gateway: FakeGateway) -> None:
    shown = login_screen("Two\nlines", "demo", "demo-password")
    client = AppClient(app_of(gateway, login=shown))
    for sid in (None, "expired"):
        assert (await client.ask("GET", "/api/boot", sid=sid)).json == {
            "site": {
                "name": "bb",
                "url": "http://127.0.0.1:1",
                "csrfHeader": "X-FW-CSRF",
                "login": {
                    "notice": "Two\nlines",
                    "demoUser": "demo",
                    "demoPassword": "demo-password",
                },
            },
            "user": None,
        }


@pytest.mark.parametrize(
    ("notice", "user", "password", "shown"),
    [
        (None, None, None, {}),
        ("", "", "", {}),
        ("Hi", "demo", None, {"notice": "Hi"}),
        (None, None, "x", {}),
        (None, "demo", "x", {"demoUser": "demo", "demoPassword": "x"}),
    ],
)
def test_login_screen_needs_both_parts_of_a_demo_account(
    notice: str | None, user: str | None, password: str | None, shown: dict[str, str]
) -> None:
    """The demo account is offered only when both values are set (A-342)."""
    assert login_screen(notice, user, password) == shown


async def test_boot_returns_the_profile_of_a_user(client: AppClient) -> None:
    assert (await client.ask("GET", "/api/boot", sid=SID)).json["user"] == ANN


async def test_profile_is_read_by_post_and_get(client: AppClient) -> None:
    """Operations that only read also take GET (H-20); `{}` takes no body too (H-19)."""
    for reply in (
        await client.ask("POST", PROFILE, {}, sid=SID),
        await client.ask("POST", PROFILE, sid=SID),
        await client.ask("GET", PROFILE, sid=SID),
    ):
        assert (reply.status, reply.json) == (200, ANN)


async def test_profile_requires_a_session(client: AppClient) -> None:
    for method in ("GET", "POST"):
        reply = await client.ask(method, PROFILE)
        assert (reply.status, reply.error["type"]) == (401, "AuthenticationError")
