"""Lists of documents: filters, fields, order, paging; never a caller's text in SQL.

The time of a page in the browser does not grow with the number of documents (H-200). DocTypes that
only the service writes (deliveries, audit, versions, mails, errors) may have millions of rows.
Filters with an index search all rows; others, such as a text anywhere in a field, search only the
newest. A range of times restricts from which rows the newest are taken.

The module has more than 500 lines because lists, pages, counts and batches share the conditions,
columns and limits of one query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from string import ascii_lowercase, ascii_uppercase
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents import permissions
from fw_actors.documents.doctype import CHILD_STANDARD, STANDARD, Meta, bytes_of
from fw_actors.documents.fields import (
    CONTROLS,
    MAX_INTEGER,
    Datetime,
    Field,
    Int,
    ShapeError,
    Table,
)
from fw_actors.documents.handle import Filters, Fw
from fw_actors.documents.naming import NAME_CHARACTERS
from fw_actors.documents.tables import is_selective, split_by_index
from fw_actors.errors import BadRequestError, ValidationError
from fw_actors.store import Like, Octets, Row

DEFAULT_ORDER: Final = "creation desc"
MAX_FILTERS: Final = 100  # SQLite nests conditions 1,000 deep at most
MAX_FIELDS: Final = 20  # per filter, any of which may match
# In all lists of a query, once for each field of a filter: SQLite binds 32,766, PostgreSQL 65,535.
MAX_VALUES: Final = 30_000
MAX_PATTERN_CHARACTERS: Final = 1000
_VALUE_OVERHEAD: Final = 30  # bytes: JSON's punctuation around a value, and a number or time itself
_BYTES_OF_A_CHARACTER: Final = 4
_MIB: Final = 1 << 20
_LIST_OPERATORS: Final = ("in", "not in")
# They are ordered without NULLS FIRST or LAST, with which PostgreSQL would not use the index.
_NEVER_NULL: Final = ("name", "creation", "modified")
_NULL_OPERATORS: Final = ("=", "!=")
_ASCII_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "in": lambda column, value: column.in_(value),
    "not in": lambda column, value: column.not_in(value),
    "between": lambda column, value: column.between(*value),
    "like": Like,
}
OPERATORS: Final = (*_COMPARE, "is null")


class Lists:
    """Answers `get_list`, `get_all` and `count` of the handle."""

    def rows(
        self,
        fw: Fw,
        doctype: str,
        filters: Filters,
        fields: Sequence[str] | None,
        *,
        order_by: str | None,
        limit: int | None,
        start: int,
        ignore_permissions: bool,
    ) -> list[dict[str, Any]]:
        """Return the matching rows; arguments and errors as in `Fw.get_list`."""
        meta = fw.documents.registry.meta(doctype)
        if not ignore_permissions:
            fw.rights.require_in_scope(meta)
            fw.rights.require(meta, "list")
            fw.rights.require_rows(meta)
        query = Query(fw, meta, filters, ignore_permissions=ignore_permissions)
        return query.rows(fields, order_by, limit, start)

    def count(self, fw: Fw, doctype: str, filters: Filters) -> int:
        """Return the number of matching rows, without permissions. Raises: BadRequestError."""
        meta = fw.documents.registry.meta(doctype)
        return Query(fw, meta, filters, ignore_permissions=True).count()


class Query:
    """The documents of one DocType that match filters and that a user may see.

    `ignore_permissions` skips permlevels and scopes (D-192, A-327), except for DocTypes that scopes
    exclude: these have no visible documents (A-316).
    """

    def __init__(
        self,
        fw: Fw,
        meta: Meta,
        filters: Filters,
        *,
        ignore_permissions: bool,
        further_conditions: Sequence[sa.ColumnElement[bool]] = (),
        compared: Mapping[str, sa.ColumnElement[Any]] = MappingProxyType({}),
    ) -> None:
        """`further_conditions`: conditions of the service on the columns of the table; `compared`:
        what the filters on a field compare instead of its column.

        Raises: BadRequestError for filters that cannot be understood or are not allowed.
        """
        self._fw, self._meta, self._compared = fw, meta, compared
        self._ignore_permissions = ignore_permissions
        self._table: sa.FromClause = fw.documents.registry.tables[meta.name].table
        if isinstance(filters, Mapping):
            filters = [[name, "=", value] for name, value in filters.items()]
        if not isinstance(filters, list | tuple):
            raise BadRequestError("filters must be a list of triples or a dict.", field="filters")
        _require_bounded(filters)
        self._narrowed = False
        self._where = [*(self._condition(each) for each in filters), *further_conditions]
        if not ignore_permissions:
            self._where += permissions.conditions(fw.rights, fw.documents.registry, meta)

    def rows(
        self,
        fields: Sequence[str] | None,
        order_by: str | None,
        limit: int | None,
        start: int = 0,
        *,
        max_bytes: float = inf,
    ) -> list[dict[str, Any]]:
        """Return the matching rows as dicts.

        Raises: BadRequestError; ValidationError if they have more than `max_bytes`, which is
            checked before they are read.
        """
        if fields is not None and not _is_list_of_names(fields):
            raise BadRequestError("fields must be a list of names.", field="fields")
        for name, number in (("limit", limit), ("start", start)):
            if number is not None and not _is_count(number):
                raise BadRequestError(f"{name} must be a whole number, 0 or more.", field=name)
        names = list(dict.fromkeys(fields) if fields else STANDARD)
        columns = [self._column(name) for name in names]
        order = self._order(order_by or DEFAULT_ORDER)
        if self._fw.rights.excludes(self._meta):
            return []
        with self._fw.tx.searching():
            if limit is not None and limit * self._max_row_bytes(names) > max_bytes:
                page = self._page(sa.select(self._table.c.name), order, limit, start)
                is_in_page = self._table.c.name.in_(page.scalar_subquery())
                self._require_max_bytes(names, is_in_page, max_bytes)
                # The sort selects only names: sorting whole rows would copy their texts.
                statement = sa.select(*columns).where(is_in_page).order_by(*order)
            else:
                statement = self._page(sa.select(*columns), order, limit, start)
            found = self._fw.tx.rows(statement)
        return self._as_dicts(names, found)

    def narrow(self, max_rows: int, filters: Sequence[Any], fields: Sequence[str]) -> None:
        """Restrict the query to its `max_rows` newest matches, and of these to those that match
        `filters`.

        At most `max_rows` rows are read then, whatever the filters are. `fields`: the columns that
        `page` will read or sort by. Raises: BadRequestError.
        """
        _require_bounded(filters)
        filtered_names: list[Any] = []
        for each in filters:
            if isinstance(each, list | tuple) and each:
                filtered_names += each[0] if _is_list_of_names(each[0]) else [each[0]]
        columns = {self._column(name) for name in ("name", "creation", *fields, *filtered_names)}
        c = self._table.c
        select = sa.select(*sorted(columns, key=lambda column: str(column.name)))
        select = select.where(*self._where).order_by(c.creation.desc(), c.name.desc())
        self._table = select.limit(max_rows).subquery(str(self._meta.table))
        self._where = [self._condition(each) for each in filters]
        self._narrowed = True

    def page(
        self,
        fields: Sequence[str],
        order_by: str | None,
        *,
        limit: int,
        start: int,
        max_count: int,
    ) -> tuple[list[dict[str, Any]], int]:
        """Return rows as `rows` does, and the number of matches, counted up to `max_count`.

        Raises: BadRequestError.
        """
        if not self._narrowed:
            documents = self.rows(fields, order_by, limit, start)
            is_last = len(documents) < limit and (documents or not start)
            return documents, start + len(documents) if is_last else self.count(max_count)
        names = list(dict.fromkeys(fields))
        columns = [self._column(name) for name in names]
        if self._fw.rights.excludes(self._meta):
            return [], 0
        # Rows and count in one statement: a narrowed query has no index, so a separate count would
        # read the rows again.
        select = sa.select(*columns, sa.func.count().over())
        with self._fw.tx.searching():
            rows = self._fw.tx.rows(
                self._page(select, self._order(order_by or DEFAULT_ORDER), limit, start)
            )
        if not rows:
            return [], self.count(max_count) if start else 0
        documents = self._as_dicts(names, [row[:-1] for row in rows])
        return documents, min(int(rows[0][-1]), max_count)

    def _page(
        self, select: sa.Select[Any], order: list[Any], limit: int | None, start: int
    ) -> sa.Select[Any]:
        select = select.where(*self._where).order_by(*order)
        if limit is not None:
            select = select.limit(limit)
        return select.offset(start) if start else select

    def _as_dicts(self, names: Sequence[str], rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Return rows of these columns as dicts, with values as in JSON."""
        readers = [_reader(self._meta, name) for name in names]
        return [
            {name: read(value) for name, read, value in zip(names, readers, row, strict=True)}
            for row in rows
        ]

    def _max_row_bytes(self, names: Sequence[str]) -> float:
        """Return the maximum size in bytes of a row of these fields, as JSON."""
        return sum(
            _max_value_bytes(self._meta, name) + len(name) + _VALUE_OVERHEAD for name in names
        )

    def _require_max_bytes(self, names: Sequence[str], condition: Any, max_bytes: float) -> None:
        """Raises: ValidationError if the rows of a condition have more than `max_bytes`."""
        columns = (self._table.c[name] for name in names)
        texts = [column for column in columns if isinstance(column.type, sa.Text)]
        sizes = [sa.func.coalesce(sa.func.sum(Octets(text)), 0) for text in texts]
        row = self._fw.tx.one(sa.select(sa.func.count(), *sizes).where(condition))
        assert row is not None  # an aggregate always returns a row
        rows, *sums = map(int, row)
        size = sum(sums) + rows * sum(len(name) + _VALUE_OVERHEAD for name in names)
        if size > max_bytes:
            raise ValidationError(
                f"These {rows} rows have {_in_mib(size)} MiB; a response has at most"
                f" {_in_mib(max_bytes)} MiB. Request fewer rows, or omit fields with long texts.",
                field="limit",
            )

    def count(self, max_count: int | None = None) -> int:
        """Return the number of matching rows, counted up to `max_count`."""
        if self._fw.rights.excludes(self._meta):
            return 0
        statement = sa.select(sa.func.count()).select_from(self._table).where(*self._where)
        if max_count is not None:
            limited: sa.Select[Any] = (
                sa.select(sa.literal_column("1")).select_from(self._table).where(*self._where)
            )
            statement = sa.select(sa.func.count()).select_from(limited.limit(max_count).subquery())
        with self._fw.tx.searching():
            return int(str(self._fw.tx.scalar(statement)))

    def names_after(self, cursor: str, last: str, limit: int) -> list[str]:
        """Return the matching names after `cursor` up to `last`, in order.

        For walks over all matches along the index of names. The filters are wrapped in one
        expression, because otherwise a database might use an index of a filter and sort all matches
        for each page.
        """
        if self._fw.rights.excludes(self._meta):
            return []
        name = self._table.c.name
        matches = sa.and_(sa.true(), *self._where).self_group().is_(sa.true())
        statement = sa.select(name).where(name > cursor, name <= last, matches)
        with self._fw.tx.searching():
            return [row[0] for row in self._fw.tx.rows(statement.order_by(name).limit(limit))]

    def _column(self, name: object) -> sa.ColumnElement[Any]:
        """Return a column that may be read, filtered and sorted by."""
        meta = self._meta
        if isinstance(name, str) and name in (*STANDARD, *(CHILD_STANDARD if meta.child else ())):
            return self._table.c[name]
        field = meta.fields.get(name) if isinstance(name, str) else None
        if field is None or isinstance(field, Table) or field.secret or not self._sees(field):
            shown = str(name)[:60]
            raise BadRequestError(f"{meta.name} has no field {shown} to list.", field=shown)
        return self._table.c[field.name]

    def _sees(self, field: Field) -> bool:
        return self._ignore_permissions or self._fw.rights.sees_level(self._meta, field.permlevel)

    def _condition(self, triple: object) -> Any:
        if not isinstance(triple, list | tuple) or len(triple) not in (2, 3):
            raise BadRequestError('A filter must be ["field", "op", value].', field="filters")
        name, operator = triple[0], triple[1]
        if isinstance(name, list | tuple):  # matches if any of these fields does
            if not 1 <= len(name) <= MAX_FIELDS or not _is_list_of_names(name):
                raise BadRequestError(
                    f"A filter must name 1 to {MAX_FIELDS} fields.", field="filters"
                )
            return sa.or_(*(self._condition([each, *triple[1:]]) for each in name))
        column = self._column(name)
        column = self._compared.get(column.name, column)
        if operator == "is null":
            expected = triple[2] if len(triple) == 3 else None  # left out or null: true
            if expected not in (True, False, None):
                raise BadRequestError(
                    "is null must have true or false as its value.", field="filters"
                )
            return column.is_(None) if expected is None or expected else column.is_not(None)
        if not isinstance(operator, str) or operator not in _COMPARE or len(triple) != 3:
            raise BadRequestError(f"op must be one of {', '.join(OPERATORS)}.", field="filters")
        if triple[2] is None and operator in _NULL_OPERATORS:
            return column.is_(None) if operator == "=" else column.is_not(None)
        return _COMPARE[operator](column, _operand(self._meta, name, operator, triple[2]))

    def _order(self, order_by: object) -> list[Any]:
        terms: dict[str, Any] = {}  # a repeated column has no effect
        is_descending = False
        for part in order_by.split(",") if isinstance(order_by, str) else ("",):
            words = part.split()
            if (
                not words
                or len(words) > 2
                or (len(words) == 2 and words[1].lower() not in ("asc", "desc"))
            ):
                raise BadRequestError("order_by must be `field asc|desc[, …]`.", field="order_by")
            column = self._column(words[0])
            is_descending = len(words) == 2 and words[1].lower() == "desc"
            term = column.desc() if is_descending else column.asc()
            if column.name not in _NEVER_NULL:
                term = term.nulls_last() if is_descending else term.nulls_first()
            terms.setdefault(column.name, term)
        # The name makes the order total, so that pages neither repeat nor skip a row.
        by_name = self._table.c.name
        return [*terms.values(), by_name.desc() if is_descending else by_name.asc()]


MAX_COUNTED_ROWS: Final = 10_000
"""The maximum number of matches that are counted and paged through."""
MAX_SEARCHED_ROWS: Final = 5_000
"""The number of newest records that a search without an index covers."""
_ORDERS: Final = (None, DEFAULT_ORDER, "creation asc", "creation")


@dataclass(frozen=True)
class ListPage:
    """Rows of a list, and the number of matches: `more` means that there are more than `total`.

    `newest_only`: the newest `MAX_SEARCHED_ROWS` were searched, and there are others.
    """

    rows: list[dict[str, Any]]
    total: int
    more: bool
    newest_only: bool


def list_page(
    fw: Fw,
    doctype: str,
    filters: Sequence[Any],
    fields: Sequence[str],
    *,
    order_by: str | None,
    limit: int,
    start: int,
    further_conditions: Sequence[sa.ColumnElement[bool]] = (),
) -> ListPage:
    """Return a page of a list as the user may see it.

    `further_conditions`: on the columns of its table, in addition to the filters.

    Raises: BadRequestError, PermissionDeniedError.
    """
    meta = fw.documents.registry.meta(doctype)
    if meta.child:
        raise BadRequestError(f"{doctype} rows are part of their parent's document.")
    fw.rights.require_in_scope(meta)
    fw.rights.require(meta, "list")
    indexed_filters: list[Any] = list(filters)
    other_filters: list[Any] = []
    if meta.read_only:
        indexed_filters, other_filters = split_by_index(meta, filters)
    narrowed = bool(other_filters) or (
        meta.read_only and order_by not in _ORDERS and not is_selective(meta, indexed_filters)
    )
    query = Query(
        fw, meta, indexed_filters, ignore_permissions=False, further_conditions=further_conditions
    )
    if meta.read_only and start >= MAX_COUNTED_ROWS:
        limit = 0  # skipping so many rows would take too long
    if narrowed:
        sorted_by = [part.split()[0] for part in (order_by or "").split(",") if part.split()]
        newest_only = query.count(MAX_SEARCHED_ROWS + 1) > MAX_SEARCHED_ROWS
        query.narrow(MAX_SEARCHED_ROWS, other_filters, [*fields, *sorted_by])
    else:
        newest_only = False
    rows, total = query.page(
        fields, order_by, limit=limit, start=start, max_count=MAX_COUNTED_ROWS + 1
    )
    return ListPage(rows, min(total, MAX_COUNTED_ROWS), total > MAX_COUNTED_ROWS, newest_only)


WALK_ROWS: Final = 500
"""The rows of a walk that are in memory at once."""


def names_of(fw: Fw, doctype: str) -> Iterator[str]:
    """Yield the names of all documents that the user may list, in order; see `WALK_ROWS`."""
    last = ""
    while page := fw.get_list(doctype, [["name", ">", last]], ["name"], "name asc", WALK_ROWS):
        for row in page:
            yield row["name"]
        last = page[-1]["name"]


def newest_first(
    fw: Fw, doctype: str, filters: Sequence[Any], fields: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the matching rows that the user may list, the newest first; see `WALK_ROWS`.

    `fields` must include `name` and `creation`, after which the rows of a page are found.
    """
    return _walk(fw, doctype, filters, fields, "creation desc, name desc", "<")


def oldest_first(
    fw: Fw, doctype: str, filters: Sequence[Any], fields: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield rows as `newest_first` does, but the oldest first."""
    return _walk(fw, doctype, filters, fields, "creation asc, name asc", ">")


def _walk(
    fw: Fw, doctype: str, filters: Sequence[Any], fields: Sequence[str], order: str, after: str
) -> Iterator[dict[str, Any]]:
    page = fw.get_list(doctype, [*filters], [*fields], order, WALK_ROWS)
    while page:
        yield from page
        last = page[-1]
        at_once = [*filters, ["creation", "=", last["creation"]], ["name", after, last["name"]]]
        page = fw.get_list(doctype, at_once, [*fields], order, WALK_ROWS)
        if not page:
            later = [*filters, ["creation", after, last["creation"]]]
            page = fw.get_list(doctype, later, [*fields], order, WALK_ROWS)


def _is_list_of_names(fields: object) -> bool:
    return isinstance(fields, list | tuple) and all(isinstance(name, str) for name in fields)


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= MAX_INTEGER


def _require_bounded(filters: Sequence[Any]) -> None:
    """Refuse filters beyond the limits of either database. Raises: BadRequestError."""
    if len(filters) > MAX_FILTERS:
        raise BadRequestError(f"There must be at most {MAX_FILTERS} filters.", field="filters")
    if sum(map(_values_in, filters)) > MAX_VALUES:
        raise BadRequestError(f"Filters must list at most {MAX_VALUES:,} values.", field="filters")


def _values_in(triple: Any) -> int:
    """Return how many values the list of a filter binds: each field of several binds all."""
    if not isinstance(triple, list | tuple) or len(triple) < 3:
        return 0
    names, values = triple[0], triple[2]
    if not isinstance(values, list | tuple):
        return 0
    return len(values) * (len(names) if isinstance(names, list | tuple) else 1)


def _operand(meta: Meta, name: str, operator: str, value: Any) -> Any:
    if operator == "like":
        return _pattern(meta, name, value)
    if operator in _LIST_OPERATORS or operator == "between":
        is_range = operator == "between"
        if not isinstance(value, list | tuple) or (is_range and len(value) != 2):
            expected = "a list of two values" if is_range else "a list"
            raise BadRequestError(f"{operator} must have {expected} as its value.", field="filters")
        return [_one_operand(meta, name, each) for each in value]
    return _one_operand(meta, name, value)


def _pattern(meta: Meta, name: str, value: Any) -> str:
    field = _field_of(meta, name)
    textual = field is None or isinstance(field.column, sa.Text)
    if not isinstance(value, str) or not textual or CONTROLS.search(value):
        raise BadRequestError("like must compare text with text.", field="filters")
    if len(value) > MAX_PATTERN_CHARACTERS:
        raise BadRequestError(
            f"A pattern must have at most {MAX_PATTERN_CHARACTERS:,} characters.", field="filters"
        )
    if (len(value) - len(value.rstrip("\\"))) % 2:
        raise BadRequestError("A pattern must not end with a lone backslash.", field="filters")
    return ascii_lower(value)


def ascii_lower(text: str) -> str:
    """Return a text with its ASCII letters in lower case, as the `lower()` of both stores does."""
    return text.translate(_ASCII_LOWER)


def _one_operand(meta: Meta, name: str, value: Any) -> Any:
    field = _field_of(meta, name)
    if value is None:
        raise BadRequestError('null must be compared with =, != or "is null".', field="filters")
    try:
        if field is not None:
            return field.to_store(field.accept(value))
        if not isinstance(value, str) or CONTROLS.search(value):
            raise ShapeError(f"{name} must be text without control characters.")
        return value
    except (ShapeError, ValidationError) as error:
        raise BadRequestError(str(error), field="filters") from None


def _max_value_bytes(meta: Meta, name: str) -> float:
    """Return the maximum size of a column's value in bytes."""
    field = _field_of(meta, name)
    if field is None:
        return NAME_CHARACTERS * _BYTES_OF_A_CHARACTER  # the name of a document or a user
    size = bytes_of(field)
    return inf if size is None else size


def _in_mib(count: float) -> str:
    return f"{count / _MIB:.0f}"


def _field_of(meta: Meta, name: str) -> Field | None:
    """Return the field that validates and converts a column's values; None for plain text."""
    return meta.fields.get(name) or _STANDARD.get(name)


def _reader(meta: Meta, name: str) -> Callable[[Any], Any]:
    field = _field_of(meta, name)
    if field is None:
        return lambda value: value
    return field.from_store


class _Standard:
    """The columns of every document that are not text."""

    creation = Datetime()
    modified = Datetime()
    docstatus = Int()
    idx = Int()


_STANDARD: Final = {name: each for name, each in vars(_Standard).items() if isinstance(each, Field)}
