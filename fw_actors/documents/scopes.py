"""Access scopes over documents: what a user with User Permission rows may see and write.

Source: interface §3 "User Permission", §8 "Scopes". Scopes name documents by DocType. A document
is within them when it is one of those named, and when every link of it, and of its child rows,
that leads to a DocType of the scopes leads to one of those named. A link that leads nowhere
limits nothing. Of the User Permission rows themselves those are within which the scopes consist
of: the user's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from fw_actors.documents.doctype import Meta
from fw_actors.documents.document import DocType, child_of, rows_of
from fw_actors.documents.field import Field
from fw_actors.documents.fields import Link
from fw_actors.documents.permissions import USER_PERMISSION, Rights
from fw_actors.documents.registry import Registry
from fw_actors.errors import PermissionDeniedError

Scopes = Mapping[str, frozenset[str]]


def require_within(rights: Rights, doc: DocType) -> None:
    """Refuse a document beyond the user's scopes. Raises: PermissionDeniedError saying why."""
    scopes = rights.scopes
    if not scopes:
        return
    named = scopes.get(doc.doctype)
    if (named is not None and doc.name not in named) or _is_foreign_scope(rights, doc):
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


def conditions(rights: Rights, registry: Registry, meta: Meta) -> Iterator[Any]:
    """Yield the SQL conditions that leave only the documents within the user's scopes."""
    scopes = rights.scopes
    table = registry.tables[meta.name].table
    if scopes and meta.name == USER_PERMISSION:
        yield _is_own_scope(rights, table)
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


def _is_foreign_scope(rights: Rights, doc: DocType) -> bool:
    if doc.doctype != USER_PERMISSION:
        return False
    row = doc.__dict__
    is_held = row["for_value"] in rights.scopes.get(row["allow"], ())
    return row["user"] != rights.user or not is_held


def _is_own_scope(rights: Rights, table: sa.Table) -> Any:
    """The rows of the user, as far as they hold: `as_user` leaves those that both users have."""
    c = table.c
    held = (
        sa.and_(c.allow == doctype, c.for_value.in_(sorted(names)))
        for doctype, names in sorted(rights.scopes.items())
    )
    return sa.and_(c.user == rights.user, sa.or_(*held))


def _limited(meta: Meta, scopes: Scopes) -> Iterator[tuple[Link, frozenset[str]]]:
    for field in meta.columns:
        if isinstance(field, Link) and field.options in scopes:
            yield field, scopes[field.options]


def _free_or_in(column: sa.Column[Any], allowed: frozenset[str]) -> Any:
    return sa.or_(column.is_(None), column == "", column.in_(sorted(allowed)))
