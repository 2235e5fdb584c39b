"""The history on a document's page: creation, operations and deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.documents import rest
from fw_actors.ops.audit import Action
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from web.pages.history import HistoryEntry, deletion, history

Entries = tuple[HistoryEntry, ...]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[VirtualSite]:
    async with open_virtual_site(tmp_path) as site:
        yield site


async def shown(site: VirtualSite, doctype: str, name: str, user: str = "Administrator") -> Entries:
    values = await site.do(lambda fw: rest.read(fw, doctype, name))
    return await site.do(lambda fw: history(fw, doctype, values), user)


async def test_history_ends_with_creator(site: VirtualSite) -> None:
    """H-206: also for users without permission to list records."""
    name = await site.add_account("wendy")
    *_, made = await shown(site, "User", name)
    assert (made.by, made.text) == ("Administrator", "Created")
    assert await shown(site, "User", name, "wendy") == (made,)


async def test_history_has_what_was_done_with_an_account(site: VirtualSite) -> None:
    """H-206: a change shown as a Version is not shown twice."""
    name = await site.add_account("wendy")

    def disable(fw: Any) -> None:
        user = fw.get_doc("User", name)
        user.enabled = 0
        user.save()

    await site.do(disable)
    texts = [(entry.text, len(entry.changes)) for entry in await shown(site, "User", name)]
    assert texts == [("", 1), ("Created", 0)]


async def test_history_shows_audit_event_that_sql_has_damaged(site: VirtualSite) -> None:
    """H-206: the page does not fail."""
    name = await site.add_account("wendy")
    await site.do(partial(audited, site, Action.USER_RENAME, name))
    await site.sql("UPDATE doc_audit_event SET detail = '[1]'")
    assert [entry.text for entry in await shown(site, "User", name)] == ["Created"]
    assert await site.do(lambda fw: deletion(fw, "User", name)) is None


def audited(site: VirtualSite, action: Action, target: str, fw: Any) -> None:
    site.site.audit.record(fw, action, target)


def rename_user(name: str, later: str, fw: Any) -> None:
    fw.get_doc("User", name).rename(later)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action.WEBHOOK_DISABLE, "Disabled by the service"),
        (Action.NOTICE, "Its owner was notified that it fails"),
        (Action.NOTICE_END, "The notified failure ended"),
        (Action.ROTATION_END, "The old signing secret was cleared"),
        (Action.WEBHOOK_PAUSE, "Pause"),
    ],
)
async def test_history_states_what_the_service_has_done(
    site: VirtualSite, action: Action, text: str
) -> None:
    """H-206: a verb alone does not tell a reader that no person has acted."""
    fields = {"event_type": "Custom", "custom_event": "a.b", "secret": "a secret"}
    url = "https://receiver.test/"
    name = await site.do(lambda fw: fw.new_doc("Webhook", url=url, **fields).insert().name)
    await site.do(partial(audited, site, action, name))
    texts = [entry.text for entry in await shown(site, "Webhook", name)]
    assert texts == [text, "Created"]


async def texts_of(site: VirtualSite, doctype: str, name: str) -> list[str]:
    entries = await shown(site, doctype, name)
    return [entry.text or entry.changes[0].label for entry in entries]


async def test_history_follows_renames(site: VirtualSite, autojump_clock: MockClock) -> None:
    """H-206: operations from before a rename have the former name as target."""
    await site.add_account("wendy")
    for name, later in (("wendy", "gwen"), ("gwen", "gwendolyn")):
        await trio.sleep(1)
        await site.do(partial(audited, site, Action.UNLOCK, name))
        await trio.sleep(1)
        await site.do(partial(rename_user, name, later))
        await site.add_account(name, email=f"other-{name}@x.test")
        await trio.sleep(1)
        await site.do(partial(audited, site, Action.RESEND_INVITE, name))
    assert await texts_of(site, "User", "gwendolyn") == [
        "Name", "Unlock", "Name", "Unlock", "Created"
    ]  # fmt: skip
    assert await texts_of(site, "User", "wendy") == ["Resend invite", "Created"]


async def test_history_has_each_operation_once_after_rename_and_back(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """H-206."""
    await site.add_account("wendy")
    await trio.sleep(1)

    def rename_twice(fw: Any) -> None:
        audited(site, Action.UNLOCK, "wendy", fw)
        rename_user("wendy", "gwen", fw)
        rename_user("gwen", "wendy", fw)

    await site.do(rename_twice)
    assert sorted(await texts_of(site, "User", "wendy")) == ["Created", "Name", "Name", "Unlock"]


async def test_history_of_a_name_begins_with_its_document(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """H-206: a deleted document of the name was another one."""
    await site.add_account("wendy")
    await trio.sleep(1)
    await site.do(partial(audited, site, Action.UNLOCK, "wendy"))
    await site.do(partial(rename_user, "wendy", "gwen"))
    await site.do(lambda fw: fw.get_doc("User", "gwen").delete())
    await trio.sleep(1)
    for name in ("wendy", "gwen"):
        await site.add_account(name, email=f"new-{name}@x.test")
        assert await texts_of(site, "User", name) == ["Created"]


async def test_deletion_has_user_who_deleted_last_of_name(site: VirtualSite) -> None:
    """H-206, O-200."""
    await site.add_account("boss", "System Manager")
    await site.do(lambda fw: fw.new_doc("Notebook", title="ours").insert())
    await site.do(lambda fw: fw.get_doc("Notebook", "ours").delete(), "boss")
    gone = await site.do(lambda fw: deletion(fw, "Notebook", "ours"))
    assert gone is not None
    assert (gone.by, gone.text) == ("boss", "Deleted")
    assert await site.do(lambda fw: deletion(fw, "Note", "ours")) is None
    await site.add_account("wendy")
    assert await site.do(lambda fw: deletion(fw, "Notebook", "ours"), "wendy") is None
    await site.do(lambda fw: fw.get_doc("User", "wendy").delete(), "boss")
    ended = await site.do(lambda fw: deletion(fw, "User", "wendy"))
    assert ended is not None
    assert ended.by == "boss"
