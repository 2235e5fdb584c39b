"""The example app `examples.notes`: a document with a rule, and an event of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from examples import notes
from fw_actors.access.users import add_user
from fw_actors.documents import rest
from fw_actors.errors import PermissionDeniedError, ValidationError
from fw_actors.ops.site import Site
from tests.site_kit import inline_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

SHARE = "examples.notes.share"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with inline_site(tmp_path, apps=("examples.notes",)) as site:

        def add_records(fw: Any) -> None:
            add_user(fw, "ada", "ada@x.test", roles=["Note Writer"])
            add_user(fw, "bob", "bob@x.test")
            hook = {"url": "https://x.test", "secret": "s"}
            shared = {"event_type": "Custom", "custom_event": "note.shared"}
            saved = {"event_type": "Document", "webhook_doctype": "Note", "on_insert": 1}
            fw.new_doc("Webhook", **hook, **shared).insert()
            fw.new_doc("Webhook", **hook, **saved).insert()

        await site.write("Administrator", add_records)
        yield site


async def payloads(site: Site) -> list[dict[str, Any]]:
    def read(fw: Any) -> list[dict[str, Any]]:
        rows = fw.get_all("Webhook Delivery", fields=["payload"], order_by="name")
        return [json.loads(row["payload"]) for row in rows]

    return await site.read("Administrator", read)


async def test_note_is_inserted_only_by_note_writer(site: Site) -> None:
    note = await site.write("ada", lambda fw: rest.insert(fw, "Note", {"title": "Tea"}))
    assert (note["title"], note["done"], note["owner"]) == ("Tea", 0, "ada")
    with pytest.raises(PermissionDeniedError):
        await site.write("bob", lambda fw: rest.insert(fw, "Note", {"title": "Tea"}))


@pytest.mark.parametrize("title", ["", "   ", None])
async def test_blank_note_title_is_refused(site: Site, title: str | None) -> None:
    with pytest.raises(ValidationError) as refusal:
        await site.write("ada", lambda fw: rest.insert(fw, "Note", {"title": title}))
    assert refusal.value.extra == {"field": "title"}


async def test_note_save_emits_event(site: Site) -> None:
    await site.write("ada", lambda fw: rest.insert(fw, "Note", {"title": "Tea"}))
    (payload,) = await payloads(site)
    assert (payload["type"], payload["data"]["doc"]["title"]) == ("doc.on_insert", "Tea")


async def test_note_share_notifies_subscribers(site: Site) -> None:
    share = site.registry.functions[SHARE]
    note = await site.write("ada", lambda fw: rest.insert(fw, "Note", {"title": "Tea"}))
    arguments = {"note": note["name"], "with_whom": "bob"}
    share.validate(arguments)
    result = await site.write("ada", lambda fw: share(fw, **arguments))
    assert len(result["deliveries"]) == 1
    assert (await payloads(site))[-1]["data"] == {"title": "Tea", "with": "bob"}
    assert share.roles == ("Note Writer",)


async def minutes(site: Site, user: str = "ada", **values: Any) -> dict[str, Any]:
    """Insert minutes of two decisions as a writer."""
    rows = [{"text": "Paint"}, {"text": "Rake"}]
    body = {"meeting": " Spring ", "decisions": rows, **values}
    return await site.write(user, lambda fw: rest.insert(fw, "Minutes", body))


@pytest.fixture
async def chair(site: Site) -> str:
    """Create the approver of minutes, and a Webhook for approved ones."""

    def add_records(fw: Any) -> None:
        add_user(fw, "cleo", "cleo@x.test", roles=["Note Chair"])
        fw.new_doc(
            "Webhook", url="https://x.test", secret="s", event_type="Custom",
            custom_event="minutes.approved",
        ).insert()  # fmt: skip

    await site.write("Administrator", add_records)
    return "cleo"


async def test_minutes_approval_emits_decisions_once(site: Site, chair: str) -> None:
    made = await minutes(site)
    assert (made["name"], made["meeting"]) == ("MIN-0001", "Spring")
    with pytest.raises(PermissionDeniedError):
        await site.write("ada", lambda fw: rest.submit(fw, "Minutes", "MIN-0001"))
    await site.write(chair, lambda fw: rest.submit(fw, "Minutes", "MIN-0001"))
    (payload,) = await payloads(site)
    assert payload["type"] == "minutes.approved"
    assert payload["data"] == {"meeting": "Spring", "decisions": ["Paint", "Rake"]}


async def test_event_publisher_does_not_prevent_approval(site: Site, chair: str) -> None:
    """A guessed key of the app's event, such as `approved-MIN-0001`, was refused at the submit."""
    name = (await minutes(site))["name"]
    guessed: list[dict[str, Any]] = [
        {"name": "minutes.approved", "data": {}, "key": key} for key in (name, f"approved-{name}")
    ]
    await site.write("Administrator", lambda fw: fw.webhooks.emit_many(guessed))
    await site.write(chair, lambda fw: rest.submit(fw, "Minutes", name))
    assert [each["data"] for each in await payloads(site)][2:] == [
        {"meeting": "Spring", "decisions": ["Paint", "Rake"]}
    ]


async def test_minutes_without_decision_are_not_approved(site: Site, chair: str) -> None:
    await minutes(site, decisions=[])
    with pytest.raises(ValidationError):
        await site.write(chair, lambda fw: rest.submit(fw, "Minutes", "MIN-0001"))
    assert await payloads(site) == []


async def test_minutes_keep_to_their_budget(site: Site, chair: str) -> None:
    rows = [{"text": "Paint", "cost": 80}, {"text": "Rake", "cost": 40}]
    body = {"budget": 100, "decisions": rows}

    def insert(fw: Any) -> Any:
        return rest.insert(fw, "Minutes", {"meeting": "Spring", **body})

    with pytest.raises(ValidationError, match="120 is more than the budget"):
        await site.write("Administrator", insert)
    body["budget"] = 120
    made = await site.write("Administrator", insert)
    seen = await site.read("ada", lambda fw: rest.read(fw, "Minutes", made["name"]))
    assert "budget" not in seen
    assert "cost" not in seen["decisions"][0]


async def test_done_notes_are_tidied_by_a_job(site: Site, chair: str) -> None:
    def work(fw: Any) -> Any:
        fw.new_doc("Notebook", title="Tea").insert()
        for done in (0, 1):
            fw.new_doc("Note", title="t", notebook="Tea", done=done).insert()
        return site.registry.functions["examples.notes.tidy"](fw.as_user(chair), notebook="Tea")

    assert await site.write("Administrator", work) == {"found": 1}
    await site.write(chair, lambda fw: notes.delete_done(fw, "Tea"))
    left = await site.read("ada", lambda fw: fw.get_list("Note", fields=["done"]))
    assert left == [{"done": 0}]
