"""DocType classes, the field groups compiled from them, and the limits of columns.

Errors of a declaration are collected on the class, not raised, so that a start reports all of them
at once.

PostgreSQL refuses a row whose columns do not fit into a page of 8 KiB, and an entry of an index of
over 2,704 bytes; SQLite accepts both. A declaration that could exceed either limit is refused at
start.

The module has more than 500 lines because each rule of a declaration is checked here, in one pass.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final

import sqlalchemy as sa

from fw_actors.documents.fields import Date, Field, Link, Select, Table, Vault
from fw_actors.documents.naming import NAME_RULE, Naming, is_name, parse_naming
from fw_actors.errors import runs_later

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FieldGroups:
    """The fields of one DocType, grouped by how they are processed; each group is in the order of
    declaration."""

    accepted: tuple[tuple[str, Convert], ...]
    """Fields that accept any value of their type, each with its normalising function."""
    secrets: tuple[Field, ...]
    """Password and Vault: null keeps the stored value."""
    checked: tuple[Field, ...]
    """Fields with a rule beyond their type: required, Link, Select, Table."""
    same: tuple[str, ...]
    """Columns that hold the same values as documents."""
    encoded: tuple[tuple[str, Convert], ...]
    """Columns that hold other values, each with its encoder."""
    sealed: tuple[Vault, ...]
    decoded: tuple[tuple[str, Convert], ...]
    """Fields that hold other values than their columns, each with its decoder."""
    blank: Mapping[str, Any]
    """The values of fields in a new document."""
    blank_made: tuple[tuple[str, Callable[[], Any]], ...]
    """Fields whose default is mutable, so that each new document gets its own; each with its
    factory."""
    limited: tuple[Field, ...]
    """Fields that are read_only or have a permlevel, so that not every writer may write them."""
    levelled: tuple[Field, ...]
    """Fields above permlevel 0."""
    pick: Callable[[dict[str, Any]], tuple[Any, ...]]
    """Returns a document's attributes as in JSON, in order."""


def field_groups(
    fields: Iterable[Field], standard: Iterable[str], shown: Iterable[str]
) -> FieldGroups:
    """Return the field groups of a DocType.

    `standard`: the fields of every document except the times; `shown`: all fields in JSON.
    """
    fields = tuple(fields)
    columns = [f for f in fields if f.stored and not isinstance(f, Table)]
    open_columns = [f for f in columns if not isinstance(f, Vault)]
    return FieldGroups(
        accepted=tuple((f.name, f.hold if f.unique else f.accept) for f in fields if f.plain),
        secrets=tuple(f for f in fields if not f.plain and not isinstance(f, Table)),
        checked=tuple(f for f in fields if f.required or isinstance(f, Link | Select | Table)),
        same=(*standard, *(f.name for f in open_columns if type(f).to_store is Field.to_store)),
        encoded=tuple(
            (f.name, f.to_store) for f in open_columns if type(f).to_store is not Field.to_store
        ),
        sealed=tuple(f for f in columns if isinstance(f, Vault)),
        decoded=tuple(
            (f.name, f.from_store) for f in columns if type(f).from_store is not Field.from_store
        ),
        blank={f.name: f.blank() for f in fields if not f.blank_is_made},
        blank_made=tuple((f.name, f.blank) for f in fields if f.blank_is_made),
        limited=tuple(f for f in fields if f.read_only or f.permlevel),
        levelled=tuple(f for f in fields if f.permlevel),
        pick=itemgetter(*shown),
    )


MAX_COLUMNS: Final = 400  # a long text is stored out of line, and leaves 18 bytes in the page
INDEX_BYTES: Final = 2600
_CHARACTER_BYTES: Final = 4  # of UTF-8, at most
_NUMBER_BYTES: Final = 8
_DATE_BYTES: Final = 10


def limit_problems(
    fields: Mapping[str, Field], together: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    """Yield a text for each exceeded limit.

    `together`: the columns of each index; columns that are not fields are the standard times, for
    which an entry always has room. Each field reports the problems of its own declaration
    (`Field.problems`).
    """
    if len(fields) > MAX_COLUMNS:
        yield f"there must be at most {MAX_COLUMNS} fields, not {len(fields)}"
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
        yield f"{names}: a field without a length cannot be in an index"
    elif sum(size or 0 for size in sizes) > INDEX_BYTES:
        max_length = INDEX_BYTES // _CHARACTER_BYTES
        yield f"{names}: too long for an index, which keeps at most {max_length} characters"


def bytes_of(field: Field) -> int | None:
    """Return the maximum size of a value in bytes; None without a limit."""
    if not isinstance(field.column, sa.Text):
        return _NUMBER_BYTES
    if isinstance(field, Date):
        return _DATE_BYTES
    if isinstance(field, Select) and field.length is None:
        return max((len(str(option).encode()) for option in field.options or ()), default=0)
    if field.type == "JSON" or field.length is None:
        return None
    return field.length * _CHARACTER_BYTES


ACTIONS: Final = ("list", "read", "create", "write", "delete", "submit", "cancel", "export")
STANDARD: Final = ("name", "owner", "creation", "modified", "modified_by", "docstatus", "idx")
TIMES: Final = ("creation", "modified")
CHILD_STANDARD: Final = ("parent", "parenttype", "parentfield")
HOOKS: Final = (
    "before_validate", "validate", "before_save",
    "on_insert", "on_update", "on_submit", "on_cancel", "on_trash", "after_commit",
)  # fmt: skip
_HOOKS_OF_SUBMITS: Final = ("on_submit", "on_cancel")
_HOOKS_ELSEWHERE: Final = MappingProxyType(
    {
        "before_insert": "before_save", "after_insert": "on_insert", "on_create": "on_insert",
        "before_update": "before_save", "after_update": "on_update", "on_change": "on_update",
        "after_save": "on_update", "on_save": "on_update", "before_submit": "before_save",
        "after_submit": "on_submit", "before_cancel": "on_cancel", "after_cancel": "on_cancel",
        "before_validation": "before_validate", "on_validate": "validate",
        "before_delete": "on_trash", "on_delete": "on_trash", "after_delete": "on_trash",
    }
)  # fmt: skip
"""Hooks of other frameworks, and those that serve the purpose here."""
_HOOK_PREFIXES: Final = ("before_", "after_", "on_")
_NEAR: Final = 0.9  # `on_updated` is near `on_update`, `after_comment` is not near `after_commit`
ROW_ID: Final = "row_id"  # random, kept at a rename: encrypted values are bound to it
# `vault` is not reserved: a field of this name hides the method, but `DocType.vault(doc, …)` works.
_METHODS: Final = (
    "insert", "save", "submit", "cancel", "delete", "rename", "db_set", "reload", "as_dict",
    "is_new", "from_row", "meta", "doctype",
)  # fmt: skip
_SYSTEM_COLUMNS: Final = ("ctid", "tableoid", "xmin", "xmax", "cmin", "cmax")
_TITLE_TYPES: Final = ("Data", "Link", "Select")
_FIELD_NAME: Final = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_DOCTYPE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*( [A-Za-z0-9]+)*\Z")
MAX_IDENTIFIER: Final = 63  # of PostgreSQL, which truncates longer ones
_LEVEL_ACTION: Final = re.compile(r"(read|write):([1-9])\Z")


@dataclass(frozen=True)
class Meta:
    """The declaration of a DocType: its name, options, fields, permissions, and problems."""

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
    problems: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The fields that are columns of the table, in order."""
        return tuple(f for f in self.fields.values() if f.stored and not isinstance(f, Table))

    @cached_property
    def internal(self) -> Mapping[str, str]:
        """The text columns that only the service's own statements use, each with its default.

        They are not fields of documents.
        """
        return MappingProxyType(getattr(self.cls, "internal_columns", {}))

    @cached_property
    def service_columns(self) -> tuple[str, ...]:
        """The fields that the service writes while documents are open, without a new version.

        A save keeps what is stored there. Only built-in DocTypes declare such fields.
        """
        return tuple(getattr(self.cls, "service_columns", ()))

    @cached_property
    def own_operations(self) -> bool:
        """Whether only operations of their own create and change the documents; users may read and
        delete them. Only a built-in DocType declares this."""
        return bool(getattr(self.cls, "own_operations", False))

    @cached_property
    def partial_indexes(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The partial indexes, each as its columns and the field that must have a value.

        Rows without a value cost nothing there. Only built-in DocTypes declare partial indexes.
        """
        return tuple(getattr(self.cls, "partial_indexes", ()))

    @cached_property
    def partial_unique(self) -> Mapping[tuple[str, ...], str]:
        """The fields that must have a value for a row to be in an index of `unique_together`."""
        return MappingProxyType(getattr(self.cls, "partial_unique", {}))

    @cached_property
    def former_indexes(self) -> tuple[tuple[str, ...], ...]:
        """The columns of indexes that were in `index_together` and are to be dropped."""
        return tuple(getattr(self.cls, "former_indexes", ()))

    @cached_property
    def title_field(self) -> str | None:
        """The field whose value pages show as a document's title; None if the class declares
        none."""
        title = getattr(self.cls, "title_field", None)
        return title if isinstance(title, str) else None

    @cached_property
    def unstored(self) -> tuple[Field, ...]:
        """The write-only fields, which have no column."""
        return tuple(f for f in self.fields.values() if not f.stored)

    @cached_property
    def groups(self) -> FieldGroups:
        """The compiled field groups."""
        standard = tuple(name for name in STANDARD if name not in TIMES)
        parent = CHILD_STANDARD if self.child else ()
        return field_groups(self.fields.values(), (*standard, *parent), self.shown)

    @cached_property
    def hooks(self) -> frozenset[str]:
        """The names of the hooks that the class defines. A field may have the name of a hook, as in
        Webhook."""
        return frozenset(
            h for h in HOOKS if not isinstance(getattr(self.cls, h, None), Field | None)
        )

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """All fields of a document in JSON, in order, except its DocType."""
        return (*STANDARD, *(CHILD_STANDARD if self.child else ()), *self.fields)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The fields that hold child rows."""
        return tuple(f for f in self.fields.values() if isinstance(f, Table))


def table_name(doctype: str) -> str:
    """Return the table of a DocType: `Sales Order` → `doc_sales_order`."""
    return "doc_" + doctype.lower().replace(" ", "_")


def read_declaration(
    cls: type,
    *,
    name: str | None,
    naming: str,
    child: bool,
    submittable: bool,
    read_only: bool,
    permissions: Mapping[str, str],
) -> Meta:
    """Return the Meta of a DocType class, with every error of its declaration in `problems`.

    `name`: None for the name of the class. The other arguments are the options of the class.
    """
    problems: list[str] = []
    doctype = str(name) if name is not None else cls.__name__
    max_length = MAX_IDENTIFIER - len(table_name(""))
    if not _DOCTYPE_NAME.match(doctype) or len(doctype) > max_length:
        problems.append(
            "name must have only letters, digits and single spaces, at most "
            f"{max_length} characters"
        )
    flags = {"child": child, "submittable": submittable, "read_only": read_only}
    problems += [f"{n} must be True or False" for n, v in flags.items() if v not in (True, False)]
    fields = _declared_fields(cls)
    for each in fields.values():
        problems += [f"{each.name}: {text}" for text in _field_problems(each, child)]
    problems += [*_case_duplicates(fields), *_uncalled_fields(cls), *_hook_problems(cls)]
    problems += _misnamed_hooks(cls)
    parsed = parse_naming(naming, fields)
    if isinstance(parsed, str):
        problems.append(parsed)
        parsed = Naming("random")
    granted = _parse_permissions(permissions, problems)
    if child and (submittable or granted):
        problems.append("a child DocType has neither permissions nor a submit of its own")
    if child or not submittable:
        problems += _uncalled_hooks(cls, child=child)
    unique_together = _parse_together(cls, "unique_together", fields, problems)
    index_together = _parse_together(cls, "index_together", fields, problems, TIMES)
    problems += limit_problems(fields, (*unique_together, *index_together))
    problems += _title_problems(cls, fields)
    return Meta(
        name=doctype,
        table=table_name(doctype),
        cls=cls,
        module=cls.__module__,
        fields=MappingProxyType(fields),
        child=child,
        submittable=submittable,
        read_only=read_only,
        naming=parsed,
        permissions=MappingProxyType(granted),
        unique_together=unique_together,
        index_together=index_together,
        problems=tuple(problems),
    )


def _title_problems(cls: type, fields: Mapping[str, Field]) -> Iterator[str]:
    """Yield the problem of the option `title_field`, unless the class has a field of that name."""
    title = getattr(cls, "title_field", None)
    if title is None or isinstance(title, Field):
        return
    field = fields.get(title) if isinstance(title, str) else None
    if field is None or field.type not in _TITLE_TYPES or field.secret:
        yield f"title_field: {title!r} is not a field of type {' or '.join(_TITLE_TYPES)}"


def _parse_together(
    cls: type,
    option: str,
    fields: Mapping[str, Field],
    problems: list[str],
    standard: tuple[str, ...] = (),
) -> tuple[tuple[str, ...], ...]:
    """Return the class's declaration of `option`; `standard` columns are also allowed."""
    declared = getattr(cls, option, ())
    parsed = []
    for together in declared if isinstance(declared, list | tuple) else (declared,):
        if not isinstance(together, list | tuple):
            problems.append(f'{option} must be a tuple of tuples of names: (("a", "b"), …)')
            continue
        if not together or not all(isinstance(c, str) for c in together):
            problems.append(f"{option}: {together!r} must be one or more names of fields")
            continue
        own = [c for c in together if c not in standard]
        missing = [c for c in own if c not in fields or isinstance(fields[c], Table)]
        problems += [f"{option}: there is no column {column}" for column in missing]
        secret = [c for c in own if c not in missing and fields[c].secret]
        problems += [f"{option}: {c} is a {fields[c].type}, which has no index" for c in secret]
        if len(set(together)) < len(together):
            problems.append(f"{option}: {', '.join(together)}: a field must occur once")
        elif not missing and not secret:
            parsed.append(tuple(together))
    return tuple(parsed)


def _parse_permissions(permissions: object, problems: list[str]) -> dict[str, frozenset[str]]:
    if not isinstance(permissions, Mapping):
        problems.append('permissions must be a dict: {"Role": "list read …"}')
        return {}
    granted = {}
    for role, words in permissions.items():
        if not isinstance(words, str):
            problems.append(f'permissions of {role} must be text: "list read …"')
            continue
        actions = words.split()
        wrong = [w for w in actions if w not in ACTIONS and not _LEVEL_ACTION.match(w)]
        if wrong:
            problems.append(f"permissions of {role}: no such action {', '.join(wrong)}")
        if not is_name(role):
            problems.append(f"permissions: {role!r} cannot be a role: {NAME_RULE}")
        granted[role] = frozenset(actions)
    return granted


def _declared_fields(cls: type) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        fields |= {k: v for k, v in vars(base).items() if isinstance(v, Field)}
    return fields


def _field_problems(each: Field, child: bool) -> Iterator[str]:
    if not _FIELD_NAME.match(each.name) or len(each.name) > 60:
        yield "a field name must begin with a-z, and have only letters, digits and _, at most 60"
    if each.name.lower() in (*STANDARD, *CHILD_STANDARD, *_METHODS, ROW_ID):
        yield "this name is reserved in every document"
    if each.name in _SYSTEM_COLUMNS:
        yield "PostgreSQL reserves this name"
    if child and isinstance(each, Table):
        yield "a child DocType must not have tables"
    if each.unique and (isinstance(each, Table) or each.secret):
        yield f"a {each.type} cannot be unique"
    yield from each.problems()


def _case_duplicates(fields: Mapping[str, Field]) -> Iterator[str]:
    """Yield fields whose names differ only in letter case, which SQLite treats as one column."""
    first: dict[str, str] = {}
    for name in fields:
        if first.setdefault(name.lower(), name) != name:
            yield f"{name}: it differs from {first[name.lower()]} only in letter case"


def _uncalled_fields(cls: type) -> Iterator[str]:
    """Yield the attributes that hold a field type instead of a field, which would be ignored."""
    for name, value in _attributes(cls).items():
        if isinstance(value, type) and issubclass(value, Field):
            yield f"{name}: a field type must be called: {name} = {value.__name__}()"


def _hook_problems(cls: type) -> Iterator[str]:
    """Yield hooks that are not plain functions of two arguments.

    An asynchronous one would be called but never awaited, and none of a generator's code runs.
    """
    for name in HOOKS:
        hook = getattr(cls, name, None)
        if isinstance(hook, Field | None) or (isinstance(hook, type) and issubclass(hook, Field)):
            continue
        if not callable(hook) or runs_later(hook) or not _takes_two(hook):
            yield f"{name}: a hook must be a plain function of the document and fw"


def _uncalled_hooks(cls: type, *, child: bool) -> Iterator[str]:
    """Yield the hooks that nothing calls: all of a child DocType, and those of a submit of one that
    is not submittable. A class may inherit some."""
    for name in HOOKS if child else _HOOKS_OF_SUBMITS:
        if inspect.isfunction(vars(cls).get(name)):
            reason = (
                "rows have no hooks; use a hook of the parent"
                if child
                else "its documents cannot be submitted; declare it with submittable=True"
            )
            yield f"{name}: {reason}, or rename a method of your own"


def _misnamed_hooks(cls: type) -> Iterator[str]:
    """Yield methods of the form `on_…(self, fw)` that nothing calls, but look like hooks."""
    for name, value in _attributes(cls).items():
        if name in HOOKS or not name.startswith(_HOOK_PREFIXES) or not inspect.isfunction(value):
            continue
        parameters = list(inspect.signature(value).parameters)
        near = _HOOKS_ELSEWHERE.get(name) or next(
            iter(get_close_matches(name, HOOKS, 1, _NEAR)), ""
        )
        if near and len(parameters) == 2 and parameters[1] == "fw":
            yield f"{name}: there is no such hook; use {near}, or rename a method of your own"


def _attributes(cls: type) -> dict[str, Any]:
    """Return the attributes of a class and its bases; those of a class hide those of its bases."""
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}


def _takes_two(hook: Callable[..., Any]) -> bool:
    try:
        inspect.signature(hook).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


class DocTypeBase:
    """Reads the declaration of `class X(DocType, …)`. The subclass `DocType` adds the verbs of
    documents."""

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
        meta = read_declaration(
            cls,
            name=name,
            naming=naming,
            child=child,
            submittable=submittable,
            read_only=read_only,
            permissions=permissions,
        )
        if unknown:
            words = tuple(f"no such option {word}" for word in sorted(unknown))
            meta = replace(meta, problems=meta.problems + words)
        cls.meta = meta
