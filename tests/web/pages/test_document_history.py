"""The history on a document's page: creation, operations and deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fw_actors.documents import rest
from tests.fw_actors.office import Office, open_office
from web.pages.history import HistoryEntry, deletion, history

Entries = tuple[HistoryEntry, ...]


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as office:
        yield office


async def shown(office: Office, doctype: str, name: str, user: str = "Administrator") -> Entries:
    values = await office.do(lambda fw: rest.read(fw, doctype, name))
    return await office.do(lambda fw: history(fw, doctype, values), user)


async def test_history_ends_with_creator(office: Office) -> None:
    """H-206: also for users without permission to list records."""
    name = await office.hire("wendy")
    *_, made = await shown(office, "User", name)
    assert (made.by, made.text) == ("Administrator", "Created")
    assert await shown(office, "User", name, "wendy") == (made,)


async def test_history_has_what_was_done_with_an_account(office: Office) -> None:
    """H-206: a change shown as a Version is not shown twice."""
    name = await office.hire("wendy")

    def disable(fw: Any) -> None:
        user = fw.get_doc("User", name)
        user.enabled = 0
        user.save()

    await office.do(disable)
    texts = [(entry.text, len(entry.changes)) for entry in await shown(office, "User", name)]
    assert texts == [("", 1), ("Created", 0)]


async def test_deletion_has_user_who_deleted_last_of_name(office: Office) -> None:
    """H-206, O-200."""
    await office.hire("boss", "System Manager")
    await office.do(lambda fw: fw.new_doc("Notebook", title="ours").insert())
    await office.do(lambda fw: fw.get_doc("Notebook", "ours").delete(), "boss")
    gone = await office.do(lambda fw: deletion(fw, "Notebook", "ours"))
    assert gone is not None
    assert (gone.by, gone.text) == ("boss", "Deleted")
    assert await office.do(lambda fw: deletion(fw, "Note", "ours")) is None
    await office.hire("wendy")
    assert await office.do(lambda fw: deletion(fw, "Notebook", "ours"), "wendy") is None
    await office.do(lambda fw: fw.get_doc("User", "wendy").delete(), "boss")
    ended = await office.do(lambda fw: deletion(fw, "User", "wendy"))
    assert ended is not None
    assert ended.by == "boss"
