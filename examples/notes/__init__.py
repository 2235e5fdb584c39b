"""A small app: notes that people write, and an event when one is shared."""

from __future__ import annotations

from typing import Any

from fw_actors.app import Check, Data, DocType, Text, whitelist
from fw_actors.errors import ValidationError


class Note(DocType, naming="random", permissions={"Note Writer": "list read create write delete"}):
    """A note. Saving one is an event for every Webhook that watches Note."""

    title = Data(required=True)
    text = Text()
    done = Check()

    def validate(self, fw: Any) -> None:
        """Refuse a note that only looks like one."""
        if not (self.title or "").strip():
            raise ValidationError("A note needs a title.", field="title")


@whitelist(roles=["Note Writer"])
def share(fw: Any, note: str, with_whom: str) -> dict[str, list[str]]:
    """Tell subscribers of `note.shared` that a note was shared."""
    shared = fw.get_doc("Note", note)
    told: dict[str, list[str]] = fw.webhooks.emit(
        "note.shared",
        {"title": shared.title, "with": with_whom},
        reference={"doctype": "Note", "name": note},
    )
    return told
