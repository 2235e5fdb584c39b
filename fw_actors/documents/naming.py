"""Names of documents: their grammar, and how a DocType generates them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from fw_actors.documents.fields import CONTROLS_AND_BREAKS
from fw_actors.errors import DuplicateError, ValidationError
from fw_actors.rules.identifiers import is_invisible, record_id
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx, schema

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta
    from fw_actors.documents.fields import Field
    from fw_actors.documents.handle import DocType

NAME_CHARACTERS: Final = 140
NAME_RULE: Final = (
    f"a name must have 1 to {NAME_CHARACTERS} characters, without /, control characters, line "
    "breaks and outer white space"
)
_NAMINGS: Final = "naming must be given, random, field:<field> or series:<prefix>.#####"
_SERIES: Final = re.compile(r"series:(?P<prefix>[^#/]*?)\.(?P<digits>#+)\Z")
_DOT_SEGMENTS: Final = frozenset({".", ".."})
"""Names that no browser can request: it resolves them in each URL, also percent-encoded."""
_MAX_NUMBER_DIGITS: Final = 19  # the digits of the largest number in 64 bits


def is_name(name: object) -> bool:
    """Whether a document may have this name (D-100)."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= NAME_CHARACTERS
        and name == name.strip()
        and "/" not in name
        and ((name.isascii() and name.isprintable()) or not CONTROLS_AND_BREAKS.search(name))
    )


@dataclass(frozen=True)
class Naming:
    """The naming rule of a DocType: a given name, a field's value, a series, or a random name."""

    kind: str
    field: str = ""
    prefix: str = ""
    digits: int = 0


def parse_naming(naming: object, fields: Mapping[str, Field]) -> Naming | str:
    """Return the naming rule of a declaration, or its problem (D-101)."""
    if not isinstance(naming, str):
        return _NAMINGS
    if naming in ("given", "random"):
        return Naming(naming)
    if naming.startswith("field:"):
        target = naming.removeprefix("field:")
        if target not in fields or fields[target].type not in ("Data", "Link", "Select"):
            return f"naming: there is no text field {target}"
        return Naming("field", field=target)
    return _parse_series(naming)


def _parse_series(naming: str) -> Naming | str:
    series = _SERIES.match(naming)
    if series is None:
        return _NAMINGS
    prefix, digits = series["prefix"], len(series["digits"])
    if not is_name(prefix + "1" * max(digits, _MAX_NUMBER_DIGITS)):
        return f"naming: {prefix!r} cannot begin a name: {NAME_RULE}"
    return Naming("series", prefix=prefix, digits=digits)


_RANDOM_BYTES: Final = 9  # 72 bits: 13 characters


def name_for(doc: DocType, tx: Tx, entropy: Entropy, is_taken: Callable[[str], bool]) -> str:
    """Return the name of a document that is being inserted.

    A series skips taken names: a rename or an import may have given them to other documents.

    Raises: ValidationError for an unusable name; DuplicateError for a chosen name that is taken.
    """
    meta = doc.meta
    naming = meta.naming
    if meta.child:
        return doc.name or random_name(entropy)  # a child row may be sent back with one
    if naming.kind == "random" or (naming.kind == "given" and doc.name is None):
        return random_name(entropy)
    if naming.kind == "series":
        return _next_of_series(tx, naming, is_taken)
    name = str(getattr(doc, naming.field) or "") if naming.kind == "field" else doc.name
    chosen = validate_name(name, meta)
    if is_taken(chosen):
        raise DuplicateError(f"{meta.name} {chosen} already exists.", field=naming.field or "name")
    return chosen


def random_name(entropy: Entropy) -> str:
    """Return a random name."""
    return record_id(entropy.bytes(_RANDOM_BYTES))


def validate_name(name: object, meta: Meta) -> str:
    """Return the name if a document may be given it. Raises: ValidationError."""
    field = meta.naming.field or "name"
    if name is not None and not isinstance(name, str):
        raise ValidationError(f"{field} must be text.", field=field)
    if not name or not name.strip():
        raise ValidationError(f"{field} is required: it becomes the document's name.", field=field)
    if not is_name(name):
        raise ValidationError(
            f"{name[:60]!r} cannot be a document's name: {NAME_RULE}.", field=field
        )
    if is_invisible(name):
        raise ValidationError(
            f"{name[:60]!r} cannot be a document's name: a name must have a visible character.",
            field=field,
        )
    if name in _DOT_SEGMENTS:
        raise ValidationError(
            f"{name!r} cannot be a document's name: in an address it is a step in the path.",
            field=field,
        )
    return str.__str__(name)


def _next_of_series(tx: Tx, naming: Naming, is_taken: Callable[[str], bool]) -> str:
    tx.lock(f"series {naming.prefix}")  # the first number of a series takes two statements
    number = tx.scalar(_NEXT, prefix=naming.prefix)
    if number is None:
        number = 1
        tx.run(_FIRST, prefix=naming.prefix, current=number)

    def name(number: int) -> str:
        return f"{naming.prefix}{number:0{naming.digits}d}"

    free = free_number(number, lambda number: is_taken(name(number)))
    if free != number:
        tx.run(_SKIP_TO, prefix=naming.prefix, current=free)
    return name(free)


_SINGLE_STEPS: Final = 100


def free_number(first: int, is_taken: Callable[[int], bool]) -> int:
    """Return the first free number from `first`, if at most 99 before it are taken.

    Otherwise return a free number after a taken one, found in a number of steps that grows with the
    logarithm of the distance: an import may have taken a million, and every other write waits for
    this one.
    """
    for number in range(first, first + _SINGLE_STEPS):
        if not is_taken(number):
            return number
    taken, step = number, 1
    while is_taken(taken + step):
        taken, step = taken + step, step * 2
    free = taken + step
    while free - taken > 1:
        middle = (taken + free) // 2
        taken, free = (middle, free) if is_taken(middle) else (taken, middle)
    return free


_NEXT: Final = Statement(
    sa.update(schema.SERIES)
    .where(schema.SERIES.c.prefix == sa.bindparam("prefix"))
    .values(current=schema.SERIES.c.current + 1)
    .returning(schema.SERIES.c.current)
)
_SKIP_TO: Final = Statement(
    sa.update(schema.SERIES)
    .where(schema.SERIES.c.prefix == sa.bindparam("prefix"))
    .values(current=sa.bindparam("current"))
)
_FIRST: Final = Statement(
    sa.insert(schema.SERIES).values(prefix=sa.bindparam("prefix"), current=sa.bindparam("current"))
)
