"""Spec, Sign-in: the cookie `sid`; interface §1 and §2."""

from __future__ import annotations

import pytest

from web.cookies import clear_cookie, is_secure, set_cookie, sids


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
def test_every_cookie_of_that_name_is_found(lines: list[str], found: list[str]) -> None:
    assert sids(lines) == found


def test_the_cookie_has_the_attributes_of_the_spec() -> None:
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
def test_secure_is_the_policys_or_decided_per_request(
    policy: bool | None, site_is_https: bool, over_tls: bool, secure: bool
) -> None:
    """Spec, Site policy: `secureCookie` null means decide per request."""
    assert is_secure(policy, site_is_https, over_tls) is secure
