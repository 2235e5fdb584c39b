"""A link's token is in the one part of a URL that no server, proxy or Referer gets."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.http_site import HttpSite


async def test_link_has_its_token_in_the_fragment_only(site: HttpSite) -> None:
    await site.add_account("boss", "System Manager")
    reply = await site.op("users.invite", {"email": "new@example.test"}, sid=await site.sid("boss"))
    parts = urlsplit(reply.json["link"])
    assert (parts.path, parts.query) == ("/accept-invite", "")
    name, _, token = parts.fragment.partition("=")
    assert (name, len(token)) == ("token", 32)
