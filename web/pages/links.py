"""Links the values of lists and forms to the pages of the documents that they name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import Link
from web.pages.rendering import FIND, document_path

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

USER: Final = "User"
_USERS: Final = frozenset({"owner", "modified_by", "actor"})
_FIXED: Final[Mapping[tuple[str, str], str]] = {("Webhook Delivery", "webhook"): "Webhook"}
_BESIDE: Final[Mapping[tuple[str, str], str]] = {
    ("Webhook Delivery", "reference_name"): "reference_doctype",
    ("Version", "docname"): "ref_doctype",
    ("Audit Event", "target"): "action",
}
"""Fields that name a document, and the field with its DocType."""
_SUBJECTS: Final[Mapping[str, str]] = {
    "user": USER,
    "role": "Role",
    "user_permission": "User Permission",
    "api_key": "API Key",
    "webhook": "Webhook",
}
_OF_DELIVERIES: Final = ("webhook.replay", "webhook.cancel", "webhook.erase")


def fields_beside(meta: Meta, names: Iterable[str]) -> set[str]:
    """Return the further fields that hold the DocType of references in `names`."""
    return {_BESIDE[meta.name, name] for name in names if (meta.name, name) in _BESIDE}


def destinations(
    fw: Fw, meta: Meta, rows: Sequence[Mapping[str, Any]], names: Iterable[str]
) -> list[dict[str, str]]:
    """Return for each row the paths to which its fields lead, by the field's name.

    Only existing documents that the user may read have a path (H-203).
    """
    targets_by_row: list[dict[str, tuple[str, str]]] = []
    targets: dict[str, set[str]] = defaultdict(set)
    names = list(names)
    for row in rows:
        row_targets = {}
        for name in names:
            target = _target(meta, name, row)
            if target is not None:
                row_targets[name] = target
                targets[target[0]].add(target[1])
        targets_by_row.append(row_targets)
    readable = {
        (doctype, name)
        for doctype, linked in targets.items()
        for name in _readable(fw, doctype, linked)
    }
    paths = []
    for row, row_targets in zip(rows, targets_by_row, strict=True):
        of_row = {
            name: document_path(*target)
            for name, target in row_targets.items()
            if target in readable
        }
        if row.get("request_id") and "request_id" in names:
            of_row["request_id"] = f"{FIND}?q={quote(row['request_id'], safe='')}"
        paths.append(of_row)
    return paths


def _target(meta: Meta, name: str, row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the DocType and the name to which a field refers, if it refers to a document."""
    value = row.get(name)
    if not isinstance(value, str) or not value:
        return None
    field = meta.fields.get(name)
    if isinstance(field, Link):
        doctype: Any = field.options
    elif name in _USERS:
        doctype = USER
    elif (meta.name, name) in _BESIDE:
        doctype = row.get(_BESIDE[meta.name, name])
        if meta.name == "Audit Event":
            doctype = subject_of(str(doctype or ""))
    else:
        doctype = _FIXED.get((meta.name, name))
    return (str(doctype), value) if doctype else None


def subject_of(action: str) -> str | None:
    """Return the DocType that an audited action is about; None for one of no DocType."""
    if action in _OF_DELIVERIES:
        return "Webhook Delivery"
    return _SUBJECTS.get(action.partition(".")[0])


def _readable(fw: Fw, doctype: str, names: Iterable[str]) -> list[str]:
    """Return the existing documents that the user may read."""
    meta = fw.documents.registry.metas.get(doctype)
    if meta is None or meta.child or fw.rights.excludes(meta):
        return []
    if not (fw.rights.allows(meta, "list") and fw.rights.allows(meta, "read")):
        return []
    rows = fw.get_list(doctype, [["name", "in", sorted(names)]], ["name"])
    return [row["name"] for row in rows]
