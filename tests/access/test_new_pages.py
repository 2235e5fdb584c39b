"""The form for a new document is shown to users that may create the document (H-159)."""

from __future__ import annotations

import pytest

from tests.http_site import HttpSite

BROWSER = [("Accept", "text/html")]


@pytest.mark.parametrize(
    ("doctype", "status"),
    [
        ("Webhook", 200),
        ("User", 200),
        ("Has%20Role", 400),
        ("Webhook%20Delivery", 403),
        ("Audit%20Event", 403),
        ("Version", 403),
        ("Email%20Delivery", 403),
        ("Error%20Log", 403),
        ("API%20Key", 403),
        ("Nothing", 404),
    ],
)
async def test_new_page_is_denied_without_a_form(site: HttpSite, doctype: str, status: int) -> None:
    await site.add_account("admin", "System Manager")
    reply = await site.ask("GET", f"/new/{doctype}", sid=await site.sid("admin"), headers=BROWSER)
    assert (reply.status, reply.header("Content-Type")) == (status, "text/html; charset=utf-8")
    assert (b'<form id="document"' in reply.body) == (status == 200)


@pytest.mark.parametrize("doctype", ["User%20Permission", "Webhook"])
async def test_new_page_is_denied_by_scopes(site: HttpSite, doctype: str) -> None:
    """Scopes refuse Webhooks and User Permission rows altogether (A-314, A-319)."""
    await site.add_account("boss", "System Manager")
    await site.add_account("admin", "System Manager")
    scope = {"user": "admin", "allow": "Role", "for_value": "System Manager"}
    await site.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
    reply = await site.ask("GET", f"/new/{doctype}", sid=await site.sid("admin"), headers=BROWSER)
    assert (reply.status, b'<form id="document"' in reply.body) == (403, False)
