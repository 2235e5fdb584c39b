"""List pages: search, filters, order, paging.

The form is a plain GET that works without scripts; htmx only avoids the reload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import sqlalchemy as sa

from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import Check, Field, Float, Link, Select, iso, requested_time
from fw_actors.documents.query import MAX_FIELDS, ListPage, list_page
from fw_actors.errors import BadRequestError
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_HOUR
from web.pages.links import destinations, fields_beside
from web.pages.rendering import document_path, list_path, new_path
from web.pages.wording import DOCSTATUS, columns_of, described, label_of, titles_of

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw


GOOD, WARN, BAD, PLAIN = "good", "warn", "bad", "plain"
TONES: Final[Mapping[str, str]] = {
    "Sent": GOOD,
    "Submitted": GOOD,
    "Retrying": WARN,
    "Failed": BAD,
    "Cancelled": BAD,
    "Denied": BAD,
}
_TIMES: Final = ("creation", "modified")
_KINDS: Final[Mapping[str, str]] = {"Datetime": "time", "Int": "number", "Float": "number"}
MAX_CELL_CHARACTERS: Final = 80


@dataclass(frozen=True)
class ListCell:
    """A value to show: `kind` is text, words, time, number, check or badge; `tone` is a badge's
    colour.

    `path` is the page to which the value leads; `note`, such as an id, is shown next to it.
    """

    kind: str
    text: str
    tone: str = PLAIN
    path: str = ""
    note: str = ""


EMPTY: Final = ListCell("text", "")


def cell(meta: Meta, name: str, value: Any) -> ListCell:
    """Return a field's value as a cell."""
    if name == "docstatus":
        return badge(DOCSTATUS[value])
    kind = _type_of(meta, name)
    if kind == "Check":
        return ListCell("check", "Yes" if value else "No")
    if value is None or value == "":
        return EMPTY
    if kind == "Select" or name == "action":
        return badge(str(value))
    if kind == "JSON":
        return ListCell("words", shortened(json_in_words(value)))
    return ListCell(kind_of(meta, name), shortened(str(value)))


def kind_of(meta: Meta, name: str) -> str:
    """Return the kind of a field's cells: text, time or number."""
    kind = _type_of(meta, name)
    return "words" if kind == "JSON" else _KINDS.get(kind, "text")


def _type_of(meta: Meta, name: str) -> str:
    field = meta.fields.get(name)
    return "Datetime" if name in _TIMES else "" if field is None else field.type


def badge(text: str) -> ListCell:
    """Return a state as a coloured badge."""
    return ListCell("badge", text, TONES.get(text, PLAIN))


def shortened(text: str) -> str:
    """Return `text`, cut if it is long."""
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 1] + "…"


def display_text(value: Any) -> str:
    """Return a JSON value as text for the history."""
    if value is None or value == "":
        return "empty"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_in_words(value: Any) -> str:
    """Return a JSON value in words: `{"changed": ["url", "enabled"]}` is `Changed: url, enabled`.

    The details of Audit Events have names as keys and few values.
    """
    if isinstance(value, dict):
        return "; ".join(f"{label_of(key)}: {_member(each)}" for key, each in value.items())
    return _member(value)


def _member(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(display_text, value)) or "none"
    return "none" if value is None else display_text(value)


PAGE_SIZE: Final = 50
LAST_PAGE: Final = 100_000
# A field's name begins with a letter: none of these can be one.
SEARCH, SORT, PAGE, SINCE = "_q", "_sort", "_page", "_since"
FROM, UNTIL = "_from", "_to"
PERIODS: Final[Mapping[str, tuple[str, int]]] = {
    "1h": ("In the last hour", MS_PER_HOUR),
    "1d": ("In the last day", MS_PER_DAY),
    "7d": ("In the last week", 7 * MS_PER_DAY),
    "30d": ("In the last 30 days", 30 * MS_PER_DAY),
}
"""The choices for the time of creation: label, and age (ms)."""
SEARCHED_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {"Error Log": ("message",)}
"""Long texts of built-in DocTypes that are searched too."""
FILTERED_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Webhook Delivery": ("webhook", "event"),
    "Audit Event": ("action", "target", "actor"),
    "Version": ("ref_doctype", "docname"),
    "API Key": ("user",),
}
"""Text fields of built-in DocTypes that are filtered by their exact value."""


@dataclass(frozen=True)
class FilterChoice:
    """One option of a filter."""

    value: str
    label: str
    chosen: bool


@dataclass(frozen=True)
class ListFilter:
    """A filter of the list; without choices a text field, of a DocType's names with `target`,
    which are also found by the fields `titles`."""

    name: str
    label: str
    value: str
    choices: tuple[FilterChoice, ...] = ()
    target: str = ""
    titles: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListColumn:
    """A column's head: `path` sorts by it, `order` is the current order."""

    name: str
    label: str
    path: str
    order: str
    kind: str


@dataclass(frozen=True)
class ListRow:
    """A document in the list."""

    name: str
    path: str
    cells: tuple[ListCell, ...]


@dataclass(frozen=True)
class ListPaging:
    """The place of a page in its list, and the addresses of other pages.

    `first` and `last` are the numbers of its rows, from 1; `first` is 0 without rows. `begin` is
    the first page; `before` and `after` are None at either end.
    """

    first: int
    last: int
    begin: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Listing:
    """A page of a list, as the template shows it."""

    doctype: str
    about: str
    path: str
    new: str | None
    search: str
    sort: str
    filters: tuple[ListFilter, ...]
    begins: str
    """The begin of the requested range of times; empty without a limit."""
    ends: str
    """The end of the range; empty without a limit."""
    filtered: bool
    matching: str
    """The filters in the form of the JSON API, limited to documents that exist now: an action on
    all that match affects none that `total` does not count because it was created later."""
    export: str
    """The path of the list as CSV; empty if the user may not export."""
    columns: tuple[ListColumn, ...]
    rows: tuple[ListRow, ...]
    total: int
    """The number of matches, up to the limit of counting; `more`: there are more."""
    more: bool
    newest_only: bool
    """Whether only the newest documents were searched."""
    paging: ListPaging


def listing(
    fw: Fw,
    doctype: str,
    query: Mapping[str, str],
    conditions: Sequence[sa.ColumnElement[bool]] = (),
) -> Listing:
    """Return the page of the list for a query, and for further `conditions` on its table.

    Raises: the errors of the JSON API's list; BadRequestError for a page that is not a number.
    """
    meta = fw.documents.registry.meta(doctype)
    visible = visible_fields(fw, meta)
    columns = columns_of(meta, visible)
    number = _page_number(query.get(PAGE, ""))
    filters = query_filters(fw, meta, query)
    page = list_page(
        fw,
        doctype,
        filters,
        list(dict.fromkeys(("name", *columns, *sorted(fields_beside(meta, columns))))),
        order_by=query_order(query),
        limit=PAGE_SIZE,
        start=(number - 1) * PAGE_SIZE,
        further_conditions=conditions,
    )
    path = list_path(doctype)
    kept = {k: v for k, v in query.items() if v and k != PAGE}
    export_path = f"/export/{quote(doctype, safe='')}"
    return Listing(
        doctype=doctype,
        about=described(meta),
        path=path,
        new=new_path(doctype) if _is_makeable(fw, meta) else None,
        search=query.get(SEARCH, ""),
        sort=query.get(SORT, ""),
        filters=(
            *_filter_choices(fw, meta, visible, _values(query)),
            _period(query.get(SINCE, "")),
        ),
        begins=query.get(FROM, ""),
        ends=query.get(UNTIL, ""),
        filtered=bool(filters or conditions),
        matching=json.dumps([*filters, ["creation", "<", iso(fw.tx.now + 1)]]),
        export=_address(export_path, kept, 1) if fw.rights.allows(meta, "export") else "",
        columns=tuple(_column(meta, path, kept, name) for name in columns),
        rows=_rows(fw, meta, columns, page),
        total=page.total,
        more=page.more,
        newest_only=page.newest_only,
        paging=_paging(path, kept, number, page),
    )


def _rows(fw: Fw, meta: Meta, columns: Sequence[str], page: ListPage) -> tuple[ListRow, ...]:
    paths = destinations(fw, meta, page.rows, columns)
    return tuple(
        _row(meta, columns, row, of_row) for row, of_row in zip(page.rows, paths, strict=True)
    )


def _paging(path: str, kept: Mapping[str, str], number: int, page: ListPage) -> ListPaging:
    """Return the place of page `number` (from 1)."""
    before = (number - 1) * PAGE_SIZE
    last = before + len(page.rows)
    return ListPaging(
        first=before + 1 if page.rows else 0,
        last=last,
        begin=_address(path, kept, 1),
        before=_address(path, kept, number - 1) if number > 1 else None,
        after=_address(path, kept, number + 1) if last < page.total or page.more else None,
    )


def _values(query: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in query.items() if v != "" and not k.startswith("_")}


def query_filters(fw: Fw, meta: Meta, query: Mapping[str, str]) -> list[list[Any]]:
    """Return the filters of a query, in the form of the JSON API. Raises: BadRequestError."""
    fields = searchable(meta, visible_fields(fw, meta))
    return [
        *([name, "=", _typed(meta, name, text)] for name, text in _values(query).items()),
        *_since(fw, query.get(SINCE, "")),
        *_range(query),
        *_search(fw, meta, query.get(SEARCH, ""), fields),
    ]


def query_order(query: Mapping[str, str]) -> str | None:
    """Return the order of a query: `-due` is `due desc`; None is newest first."""
    sort = query.get(SORT, "")
    return f"{sort[1:]} desc" if sort.startswith("-") else sort or None


def _is_makeable(fw: Fw, meta: Meta) -> bool:
    if meta.read_only or meta.own_operations or not fw.rights.is_writable_in_scope(meta):
        return False
    return fw.rights.allows(meta, "create")


def visible_fields(fw: Fw, meta: Meta) -> Mapping[str, Field]:
    """Return the fields that the user may see."""
    return {
        name: field
        for name, field in meta.fields.items()
        if fw.rights.sees_level(meta, field.permlevel)
    }


def titles_beside(fw: Fw, doctype: str) -> tuple[str, ...]:
    """Return the fields with titles of a DocType's documents, by which links to them are found."""
    meta = fw.documents.registry.meta(doctype)
    visible = visible_fields(fw, meta)
    return tuple(
        name
        for name in dict.fromkeys(titles_of(meta))
        if name in visible and visible[name].type == "Data" and name != meta.naming.field
    )


def searchable(meta: Meta, visible: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the fields that a search covers: names and all short texts."""
    texts = [n for n, f in visible.items() if f.type in ("Data", "Link") and not f.secret]
    long = [n for n in SEARCHED_TEXTS.get(meta.name, ()) if n in visible]
    return ("name", *texts, *long)[:MAX_FIELDS]


def _page_number(text: str) -> int:
    if not text:
        return 1
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text) >= 1):
        raise BadRequestError("The page must be a whole number, 1 or more.", field=PAGE)
    return min(int(text), LAST_PAGE)


def _since(fw: Fw, period: str) -> list[list[Any]]:
    """Return the filter for a period: from a fixed time on, so that a bulk replay has the same
    matches."""
    if not period:
        return []
    if period not in PERIODS:
        raise BadRequestError(f"{SINCE} must be one of {', '.join(PERIODS)}.", field=SINCE)
    return [["creation", ">=", iso(fw.tx.now - PERIODS[period][1])]]


def _range(query: Mapping[str, str]) -> list[list[Any]]:
    """Return the filters for a range of times: from its start to its end, which is excluded.

    Raises: BadRequestError.
    """
    filters: list[list[Any]] = []
    for key, operator in ((FROM, ">="), (UNTIL, "<")):
        if text := query.get(key, ""):
            filters.append(["creation", operator, iso(requested_time(text, key))])
    return filters


def _period(chosen: str) -> ListFilter:
    choices = (FilterChoice(key, label, key == chosen) for key, (label, _) in PERIODS.items())
    return ListFilter(SINCE, label_of("creation"), chosen, tuple(choices))


def _search(fw: Fw, meta: Meta, text: str, fields: Sequence[str]) -> list[list[Any]]:
    """Return the filter for a search: the document of this name, or else all that contain the
    text."""
    text = text.strip()
    if not text:
        return []
    named = ["name", "=", text]
    if fw.get_list(meta.name, [named], ["name"], limit=1):
        return [named]
    return containing(text, fields)


def containing(text: str, fields: Sequence[str]) -> list[list[Any]]:
    """Return the filter for documents with a field that contains the text."""
    pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return [[list(fields), "like", f"%{pattern}%"]]


def _typed(meta: Meta, name: str, text: str) -> Any:
    """Return a filter's value with the type that the JSON API accepts."""
    field = meta.fields.get(name)
    whole = name in ("docstatus", "idx") or (field is not None and field.type in ("Check", "Int"))
    if whole and text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 16:
        return int(text)
    if isinstance(field, Float):
        with suppress(ValueError):
            return float(text)
    return text


def _filter_choices(
    fw: Fw, meta: Meta, visible: Mapping[str, Field], values: Mapping[str, str]
) -> list[ListFilter]:
    """Return the filters of the form, and the other filters of the query."""
    offered = []
    if meta.submittable:
        states = [(str(number), label) for number, label in enumerate(DOCSTATUS)]
        offered.append(_choosing("docstatus", states, values))
    for field in visible.values():
        if isinstance(field, Select):
            offered.append(_choosing(field.name, [(o, o) for o in field.options], values))
        elif isinstance(field, Check) and field.name in columns_of(meta, visible):
            offered.append(_choosing(field.name, [("1", "Yes"), ("0", "No")], values))
        elif isinstance(field, Link):
            value, target = values.get(field.name, ""), str(field.options)
            titles = titles_beside(fw, target)
            offered.append(ListFilter(field.name, label_of(field.name), value, (), target, titles))
    for name in (*FILTERED_TEXTS.get(meta.name, ()), *values):
        if name not in {each.name for each in offered}:
            offered.append(ListFilter(name, label_of(name), values.get(name, "")))
    return offered


def _choosing(name: str, pairs: Sequence[tuple[str, str]], values: Mapping[str, str]) -> ListFilter:
    value = values.get(name, "")
    # With a value of an old link, by which the list is filtered though it is no choice.
    labels = {**dict(pairs), **({} if value in ("", *dict(pairs)) else {value: value})}
    choices = tuple(FilterChoice(v, label, v == value) for v, label in labels.items())
    return ListFilter(name, label_of(name), value, choices)


def _column(meta: Meta, path: str, kept: Mapping[str, str], name: str) -> ListColumn:
    order = {name: "ascending", f"-{name}": "descending"}.get(kept.get(SORT, ""), "none")
    sort = f"-{name}" if order == "ascending" else name
    address = _address(path, {**kept, SORT: sort}, 1)
    sorts = _type_of(meta, name) != "JSON"  # the order of a value's JSON means nothing to readers
    return ListColumn(name, label_of(name), address if sorts else "", order, kind_of(meta, name))


def _row(
    meta: Meta, columns: Sequence[str], row: Mapping[str, Any], paths: Mapping[str, str]
) -> ListRow:
    cells = tuple(
        replace(cell(meta, name, row[name]), path=paths.get(name, "")) for name in columns
    )
    return ListRow(row["name"], document_path(meta.name, row["name"]), cells)


def _address(path: str, kept: Mapping[str, str], number: int) -> str:
    pairs = {**kept, **({PAGE: str(number)} if number > 1 else {})}
    return f"{path}?{urlencode(pairs)}" if pairs else path
