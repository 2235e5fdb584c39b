"""A DocType's declaration and its mistakes (D-160, D-167)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import new_class
from typing import Any

import pytest

from fw_actors.app import Check, Data, DocType, Float, Int, Password, Table, Vault
from fw_actors.documents.doctype import table_name
from fw_actors.documents.naming import Naming


def declare(fields: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return the Meta of a class with these fields and options."""
    body = fields or {"title": Data()}
    cls: Any = new_class("Thing", (DocType,), options, lambda namespace: namespace.update(body))
    return cls.meta


def test_doctype_takes_name_and_defaults_from_class() -> None:
    meta = declare()
    assert (meta.name, meta.table, meta.problems) == ("Thing", "doc_thing", ())
    assert (meta.child, meta.submittable, meta.naming) == (False, False, Naming("given"))


def test_name_option_overrides_class_name() -> None:
    assert declare(name="Sales Order").name == "Sales Order"
    assert table_name("Sales Order") == "doc_sales_order"


def test_doctype_fields_keep_declaration_order() -> None:
    meta = declare({"b": Data(), "a": Int(), "lines": Table(int)})
    assert list(meta.fields) == ["b", "a", "lines"]
    assert [f.name for f in meta.columns] == ["b", "a"]
    assert [f.name for f in meta.tables] == ["lines"]


NAMINGS = [
    ("given", Naming("given")),
    ("random", Naming("random")),
    ("field:title", Naming("field", field="title")),
    ("series:SO-.#####", Naming("series", prefix="SO-", digits=5)),
    ("series:.#", Naming("series", prefix="", digits=1)),
    ("series:A.B-.##", Naming("series", prefix="A.B-", digits=2)),
]


@pytest.mark.parametrize(("naming", "parsed"), NAMINGS)
def test_naming_option_parses_four_forms(naming: str, parsed: Naming) -> None:
    """`naming` is `given`, `field:<field>`, `series:<prefix>.#####` or `random` (D-101)."""
    meta = declare(naming=naming)
    assert (meta.naming, meta.problems) == (parsed, ())


WRONG_NAMINGS = ["", "Given", "field:", "field:nothing", "field:done", "series:SO-", "series:#.x",
                 "series:a/b.##", "autoincrement", "series: a.##", f"series:{'a' * 130}.#",
                 f"series:.{'#' * 141}"]  # fmt: skip


@pytest.mark.parametrize("naming", WRONG_NAMINGS)
def test_naming_option_rejects_unknown_form(naming: str) -> None:
    meta = declare({"title": Data(), "done": Check()}, naming=naming)
    assert any("naming" in problem for problem in meta.problems)


@pytest.mark.parametrize("name", ["", "1st", "Sales  Order", " X", "X ", "A-B", "A/B", "x" * 61])
def test_doctype_name_rejects_invalid_words(name: str) -> None:
    assert any("name must have only letters" in problem for problem in declare(name=name).problems)


STANDARD = ["name", "owner", "creation", "modified", "modified_by", "docstatus", "idx", "parent",
            "parenttype", "parentfield", "doctype", "row_id", "nAme", "insert", "save", "delete",
            "as_dict", "meta", "is_new"]  # fmt: skip


@pytest.mark.parametrize("name", STANDARD)
def test_field_name_rejects_standard_attribute_names(name: str) -> None:
    assert any("every document" in problem for problem in declare({name: Data()}).problems)


@pytest.mark.parametrize("name", ["xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"])
def test_field_name_rejects_system_columns_of_postgresql(name: str) -> None:
    """Its tables have these columns themselves, so that creating one failed there only."""
    assert declare({name: Data()}).problems == (f"{name}: PostgreSQL reserves this name",)


@pytest.mark.parametrize("name", ["Title", "_x", "ümlaut", "x" * 61])
def test_field_name_rejects_missing_lower_case_start(name: str) -> None:
    assert any("a field name must begin" in problem for problem in declare({name: Data()}).problems)


def test_field_names_must_differ_beyond_letter_case() -> None:
    problems = declare({"fullName": Data(), "fullname": Data()}).problems
    assert problems == ("fullname: it differs from fullName only in letter case",)


def test_permissions_option_maps_roles_to_actions() -> None:
    """A role maps to actions, and `read:1 write:1` stand for permlevel 1 (D-162)."""
    words = "list read create write delete submit cancel export read:1 write:9"
    meta = declare(permissions={"Boss": words, "Nobody": ""})
    assert meta.problems == ()
    assert meta.permissions == {"Boss": frozenset(words.split()), "Nobody": frozenset()}


@pytest.mark.parametrize("word", ["amend", "read:0", "read:10", "list:1", "READ", "read,write"])
def test_permissions_option_rejects_unknown_action(word: str) -> None:
    meta = declare(permissions={"Boss": f"read {word}"})
    assert any("no such action" in problem for problem in meta.problems)


def test_doctype_declaration_rejects_unknown_option() -> None:
    assert declare(submitable=True).problems == ("no such option submitable",)


CHILD_MISTAKES: list[dict[str, Any]] = [
    {"submittable": True},
    {"permissions": {"Boss": "read"}},
    {"fields": {"rows": Table(int)}},
]


@pytest.mark.parametrize("options", CHILD_MISTAKES)
def test_child_doctype_rejects_permissions_submit_and_tables(options: dict[str, Any]) -> None:
    assert declare(child=True, **options).problems


@pytest.mark.parametrize("option", ["submittable", "child", "read_only"])
def test_doctype_option_rejects_text_for_a_flag(option: str) -> None:
    assert f"{option} must be True or False" in declare(None, **{option: "no"}).problems


def test_permissions_option_rejects_list_of_actions() -> None:
    problems = declare(permissions={"Boss": ["list", "read"]}).problems
    assert problems == ('permissions of Boss must be text: "list read …"',)


def test_doctype_declaration_rejects_uncalled_field_type() -> None:
    """A forgotten pair of brackets would leave the field out."""
    mixin = type("Titled", (), {"title": Data})
    cls: Any = new_class("Thing", (mixin, DocType), {}, lambda body: body.update(count=Int))
    assert set(cls.meta.problems) == {
        "title: a field type must be called: title = Data()",
        "count: a field type must be called: count = Int()",
    }


def test_field_object_declared_twice_is_rejected() -> None:
    """A field has one name, which is that of its column."""
    shared = Data()
    problems = declare({"first": shared, "second": shared}).problems
    assert "first: it is declared as second too; each field needs its own object" in problems
    once = Data()
    assert declare({"first": once}).problems == ()
    assert declare({"second": once}).problems
    mixin = type("Titled", (), {"title": Data()})
    for _ in range(2):
        cls: Any = new_class("Thing", (mixin, DocType))
        assert cls.meta.problems == ()


def yields(doc: Any, fw: Any) -> Iterator[None]:
    yield


async def yields_later(doc: Any, fw: Any) -> AsyncIterator[None]:
    yield


def test_child_doctype_reports_its_own_hooks() -> None:
    """Nothing calls them (D-167). A base class of parents and rows may have hooks of parents."""

    class Checked(DocType, abstract=True):
        def before_save(self, fw: Any) -> None: ...

    class CheckedRow(Checked, child=True):
        item = Data()

        def validate(self, fw: Any) -> None: ...

    assert CheckedRow.meta.problems == (
        "validate: rows have no hooks; use a hook of the parent, or rename a method of your own",
    )


@pytest.mark.parametrize("submittable", [False, True])
def test_doctype_reports_hooks_of_a_submit_that_it_does_not_have(submittable: bool) -> None:
    """Nothing would call them (D-167)."""

    class Order(DocType, submittable=submittable):
        def on_submit(self, fw: Any) -> None: ...

        def on_cancel(self, fw: Any) -> None: ...

    rule = (
        "its documents cannot be submitted; declare it with submittable=True, or rename a method "
        "of your own"
    )
    reported = (f"on_submit: {rule}", f"on_cancel: {rule}")
    assert Order.meta.problems == (() if submittable else reported)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("on_updated", "on_update"),
        ("on_insrt", "on_insert"),
        ("before_validation", "before_validate"),
        ("after_insert", "on_insert"),
        ("on_delete", "on_trash"),
        ("before_submit", "before_save"),
    ],
)
def test_doctype_reports_method_that_looks_like_a_hook(name: str, near: str) -> None:
    """Nothing would call it (D-167)."""

    def method(self: Any, fw: Any) -> None: ...

    problems = declare({"title": Data(), name: method}).problems
    rule = f"{name}: there is no such hook; use {near}, or rename a method of your own"
    assert problems == (rule,)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("on_delete", lambda self: None),
        ("on_delete", lambda self, order: None),
        ("after_payment", lambda self, fw: None),
        ("after_comment", lambda self, fw: None),
        ("updated", lambda self, fw: None),
    ],
)
def test_doctype_accepts_other_methods(name: str, method: Any) -> None:
    assert declare({"title": Data(), name: method}).problems == ()


@pytest.mark.parametrize(
    "hook",
    [
        yields,
        yields_later,
        lambda doc: None,
        lambda doc, fw, more: None,
        staticmethod(lambda fw: None),
        classmethod(lambda cls, fw: None),
    ],
)
def test_doctype_hook_rejects_generators_and_other_parameters(hook: Any) -> None:
    """None of a generator's code would run (D-145); other parameters would fail at the first
    save."""
    problems = declare({"title": Data(), "validate": hook}).problems
    assert problems == ("validate: a hook must be a plain function of the document and fw",)
    assert declare({"title": Data(), "validate": lambda doc, fw, more=1: None}).problems == ()


@pytest.mark.parametrize("option", ["unique_together", "index_together"])
def test_together_options_reject_secrets_and_odd_tuples(option: str) -> None:
    fields = {"a": Data(), "b": Data(), "pin": Password(length=9), "token": Vault(length=9)}
    for together, mistake in (
        ((), "() must be one or more names of fields"),
        (("a", ["b"]), "('a', ['b']) must be one or more names of fields"),
        (("a", "a"), "a, a: a field must occur once"),
        (("a", "pin"), "pin is a Password, which has no index"),
        (("token",), "token is a Vault, which has no index"),
    ):
        assert declare({**fields, option: (together,)}).problems == (f"{option}: {mistake}",)


def test_doctype_problems_list_every_mistake() -> None:
    meta = declare(
        {"Title": Data(), "count": Int(default="x"), "name": Float()}, name="1", naming="none"
    )
    assert len(meta.problems) == 5


def test_doctype_inherits_fields_of_abstract_base() -> None:
    class TitledBase(DocType, abstract=True):
        title = Data()

    class CountedTitle(TitledBase):
        count = Int()

    assert list(CountedTitle.meta.fields) == ["title", "count"]


def test_abstract_class_has_no_doctype_meta() -> None:
    class AbstractTitle(DocType, abstract=True):
        title = Data()

    assert "meta" not in vars(AbstractTitle)


ODD: list[tuple[dict[str, Any], str]] = [  # declarations with options of the wrong type
    ({"naming": 5}, "naming must be"),
    ({"name": 5}, "name must have only letters"),
    ({"permissions": ["Boss"]}, "permissions must be a dict"),
    ({"permissions": {"a/b": "read"}}, "'a/b' cannot be a role"),
    ({"permissions": {"": "read"}}, "'' cannot be a role"),
    ({"permissions": {" Boss": "read"}}, "' Boss' cannot be a role"),
    ({"permissions": {"x" * 141: "read"}}, "cannot be a role"),
    ({"permissions": {5: "read"}}, "5 cannot be a role"),
    ({"permissions": {"Boss": 5}}, "permissions of Boss must be text"),
]


@pytest.mark.parametrize(("options", "problem_text"), ODD)
def test_doctype_option_of_wrong_type_is_rejected(
    options: dict[str, Any], problem_text: str
) -> None:
    assert any(problem_text in problem for problem in declare(**options).problems)


@pytest.mark.parametrize("kind", [Password, Vault, Table])
def test_secret_and_table_fields_reject_unique(kind: Any) -> None:
    field = kind(int, unique=True) if kind is Table else kind(unique=True)
    assert any("cannot be unique" in problem for problem in declare({"a": field}).problems)


def test_together_options_accept_standard_times_in_index_only() -> None:
    together = (("a", "creation"), ("modified",))
    assert declare({"a": Data(), "index_together": together}).problems == ()
    assert declare({"a": Data(), "unique_together": together}).problems == (
        "unique_together: there is no column creation",
        "unique_together: there is no column modified",
    )


@pytest.mark.parametrize("option", ["unique_together", "index_together"])
def test_together_options_reject_missing_columns(option: str) -> None:
    meta = declare({"a": Data(), "rows": Table(int), option: (("a", "b"), ("rows",))})
    assert sorted(p for p in meta.problems if option in p) == [
        f"{option}: there is no column b", f"{option}: there is no column rows",
    ]  # fmt: skip


@pytest.mark.parametrize("title", ["there_is_none", "count", "secret", 3])
def test_title_field_rejects_missing_and_unreadable_field(title: Any) -> None:
    """`title_field` names a field that people can read (H-208)."""
    fields = {"title_field": title, "count": Int(), "secret": Password()}
    [problem] = declare(fields).problems
    assert problem.startswith("title_field: ")


def test_title_field_option_coexists_with_equally_named_field() -> None:
    """A field may be named `title_field` too (H-208)."""
    assert declare({"title_field": "subject", "subject": Data()}).title_field == "subject"
    meta = declare({"title_field": Data()})
    assert (meta.title_field, meta.problems) == (None, ())
