"""Access scopes over documents: what a user with User Permission rows may see and write.

Source: interface §3 "User Permission", §8 "Scopes". Scopes name documents by DocType. A document
is within them when it is one of those named, and when every link of it, and of its child rows,
that leads to a DocType of the scopes leads to one of those named. A link that leads nowhere
limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from fw_actors.documents.doctype import Meta
from fw_actors.documents.document import DocType, child_of, rows_of
from fw_actors.documents.field import Field
from fw_actors.documents.fields import Link
from fw_actors.documents.registry import Registry
from fw_actors.errors import PermissionDeniedError

Scopes = Mapping[str, frozenset[str]]


def require_within(scopes: Scopes, doc: DocType) -> None:
    """Refuse a document beyond the scopes. Raises: PermissionDeniedError saying why."""
    if not scopes:
        return
    named = scopes.get(doc.doctype)
    if named is not None and doc.name not in named:
        raise PermissionDeniedError(f"Your access scopes don't include this {doc.doctype}.")
    for each in (doc, *(row for table in doc.meta.tables for row in rows_of(doc, table))):
        for field, _ in _limited(each.meta, scopes):
            require_link_within(scopes, field, each.__dict__[field.name])


def require_link_within(scopes: Scopes, field: Field, value: Any) -> None:
    """Refuse the value of a link that leads beyond. Raises: PermissionDeniedError."""
    if not isinstance(field, Link) or not value:
        return
    if field.options in scopes and value not in scopes[field.options]:
        raise PermissionDeniedError(f"Your access scopes don't include what {field.name} links to.")


def conditions(scopes: Scopes, registry: Registry, meta: Meta) -> Iterator[Any]:
    """Yield the SQL conditions that leave only the documents within the scopes."""
    table = registry.tables[meta.name].table
    if meta.name in scopes:
        yield table.c.name.in_(sorted(scopes[meta.name]))
    for field, allowed in _limited(meta, scopes):
        yield _free_or_in(table.c[field.name], allowed)
    for held in meta.tables:
        child = registry.tables[child_of(held).meta.name].table
        of_parent = sa.and_(
            child.c.parent == table.c.name,
            child.c.parenttype == meta.name,
            child.c.parentfield == held.name,
        )
        for field, allowed in _limited(child_of(held).meta, scopes):
            beyond = sa.and_(of_parent, ~_free_or_in(child.c[field.name], allowed))
            yield ~sa.select(child.c.name).where(beyond).exists()


def _limited(meta: Meta, scopes: Scopes) -> Iterator[tuple[Link, frozenset[str]]]:
    for field in meta.columns:
        if isinstance(field, Link) and field.options in scopes:
            yield field, scopes[field.options]


def _free_or_in(column: sa.Column[Any], allowed: frozenset[str]) -> Any:
    return sa.or_(column.is_(None), column == "", column.in_(sorted(allowed)))
