"""The example app: notes in notebooks, and minutes of meetings that are approved.

docs/writing-an-app.md walks through it; its tests are in tests/examples.
"""

from __future__ import annotations

from typing import Any

from fw_actors.app import (
    Check,
    Data,
    Date,
    DocType,
    Float,
    Link,
    Password,
    Select,
    Table,
    Text,
    Vault,
    whitelist,
)
from fw_actors.errors import ValidationError

WRITER, CHAIR = "Note Writer", "Note Chair"


class Notebook(
    DocType,
    naming="field:title",
    permissions={WRITER: "list read", CHAIR: "list read create write delete export"},
):
    """A folder of notes. Its name is its title; renaming it keeps its notes."""

    title = Data(required=True)
    shelf_token = Vault()  # for the service that publishes it: encrypted at rest
    door_password = Password()  # the lock needs it in plain text: unencrypted at rest, never shown


class Note(
    DocType,
    naming="random",
    permissions={WRITER: "list read create write delete", CHAIR: "list read delete"},
):
    """A note. Saving one is an event for every Webhook that watches Note."""

    title = Data(required=True)
    text = Text()
    done = Check()
    notebook = Link(options="Notebook")
    mood = Select(options=["calm", "urgent"], default="calm")

    def validate(self, fw: Any) -> None:
        """Refuse a title that consists of white space."""
        if not (self.title or "").strip():
            raise ValidationError("A note needs a title.", field="title")


class Decision(DocType, child=True):
    """One row of the minutes."""

    text = Data(required=True)
    who = Data()
    done = Check(allow_on_submit=True)
    cost = Float(permlevel=1)


class Minutes(
    DocType,
    naming="series:MIN-.####",
    submittable=True,
    permissions={
        WRITER: "list read create write",
        CHAIR: "list read create write submit cancel export read:1 write:1",
    },
):
    """The decisions of a meeting. Approved (submitted) minutes change in few places only."""

    title_field = "meeting"

    meeting = Data(required=True)
    held_on = Date()
    notebook = Link(options="Notebook")
    decisions = Table(Decision)
    follow_up = Text(allow_on_submit=True)
    budget = Float(permlevel=1)

    def before_validate(self, fw: Any) -> None:
        """Leave nothing blank that can be known."""
        self.meeting = (self.meeting or "").strip() or None

    def validate(self, fw: Any) -> None:
        """Refuse minutes that spend what is not there."""
        spent = sum(row.cost or 0 for row in self.decisions)
        if self.budget is not None and spent > self.budget:
            raise ValidationError(f"{spent:g} is more than the budget.", field="decisions")

    def on_submit(self, fw: Any) -> None:
        """Tell who listens that the minutes hold; what is told is undone with a refused submit."""
        if not self.decisions:
            raise ValidationError("Minutes without a decision cannot be approved.")
        fw.webhooks.emit(
            "minutes.approved",
            {"meeting": self.meeting, "decisions": [row.text for row in self.decisions]},
            reference={"doctype": "Minutes", "name": self.name},
        )


@whitelist(roles=[WRITER])
def share(fw: Any, note: str, with_whom: str) -> dict[str, list[str]]:
    """Tell subscribers of `note.shared` that a note was shared."""
    shared = fw.get_doc("Note", note)
    told: dict[str, list[str]] = fw.webhooks.emit(
        "note.shared",
        {"title": shared.title, "with": with_whom},
        reference={"doctype": "Note", "name": note},
    )
    return told


@whitelist(roles=[CHAIR])
def tidy(fw: Any, notebook: str) -> dict[str, int]:
    """Have the done notes of a notebook deleted later, by a job."""
    done = fw.get_list("Note", {"notebook": notebook, "done": 1})
    fw.enqueue(delete_done, notebook=notebook)
    return {"found": len(done)}


def delete_done(fw: Any, notebook: str) -> None:
    """Delete the done notes of a notebook: a job, run once as the user who asked for it."""
    for row in fw.get_all("Note", {"notebook": notebook, "done": 1}):
        fw.get_doc("Note", row["name"]).delete()
