"""Pages of lists for people, in time that does not grow with the number of documents (H-200).

The DocTypes that only the service writes (deliveries, audit, versions, mails, errors) have millions
of rows. Filters with an index search all of them; others, such as a text
anywhere in a field, search the newest. A range of times selects which are the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import Link
from fw_actors.documents.handle import Fw
from fw_actors.documents.query import DEFAULT_ORDER, Query
from fw_actors.errors import BadRequestError

MOST_COUNTED: Final = 10_000
"""The maximum number of matches that are counted and paged through."""
MOST_SEARCHED: Final = 5_000
"""The number of newest records that a search without an index covers."""
_CREATION: Final = "creation"
_ORDERS: Final = (None, DEFAULT_ORDER, f"{_CREATION} asc", _CREATION)


@dataclass(frozen=True)
class ListPage:
    """Rows of a list, and the number of matches: `more` means that there are more than `total`.

    `newest_only`: the newest `MOST_SEARCHED` were searched, and there are others.
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
    order_by: str | None,
    limit: int,
    start: int,
    also: Sequence[sa.ColumnElement[bool]] = (),
) -> ListPage:
    """Return a page of a list as the user may see it; `also`: conditions on the columns of its
    table, beside the filters.

    Raises: BadRequestError, PermissionDeniedError.
    """
    meta = fw.documents.registry.meta(doctype)
    if meta.child:
        raise BadRequestError(f"{doctype} rows are part of their parent's document.")
    fw.rights.require_reach(meta)
    fw.rights.require(meta, "list")
    sought, rest = (list(filters), []) if not meta.read_only else split(meta, filters)
    narrowed = bool(rest) or (
        meta.read_only and order_by not in _ORDERS and not _is_selective(meta, sought)
    )
    query = Query(fw, meta, sought, ignore_permissions=False, also=also)
    if meta.read_only and start >= MOST_COUNTED:
        limit = 0  # to walk there takes longer than a page may
    if narrowed:
        sorted_by = [part.split()[0] for part in (order_by or "").split(",") if part.split()]
        newest_only = query.count(MOST_SEARCHED + 1) > MOST_SEARCHED
        query.narrow(MOST_SEARCHED, rest, [*fields, *sorted_by])
    else:
        newest_only = False
    rows, total = query.page(fields, order_by, limit, start, MOST_COUNTED + 1)
    return ListPage(rows, min(total, MOST_COUNTED), total > MOST_COUNTED, newest_only)


def split(meta: Meta, filters: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return the filters that an index answers together with the order of creation, and the others.

    Of several indexes the one counts that answers most.
    """
    filters = list(filters)
    equal = {each[0] for each in filters if _is_equality(each)}
    if _is_selective(meta, filters):
        return filters, []
    indexes = [*meta.index_together, *(names for names, _ in meta.partial_indexes)]
    ordered = [set(names[:-1]) for names in indexes if names[-1] == _CREATION]
    best = max((names for names in ordered if names <= equal), key=len, default=set())
    sought: list[Any] = []
    rest: list[Any] = []
    for each in filters:
        of_index = _is_equality(each) and each[0] in best
        of_time = isinstance(each, list | tuple) and each and each[0] == _CREATION
        (sought if of_index or of_time else rest).append(each)
    return sought, rest


def _is_selective(meta: Meta, filters: Sequence[Any]) -> bool:
    """Say whether an index leaves few documents by itself: of one name, or of one reference."""
    equal = {each[0] for each in filters if _is_equality(each)}
    alone = {field.name for field in meta.columns if field.unique or isinstance(field, Link)}
    if equal & {"name", *alone}:
        return True
    together = (*meta.unique_together, *meta.index_together)
    return any(set(names) <= equal for names in together if names[-1] not in _TIMED)


# The column after a state in an index is a time, because one state has any number of documents.
_TIMED: Final = (_CREATION, "modified", "last_attempt")


def _is_equality(each: Any) -> bool:
    return (
        isinstance(each, list | tuple)
        and len(each) == 3
        and isinstance(each[0], str)
        and each[1] == "="
        and each[2] is not None
    )
