"""Whether a column that is there can hold what its field holds now.

Tables are widened, and a column keeps the type that its field had first. SQLite would store
anything in it, side by side; PostgreSQL would refuse or round every write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.doctype import Meta

_TEXT, _WHOLE, _FLOATING = "text", "whole numbers", "floating-point numbers"
# The first word of a type's name, on either store; an operator may have made a column by hand.
_HOLDS: Final = MappingProxyType(
    {
        **dict.fromkeys(("text", "varchar", "character"), _TEXT),
        **dict.fromkeys(("bigint", "integer", "int", "smallint"), _WHOLE),
        **dict.fromkeys(("double", "real", "float"), _FLOATING),
    }
)
_NEEDS: Final = MappingProxyType({sa.Text: _TEXT, sa.BigInteger: _WHOLE, sa.Double: _FLOATING})


def type_problems(meta: Meta, present: Mapping[str, str]) -> Iterator[str]:
    """Yield the fields whose column was made for something else; `present`: see `Tx.columns`."""
    for field in meta.columns:
        kind = present.get(field.name, "").partition(" ")[0].partition("(")[0]
        holds, needs = _HOLDS.get(kind), _NEEDS[type(field.column)]
        if holds is not None and holds != needs:
            yield (
                f"class {meta.cls.__name__}: {field.name}: {meta.table}.{field.name} was made for "
                f"{holds}, and {field.type} needs {needs}: give the field another name, or "
                "change the column in the database first"
            )
