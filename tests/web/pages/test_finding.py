"""The search of the desk, and where the values of records lead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fw_actors.ops.audit import Action
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from web.pages.find import HitsOfDocType, SearchHits, find
from web.pages.links import destinations, subject_of


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[VirtualSite]:
    async with open_virtual_site(tmp_path) as site:
        yield site


async def found(site: VirtualSite, text: str, user: str = "Administrator") -> SearchHits:
    return await site.do(lambda fw: find(fw, text), user)


async def test_find_leads_to_what_has_the_id(site: VirtualSite) -> None:
    """H-201."""
    hook = await site.subscribe(title="Billing", url="https://billing.test/hook")
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    [delivery] = emitted["deliveries"]
    only = (await found(site, f" {delivery} ")).only
    assert only is not None
    assert only.path == f"/app/Webhook%20Delivery/{delivery}"
    by_title = await found(site, "bill")
    assert by_title.only is None
    [group] = by_title.groups
    assert [(hit.name, hit.label) for hit in group.hits] == [(hook, "Billing")]
    assert (await found(site, "billing.test/h")).groups[0].hits[0].name == hook
    assert await found(site, "  ") == SearchHits((), ())


async def test_find_shows_what_a_request_did(site: VirtualSite) -> None:
    """H-201."""
    await site.site.write("Administrator", _invite, "request-1")
    await site.site.write("Administrator", _change, "request-1")
    hits = (await found(site, "request-1")).exact
    assert [(hit.doctype, hit.label) for hit in hits] == [
        ("Audit Event", "user.create"),
        ("Version", "ina"),
    ]  # fmt: skip


def _change(fw: Any) -> None:
    user = fw.get_doc("User", "ina")
    user.fullName = "Ina Invited"
    user.save()


def _invite(fw: Any) -> None:
    fw.new_doc("User", name="ina", email="ina@x.test").insert()


async def test_find_shows_the_first_and_leads_to_all(site: VirtualSite) -> None:
    for number in range(7):
        await site.add_account(f"twin{number}")
    [group] = (await found(site, "twin")).groups
    assert len(group.hits) == 5
    assert group.all_path == "/app/User?_q=twin"


async def test_find_searches_newest_documents_and_leads_to_search_of_all(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-201: however many documents there are, a text is searched in a limited number of rows."""
    monkeypatch.setattr("web.pages.find.MAX_SEARCHED_DOCUMENTS", 5)
    await site.add_account("older")
    for number in range(5):
        await site.add_account(f"twin{number}")
    old = _of_users(await found(site, "lder"))
    assert (old.hits, old.newest_only) == ((), True)
    assert old.all_path == "/app/User?_q=lder"
    new = _of_users(await found(site, "win3"))
    assert [hit.name for hit in new.hits] == ["twin3"]
    assert new.newest_only


def _of_users(hits: SearchHits) -> HitsOfDocType:
    return next(group for group in hits.groups if group.doctype == "User")


@pytest.mark.parametrize("text", ["x" * 141, "_" * 499, "_" * 2000])
async def test_find_takes_texts_longer_than_any_id(site: VirtualSite, text: str) -> None:
    """A text leads to the documents with a short text field that contains it (H-201)."""
    url = f"https://x.test/{text[:1000]}"
    hook = await site.subscribe(title="Long", url=url)
    [group] = (await found(site, text)).groups
    assert [hit.name for hit in group.hits] == [hook]
    assert (await found(site, text[:498] + "-")).groups == ()


async def test_find_calls_documents_by_the_title_that_their_class_names(site: VirtualSite) -> None:
    """H-208."""
    await site.do(lambda fw: fw.new_doc("Minutes", meeting="Board of May").insert())
    [group] = (await found(site, "board of")).groups
    assert [(hit.name, hit.label) for hit in group.hits] == [("MIN-0001", "Board of May")]


async def test_find_omits_documents_that_user_may_not_list(site: VirtualSite) -> None:
    await site.subscribe(title="Secret place")
    await site.add_account("wendy")
    assert await found(site, "Secret place", "wendy") == SearchHits((), ())


async def test_values_lead_to_what_there_is(site: VirtualSite) -> None:
    """H-203."""
    await site.add_account("wendy")
    rows: list[dict[str, Any]] = [
        {"action": "user.invite", "target": "wendy", "actor": "wendy", "request_id": "a b"},
        {"action": "user.delete", "target": "gone", "actor": "Administrator", "request_id": None},
        {"action": "Denied", "target": "wendy", "actor": None, "request_id": ""},
    ]

    def paths(fw: Any) -> Any:
        meta = fw.documents.registry.meta("Audit Event")
        return destinations(fw, meta, rows, ["target", "actor", "request_id"])

    wendy = "/app/User/wendy"
    assert await site.do(paths) == [
        {"target": wendy, "actor": wendy, "request_id": "/app/find?q=a%20b"},
        {},
        {},
    ]
    assert await site.do(paths, "wendy") == [{"request_id": "/app/find?q=a%20b"}, {}, {}]


@pytest.mark.parametrize("action", list(Action))
def test_subject_of_maps_every_audited_action(action: Action) -> None:
    assert (subject_of(action) is None) == (
        action is Action.DENIED or action.startswith(("console.", "job.", "site.", "document."))
    )
