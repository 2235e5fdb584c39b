"""The history of a document: its creation, its versions, and audited operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import Check, Table
from fw_actors.documents.handle import child_of
from fw_actors.rules.safe_output import is_secret
from web.pages.links import subject_of
from web.pages.listing import display_text, shortened
from web.pages.wording import DOCSTATUS, label_of

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

VERSION, AUDIT = "Version", "Audit Event"
DOCUMENT_DELETE: Final = "document.delete"
_IN_VERSIONS: Final = ("create", "change", "rename")
_OWN_ACTIONS: Final[Mapping[str, str]] = {
    "webhook.disable": "Disabled by the service",
    "webhook.notice": "Its owner was notified that it fails",
    "webhook.notice_end": "The notified failure ended",
    "webhook.rotation_end": "The old signing secret was cleared",
}
"""The actions of the service itself; other operations are named as their buttons are."""
MAX_ENTRIES: Final = 50


@dataclass(frozen=True)
class FieldChange:
    """A field's old and new value, as text."""

    label: str
    old: str
    new: str


@dataclass(frozen=True)
class HistoryEntry:
    """An entry of the history: the changes of a version, or an operation in words."""

    at: str
    by: str
    changes: tuple[FieldChange, ...]
    text: str = ""


def history(fw: Fw, doctype: str, values: Mapping[str, Any]) -> tuple[HistoryEntry, ...]:
    """Return the history of a document, the newest first: the last 50 versions, the last 50 audited
    operations, and its creation.

    Versions and operations are shown to users who may list them, the creation to all. Earlier ones
    are those of a deleted document of the name, and are left out.
    """
    name, begin = values["name"], values["creation"] or ""
    entries = [*_versions(fw, doctype, name, begin), *_operations(fw, doctype, name, begin)]
    entries.sort(key=lambda entry: entry.at, reverse=True)
    if values["creation"] is None:  # inserted by SQL
        return tuple(entries[:MAX_ENTRIES])
    insertion = HistoryEntry(values["creation"], values["owner"], (), "Created")
    return (*entries[:MAX_ENTRIES], insertion)


def _may_list(fw: Fw, doctype: str) -> bool:
    meta = fw.documents.registry.metas.get(doctype)
    return meta is not None and not fw.rights.excludes(meta) and fw.rights.allows(meta, "list")


def _operations(fw: Fw, doctype: str, name: str, begin: str) -> Iterator[HistoryEntry]:
    """Yield the audited operations on a document, except changes, which are versions.

    Operations from before a rename have the former name as target.
    """
    if not _may_list(fw, AUDIT):
        return
    end = ""
    seen: set[str] = set()  # a transaction may rename a document there and back
    while name and len(seen) < MAX_ENTRIES:
        rows, name, end = _targeted(fw, doctype, name, begin, end)
        for row in rows:
            verb = row["action"].partition(".")[2]
            if verb not in _IN_VERSIONS and row["name"] not in seen:
                text = _OWN_ACTIONS.get(row["action"]) or verb.replace("_", " ").capitalize()
                yield HistoryEntry(row["creation"], row["actor"] or "", (), text)
        if seen.issuperset(row["name"] for row in rows):
            return
        seen.update(row["name"] for row in rows)


def _targeted(
    fw: Fw, doctype: str, name: str, begin: str, end: str
) -> tuple[list[dict[str, Any]], str, str]:
    """Return the last Audit Events of a document under one of its names, newest first, and the name
    before it with the time of the rename.

    `begin` and `end` limit their times; an empty one does not. Under an earlier document of the
    name are those from before the rename.
    """
    period = [["creation", ">=", begin]] if begin else []
    if end:
        period.append(["creation", "<=", end])
    rows = fw.get_list(
        AUDIT,
        [["target", "=", name], *period],
        ["name", "action", "actor", "creation", "detail"],
        order_by="creation desc, name desc",
        limit=MAX_ENTRIES,
    )
    rows = [row for row in rows if subject_of(row["action"]) == doctype]
    for row in rows:
        detail = _detail(row)
        if row["action"].endswith(".rename") and detail.get("new") == name:
            since, former = row["creation"], str(detail.get("old") or "")
            return [each for each in rows if each["creation"] >= since], former, since
    return rows, "", ""


def _detail(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the detail of an Audit Event; SQL may have written anything."""
    detail = event["detail"]
    return detail if isinstance(detail, dict) else {}


def deletion(fw: Fw, doctype: str, name: str) -> HistoryEntry | None:
    """Return the user and time of the last deletion of this name; None if not recorded."""
    if not _may_list(fw, AUDIT):
        return None
    rows = fw.get_list(
        AUDIT,
        [["target", "=", name], ["action", "like", "%.delete"]],
        ["action", "actor", "creation", "detail"],
        order_by="creation desc, name desc",
        limit=MAX_ENTRIES,
    )
    for row in rows:
        of_it = _detail(row).get("doctype") if row["action"] == DOCUMENT_DELETE else None
        if doctype in (of_it, subject_of(row["action"])):
            return HistoryEntry(row["creation"], row["actor"] or "", (), "Deleted")
    return None


def _versions(fw: Fw, doctype: str, name: str, begin: str) -> tuple[HistoryEntry, ...]:
    if not _may_list(fw, VERSION):
        return ()
    period = [["creation", ">=", begin]] if begin else []
    rows = fw.get_list(
        VERSION,
        [["ref_doctype", "=", doctype], ["docname", "=", name], *period],
        ["data", "owner", "creation"],
        order_by="creation desc, name desc",
        limit=MAX_ENTRIES,
    )
    meta = fw.documents.registry.meta(doctype)
    return tuple(HistoryEntry(r["creation"], r["owner"], changes_of(r["data"], meta)) for r in rows)


_OldAndNew = tuple[Any, Any]


class _RowChange(msgspec.Struct, frozen=True):
    """The change of a row in the `data` of a Version."""

    table: str
    change: str
    changed: dict[str, _OldAndNew]


class _VersionData(msgspec.Struct, frozen=True):
    """The `data` of a Version."""

    changed: dict[str, _OldAndNew] | None = None
    rows: tuple[_RowChange, ...] | None = None


def changes_of(data: object, meta: Meta) -> tuple[FieldChange, ...]:
    """Return the changes in a Version's `data`, the document's fields before its rows.

    At most 50; the last one states the number of further changes. A Version that names no field is
    a change of a secret field (D-224). SQL may have written anything.
    """
    try:
        read = msgspec.convert({} if data is None else data, _VersionData)
    except msgspec.ValidationError:
        return (FieldChange("Changes that cannot be read", "", ""),)
    changes = tuple(_changes(read, meta))
    if not changes:
        secret = [label_of(f.name) for f in meta.fields.values() if is_secret(f.name, f.type)]
        changes = (FieldChange(" or ".join(secret) or "A field that is not shown", "", "changed"),)
    if len(changes) <= MAX_ENTRIES:
        return changes
    more = FieldChange("And", "", f"{len(changes) - MAX_ENTRIES + 1} more")
    return (*changes[: MAX_ENTRIES - 1], more)


def _changes(data: _VersionData, meta: Meta) -> Iterator[FieldChange]:
    for field, (old, new) in (data.changed or {}).items():
        yield FieldChange(label_of(field), _in_words(meta, field, old), _in_words(meta, field, new))
    for row in data.rows or ():
        table = meta.fields.get(row.table)
        child = child_of(table).meta if isinstance(table, Table) else meta
        yield from _row_changes(label_of(row.table), child, row.change, row.changed)


def _row_changes(
    table: str, meta: Meta, change: str, changed: Mapping[str, _OldAndNew]
) -> Iterator[FieldChange]:
    """Yield one change for an added or removed row, one for each field of a changed row."""
    if change == "added":
        added_values = _summary(meta, ((k, new) for k, (_, new) in changed.items()))
        yield FieldChange(f"{table}, row added", "", added_values)
    elif change == "removed":
        removed_values = _summary(meta, ((k, old) for k, (old, _) in changed.items()))
        yield FieldChange(f"{table}, row removed", removed_values, "nothing")
    else:
        for field, (old, new) in changed.items():
            label = "position" if field == "idx" else label_of(field)
            yield FieldChange(
                f"{table}, {label}", _in_words(meta, field, old), _in_words(meta, field, new)
            )


def _summary(meta: Meta, values: Iterable[tuple[str, Any]]) -> str:
    """Return the fields of a row in one line: `Item: Screws, Quantity: 3`."""
    fields = (f"{label_of(k)}: {_in_words(meta, k, v)}" for k, v in values)
    return shortened(", ".join(fields)) or "empty"


def _in_words(meta: Meta, field: str, value: Any) -> str:
    """Return a value as shown in the form, not as stored."""
    if field == "docstatus" and value in range(len(DOCSTATUS)):
        return DOCSTATUS[value]
    if isinstance(meta.fields.get(field), Check):
        return "Yes" if value else "No"
    return shortened(display_text(value))
