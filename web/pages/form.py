"""The form of a document, made from its DocType: fields, inputs, permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fw_actors.documents import permissions
from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import CONFIGURED, Field, Int, Link, Select, Table
from fw_actors.documents.handle import child_of
from fw_actors.webhooks.subscriptions import UNWATCHABLE
from web.pages.listing import titles_beside
from web.pages.wording import label_of

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

DRAFT, SUBMITTED = 0, 1
KINDS: Final[Mapping[str, str]] = {
    "Data": "line",
    "Text": "text",
    "Int": "number",
    "Float": "number",
    "Check": "check",
    "Date": "date",
    "Datetime": "datetime",
    "Select": "choice",
    "Link": "link",
    "JSON": "json",
    "Password": "secret",
    "Vault": "secret",
    "Table": "table",
}
SHOWN_WHEN: Final[Mapping[tuple[str, str], str]] = {
    ("Webhook", "webhook_doctype"): "event_type=Document",
    **{
        ("Webhook", f"on_{event}"): "event_type=Document"
        for event in ("insert", "update", "submit", "cancel", "trash")
    },
    ("Webhook", "custom_event"): "event_type=Custom",
}
"""Fields that are shown for one value of another field."""
SHOWN_ELSEWHERE: Final = frozenset(
    ("Webhook", name) for name in ("paused_since", "paused_until", "old_secret", "old_secret_until")
)
"""Fields that a page shows outside of its form."""
SHOWN_WHEN_SET: Final = frozenset({("Webhook", "disabled_reason")})
REQUIRED_WHEN_SHOWN: Final = frozenset(
    {("Webhook", "webhook_doctype"), ("Webhook", "custom_event")}
)
HINTS: Final[Mapping[tuple[str, str], str]] = {
    ("User", "enabled"): (
        "Disabling rejects sign-ins, and ends sessions, API keys and links permanently."
    ),
    ("Webhook", "enabled"): (
        "A disabled Webhook receives no events, and its waiting deliveries fail. A paused one "
        "keeps them."
    ),
    ("Webhook", "title"): "Display name; without one the URL is shown.",
    ("Webhook", "url"): "https; http for a loopback address only.",
    ("Webhook", "secret"): "Signs every request. Kept encrypted, and never shown again.",
    ("Webhook", "client_certificate"): "NAME of FW_CLIENT_CERT_NAME, if the receiver requires one.",
    ("Webhook", "custom_event"): "The name that an app emits, such as invoice.paid.",
    ("Webhook", "timeout"): "Seconds to wait for the receiver's response, 1 to 60.",
    ("Webhook", "max_attempts"): (
        "1 to 10; the waits between them double. A Retry-After of the receiver lengthens them only "
        "with ops.honourRetryAfter."
    ),
    ("Webhook", "ordering"): (
        "document: one delivery at a time for each document, the next after the one before is sent "
        "or has failed. For events from now on."
    ),
    ("Webhook", "rate_limit"): "Requests a second over all processes of the site; 0 for no limit.",
}
SECTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("Webhook", "event_type"): "Events",
    ("Webhook", "secret"): "Delivery",
    ("Webhook Delivery", "attempts"): "Attempts",
    ("Webhook Delivery", "reference_doctype"): "Event",
}
"""The first fields of sections, and the titles."""


@dataclass(frozen=True)
class FormField:
    """A field of the form. `value` is the input's text; `rows` are those of a table.

    `path` is the page of the document that the value names. A link is to a document of `target`,
    which is also found by its fields `titles`.

    `open_cells`: of a table whose rows are locked some cells can still be changed.
    """

    name: str
    id: str
    label: str
    kind: str
    value: str = ""
    required: bool = False
    locked: bool = False
    choices: tuple[str, ...] = ()
    target: str = ""
    titles: tuple[str, ...] = ()
    length: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    step: str = ""
    hint: str = ""
    shown_when: str = ""
    section: str = ""
    columns: tuple[FormField, ...] = ()
    rows: tuple[FormRow, ...] = ()
    open_cells: bool = False
    path: str = ""


@dataclass(frozen=True)
class FormRow:
    """A row of a table; `name` is empty for a new one."""

    name: str
    cells: tuple[FormField, ...]


def inputs(fw: Fw, meta: Meta, values: Mapping[str, Any] | None) -> tuple[FormField, ...]:
    """Return the form's fields; without `values` those of a new document.

    Fields above the user's permlevel are left out; those that the user cannot change are locked.
    """
    form_fields = []
    for field in meta.fields.values():
        if not fw.rights.sees_level(meta, field.permlevel):
            continue
        if (values is None and field.read_only) or (meta.name, field.name) in SHOWN_ELSEWHERE:
            continue
        value = field.blank() if values is None else values[field.name]
        if not value and (meta.name, field.name) in SHOWN_WHEN_SET:
            continue
        locked = _is_locked(fw, meta, field, values)
        form_field = _input(fw, meta, field, value, locked=locked)
        if isinstance(field, Table) and locked and _rows_are_open(fw, meta, field, values):
            form_field = _with_open_cells(field, form_field)
        form_fields.append(form_field)
    return tuple(form_fields)


def editable(fw: Fw, meta: Meta, values: Mapping[str, Any] | None) -> bool:
    """Return whether this user can currently save the document."""
    if meta.read_only:
        return False
    if values is None:
        return fw.rights.allows(meta, "create") and fw.rights.is_writable_in_scope(meta)
    if not fw.rights.allows(meta, "write") or values["docstatus"] > SUBMITTED:
        return False
    if not permissions.leaves_writable(fw, meta, values):
        return False
    return values["docstatus"] == DRAFT or any(map(_opens_on_submit, meta.fields.values()))


def _opens_on_submit(field: Field) -> bool:
    """Return whether a field of a submitted document, or cells of its rows, can be changed."""
    if isinstance(field, Table) and any(
        each.allow_on_submit for each in child_of(field).meta.fields.values()
    ):
        return True
    return field.allow_on_submit


def _is_locked(fw: Fw, meta: Meta, field: Field, values: Mapping[str, Any] | None) -> bool:
    if field.read_only or not editable(fw, meta, values):
        return True
    if not fw.rights.sees_level(meta, field.permlevel, "write"):
        return True
    return bool(values and values["docstatus"] == SUBMITTED and not field.allow_on_submit)


def _rows_are_open(fw: Fw, meta: Meta, field: Table, values: Mapping[str, Any] | None) -> bool:
    """Return whether rows of a submitted document may change, though none may be added or
    removed."""
    if values is None or values["docstatus"] != SUBMITTED or field.read_only:
        return False
    return editable(fw, meta, values) and fw.rights.sees_level(meta, field.permlevel, "write")


def _with_open_cells(table: Table, form_field: FormField) -> FormField:
    """Unlock the cells of a table that may change in a submitted document."""
    child = child_of(table).meta.fields
    open_names = {name for name, f in child.items() if f.allow_on_submit and not f.read_only}

    def cells(row: FormRow) -> FormRow:
        return replace(
            row, cells=tuple(replace(c, locked=c.name not in open_names) for c in row.cells)
        )

    return replace(form_field, rows=tuple(map(cells, form_field.rows)), open_cells=bool(open_names))


def _input(
    fw: Fw, meta: Meta, field: Field, value: Any, *, locked: bool, row: str = ""
) -> FormField:
    form_field = FormField(
        name=field.name,
        id=f"f-{row}{field.name}",
        label=label_of(field.name),
        kind=KINDS[field.type],
        value=_text(field, value),
        required=(field.required and field.type != "Check")
        or (meta.name, field.name) in REQUIRED_WHEN_SHOWN,
        locked=locked,
        length=field.length,
        step="any" if field.type == "Float" else "",
        hint=HINTS.get((meta.name, field.name), ""),
        shown_when=SHOWN_WHEN.get((meta.name, field.name), ""),
        section=SECTIONS.get((meta.name, field.name), ""),
    )
    if isinstance(field, Int):
        return replace(form_field, minimum=field.minimum, maximum=field.maximum)
    if isinstance(field, Select):
        # With the stored value, which may no longer be an option.
        stored = [form_field.value] if form_field.value else []
        return replace(form_field, choices=tuple(dict.fromkeys((*field.options, *stored))))
    if isinstance(field, Link):
        target = str(field.options)
        return replace(form_field, target=target, titles=titles_beside(fw, target))
    if isinstance(field, Table):
        return _table(fw, meta, field, value, form_field)
    if (meta.name, field.name) == ("Webhook", "webhook_doctype"):
        return replace(form_field, kind="choice", choices=_watchable(fw, form_field.value))
    return form_field


def _table(fw: Fw, meta: Meta, field: Table, value: Any, form_field: FormField) -> FormField:
    child = child_of(field).meta
    fields = [f for f in child.fields.values() if fw.rights.sees_level(meta, f.permlevel)]

    def cells(values: Mapping[str, Any] | None, row: str) -> tuple[FormField, ...]:
        return tuple(
            _input(
                fw,
                child,
                each,
                each.blank() if values is None else values[each.name],
                locked=form_field.locked or each.read_only,
                row=f"{field.name}-{row}-",
            )
            for each in fields
        )

    rows = (FormRow(v["name"], cells(v, str(n))) for n, v in enumerate(value or (), 1))
    return replace(form_field, columns=cells(None, "new"), rows=tuple(rows))


def _watchable(fw: Fw, now: str) -> tuple[str, ...]:
    """Return the DocTypes that a Webhook can watch, including its current one."""
    metas: Sequence[Meta] = sorted(fw.documents.registry.metas.values(), key=lambda m: m.name)
    names = [m.name for m in metas if not m.child and m.name not in UNWATCHABLE]
    return tuple(dict.fromkeys((*names, *([now] if now else []))))


def _text(field: Field, value: Any) -> str:
    """Return a value as an input's text; for a secret, only whether it is set."""
    if field.secret:
        return "configured" if value == CONFIGURED else ""
    if value is None or isinstance(field, Table):
        return ""
    if field.type == "JSON":
        return json.dumps(value, ensure_ascii=False, indent=2)
    # Without rounding: saving a table sends every row back as the form has it.
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def sections(form_fields: Sequence[FormField]) -> Iterator[tuple[str, list[FormField]]]:
    """Yield the form's sections: the title, empty for the first, and the fields."""
    title = ""
    section_fields: list[FormField] = []
    for each in form_fields:
        if each.section and section_fields:
            yield title, section_fields
            section_fields = []
        title = each.section or title
        section_fields.append(each)
    if section_fields:
        yield title, section_fields
