"""What became of a document: its versions, the newest first (interface §8, Version)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """Return the last 50 versions of a document; none for who may not read Version."""
    meta = fw.documents.registry.metas.get(VERSION)
    if meta is None or not fw.rights.allows(meta, "list"):
        return ()
    rows = fw.get_list(
        VERSION,
        [["ref_doctype", "=", doctype], ["docname", "=", name]],
        ["data", "owner", "creation"],
        order_by="creation desc, name desc",
        limit=MOST,
    )
    return tuple(Entry(r["creation"], r["owner"], tuple(_changes(r["data"]))) for r in rows)


def _changes(data: Mapping[str, Any] | None) -> Iterator[Change]:
    data = data or {}
    for field, (old, new) in (data.get("changed") or {}).items():
        yield Change(label_of(field), shortened(told(old)), shortened(told(new)))
    rows = data.get("rows")
    if rows:
        yield Change("Rows", "", _rows_told(rows))


def _rows_told(rows: Any) -> str:
    """Say what happened to child rows, in the shape that the Version has."""
    if isinstance(rows, Mapping):
        return ", ".join(label_of(str(table)) for table in rows)
    return f"{len(rows)} changed"
