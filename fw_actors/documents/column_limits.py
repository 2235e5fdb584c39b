"""What a table can hold on both stores: how many columns, and how long what an index keeps.

PostgreSQL refuses a row whose columns don't fit into a page of 8 KiB, and an entry of an index
over 2,704 bytes; SQLite takes both. A declaration that could meet either is refused at start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.field import Field
from fw_actors.documents.fields import Select
from fw_actors.documents.time_fields import Date

MOST_COLUMNS: Final = 400  # a long text that is kept elsewhere leaves 18 bytes in the page
INDEX_BYTES: Final = 2600
_CHARACTER_BYTES: Final = 4  # of UTF-8, at most
_NUMBER_BYTES: Final = 8
_DATE_BYTES: Final = 10


def limit_problems(
    fields: Mapping[str, Field], together: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    """Yield what of a declaration goes beyond; `together`: the columns of one index. Those that
    are no fields are times of every document, for which an entry has room in any case.

    What is wrong with a field by itself is told by the field.
    """
    if len(fields) > MOST_COLUMNS:
        yield f"there are {len(fields)} fields, at most {MOST_COLUMNS} are possible"
    for name, field in fields.items():
        if field.unique and field.plain and not next(field.problems(), None):
            yield from _index_problems(name, [field])
    for names in together:
        indexed = [fields[name] for name in names if name in fields]
        if not any(next(field.problems(), None) for field in indexed):
            yield from _index_problems(", ".join(names), indexed)


def _index_problems(names: str, fields: list[Field]) -> Iterator[str]:
    sizes = [bytes_of(field) for field in fields]
    if None in sizes:
        yield f"{names}: what has no length can't be in an index"
    elif sum(size or 0 for size in sizes) > INDEX_BYTES:
        most = INDEX_BYTES // _CHARACTER_BYTES
        yield f"{names}: too long for an index, which keeps at most {most} characters"


def bytes_of(field: Field) -> int | None:
    """Return how many bytes a value takes at most; None without a limit."""
    if not isinstance(field.column, sa.Text):
        return _NUMBER_BYTES
    if isinstance(field, Date):
        return _DATE_BYTES
    if isinstance(field, Select) and field.length is None:
        return max((len(str(option).encode()) for option in field.options or ()), default=0)
    if field.type == "JSON" or field.length is None:
        return None
    return field.length * _CHARACTER_BYTES
