"""Lists of documents: filters, fields, order, paging; never a caller's text in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from fw_actors.documents.doctype import CHILD_STANDARD, STANDARD, Meta
from fw_actors.documents.field import Field, ShapeError
from fw_actors.documents.fields import Datetime, Int, Table
from fw_actors.errors import BadRequestError, ValidationError

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

Filters = Sequence[Sequence[Any]] | Mapping[str, Any]

DEFAULT_ORDER: Final = "creation desc"
_LIST_OPERATORS: Final = ("in", "not in")
_NULL_OPERATORS: Final = ("=", "!=")
_ASCII_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)  # as the stores' lower()
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
    "like": lambda column, value: sa.func.lower(column).like(value, escape="\\"),
}
OPERATORS: Final = (*_COMPARE, "is null")
_TIMES: Final = ("creation", "modified")
_NUMBERS: Final = ("docstatus", "idx")


def by_name(name_or_filters: str | Filters) -> Filters:
    """A name is a filter on the name."""
    return [["name", "=", name_or_filters]] if isinstance(name_or_filters, str) else name_or_filters


def select(
    fw: Fw,
    meta: Meta,
    filters: Filters,
    fields: Sequence[str] | None,
    order_by: str | None,
    limit: int | None,
    start: int = 0,
) -> list[dict[str, Any]]:
    """Return the rows that match, as dicts; none for who is shut out by scopes."""
    if fw.rights.shut_out(meta):
        return []
    table = fw.documents.registry.tables[meta.name].table
    wanted = list(fields) if fields else list(STANDARD)
    columns = [table.c[_known(fw, meta, name)] for name in wanted]
    statement = sa.select(*columns).where(*_conditions(fw, meta, filters))
    statement = statement.order_by(*_order(fw, meta, order_by or DEFAULT_ORDER))
    if limit is not None:
        statement = statement.limit(limit)
    if start:
        statement = statement.offset(start)
    readers = [_reader(meta, name) for name in wanted]
    return [
        {name: read(value) for name, read, value in zip(wanted, readers, row, strict=True)}
        for row in fw.tx.rows(statement)
    ]


def count(fw: Fw, meta: Meta, filters: Filters) -> int:
    """Return how many rows match."""
    if fw.rights.shut_out(meta):
        return 0
    table = fw.documents.registry.tables[meta.name].table
    statement = sa.select(sa.func.count()).select_from(table)
    return int(str(fw.tx.scalar(statement.where(*_conditions(fw, meta, filters)))))


def _known(fw: Fw, meta: Meta, name: object) -> str:
    """Return the name of a column that may be read, filtered and sorted by."""
    if isinstance(name, str) and name in (*STANDARD, *(CHILD_STANDARD if meta.child else ())):
        return name
    field = meta.fields.get(name) if isinstance(name, str) else None
    if (
        field is None
        or isinstance(field, Table)
        or field.secret
        or not fw.rights.sees_level(meta, field.permlevel)
    ):
        shown = str(name)[:60]
        raise BadRequestError(f"{meta.name} has no field {shown} to list.", field=shown)
    return field.name


def _conditions(fw: Fw, meta: Meta, filters: Filters) -> list[Any]:
    if isinstance(filters, Mapping):
        filters = [[name, "=", value] for name, value in filters.items()]
    return [_condition(fw, meta, each) for each in filters]


def _condition(fw: Fw, meta: Meta, triple: object) -> Any:
    if not isinstance(triple, list | tuple) or len(triple) not in (2, 3):
        raise BadRequestError('A filter is ["field", "op", value].', field="filters")
    name, operator = triple[0], triple[1]
    column = fw.documents.registry.tables[meta.name].table.c[_known(fw, meta, name)]
    if operator == "is null":
        wanted = triple[2] if len(triple) == 3 else True
        return column.is_(None) if wanted not in (False, 0) else column.is_not(None)
    if operator not in _COMPARE or len(triple) != 3:
        raise BadRequestError(f"op is one of {', '.join(OPERATORS)}.", field="filters")
    if triple[2] is None and operator in _NULL_OPERATORS:
        return column.is_(None) if operator == "=" else column.is_not(None)
    return _COMPARE[operator](column, _operand(meta, name, operator, triple[2]))


def _operand(meta: Meta, name: str, operator: str, value: Any) -> Any:
    if operator == "like":
        return _pattern(meta, name, value)
    if operator in _LIST_OPERATORS or operator == "between":
        if not isinstance(value, list | tuple) or (operator == "between" and len(value) != 2):
            raise BadRequestError(f"{operator} takes a list.", field="filters")
        return [_one_operand(meta, name, each) for each in value]
    return _one_operand(meta, name, value)


def _pattern(meta: Meta, name: str, value: Any) -> str:
    field = _field_of(meta, name)
    if not isinstance(value, str) or (field is not None and not isinstance(field.column, sa.Text)):
        raise BadRequestError("like compares text with text.", field="filters")
    if (len(value) - len(value.rstrip("\\"))) % 2:
        raise BadRequestError("A pattern ends with a lone backslash.", field="filters")
    return value.translate(_ASCII_LOWER)


def _one_operand(meta: Meta, name: str, value: Any) -> Any:
    field = _field_of(meta, name)
    if value is None:
        raise BadRequestError("null is compared by is null.", field="filters")
    try:
        if field is not None:
            return field.to_store(field.accept(value))
        if not isinstance(value, str):
            raise ShapeError(f"{name} takes text.")
        return value
    except (ShapeError, ValidationError) as error:
        raise BadRequestError(str(error), field="filters") from None


def _field_of(meta: Meta, name: str) -> Field | None:
    if name in meta.fields:
        return meta.fields[name]
    return _TIME if name in _TIMES else _NUMBER if name in _NUMBERS else None


def _order(fw: Fw, meta: Meta, order_by: str) -> list[Any]:
    terms, down = [], False
    table = fw.documents.registry.tables[meta.name].table
    for part in order_by.split(","):
        words = part.split()
        if (
            not words
            or len(words) > 2
            or (len(words) == 2 and words[1].lower() not in ("asc", "desc"))
        ):
            raise BadRequestError("order_by is `field asc|desc[, …]`.", field="order_by")
        column = table.c[_known(fw, meta, words[0])]
        down = len(words) == 2 and words[1].lower() == "desc"
        terms.append(column.desc().nulls_last() if down else column.asc().nulls_first())
    # The name makes the order total, so that pages neither repeat nor skip a row.
    return [*terms, table.c.name.desc() if down else table.c.name.asc()]


def _reader(meta: Meta, name: str) -> Callable[[Any], Any]:
    field = _field_of(meta, name)
    if field is None:
        return lambda value: value
    return field.from_store


_TIME: Final = Datetime()
_NUMBER: Final = Int()
_TIME.name = "time"
_NUMBER.name = "number"
