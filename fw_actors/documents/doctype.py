"""A DocType is a Python class; this module reads its declaration (interface §3).

Mistakes are collected on the class, not raised, so that a start names all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Final

from fw_actors.documents.field import CONTROLS_AND_BREAKS, Field
from fw_actors.documents.fields import Table

ACTIONS: Final = ("list", "read", "create", "write", "delete", "submit", "cancel", "export")
STANDARD: Final = (
    "name",
    "owner",
    "creation",
    "modified",
    "modified_by",
    "docstatus",
    "idx",
)
CHILD_STANDARD: Final = ("parent", "parenttype", "parentfield")
ROW_ID: Final = "row_id"  # random, kept over rename: what an encrypted value is bound to
# Not `vault`: a field of this name only hides the method, which `DocType.vault(doc, …)` still is.
_METHODS: Final = (
    "insert", "save", "submit", "cancel", "delete", "rename", "db_set", "reload", "as_dict",
    "is_new", "from_row", "meta", "doctype",
)  # fmt: skip
NAME_CHARACTERS: Final = 140
NAME_RULE: Final = f"a name is 1 to {NAME_CHARACTERS} characters without / and outer white space"
_NAMINGS: Final = "naming is given, random, field:<field> or series:<prefix>.#####"
_SERIES: Final = re.compile(r"series:(?P<prefix>[^#/]*?)\.(?P<digits>#+)\Z")
_FIELD_NAME: Final = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_DOCTYPE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*( [A-Za-z0-9]+)*\Z")
MAX_IDENTIFIER: Final = 63  # of PostgreSQL, which cuts longer ones
_LEVEL_ACTION: Final = re.compile(r"(read|write):([1-9])\Z")


@dataclass(frozen=True)
class Naming:
    """How a new document gets its name: given, by a field, from a series, or at random."""

    kind: str
    field: str = ""
    prefix: str = ""
    digits: int = 0


@dataclass(frozen=True)
class Meta:
    """All that is known of a DocType."""

    name: str
    table: str
    cls: type
    module: str
    fields: Mapping[str, Field]
    child: bool
    submittable: bool
    read_only: bool
    naming: Naming
    permissions: Mapping[str, frozenset[str]]
    unique_together: tuple[tuple[str, ...], ...] = ()
    index_together: tuple[tuple[str, ...], ...] = ()
    problems: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The fields that are columns of the table, in order."""
        return tuple(f for f in self.fields.values() if f.stored and not isinstance(f, Table))

    @cached_property
    def unstored(self) -> tuple[Field, ...]:
        """The fields that are written only."""
        return tuple(f for f in self.fields.values() if not f.stored)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The fields that hold child rows."""
        return tuple(f for f in self.fields.values() if isinstance(f, Table))


def table_name(doctype: str) -> str:
    """Return the table of a DocType: `Sales Order` → `doc_sales_order`."""
    return "doc_" + doctype.lower().replace(" ", "_")


def read_declaration(
    cls: type,
    name: str | None,
    naming: str,
    child: bool,
    submittable: bool,
    read_only: bool,
    permissions: Mapping[str, str],
) -> Meta:
    """Return the Meta of a DocType class, with every mistake of its declaration in `problems`."""
    problems: list[str] = []
    doctype = str(name) if name is not None else cls.__name__
    most = MAX_IDENTIFIER - len(table_name(""))
    if not _DOCTYPE_NAME.match(doctype) or len(doctype) > most:
        problems.append(f"name is letters, digits and single spaces, at most {most} characters")
    fields = _declared_fields(cls)
    for each in fields.values():
        problems += [f"{each.name}: {text}" for text in _field_problems(each, child)]
    problems += _twins(fields)
    parsed = _parse_naming(naming, fields)
    if isinstance(parsed, str):
        problems.append(parsed)
        parsed = Naming("random")
    granted = _parse_permissions(permissions, problems)
    if child and (submittable or granted):
        problems.append("a child DocType has neither permissions nor a submit of its own")
    for option in ("unique_together", "index_together"):
        for column in {c for together in getattr(cls, option, ()) for c in together}:
            if column not in fields or isinstance(fields[column], Table):
                problems.append(f"{option}: there is no column {column}")
    return Meta(
        doctype,
        table_name(doctype),
        cls,
        cls.__module__,
        MappingProxyType(fields),
        child,
        submittable,
        read_only,
        parsed,
        MappingProxyType(granted),
        tuple(getattr(cls, "unique_together", ())),
        tuple(getattr(cls, "index_together", ())),
        tuple(problems),
    )


def _parse_permissions(permissions: object, problems: list[str]) -> dict[str, frozenset[str]]:
    if not isinstance(permissions, Mapping):
        problems.append('permissions is a dict: {"Role": "list read …"}')
        return {}
    granted = {}
    for role, words in permissions.items():
        actions = str(words).split()
        wrong = [w for w in actions if w not in ACTIONS and not _LEVEL_ACTION.match(w)]
        if wrong:
            problems.append(f"permissions of {role}: no such action {', '.join(wrong)}")
        if not is_name(role):
            problems.append(f"permissions: {role!r} can't be a role: {NAME_RULE}")
        granted[role] = frozenset(actions)
    return granted


def is_name(name: object) -> bool:
    """Whether a document may have this name (interface §3)."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= NAME_CHARACTERS
        and name == name.strip()
        and "/" not in name
        and not CONTROLS_AND_BREAKS.search(name)
    )


def _declared_fields(cls: type) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        fields |= {k: v for k, v in vars(base).items() if isinstance(v, Field)}
    return fields


def _field_problems(each: Field, child: bool) -> Iterator[str]:
    if not _FIELD_NAME.match(each.name) or len(each.name) > 60:
        yield "a field name is letters, digits and _, beginning with a-z, at most 60 characters"
    if each.name.lower() in (*STANDARD, *CHILD_STANDARD, *_METHODS, ROW_ID):
        yield "this name belongs to every document"
    if child and isinstance(each, Table):
        yield "a child DocType holds no tables"
    if each.unique and (isinstance(each, Table) or each.secret):
        yield f"a {each.type} cannot be unique"
    yield from each.problems()


def _twins(fields: Mapping[str, Field]) -> Iterator[str]:
    """Columns that differ in letter case alone are one column to SQLite."""
    first: dict[str, str] = {}
    for name in fields:
        if first.setdefault(name.lower(), name) != name:
            yield f"{name}: it differs from {first[name.lower()]} in letter case alone"


def _parse_naming(naming: object, fields: Mapping[str, Field]) -> Naming | str:
    if not isinstance(naming, str):
        return _NAMINGS
    if naming in ("given", "random"):
        return Naming(naming)
    if naming.startswith("field:"):
        target = naming.removeprefix("field:")
        if target not in fields or fields[target].type not in ("Data", "Link", "Select"):
            return f"naming: there is no text field {target}"
        return Naming("field", field=target)
    series = _SERIES.match(naming)
    if series:
        return Naming("series", prefix=series["prefix"], digits=len(series["digits"]))
    return _NAMINGS


class DocTypeBase:
    """What `class X(DocType, …)` sets up; `DocType` adds the life of a document."""

    meta: ClassVar[Meta]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        naming: str = "given",
        child: bool = False,
        submittable: bool = False,
        read_only: bool = False,
        permissions: Mapping[str, str] = MappingProxyType({}),
        abstract: bool = False,
        **unknown: Any,
    ) -> None:
        super().__init_subclass__()
        if abstract:
            return
        meta = read_declaration(cls, name, naming, child, submittable, read_only, permissions)
        if unknown:
            words = tuple(f"no such option {word}" for word in sorted(unknown))
            meta = replace(meta, problems=meta.problems + words)
        cls.meta = meta
