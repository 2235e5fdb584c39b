"""A password is valid until another one is set."""

from __future__ import annotations

from tests.http_site import HttpSite

TEN_YEARS = 10 * 365 * 86_400


async def test_password_does_not_expire(site: HttpSite) -> None:
    await site.add_account("ann")
    site.pass_time(TEN_YEARS)
    reply = await site.login("ann")
    assert (reply.status, set(reply.json)) == (200, {"ok", "user", "fullName", "expires"})
