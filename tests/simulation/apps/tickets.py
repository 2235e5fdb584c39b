"""The app of the simulated site: tickets that are submitted, with lines and secrets."""

from __future__ import annotations

from typing import Any

from fw_actors.app import Data, DocType, Float, Password, Table, Text, Vault
from fw_actors.errors import ValidationError

AGENT = "list read create write delete submit cancel"


class TicketLine(DocType, child=True):
    """A line of a ticket."""

    item = Data(required=True)
    cost = Float(permlevel=1)


class Ticket(DocType, naming="random", submittable=True, permissions={"Agent": AGENT}):
    """The documents that the simulation's clients write."""

    title = Data(required=True)
    text = Text(allow_on_submit=True)
    pin = Password()
    token = Vault()
    margin = Float(permlevel=1)
    lines = Table(TicketLine)

    def on_update(self, fw: Any) -> None:
        """A hook that raises removes the event with the write (B-56)."""
        if self.title == "thrown away":
            raise ValidationError("Not this one.", field="title")


def write_ticket(fw: Any, title: str) -> None:
    """A job: it is done once, with what it writes."""
    fw.new_doc("Ticket", title=title, lines=[{"item": "made by a job"}]).insert()
