"""Recovery and invitation links over HTTP, for tests."""

from __future__ import annotations

from typing import Any

from tests.http_site import HttpSite
from tests.web.client import ClientResponse

OTHER = "another decent passphrase"
FORGOT = "/api/auth/forgot-password"
RESET = "/api/auth/reset-password"
ACCEPT = "/api/auth/accept-invite"


async def token_for(site: HttpSite, name: str, **given: Any) -> str:
    """Ask for a recovery as a guest; return the token in the mail."""
    before, link_count = len(site.log.of("mail.sent")), len(links(site))
    reply = await site.ask("POST", FORGOT, {"usr": name}, csrf=False, **given)
    assert (reply.status, reply.json) == (200, {"ok": True})
    while len(links(site)) == link_count:
        before += 1  # the mail about a changed password may come first
        await site.log.wait("mail.sent", before)
    return links(site)[-1].partition("#token=")[2]


def links(site: HttpSite) -> list[str]:
    """Return the links in the log, in order."""
    return [str(line["link"]) for line in site.log.of("mail.sent") if "link" in line]


async def spend(site: HttpSite, path: str, token: str, password: str = OTHER) -> ClientResponse:
    return await site.ask("POST", path, {"token": token, "password": password}, csrf=False)
