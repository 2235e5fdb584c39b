"""What the pages of some built-in DocTypes show besides the form that all have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from fw_actors.documents.times import iso
from web.pages.cells import Cell, badge
from web.pages.shell import document_path

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

RECENT: Final = 10


@dataclass(frozen=True)
class RecentDelivery:
    """One line of a Webhook's recent deliveries."""

    name: str
    path: str
    event: str
    status: Cell
    attempts: int
    answer: str
    creation: str


@dataclass(frozen=True)
class Special:
    """A template that extends `document.html`, and what it needs of the stored document."""

    template: str
    view: Callable[[Fw, Mapping[str, Any]], dict[str, Any]]


def _webhook(fw: Fw, values: Mapping[str, Any]) -> dict[str, Any]:
    fields = ["name", "event", "status", "attempts", "response_status", "creation"]
    rows = fw.get_list(
        "Webhook Delivery",
        [["webhook", "=", values["name"]]],
        fields,
        order_by="creation desc",
        limit=RECENT,
    )
    return {"recent": [_recent(row) for row in rows]}


def _recent(row: Mapping[str, Any]) -> RecentDelivery:
    return RecentDelivery(
        row["name"],
        document_path("Webhook Delivery", row["name"]),
        row["event"],
        badge(row["status"]),
        row["attempts"],
        str(row["response_status"] or ""),
        row["creation"],
    )


def _delivery(fw: Fw, values: Mapping[str, Any]) -> dict[str, Any]:
    at = values["next_attempt"]
    return {
        "how": badge(values["status"]),
        "payload": readable(values["payload"]),
        "is_due": at is not None and at <= iso(fw.tx.now),
    }


def _nothing(fw: Fw, values: Mapping[str, Any]) -> dict[str, Any]:
    return {}


SPECIAL: Final[Mapping[str, Special]] = MappingProxyType(
    {
        "Webhook": Special("webhook.html", _webhook),
        "Webhook Delivery": Special("delivery.html", _delivery),
        "User": Special("user.html", _nothing),
    }
)
PLAIN: Final = Special("document.html", _nothing)


def readable(text: str | None) -> str:
    """Return JSON text with its structure in sight; anything else as it is."""
    try:
        return json.dumps(json.loads(text or ""), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text or ""
