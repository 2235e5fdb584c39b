"""The registry of a site's apps: their declarations, validated together at start.

These are DocTypes, in addition to the built-in ones; whitelisted functions, which are called over
HTTP, with the permitted roles (D-180); and data migrations, which `fw migrate` runs once each, in
order (D-173).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, ModuleType, NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, overload

import msgspec

from fw_actors.documents.doctype import DocTypeBase, Meta
from fw_actors.documents.fields import Field, Link, Table
from fw_actors.documents.hooks import call_plainly
from fw_actors.documents.naming import NAME_RULE, is_name
from fw_actors.documents.tables import DocTable, table_of
from fw_actors.errors import (
    BadRequestError,
    ConfigurationError,
    NotFoundError,
    required_type,
    runs_later,
)
from fw_actors.rules.safe_output import app_frame

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MAX_SHOWN_CHARACTERS: Final = 140
_EVERYONE: Final[Any] = object()  # unlike `()`, no app can give it
_JSON_TYPES: Final = (str, int, float, bool, dict, list, NoneType, Any)


class Whitelisted:
    """A function served at `/api/method/<module>.<function>`; it can also be called directly."""

    def __init__(self, function: Callable[..., Any], roles: Sequence[str]) -> None:
        self.function = function
        self.declared_roles = roles  # the registry validates them
        self.roles = tuple(roles) if isinstance(roles, list | tuple) else ()
        self.module = function.__module__
        self.path = f"{function.__module__}.{function.__name__}"
        self._signature = inspect.signature(function)
        functools.update_wrapper(self, function)  # so that `fw.enqueue` finds its name

    def __call__(self, /, *args: Any, **arguments: Any) -> Any:
        """Call it; see `call_plainly`."""
        return call_plainly(self.path, self.function, *args, **arguments)

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain function whose first parameter is the handle."""
        kinds = [each.kind for each in self._signature.parameters.values()]
        takes_handle = bool(kinds) and kinds[0] in _POSITIONAL
        return takes_handle and not runs_later(self.function)

    @property
    def is_nameable(self) -> bool:
        """Whether a body can name the parameters after the handle."""
        kinds = [each.kind for each in self._signature.parameters.values()]
        return inspect.Parameter.POSITIONAL_ONLY not in kinds[1:]

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        """The annotations of parameters that are JSON types; other annotations are not
        validated."""
        names = getattr(inspect.unwrap(self.function), "__globals__", {})
        hints: dict[str, Any] = {}
        for name, annotation in getattr(self.function, "__annotations__", {}).items():
            alone = SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= get_type_hints(alone, globalns=names)
            except Exception:  # a name imported only for type checkers, or no type at all
                continue
        return {name: hint for name, hint in hints.items() if _is_json(hint)}

    def validate(self, arguments: Mapping[str, Any]) -> None:
        """Refuse unknown, missing and wrongly typed arguments (D-182).

        Raises: BadRequestError naming the argument.
        """
        handle, *parameters = self._signature.parameters.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        for name in arguments:
            if name not in names and (not takes_any or name == handle.name):
                raise BadRequestError(f"{self.path} has no parameter {name}.", field=name)
        for parameter in parameters:
            needed = parameter.default is parameter.empty and parameter.name in names
            if needed and parameter.name not in arguments:
                raise BadRequestError(f"{parameter.name} is missing.", field=parameter.name)
            if parameter.name in names and parameter.name in arguments:
                self._validate_type(parameter, arguments[parameter.name])

    def _validate_type(self, parameter: inspect.Parameter, value: Any) -> None:
        name = parameter.name
        if name not in self._types or (value is None and parameter.default is None):
            return
        try:
            msgspec.convert(value, self._types[name])
        except msgspec.ValidationError as error:
            raise BadRequestError(self._type_refusal(name, error), field=name) from None
        except TypeError:  # a union that msgspec cannot distinguish
            return

    def _type_refusal(self, name: str, error: msgspec.ValidationError) -> str:
        if (required := required_type(error)) is not None:
            return f"{name}{required[0]} must be {required[1]}."
        if get_origin(self._types[name]) is Literal:
            values = " or ".join(map(json.dumps, get_args(self._types[name])))
            return f"{name} must be {values}."
        text = str(error).replace("`", "")[:_MAX_SHOWN_CHARACTERS]  # it may quote the value
        return f"{name} is invalid: {text}."


def _is_json(hint: Any) -> bool:
    """Whether an annotation consists only of JSON types, so that a body can be validated by it."""
    origin = get_origin(hint)
    if origin is Literal:
        return True
    parts = get_args(hint)
    if origin is dict and parts[:1] not in ((), (str,)):  # () for a bare typing.Dict
        return False
    if origin in (dict, list, Union, UnionType):
        return all(_is_json(part) for part in parts)
    return any(hint is each for each in _JSON_TYPES)


@overload
def whitelist(function: Callable[..., Any], /) -> Whitelisted: ...


@overload
def whitelist(*, roles: Sequence[str] = ...) -> Callable[[Callable[..., Any]], Whitelisted]: ...


def whitelist(
    function: Callable[..., Any] | None = None, /, *, roles: Sequence[str] = _EVERYONE
) -> Whitelisted | Callable[[Callable[..., Any]], Whitelisted]:
    """Make a function callable over HTTP, by POST, in a write transaction.

    `roles`: the roles that may call it, in addition to System Managers; without it every signed-in
    user may. An empty list is reported at start.
    """
    if function is not None:
        given: object = function  # an app may not use a type checker
        if not callable(given) or isinstance(given, type | Whitelisted):
            raise TypeError('@whitelist takes the roles by name: @whitelist(roles=["Sales User"])')
        return Whitelisted(function, roles)
    return lambda target: Whitelisted(target, roles)


class DataMigration:
    """A numbered function of an app; it can also be called directly.

    Attributes:
        number: its position among the app's migrations, from 1 without gaps.
        in_batches: whether it takes a cursor as its second parameter. Each call does a part of the
            work in its own transaction, and returns the cursor of the next part, or None when all
            is done. The first cursor is None.
    """

    def __init__(self, number: int, function: Callable[..., Any]) -> None:
        self.number = number
        self.function = function
        self.name = getattr(function, "__name__", "")
        self.module = function.__module__
        self._parameters = tuple(inspect.signature(function).parameters.values())
        self.in_batches = len(self._parameters) == 2
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: Any) -> Any:
        """Call it; see `call_plainly`."""
        return call_plainly(f"{self.module}.{self.name}", self.function, *args)

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain function of fw, or of fw and a cursor."""
        return (
            len(self._parameters) in (1, 2)
            and all(each.kind in _POSITIONAL for each in self._parameters)
            and not runs_later(self.function)
        )


def migration(number: int) -> Callable[[Callable[..., Any]], DataMigration]:
    """Make a function of an app its data migration with this number, from 1 without gaps.

    `fw migrate` runs it once for a site, as Administrator, in a transaction: `function(fw)`. With
    a second parameter it runs in batches, see `DataMigration`.
    """
    if callable(number):  # it would not be found, and never run
        raise TypeError("@migration needs the migration's number: @migration(1)")
    return functools.partial(DataMigration, number)


class Registry:
    """DocTypes by name, with their tables; whitelisted functions and data migrations of apps."""

    def __init__(
        self,
        doctypes: Iterable[type[DocTypeBase]],
        functions: Iterable[Whitelisted],
        migrations: Mapping[str, tuple[DataMigration, ...]] = MappingProxyType({}),
    ) -> None:
        """Raises: ConfigurationError naming every error by file, class and field."""
        metas = [cls.meta for cls in doctypes]
        functions = tuple(functions)
        problems = [
            *_problems_of_doctypes(metas),
            *_problems_of_functions(functions),
            *_problems_of_migrations(migrations),
        ]
        if problems:
            raise ConfigurationError(problems)
        self.metas: Mapping[str, Meta] = MappingProxyType({m.name: m for m in metas})
        self.tables: Mapping[str, DocTable] = MappingProxyType(
            {m.name: table_of(m.cls) for m in metas}
        )
        self.functions: Mapping[str, Whitelisted] = MappingProxyType({f.path: f for f in functions})
        self.migrations: Mapping[str, tuple[DataMigration, ...]] = migrations

    def meta(self, doctype: str) -> Meta:
        """Return a DocType's Meta. Raises: NotFoundError."""
        try:
            return self.metas[doctype]
        except (KeyError, TypeError):  # an app may pass any object
            raise NotFoundError(f"There is no DocType {str(doctype)[:60]}.") from None

    def table(self, doctype: str) -> DocTable:
        """Return a DocType's table. Raises: NotFoundError."""
        self.meta(doctype)
        return self.tables[doctype]

    def roles(self) -> tuple[str, ...]:
        """The roles that DocTypes and functions name, sorted."""
        named = {role for m in self.metas.values() for role in m.permissions}
        return tuple(sorted(named | {r for f in self.functions.values() for r in f.roles}))


def _problems_of_doctypes(metas: list[Meta]) -> Iterator[str]:
    names: dict[str, Meta] = {}
    tables: dict[str, Meta] = {}
    for meta in metas:
        where = f"{_file_of(meta.cls)}: class {meta.cls.__name__}"
        yield from (f"{where}: {problem}" for problem in meta.problems)
        if meta.name in names:
            yield f"{where}: the DocType {meta.name} is declared in {names[meta.name].module} too"
        elif meta.table in tables:
            yield f"{where}: its table {meta.table} is that of {tables[meta.table].name} too"
        names.setdefault(meta.name, meta)
        tables.setdefault(meta.table, meta)
    for meta in metas:
        where = f"{_file_of(meta.cls)}: class {meta.cls.__name__}"
        for field in meta.fields.values():
            yield from (
                f"{where}: {field.name}: {text}" for text in _reference_problem(field, names)
            )


def _reference_problem(field: Field, doctypes: Mapping[str, Meta]) -> Iterator[str]:
    """Yield the problem of a field that refers to another DocType, if it has one."""
    if isinstance(field, Link):
        target = field.options  # one that is not text is a problem of the field itself
        if isinstance(target, str) and target and not _is_target(doctypes.get(target)):
            yield f"there is no DocType {target} to link to"
    if isinstance(field, Table) and isinstance(field.child, type):
        child = getattr(field.child, "meta", None)
        if not isinstance(child, Meta) or not child.child:
            yield f"{field.child.__name__} is not a child DocType"
        elif doctypes.get(child.name) is not child:
            yield f"{child.name} is declared in no app of the site"


def _problems_of_functions(functions: Iterable[Whitelisted]) -> Iterator[str]:
    for function in functions:
        where = f"{_file_of_module(function.module)}: function {function.function.__name__}"
        if not function.is_plain:
            yield f"{where}: it must be a plain function whose first parameter is fw"
        elif not function.is_nameable:
            yield f"{where}: its parameters must be given by name: (fw, a) and not (fw, a, /)"
        if function.declared_roles is _EVERYONE:
            continue
        if not isinstance(function.declared_roles, list | tuple):
            yield f"{where}: roles must be a list of names"
            continue
        if not function.declared_roles:  # a list that was filtered would open it to all
            yield (
                f"{where}: roles must name a role; without roles every signed-in user may call it"
            )
        for role in function.roles:
            if not is_name(role):
                yield f"{where}: roles: {role!r} cannot be a role: {NAME_RULE}"


def _problems_of_migrations(apps: Mapping[str, tuple[DataMigration, ...]]) -> Iterator[str]:
    """Yield the problems of the data migrations of each app."""
    for app, migrations in apps.items():
        are_numbered = True
        for each in migrations:
            where = f"{_file_of_module(each.module)}: migration {each.name}"
            if type(each.number) is not int or each.number < 1:
                are_numbered = False
                yield f"{where}: its number must be a whole number from 1: @migration(1)"
            if not each.is_plain:
                yield f"{where}: it must be a plain function of fw, or of fw and cursor"
        if not are_numbered:
            continue
        for one, other in pairwise(migrations):
            if one.number == other.number:
                yield f"{app}: migrations {one.name} and {other.name} have the number {one.number}"
        numbers = {each.number for each in migrations}
        missing = sorted(set(range(1, len(numbers) + 1)) - numbers)
        if missing:
            yield (
                f"{app}: migration {missing[0]} is missing; numbers must have no gaps, and a "
                "released migration must be kept"
            )


def _is_target(meta: Meta | None) -> bool:
    return meta is not None and not meta.child


def _file_of(cls: type) -> str:
    return _file_of_module(cls.__module__)


def _file_of_module(name: str) -> str:
    return str(getattr(sys.modules.get(name), "__file__", None) or name)


def load_apps(names: Iterable[str], folder: Path) -> list[ModuleType]:
    """Import the site's apps. Their folder comes last on sys.path, so that no app hides a module.

    `names` were validated by the configuration (`config.policy`).

    Raises: ConfigurationError naming app, file and line of every failed import.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    modules, problems = [], []
    for name in names:
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:  # an app's top level may raise anything
            problems.append(f"apps: {name} cannot be imported: {_describe_import_error(error)}")
            continue
        modules.append(module)
        problems += _module_problems(module, folder)
    if problems:
        raise ConfigurationError(problems)
    return modules


def _module_problems(module: ModuleType, folder: Path) -> Iterator[str]:
    """Yield the problem of a module that is not the one of this name in the site's folder, or that
    holds nothing."""
    name = module.__name__
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if hasattr(module, "__path__") and module.__file__ is None:
        yield (
            f"apps: {name} is a folder without {folder.joinpath(*name.split('.'), '__init__.py')}; "
            "add this file, in which the app's modules are imported"
        )
        return
    for own in (folder / f"{top}.py", folder / top / "__init__.py"):
        if own.is_file() and not (file and Path(file).exists() and own.samefile(file)):
            where = f" {file}" if file else ""
            yield (
                f"apps: {top} is the installed module{where} and not {own}; give the app another "
                "name"
            )
            return
    if top in sys.stdlib_module_names:
        yield f"apps: {name} is a module of Python's standard library and not an app; remove it"


def _describe_import_error(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    frame = app_frame(error)
    place = "" if frame is None else f"{frame.filename}, line {frame.lineno}: "
    return f"{place}{type(error).__name__}: {error}{_missing_import(error)}"


def _missing_import(error: BaseException) -> str:
    """Return the missing import of a NameError, if the name is one of `fw_actors.app`."""
    if not isinstance(error, NameError):
        return ""
    name, modules = error.name, ("fw_actors.app", "fw_actors.errors")
    for module in modules:
        if name in getattr(sys.modules.get(module), "__dict__", {}):
            return f"; from {module} import {name}"
    return ""


def declared_in(modules: Iterable[ModuleType]) -> tuple[list[type[DocTypeBase]], list[Whitelisted]]:
    """Return the DocTypes and whitelisted functions of the modules, in their order.

    A package declares those of its own modules that it imports, and nothing from elsewhere.
    """
    doctypes: list[type[DocTypeBase]] = []
    functions: list[Whitelisted] = []
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Whitelisted) and _inside(value.module, module):
                functions.append(value)
            elif (
                isinstance(value, type)
                and issubclass(value, DocTypeBase)
                and _inside(value.__module__, module)
                and "meta" in vars(value)
                and value not in doctypes
            ):
                doctypes.append(value)
    return doctypes, functions


def declared_migrations(modules: Iterable[ModuleType]) -> Mapping[str, tuple[DataMigration, ...]]:
    """Return the data migrations of the modules by app, in the order of the apps."""
    return MappingProxyType({module.__name__: _migrations_in(module) for module in modules})


def _migrations_in(module: ModuleType) -> tuple[DataMigration, ...]:
    """Return the data migrations of an app, sorted by number."""
    found = {
        id(value): value
        for value in vars(module).values()
        if isinstance(value, DataMigration) and _inside(value.module, module)
    }
    # By type first: a number of another type is reported later, and must not break the sort.
    return tuple(sorted(found.values(), key=lambda each: (str(type(each.number)), each.number)))


def _inside(defined_in: str, module: ModuleType) -> bool:
    return f"{defined_in}.".startswith(f"{module.__name__}.")
