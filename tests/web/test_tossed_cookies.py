"""A second cookie `sid`, set in a browser by a sibling host, locks no user out (A-173, A-174)."""

from __future__ import annotations

from http.cookiejar import Cookie, CookieJar
from urllib.request import Request

import pytest

from tests.web.client import AppClient, ClientResponse
from tests.web.fakes import KEY, PASSWORD, SID, FakeGateway, app_of

HOST = "fw.example.org"
GOOD = {"usr": "ann", "pwd": PASSWORD}
PAGE = [("Accept", "text/html")]
PROFILE = "/api/method/core.services.profile.getMyProfile"
TWO = [("Cookie", f"sid={SID}; sid=tossed")]
KEY_AND_COOKIE = [("Authorization", f"Bearer {KEY}"), ("Cookie", f"sid={SID}")]


class CookieResponse:
    """A response as `http.cookiejar` reads it."""

    def __init__(self, reply: ClientResponse) -> None:
        self._reply = reply

    def info(self) -> CookieResponse:
        return self

    def get_all(self, name: str, default: list[str]) -> list[str]:
        return [v for k, v in self._reply.headers if k == name.lower()] or default


class Browser:
    """Asks with the cookies that it was given, by the rules of RFC 6265."""

    def __init__(self, client: AppClient) -> None:
        self.client = client
        self.jar = CookieJar()

    def toss(self, value: str, domain: str, path: str) -> None:
        """Take a cookie from another host of the domain."""
        self.jar.set_cookie(
            Cookie(
                0, "sid", value, None, False, domain, True, True, path, True, False,
                None, False, None, None, {},
            )
        )  # fmt: skip

    async def ask(self, method: str, path: str, body: object = None) -> ClientResponse:
        request = Request(f"http://{HOST}{path}")
        self.jar.add_cookie_header(request)
        headers = list(PAGE)
        if cookies := request.get_header("Cookie"):
            headers.append(("Cookie", cookies))
        reply = await self.client.ask(method, path, body, headers=headers)
        self.jar.extract_cookies(CookieResponse(reply), request)  # type: ignore[arg-type]
        return reply

    @property
    def sids(self) -> list[str | None]:
        return [cookie.value for cookie in self.jar]


@pytest.fixture
def site(gateway: FakeGateway) -> AppClient:
    return AppClient(app_of(gateway, url=f"http://{HOST}"))


@pytest.fixture
def browser(site: AppClient) -> Browser:
    return Browser(site)


def cleared(reply: ClientResponse) -> list[str]:
    return [value for name, value in reply.headers if name == "set-cookie"]


TOSSED = [(f".{HOST}", "/"), (".example.org", "/"), (".example.org", "/app")]


@pytest.mark.parametrize(("domain", "path"), TOSSED)
async def test_duplicate_cookies_redirect_user_to_sign_in(
    browser: Browser, domain: str, path: str
) -> None:
    await browser.ask("POST", "/api/login", GOOD)
    browser.toss("tossed", domain, path)
    reply = await browser.ask("GET", "/app")
    assert (reply.status, reply.header("Location")) == (303, "/login")
    assert browser.sids == []
    assert (await browser.ask("GET", "/login")).status == 200
    assert (await browser.ask("POST", "/api/login", GOOD)).status == 200
    assert browser.sids == [SID]
    assert (await browser.ask("GET", PROFILE)).status == 200


@pytest.mark.parametrize("domain", [f".{HOST}", ".example.org"])
@pytest.mark.parametrize("path", ["/", "/api", "/api/", "/api/login", "/app", "/login"])
async def test_duplicate_cookies_are_cleared_by_second_sign_in(
    browser: Browser, domain: str, path: str
) -> None:
    """A single one is no reason to clear: it may be the site's own, of a session that has ended."""
    for number, root in enumerate(("/", path)):
        browser.toss(f"tossed{number}", domain, root)
    for _ in range(2):
        await browser.ask("GET", "/login")
        assert (await browser.ask("POST", "/api/login", GOOD)).status == 200
        await browser.ask("POST", PROFILE)
    assert (await browser.ask("GET", PROFILE)).status == 200
    assert (await browser.ask("GET", "/")).header("Location") == "/app"


@pytest.mark.parametrize("credentials", [TWO, KEY_AND_COOKIE])
async def test_sign_in_and_sign_out_clear_two_cookies_unread(
    site: AppClient, gateway: FakeGateway, credentials: list[tuple[str, str]]
) -> None:
    page = await site.ask("GET", "/login", headers=credentials)
    assert page.status == 200, "nobody is signed in, so the form is shown"
    out = await site.ask("POST", "/api/logout", {}, headers=credentials)
    assert (out.status, out.json, gateway.ended) == (200, {"ok": True}, [])
    wrong = await site.ask("POST", "/api/login", {**GOOD, "pwd": "x"}, headers=credentials)
    assert wrong.status == 401
    signed_in = await site.ask("POST", "/api/login", GOOD, headers=credentials)
    assert signed_in.status == 200
    assert [attempt.old_sid for attempt in gateway.attempts] == [None, None]
    for reply in (page, out, wrong, signed_in):
        assert cleared(reply)[:3] == [
            "sid=; Max-Age=0; Path=/",
            "sid=; Max-Age=0; Path=/; Domain=fw.example.org",
            "sid=; Max-Age=0; Path=/; Domain=example.org",
        ]
    assert cleared(signed_in)[-1].startswith(f"sid={SID}; Max-Age=2592000; ")
    assert not [call for call in gateway.calls if call[0] == "authenticate_key"]


async def test_duplicate_cookies_are_400_elsewhere_and_cleared(site: AppClient) -> None:
    reply = await site.ask("POST", PROFILE, {}, headers=TWO)
    assert (reply.status, reply.error["type"]) == (400, "BadRequestError")
    assert reply.error["extra"] == {"field": "sid"}
    assert "sid=; Max-Age=0; Path=/; Domain=example.org" in cleared(reply)


async def test_api_key_beside_a_cookie_is_400_and_clears_nothing(site: AppClient) -> None:
    reply = await site.ask("POST", PROFILE, {}, headers=KEY_AND_COOKIE)
    assert (reply.status, cleared(reply)) == (400, [])
    assert reply.error["extra"] == {"field": "sid"}


async def test_duplicate_cookies_are_400_to_program_asking_page(site: AppClient) -> None:
    reply = await site.ask("GET", "/app", headers=TWO)
    assert (reply.status, reply.error["type"]) == (400, "BadRequestError")


async def test_sign_in_with_two_cookies_still_needs_the_csrf_header(site: AppClient) -> None:
    reply = await site.ask("POST", "/api/logout", {}, headers=TWO, csrf=False)
    assert (reply.status, reply.error["type"]) == (403, "CSRFError")
