"""Two sessions work on one document: no verb acts on a version that its caller has not read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.http_site import HttpSite, http_site
from tests.web.client import ClientResponse

APPS = Path(__file__).parent.parent / "fw_actors" / "documents" / "apps"
ORDERS = "/api/resource/Sales%20Order"
VERBS = ("save", "submit", "cancel", "rename", "delete")


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpSite]:
    monkeypatch.syspath_prepend(APPS)
    async with http_site(tmp_path, apps=("shop",)) as made:
        yield made


class SignedInUser:
    """A signed-in user who works on orders."""

    def __init__(self, shop: HttpSite, sid: str) -> None:
        self._shop, self._sid = shop, sid

    async def ask(self, method: str, path: str, body: object = None) -> ClientResponse:
        return await self._shop.ask(method, ORDERS + path, body, sid=self._sid)

    async def insert(self, verb: str) -> dict[str, Any]:
        """Insert an order for which the verb is allowed: only submitted ones can be cancelled."""
        reply = await self.ask("POST", "", {"title": "read", "submit": verb == "cancel"})
        assert reply.status == 201
        return dict(reply.json["data"])

    async def carry_out(self, verb: str, name: str, **version: str) -> ClientResponse:
        match verb:
            case "save":
                return await self.ask("PUT", f"/{name}", {"remark": "mine", **version})
            case "rename":
                return await self.ask("POST", f"/{name}/rename", {"name": "Mine", **version})
            case "delete":
                query = "".join(f"?modified={quote(each)}" for each in version.values())
                return await self.ask("DELETE", f"/{name}{query}")
        return await self.ask("POST", f"/{name}/{verb}", version or None)


@pytest.fixture
async def ann(shop: HttpSite) -> SignedInUser:
    return SignedInUser(shop, await shop.sid(await shop.add_account("ann", "System Manager")))


@pytest.fixture
async def bea(shop: HttpSite) -> SignedInUser:
    return SignedInUser(shop, await shop.sid(await shop.add_account("bea", "System Manager")))


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("verb", VERBS)
async def test_version_changed_by_another_session_is_refused(
    ann: SignedInUser, bea: SignedInUser, verb: str
) -> None:
    """The refusal changes nothing, and the version that is stored is accepted (D-120)."""
    read = await ann.insert(verb)
    name = read["name"]
    newer = (await bea.ask("PUT", f"/{name}", {"remark": "unseen"})).json["data"]
    reply = await ann.carry_out(verb, name, modified=read["modified"])
    assert (reply.status, reply.error["type"]) == (409, "ConflictError")
    assert reply.error["message"] == f"Sales Order {name} was changed meanwhile; read it again."
    assert reply.error["extra"] == {"reason": "changed"}
    assert (await ann.ask("GET", f"/{name}")).json["data"] == newer
    assert (await ann.carry_out(verb, name, modified=newer["modified"])).status == 200


@pytest.mark.parametrize("verb", VERBS)
async def test_version_that_is_not_given_is_not_compared(
    ann: SignedInUser, bea: SignedInUser, verb: str
) -> None:
    """Without `modified` the verb wins (D-120)."""
    name = (await ann.insert(verb))["name"]
    assert (await bea.ask("PUT", f"/{name}", {"remark": "unseen"})).status == 200
    assert (await ann.carry_out(verb, name)).status == 200


async def test_version_precedes_the_state_of_the_document(
    ann: SignedInUser, bea: SignedInUser
) -> None:
    """Both are conflicts; a caller with an old version learns that it is old."""
    read = await ann.insert("submit")
    name = read["name"]
    assert (await bea.carry_out("submit", name)).status == 200
    for verb in ("submit", "delete"):
        reply = await ann.carry_out(verb, name, modified=read["modified"])
        assert (reply.status, "changed meanwhile" in reply.error["message"]) == (409, True)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "save"])
async def test_version_that_is_no_time_is_refused_before_the_document_is_looked_up(
    ann: SignedInUser, verb: str
) -> None:
    """400 is for the form of a request (H-18), and comes before 404 and 403 (H-21)."""
    reply = await ann.carry_out(verb, "missing", modified="yesterday")
    assert (reply.status, reply.error["extra"]) == (400, {"field": "modified"})
    assert reply.error["message"] == (
        "modified must be a time in ISO 8601, such as 2026-01-31T08:00:00Z."
    )


async def test_version_does_not_reveal_a_document(shop: HttpSite, ann: SignedInUser) -> None:
    """Without the permission the answer is the same for every version and name (D-19)."""
    read = await ann.insert("submit")
    guest = SignedInUser(shop, await shop.sid(await shop.add_account("sam")))
    for verb in VERBS:
        replies = [
            await guest.carry_out(verb, name, modified=modified)
            for name in (read["name"], "missing")
            for modified in (read["modified"], "2026-01-01T00:00:00Z")
        ]
        assert {reply.status for reply in replies} == {403}
        assert len({reply.error["message"] for reply in replies}) == 1


async def test_version_in_the_body_of_a_delete_is_refused(ann: SignedInUser) -> None:
    """It must not be ignored: the document would be deleted unseen (D-13)."""
    read = await ann.insert("delete")
    reply = await ann.ask("DELETE", f"/{read['name']}", {"modified": read["modified"]})
    assert (reply.status, reply.error["extra"]) == (400, {"field": "modified"})
    expected = "A DELETE must not have a body; send modified as a query parameter."
    assert reply.error["message"] == expected


async def test_version_page_shows_changes_as_the_history_does(site: HttpSite) -> None:
    """Otherwise it would only have the JSON of the changes (H-162)."""
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")

    def rename(fw: Any) -> None:
        user = fw.get_doc("User", "boss")
        user.fullName = "The Boss"
        user.save()

    await site.do(rename)
    [version] = await site.do(lambda fw: fw.get_all("Version", {"docname": "boss"}, ["name"]))
    path = f"/app/Version/{version['name']}"
    page = await site.ask("GET", path, sid=sid, headers=[("Accept", "text/html")])
    assert page.status == 200
    assert b"<ins>The Boss</ins>" in page.body
