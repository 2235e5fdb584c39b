"""How a new document gets its name: given, by a field, from a series, or at random."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from fw_actors.documents.doctype import NAME_RULE, Meta, is_name
from fw_actors.documents.document import DocType
from fw_actors.errors import ValidationError
from fw_actors.rules.tokens import record_id
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx, schema

_RANDOM_BYTES: Final = 9  # 72 bits: 13 characters


def name_for(doc: DocType, tx: Tx, entropy: Entropy) -> str:
    """Return the name of a document that is being inserted.

    Raises: ValidationError when the name is unusable, or not to be chosen.
    """
    meta = doc.meta
    naming = meta.naming
    if meta.child:
        return doc.name or random_name(entropy)  # a row keeps the name its parent's list gave back
    if naming.kind == "random":
        return random_name(entropy)
    if naming.kind == "series":
        return _next_in_series(tx, naming.prefix, naming.digits)
    if naming.kind == "field":
        return judge_name(str(getattr(doc, naming.field) or ""), meta)
    return random_name(entropy) if doc.name is None else judge_name(doc.name, meta)


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
