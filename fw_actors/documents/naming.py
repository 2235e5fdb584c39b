"""How a new document gets its name: given, by a field, from a series, or at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.doctype import Meta
from fw_actors.documents.document import DocType
from fw_actors.documents.names import NAME_RULE, is_name
from fw_actors.errors import DuplicateError, ValidationError
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx, schema

_RANDOM_BYTES: Final = 9  # 72 bits: 13 characters


def name_for(doc: DocType, tx: Tx, entropy: Entropy, is_taken: Callable[[str], bool]) -> str:
    """Return the name of a document that is being inserted.

    A series passes over the names that are taken: a document may have got one by a rename.

    Raises: ValidationError when the name is unusable; DuplicateError when a chosen one is taken.
    """
    meta = doc.meta
    naming = meta.naming
    if meta.child:
        return doc.name or random_name(entropy)  # a row keeps the name its parent's list gave back
    if naming.kind == "random" or (naming.kind == "given" and doc.name is None):
        return random_name(entropy)
    if naming.kind == "series":
        while is_taken(name := _next_in_series(tx, naming.prefix, naming.digits)):
            continue
        return name
    given = str(getattr(doc, naming.field) or "") if naming.kind == "field" else doc.name
    chosen = judge_name(given, meta)
    if is_taken(chosen):
        raise DuplicateError(f"{meta.name} {chosen} is there already.")
    return chosen


def random_name(entropy: Entropy) -> str:
    """Return a random name."""
    return record_id(entropy.bytes(_RANDOM_BYTES))


def judge_name(name: object, meta: Meta) -> str:
    """Return the name if a document may have it. Raises: ValidationError."""
    field = meta.naming.field or "name"
    if not isinstance(name, str) or not name.strip():
        raise ValidationError(f"{field} is missing: it names the document.", field=field)
    if not is_name(name):
        raise ValidationError(f"{field} can't name a document: {NAME_RULE}.", field=field)
    return name


def _next_in_series(tx: Tx, prefix: str, digits: int) -> str:
    tx.lock(f"series {prefix}")  # the first of a series is two statements
    current = tx.scalar(_NEXT, prefix=prefix)
    if current is None:
        current = 1
        tx.run(_FIRST, prefix=prefix, current=current)
    return f"{prefix}{current:0{digits}d}"


_NEXT: Final = Statement(
    sa.update(schema.SERIES)
    .where(schema.SERIES.c.prefix == sa.bindparam("prefix"))
    .values(current=schema.SERIES.c.current + 1)
    .returning(schema.SERIES.c.current)
)
_FIRST: Final = Statement(
    sa.insert(schema.SERIES).values(prefix=sa.bindparam("prefix"), current=sa.bindparam("current"))
)
