"""The indexes of a DocType's table: their names, and which of those that are there are no longer
declared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.doctype import MAX_IDENTIFIER, Meta
from fw_actors.documents.fields import Link

_DIGEST_BYTES: Final = 4
_KEPT: Final = MAX_IDENTIFIER - 2 * _DIGEST_BYTES - 1  # of a name that ends with its digest


def indexes_of(meta: Meta) -> Iterator[sa.Index]:
    """Yield the indexes that the declaration asks for."""
    for field in meta.columns:
        if field.unique:
            yield sa.Index(_index_name("key", meta, field.name), field.name, unique=True)
        elif isinstance(field, Link):
            yield sa.Index(_index_name("by", meta, field.name), field.name)
    for together in meta.unique_together:
        yield sa.Index(_index_name("keys", meta, *together), *together, unique=True)
    for together in meta.index_together:
        yield sa.Index(_index_name("by", meta, *together), *together)
    if meta.child:
        parent = ("parent", "parenttype", "parentfield", "idx")
        yield sa.Index(_index_name("by", meta, *parent), *parent)
    else:
        yield sa.Index(_index_name("by", meta, "creation"), "creation")


def _index_name(kind: str, meta: Meta, *columns: str) -> str:
    """Return a name that no other DocType's index has, and that PostgreSQL does not cut: a long
    one ends with its digest instead."""
    name = "__".join((f"{kind}_{meta.table}", *columns))  # no table has two underscores in a row
    if len(name) <= MAX_IDENTIFIER:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[:_KEPT]}_{digest}"


def outlived_indexes(meta: Meta, there: Iterable[str]) -> list[str]:
    """Return those of `there` that keep unique what is not declared unique any more: they would go
    on refusing documents. Others cost a little time and stay."""
    declared = {str(index.name) for index in indexes_of(meta)}
    prefixes = tuple(f"{kind}_{meta.table}__"[:_KEPT] for kind in ("key", "keys"))
    return sorted(name for name in there if name.startswith(prefixes) and name not in declared)
