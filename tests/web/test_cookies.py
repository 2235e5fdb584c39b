"""The cookie `sid` (A-170, A-171, A-172)."""

from __future__ import annotations

import pytest

from web.exchange import is_secure
from web.guard import session_ids
from web.response import clear_cookie, clear_every_cookie, set_cookie


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], []),
        (["a=b; sid=x"], ["x"]),
        (["sid=x; sid=x"], ["x", "x"]),
        (["sid=x", "theme=dark;sid=y"], ["x", "y"]),
        (["sid=; sid=x"], ["", "x"]),
        (["SID=x; sidx=y; xsid=z; sid"], []),
        (["sid=a=b"], ["a=b"]),
    ],
)
def test_session_ids_finds_every_cookie_of_the_name(lines: list[str], found: list[str]) -> None:
    assert session_ids(lines) == found


def test_set_cookie_has_the_attributes_of_the_contract() -> None:
    whole = "sid=abc; Max-Age=60; Path=/; HttpOnly; SameSite=Lax"
    assert set_cookie("abc", 60, secure=False) == whole
    assert set_cookie("abc", 60, secure=True) == whole + "; Secure"
    assert clear_cookie(secure=False) == "sid=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax"


@pytest.mark.parametrize(
    ("policy", "site_is_https", "over_tls", "secure"),
    [
        (None, False, False, False),
        (None, True, False, True),
        (None, False, True, True),
        (True, False, False, True),
        (False, True, True, False),
    ],
)
def test_is_secure_follows_the_policy_or_the_request(
    policy: bool | None, site_is_https: bool, over_tls: bool, secure: bool
) -> None:
    """`secureCookie` null means that it is decided per request (A-171)."""
    assert is_secure(policy, site_is_https, over_tls) is secure


def test_clear_every_cookie_covers_paths_and_parent_domains() -> None:
    """RFC 6265 5.1.3, 5.1.4: these are all the cookies that the request could bring."""
    lines = clear_every_cookie("https://fw.apps.example.org:8443", "/app/Sales Order")
    domains = ["", "; Domain=fw.apps.example.org", "; Domain=apps.example.org"]
    domains.append("; Domain=example.org")
    paths = ["/", "/app", "/app/", "/app/Sales%20Order"]
    assert lines == [f"sid=; Max-Age=0; Path={p}{d}" for p in paths for d in domains]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "fw"])
def test_clear_every_cookie_has_no_domain_for_addresses(host: str) -> None:
    assert clear_every_cookie(f"http://{host}:8000", "/") == ["sid=; Max-Age=0; Path=/"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://a.example.org", "/" + "x" * 3000),
        ("https://a.example.org", "/x" * 200),
        ("https://" + "a." * 60 + "example.org", "/api/resource/A/b"),
    ],
)
def test_clear_every_cookie_fits_into_a_proxys_head_limit(url: str, path: str) -> None:
    """nginx takes 4 KiB, the other headers included, and answers 502 to more."""
    lines = clear_every_cookie(url, path)
    assert lines[0] == "sid=; Max-Age=0; Path=/"
    assert sum(len(f"Set-Cookie: {line}\r\n") for line in lines) <= 2400


def test_clear_every_cookie_quotes_the_path() -> None:
    for line in clear_every_cookie("https://fw.example.org", "/a; Domain=x\r\nX: y\0/b"):
        assert line.count(";") <= 3
        assert line.isprintable()
