"""All DocTypes of a site, validated together at start (D-167, D-170)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import new_class
from typing import Any

import pytest

from fw_actors.app import Data, DocType, Link, Table, migration, whitelist
from fw_actors.documents.core import CORE
from fw_actors.documents.doctype import DocTypeBase
from fw_actors.documents.registry import (
    Registry,
    Whitelisted,
    declared_in,
    declared_migrations,
    load_apps,
)
from fw_actors.errors import ConfigurationError, NotFoundError


class Child(DocType, child=True):
    text = Data()


class Parent(DocType, permissions={"Zoo": "read", "Ant": "list"}):
    rows = Table(Child)
    parent_link = Link(options="Parent")


def problems(*classes: type[DocType]) -> str:
    with pytest.raises(ConfigurationError) as refusal:
        Registry(classes, ())
    return "\n".join(refusal.value.problems)


def test_registry_finds_doctypes_by_name() -> None:
    registry = Registry((Child, Parent), ())
    assert registry.meta("Parent").cls is Parent
    assert registry.table("Child").table.name == "doc_child"


def test_registries_of_many_doctypes_share_the_tables_of_built_in_ones() -> None:
    """A second table of a name in a statement would be joined with the first one."""
    before = Registry(CORE, ()).table("User")
    many = [new_class(f"Thing{number}", (DocType,)) for number in range(1100)]
    Registry(many, ())
    assert Registry(CORE, ()).table("User") is before


@pytest.mark.parametrize("name", ["Nothing", "parent", "x" * 1000])
def test_registry_reports_unknown_doctype_as_not_found(name: str) -> None:
    registry = Registry((Child, Parent), ())
    for find in (registry.meta, registry.table):
        with pytest.raises(NotFoundError):
            find(name)


def test_registry_reports_every_mistake_by_file_class_and_field() -> None:
    """All mistakes are reported at once, with file, class and field (D-167)."""

    class First(DocType, naming="nonsense"):
        link = Link(options="Nowhere")

    class Second(DocType):
        lines = Table(First)
        Wrong = Data()

    reported = problems(First, Second)
    assert reported.count(f"{__file__}: class First: ") == 2
    assert reported.count(f"{__file__}: class Second: ") == 2
    assert "link: there is no DocType Nowhere to link to" in reported
    assert "lines: First is not a child DocType" in reported


def test_registry_refuses_doctype_name_declared_twice() -> None:
    class ParentTwin(DocType, name="Parent"):
        text = Data()

    assert "declared in" in problems(Child, Parent, ParentTwin)


def test_registry_refuses_doctypes_sharing_a_table() -> None:
    class LowerCaseSalesOrder(DocType, name="Sales order"):
        text = Data()

    class TitleCaseSalesOrder(DocType, name="Sales Order"):
        text = Data()

    found = problems(LowerCaseSalesOrder, TitleCaseSalesOrder)
    assert "its table doc_sales_order is that of Sales order too" in found


def test_registry_refuses_link_to_child_doctype() -> None:
    class Linking(DocType):
        link = Link(options="Child")

    assert "no DocType Child to link to" in problems(Child, Linking)


@pytest.mark.parametrize("target", [None, "", Parent])
def test_registry_reports_link_without_target_once(target: object) -> None:
    class Linking(DocType):
        link = Link(options=target)

    reported = problems(Linking)
    assert "link: options must name the DocType that the link leads to" in reported
    assert "to link to" not in reported


def test_registry_refuses_table_of_undeclared_child() -> None:
    assert "rows: Child is declared in no app of the site" in problems(Parent)


def test_registry_roles_come_from_doctypes_and_functions() -> None:
    """Roles that an app names are made at start (D-168)."""

    @whitelist(roles=["Bee"])
    def fly(fw: Any) -> None: ...

    assert Registry((Child, Parent), (fly,)).roles() == ("Ant", "Bee", "Zoo")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A site's folder; modules imported from it are removed again."""
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def loading(folder: Path, *names: str) -> str:
    with pytest.raises(ConfigurationError) as refusal:
        load_apps(names, folder)
    return "\n".join(refusal.value.problems)


def test_load_apps_imports_from_site_folder(folder: Path) -> None:
    write(folder, "myapp_one.py", "here = True\n")
    (module,) = load_apps(["myapp_one"], folder)
    assert module.here is True


def test_load_apps_appends_site_folder_to_path_once(folder: Path) -> None:
    """The site's folder is last on the import path (D-166)."""
    load_apps([], folder)
    load_apps([], folder)
    assert sys.path[-1] == str(folder)
    assert sys.path.count(str(folder)) == 1


def test_load_apps_reports_every_failure_with_file_and_line(folder: Path) -> None:
    write(folder, "myapp_syntax.py", "x = 1\ndef broken(:\n")
    write(folder, "myapp_raises.py", "x = 1\n\n1 / 0\n")
    write(folder, "myapp_exits.py", "import sys\nsys.exit(3)\n")
    reported = loading(folder, "myapp_syntax", "myapp_raises", "myapp_exits", "myapp_missing", "")
    assert f"{folder / 'myapp_syntax.py'}, line 2" in reported
    assert f"{folder / 'myapp_raises.py'}, line 3: ZeroDivisionError" in reported
    assert f"{folder / 'myapp_exits.py'}, line 2: SystemExit: 3" in reported
    assert "myapp_missing cannot be imported: ModuleNotFoundError" in reported
    assert len(reported.splitlines()) == 5


def test_load_apps_reports_line_of_app_that_called_a_library(folder: Path) -> None:
    write(folder, "myapp_calls.py", "import json\n\njson.loads('x')\n")
    assert f"{folder / 'myapp_calls.py'}, line 3: JSONDecodeError" in loading(folder, "myapp_calls")


@pytest.mark.parametrize("file", ["calendar.py", "calendar/__init__.py"])
def test_load_apps_reports_app_named_like_an_installed_module(folder: Path, file: str) -> None:
    """No app hides a module (D-166), so that this one would be left out without a word."""
    write(folder, file, OTHER)
    reported = loading(folder, "calendar")
    assert reported.startswith("apps: calendar is the installed module /")
    assert reported.endswith(f"and not {folder / file}; give the app another name")


def test_load_apps_reports_module_of_standard_library(folder: Path) -> None:
    """Nothing of it would be declared (D-166)."""
    assert loading(folder, "json", "email.message") == (
        "apps: json is a module of Python's standard library and not an app; remove it\n"
        "apps: email.message is a module of Python's standard library and not an app; remove it"
    )


def test_load_apps_reports_folder_without_init(folder: Path) -> None:
    """Python imports it as an empty namespace, of which nothing is declared."""
    write(folder, "myapp_folder/parts.py", OTHER)
    reported = loading(folder, "myapp_folder")
    assert reported == (
        f"apps: myapp_folder is a folder without {folder / 'myapp_folder' / '__init__.py'}; "
        "add this file, in which the app's modules are imported"
    )
    (module,) = load_apps(["myapp_folder.parts"], folder)
    assert names(declared_in([module])[0]) == ["Borrowed"]


def test_registry_reports_misspelt_field_options() -> None:
    class Typo(DocType):
        first = Data(requird=True)
        second = Table(Child, readonly=True)

    reported = problems(Child, Typo)
    assert "class Typo: first: no such option requird" in reported
    assert "class Typo: second: no such option readonly" in reported


APP = """
from fw_actors.app import Data, DocType, whitelist
from {other} import Borrowed, borrowed

class Mine(DocType):
    text = Data()

class Abstract(DocType, abstract=True):
    text = Data()

Alias = Mine

@whitelist
def mine(fw): ...
"""
OTHER = """
from fw_actors.app import Data, DocType, whitelist

class Borrowed(DocType):
    text = Data()

@whitelist
def borrowed(fw): ...
"""


def names(doctypes: list[type[DocTypeBase]]) -> list[str]:
    return [cls.meta.name for cls in doctypes]


def test_declared_in_excludes_imported_declarations(folder: Path) -> None:
    write(folder, "myapp_other.py", OTHER)
    write(folder, "myapp_own.py", APP.format(other="myapp_other"))
    doctypes, functions = declared_in(load_apps(["myapp_own"], folder))
    assert names(doctypes) == ["Mine"]
    assert [f.path for f in functions] == ["myapp_own.mine"]


def test_declared_in_includes_modules_of_package(folder: Path) -> None:
    write(folder, "myapp_pack/parts.py", OTHER)
    write(folder, "myapp_pack/__init__.py", APP.format(other="myapp_pack.parts"))
    doctypes, functions = declared_in(load_apps(["myapp_pack"], folder))
    assert names(doctypes) == ["Borrowed", "Mine"]
    assert [f.path for f in functions] == ["myapp_pack.parts.borrowed", "myapp_pack.mine"]


def test_declared_in_counts_listed_submodule_once(folder: Path) -> None:
    write(folder, "myapp_twice/parts.py", OTHER)
    write(folder, "myapp_twice/__init__.py", APP.format(other="myapp_twice.parts"))
    modules = load_apps(["myapp_twice", "myapp_twice.parts"], folder)
    assert names(declared_in(modules)[0]) == ["Borrowed", "Mine"]


def test_registry_reports_parameter_that_no_body_can_name() -> None:
    """The message named the first parameter alone, which is right here (D-184)."""

    @whitelist
    def close(fw: Any, ticket: str, /) -> None: ...

    with pytest.raises(ConfigurationError, match="close: its parameters must be given by name"):
        Registry((), (close,))


def test_registry_reports_invalid_role_with_function() -> None:
    @whitelist(roles=["a/b", "Fine"])
    def fly(fw: Any) -> None: ...

    @whitelist(roles="Boss")
    def crawl(fw: Any) -> None: ...

    @whitelist(roles=[])
    def swim(fw: Any) -> None: ...

    @whitelist(roles=())
    def dive(fw: Any) -> None: ...

    with pytest.raises(ConfigurationError) as refusal:
        Registry((), (fly, crawl, swim, dive))
    first, second, third, fourth = refusal.value.problems
    assert first.startswith(f"{__file__}: function fly: roles: 'a/b' cannot be a role")
    assert second == f"{__file__}: function crawl: roles must be a list of names"
    assert third.startswith(f"{__file__}: function swim: roles must name a role")
    assert fourth.startswith(f"{__file__}: function dive: roles must name a role")
    with pytest.raises(ConfigurationError, match="roles must be a list of names"):
        Registry((), (Whitelisted(lambda fw: None, None),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decorator", "advice"),
    [
        ('@whitelist("Boss")', '@whitelist(roles=["Sales User"])'),
        ('@whitelist(["Boss"])', '@whitelist(roles=["Sales User"])'),
        ("@migration", "@migration(1)"),
    ],
)
def test_load_apps_reports_decorator_without_its_argument(
    folder: Path, decorator: str, advice: str
) -> None:
    """A migration without a number would never run."""
    imports = "from fw_actors.app import migration, whitelist\n\n"
    write(folder, "myapp_bare.py", f"{imports}{decorator}\ndef act(fw): ...\n")
    reported = loading(folder, "myapp_bare")
    assert f"{folder / 'myapp_bare.py'}, line 3: TypeError: " in reported
    assert advice in reported


def test_registry_refuses_uncallable_whitelisted_function() -> None:
    """Whitelisted functions are plain ones, and get the handle first (D-184)."""

    @whitelist
    def nothing() -> None: ...

    @whitelist
    def named(*, fw: Any) -> None: ...

    @whitelist
    async def later(fw: Any) -> None: ...

    @whitelist
    def yielding(fw: Any) -> Iterator[int]:
        yield 1

    @whitelist
    def unnamed(fw: Any, name: str, /) -> None: ...

    @whitelist
    def fine(fw: Any, *, name: str = "") -> None: ...

    with pytest.raises(ConfigurationError) as refusal:
        Registry((), (nothing, named, later, yielding, unnamed, fine))
    assert [problem.split(": ")[1] for problem in refusal.value.problems] == [
        "function nothing",
        "function named",
        "function later",
        "function yielding",
        "function unnamed",
    ]


def test_registry_refuses_async_and_non_callable_hooks() -> None:
    """Hooks are plain functions that run in the writer's transaction (D-141, D-145)."""

    class AsyncHookType(DocType):
        async def validate(self, fw: Any) -> None: ...

        on_insert = 5

        def before_save(self, fw: Any) -> None: ...

    reported = problems(AsyncHookType).splitlines()
    assert [line.split(": ")[2] for line in reported] == ["validate", "on_insert"]


def test_registry_reports_mistakes_in_data_migrations() -> None:
    """All mistakes of data migrations are reported at start (D-173, D-167)."""

    @migration(0)
    def nought(fw: Any) -> None: ...

    @migration(1)
    async def later(fw: Any) -> None: ...

    @migration(1)
    def again(fw: Any, cursor: Any) -> None: ...

    @migration(3)
    def too_many(fw: Any, cursor: Any, more: Any) -> None: ...

    with pytest.raises(ConfigurationError) as refusal:
        Registry((), (), {"wrong": (nought,), "contacts": (later, again, too_many)})
    assert refusal.value.problems == (
        f"{__file__}: migration nought: its number must be a whole number from 1: @migration(1)",
        f"{__file__}: migration later: it must be a plain function of fw, or of fw and cursor",
        f"{__file__}: migration too_many: it must be a plain function of fw, or of fw and cursor",
        "contacts: migrations later and again have the number 1",
        "contacts: migration 2 is missing; numbers must have no gaps, and a released migration "
        "must be kept",
    )


def test_declared_migrations_include_modules_of_package(folder: Path) -> None:
    """A migration is still a callable function."""
    steps = "from fw_actors.app import migration\n\n@migration({})\ndef {}(fw):\n    return fw\n"
    write(folder, "myapp_steps/steps.py", steps.format(2, "second"))
    init = steps.format(1, "first") + "from myapp_steps.steps import second\n"
    write(folder, "myapp_steps/__init__.py", init)
    found = declared_migrations(load_apps(["myapp_steps"], folder))["myapp_steps"]
    assert [(each.number, each.name) for each in found] == [(1, "first"), (2, "second")]
    assert found[0](7) == 7
