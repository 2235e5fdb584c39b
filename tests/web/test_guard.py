"""CSRF, the intended user, bodies and the order of the checks (H-80, H-83, H-21)."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from tests.web.client import AppClient, Pair
from tests.web.fakes import PASSWORD, SID, FakeGateway

GOOD = {"usr": "ann", "pwd": PASSWORD}
JSON_KIND = ("Content-Type", "application/json")
CSRF = ("X-FW-CSRF", "1")
CROSS_SITE = ("Sec-Fetch-Site", "cross-site")
TWO_SIDS = ("Cookie", "sid=a; sid=b")
HUGE = ("Content-Length", str(2 * 1024 * 1024))
FOR_BOB = ("X-FW-User", "bob")
PLAIN_KIND = ("Content-Type", "text/plain")
CHUNKED = ("Transfer-Encoding", "chunked")
WRONG = [CROSS_SITE, TWO_SIDS, FOR_BOB, PLAIN_KIND]
ANN = ("Cookie", f"sid={SID}")

# Each row has all the faults of the rows below it as well: the first check decides.
ORDER: list[tuple[str, str, list[Pair], int]] = [
    ("PATCH", "/api/nothing?x=1", [HUGE, *WRONG], 404),
    ("PATCH", "/api/resource/Order?x=1", [HUGE, *WRONG], 405),
    ("POST", "/api/resource/Order?x=1", [HUGE, *WRONG], 413),
    ("POST", "/api/resource/Order?x=1", [CHUNKED, *WRONG], 403),
    ("POST", "/api/resource/Order?x=1", [CHUNKED, CSRF, TWO_SIDS, FOR_BOB, PLAIN_KIND], 400),
    ("POST", "/api/resource/Order?x=1", [CHUNKED, CSRF, ("Cookie", "sid=no"), FOR_BOB], 401),
    ("POST", "/api/resource/Order?x=1", [CHUNKED, CSRF, ANN, FOR_BOB, PLAIN_KIND], 409),
    ("POST", "/api/resource/Order?x=1", [CHUNKED, CSRF, ANN, PLAIN_KIND], 415),
    ("POST", "/api/resource/Order?x=1", [CHUNKED, CSRF, ANN, JSON_KIND], 400),
]


@pytest.mark.parametrize(("method", "target", "headers", "status"), ORDER)
async def test_guard_raises_the_first_error_in_order(
    client: AppClient, method: str, target: str, headers: list[Pair], status: int
) -> None:
    """H-21."""
    reply = await client.send(method, target, headers, [b"{"])
    assert reply.status == status, reply.body


@pytest.mark.parametrize("framing", [CHUNKED, ("Content-Length", str(65 * 1024))])
@pytest.mark.parametrize("further", [[], [CSRF], [CSRF, JSON_KIND]])
async def test_guard_answers_413_first_for_any_framing(
    client: AppClient, gateway: FakeGateway, framing: Pair, further: list[Pair]
) -> None:
    """413 comes before CSRF, credentials and the address (H-21), and counts for nothing (H-16)."""
    gateway.throttled.add(client.peer)
    headers = [framing, *further, ("Authorization", "Bearer fwk_abc_def"), TWO_SIDS]
    reply = await client.send("POST", "/api/login", headers, [b"x" * (65 * 1024)])
    assert (reply.status, reply.error["type"]) == (413, "PayloadTooLargeError")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_guard_requires_the_csrf_header_for_unsafe_verbs(
    client: AppClient, method: str
) -> None:
    """H-80, H-82."""
    path = "/api/login" if method == "POST" else "/api/resource/Order/a"
    for headers in ([], [("X-FW-CSRF", "")], [("X-FW-CSRF", "1"), CROSS_SITE]):
        reply = await client.ask(method, path, GOOD, sid=None, csrf=False, headers=headers)
        assert (reply.status, reply.error["type"]) == (403, "CSRFError")


async def test_guard_says_that_an_empty_csrf_header_is_refused(client: AppClient) -> None:
    """The refusal states the rule that the request has broken: the value is not empty (H-80)."""
    headers = [("X-FW-CSRF", "")]
    reply = await client.ask("POST", "/api/login", GOOD, csrf=False, headers=headers)
    assert reply.error["message"] == "Send the header X-FW-CSRF with any non-empty value."


async def test_guard_accepts_any_value_of_the_csrf_header(client: AppClient) -> None:
    for value in ("x", "0", "false"):
        headers = [("X-FW-CSRF", value), ("Sec-Fetch-Site", "same-origin")]
        reply = await client.ask("POST", "/api/login", GOOD, csrf=False, headers=headers)
        assert reply.status == 200


async def test_guard_requires_no_csrf_header_with_an_api_key(client: AppClient) -> None:
    """An API key needs no CSRF header (H-81); 401: this site knows no such key."""
    path = "/api/method/core.services.profile.getMyProfile"
    key = ("Authorization", "Bearer fwk_abc_def")
    reply = await client.ask("POST", path, {}, csrf=False, headers=[key])
    assert (reply.status, reply.error["type"]) == (401, "AuthenticationError")


async def test_guard_requires_the_csrf_header_if_the_api_key_is_not_read(
    client: AppClient,
) -> None:
    """Sign-in and sign-out act by no key, so that one exempts no request to them (H-81)."""
    key = ("Authorization", "Bearer fwk_abc_def")
    for path, body in (("/api/login", GOOD), ("/api/logout", {})):
        for headers in ([key], [key, CSRF, CROSS_SITE]):
            reply = await client.ask("POST", path, body, csrf=False, headers=headers)
            assert (reply.status, reply.error["type"]) == (403, "CSRFError")
        assert (await client.ask("POST", path, body, headers=[key])).status == 200


PROFILE = "/api/method/core.services.profile.getMyProfile"


@pytest.mark.parametrize("intended", ["bob", "", "ANN", "%61nn%20", "ann%00", "%ff", "%C3%A4" * 99])
async def test_guard_refuses_requests_meant_for_another_user(
    client: AppClient, intended: str
) -> None:
    reply = await client.ask("POST", PROFILE, {}, sid=SID, headers=[("X-FW-User", intended)])
    assert (reply.status, reply.error["type"]) == (409, "ConflictError")
    assert "ann is signed in now" in reply.error["message"]


async def test_guard_reads_each_line_of_the_intended_user(client: AppClient) -> None:
    """H-83: a second line is not ignored."""
    headers = [("X-FW-User", "ann"), FOR_BOB]
    reply = await client.ask("POST", PROFILE, {}, sid=SID, headers=headers)
    assert reply.status == 409


async def test_guard_admits_requests_meant_for_the_caller(client: AppClient) -> None:
    for intended in ("ann", "%61nn"):
        reply = await client.ask("POST", PROFILE, {}, sid=SID, headers=[("X-FW-User", intended)])
        assert reply.status == 200


async def test_guard_ignores_the_intended_user_at_sign_in_and_sign_out(client: AppClient) -> None:
    """They do not read whose session it is (H-83)."""
    for path, body in (("/api/login", GOOD), ("/api/logout", {})):
        assert (await client.ask("POST", path, body, sid=SID, headers=[FOR_BOB])).status == 200


async def test_guard_rejects_two_credentials(client: AppClient) -> None:
    key = ("Authorization", "Bearer fwk_abc_def")
    for headers in (
        [("Cookie", f"sid={SID}; sid={SID}")],
        [("Cookie", f"sid={SID}"), ("Cookie", "sid=")],
        [key, ("Cookie", f"sid={SID}")],
        [key, key],
    ):
        reply = await client.ask("POST", "/api/resource/Order", GOOD, headers=headers)
        assert (reply.status, reply.error["type"]) == (400, "BadRequestError")


async def test_guard_accepts_two_api_keys_where_none_is_read(client: AppClient) -> None:
    """A load balancer that adds a key to its health checks takes no node out."""
    key = ("Authorization", "Bearer fwk_abc_def")
    assert (await client.ask("GET", "/api/health", headers=[key, key])).status == 200
    assert (await client.ask("POST", "/api/login", GOOD, headers=[key, key])).status == 200


async def test_guard_ignores_other_authorization_schemes(client: AppClient) -> None:
    basic = ("Authorization", "Basic YTpi")
    assert (await client.ask("GET", "/api/boot", headers=[basic], sid=SID)).json["user"]


@pytest.mark.parametrize("sid", ["A" * 32, "x", "..%2f", "0", "", "y" * 5000])
async def test_guard_answers_401_without_a_session(client: AppClient, sid: str) -> None:
    reply = await client.ask("GET", "/api/resource/Order", sid=sid)
    assert (reply.status, reply.error["type"]) == (401, "AuthenticationError")


async def test_guard_names_the_scheme_of_keys_in_every_401(client: AppClient) -> None:
    """RFC 9110 15.5.2 (H-53); some clients raise an error without it. Browsers ask nobody."""
    for reply in (
        await client.ask("GET", "/api/resource/Order"),
        await client.ask("GET", "/api/boot", headers=[("Authorization", "Bearer x")]),
        await client.ask("POST", "/api/login", {"usr": "ann", "pwd": "no"}),
        await client.ask("POST", "/app", headers=[("Accept", "text/html")], csrf=False),
    ):
        expected = "Bearer" if reply.status == 401 else None
        assert reply.header("WWW-Authenticate") == expected


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
        "application/jsonp",
        "application/json\xa0",
        "application/json, text/plain",
        "",
    ],
)
async def test_guard_answers_415_for_other_content_types(
    client: AppClient, gateway: FakeGateway, kind: str | None
) -> None:
    reply = await client.ask("POST", "/api/login", GOOD, kind=kind)
    assert (reply.status, reply.error["type"]) == (415, "UnsupportedMediaTypeError")
    assert not gateway.attempts


async def test_guard_answers_415_for_two_content_types(
    client: AppClient, gateway: FakeGateway
) -> None:
    """A proxy may read the other one (H-15)."""
    for kinds in ([JSON_KIND, PLAIN_KIND], [PLAIN_KIND, JSON_KIND], [JSON_KIND, JSON_KIND]):
        reply = await client.ask("POST", "/api/login", GOOD, headers=kinds, kind=None)
        assert (reply.status, reply.error["type"]) == (415, "UnsupportedMediaTypeError")
    assert not gateway.attempts


@pytest.mark.parametrize(
    ("coding", "status"),
    [("gzip", 415), ("br, gzip", 415), ("identity/gzip", 415), ("Identity", 200)],
)
async def test_guard_answers_415_for_an_encoded_body(
    client: AppClient, coding: str, status: int
) -> None:
    """Nothing is decoded (RFC 9110 8.4), and the error says so (H-15)."""
    headers = [("Content-Encoding", line) for line in coding.split("/")]
    reply = await client.ask("POST", "/api/login", GOOD, headers=headers)
    assert reply.status == status
    if status == 415:
        assert "Content-Encoding" in reply.error["message"]


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
async def test_guard_refuses_a_change_on_a_condition(client: AppClient, header: str) -> None:
    """H-23: a condition that is ignored would let the change overwrite another one."""
    headers = [CSRF, ANN, (header, '"2026-01-02T03:04:05.678Z"')]
    for method in ("PUT", "DELETE"):
        reply = await client.ask(method, "/api/resource/Order/a", {}, headers=headers)
        assert (reply.status, reply.error["extra"]) == (400, {"field": header})
        assert "modified" in reply.error["message"]
    reply = await client.ask("GET", "/api/boot", headers=headers)
    assert reply.status == 200


@pytest.mark.parametrize("kind", [None, "text/plain"])
async def test_guard_accepts_no_body_in_chunks(client: AppClient, kind: str | None) -> None:
    """An operation that takes {} takes no body, however its end is marked (H-19)."""
    headers = [CHUNKED, CSRF] if kind is None else [CHUNKED, CSRF, ("Content-Type", kind)]
    reply = await client.send("POST", "/api/logout", headers, [])
    assert (reply.status, reply.json) == (200, {"ok": True})
    reply = await client.send("POST", "/api/login", headers, [])
    assert (reply.status, reply.error["message"]) == (400, "The body is missing.")


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON;charset=UTF-8"]
)
async def test_guard_accepts_charset_utf_8(client: AppClient, kind: str) -> None:
    assert (await client.ask("POST", "/api/login", GOOD, kind=kind)).status == 200


@pytest.mark.parametrize("parts", [2, 64])
async def test_guard_limits_a_body_without_a_length(
    client: AppClient, gateway: FakeGateway, parts: int
) -> None:
    """The limit is 64 KiB under /api/login (H-11)."""
    headers = [CHUNKED, CSRF, JSON_KIND]
    chunk = b"x" * (65 * 1024 // parts + 1)
    reply = await client.send("POST", "/api/login", headers, [b'{"usr": "', *[chunk] * parts])
    assert (reply.status, reply.error["type"]) == (413, "PayloadTooLargeError")
    assert not gateway.attempts


async def test_guard_limits_bodies_by_operation(client: AppClient) -> None:
    body = {"name": "big", "remarks": "x" * (1024 * 1024 - 100)}
    assert (await client.ask("POST", "/api/resource/Order", body, sid=SID)).status == 201
    body["remarks"] += "x" * 200
    assert (await client.ask("POST", "/api/resource/Order", body, sid=SID)).status == 413


async def test_guard_answers_408_for_an_incomplete_body(
    client: AppClient, autojump_clock: MockClock
) -> None:
    headers = [("Content-Length", "40"), CSRF, JSON_KIND]
    reply = await client.send("POST", "/api/login", headers, [b'{"usr"'], ends=False)
    assert (reply.status, reply.error["type"]) == (408, "RequestTimeoutError")


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/api/resource/Order?colour=red", "colour"),
        ("/api/resource/Order?limit=1&limit=2", "limit"),
        ("/api/resource/Order?limit=%00", "limit"),
        ("/api/resource/Order/a?sid=" + SID, "sid"),
        ("/api/resource/Or%00der", "doctype"),
        ("/api/resource/Order/a%0a", "name"),
        ("/api/resource/Order?limit=%ff", None),
        ("/api/resource/Order?" + "&".join("limit=1" for _ in range(100)), None),
    ],
)
async def test_guard_answers_400_for_a_bad_query_or_path(
    client: AppClient, target: str, field: str | None
) -> None:
    reply = await client.ask("GET", target, sid=SID)
    assert (reply.status, reply.error["type"]) == (400, "BadRequestError")
    assert reply.error.get("extra", {}).get("field") == field
    if "%0" in target:  # whatever the operation would say of it
        assert "control character" in reply.error["message"]


@pytest.mark.parametrize(
    "path", ["/api/login", "/api/auth/token", "/api/auth/reset-password", "/api/auth/accept-invite"]
)
async def test_guard_answers_429_before_415_and_400(
    client: AppClient, gateway: FakeGateway, path: str
) -> None:
    """The address's 429 comes before 415 and 400 (H-21)."""
    gateway.throttled.add(client.peer)
    for body, kind in ((b"{", "application/json"), (b"x", "text/plain"), (None, None)):
        reply = await client.ask("POST", path, body, kind=kind)
        assert (reply.status, reply.header("retry-after")) == (429, "60")
    if path == "/api/login":
        assert (await client.ask("POST", path, b"{", csrf=False)).status == 403
    assert (await client.ask("GET", path)).status == 405


async def test_forgot_password_answers_ok_to_a_throttled_address(
    client: AppClient, gateway: FakeGateway
) -> None:
    """A throttled address still gets `{ok: true}`, and nothing is done (A-96)."""
    gateway.throttled.add(client.peer)
    reply = await client.ask("POST", "/api/auth/forgot-password", {"usr": "ann"})
    assert reply.json == {"ok": True}
