"""What became of a document: its versions, the newest first (interface §8, Version)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from web.pages.cells import shortened, told
from web.pages.wording import label_of

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

VERSION: Final = "Version"
MOST: Final = 50


@dataclass(frozen=True)
class Change:
    """A field's old and new value, as text."""

    label: str
    old: str
    new: str


@dataclass(frozen=True)
class Entry:
    """One version: who changed what, when."""

    at: str
    by: str
    changes: tuple[Change, ...]


def history(fw: Fw, doctype: str, name: str) -> tuple[Entry, ...]:
    """Return the last 50 versions of a document; none where the user may not list Version."""
    meta = fw.documents.registry.metas.get(VERSION)
    if meta is None or fw.rights.shut_out(meta) or not fw.rights.allows(meta, "list"):
        return ()
    rows = fw.get_list(
        VERSION,
        [["ref_doctype", "=", doctype], ["docname", "=", name]],
        ["data", "owner", "creation"],
        order_by="creation desc, name desc",
        limit=MOST,
    )
    return tuple(Entry(r["creation"], r["owner"], changes_of(r["data"])) for r in rows)


def changes_of(data: Mapping[str, Any] | None) -> tuple[Change, ...]:
    """Return what a Version's `data` tells, the document's fields before its rows.

    At most 50 changes; a last one says how many more there are.
    """
    changes = tuple(_changes(data or {}))
    if len(changes) <= MOST:
        return changes
    more = Change("And", "", f"{len(changes) - MOST + 1} more")
    return (*changes[: MOST - 1], more)


def _changes(data: Mapping[str, Any]) -> Iterator[Change]:
    for field, (old, new) in (data.get("changed") or {}).items():
        yield Change(label_of(field), shortened(told(old)), shortened(told(new)))
    for row in data.get("rows") or ():
        yield from _of_row(label_of(row["table"]), row["change"], row["changed"])


def _of_row(table: str, change: str, changed: Mapping[str, Any]) -> Iterator[Change]:
    """A row that came or went is told at once, one that changed field by field."""
    if change == "added":
        yield Change(
            f"{table}, row added", "", _summed_up((k, new) for k, (_, new) in changed.items())
        )
    elif change == "removed":
        gone = _summed_up((k, old) for k, (old, _) in changed.items())
        yield Change(f"{table}, row removed", gone, "nothing")
    else:
        for field, (old, new) in changed.items():
            label = "position" if field == "idx" else label_of(field)
            yield Change(f"{table}, {label}", shortened(told(old)), shortened(told(new)))


def _summed_up(values: Iterable[tuple[str, Any]]) -> str:
    """Return the fields of a row in one line: `Item: Screws, Quantity: 3`."""
    return shortened(", ".join(f"{label_of(k)}: {told(v)}" for k, v in values)) or "empty"
