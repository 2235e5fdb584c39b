"""Statements are compiled once for each dialect and take exactly their parameters."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
from sqlalchemy import bindparam, insert, select, update

from fw_actors.store import Statement, StatementError, jobs, migrations
from fw_actors.store.schema import JOB, METADATA, TOKEN
from fw_actors.store.statement import POSTGRESQL, SQLITE, compile_form

SPEND = Statement(
    update(TOKEN)
    .where(TOKEN.c.hash == bindparam("digest"), TOKEN.c.kind == "recovery")
    .values(spent=bindparam("at"))
    .returning(TOKEN.c.user)
)


def statements(module: ModuleType) -> dict[str, Statement]:
    found = inspect.getmembers(module, lambda member: isinstance(member, Statement))
    return dict(found)


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL])
@pytest.mark.parametrize("module", [jobs, migrations])
def test_store_statements_compile_for_both_dialects(module: ModuleType, dialect: str) -> None:
    found = statements(module)
    assert found
    for statement in found.values():
        form = statement.form(dialect)
        assert form.text
        text, values = form.resolve(dict.fromkeys(form.names, 1))
        mark = "?" if dialect == SQLITE else "%s"
        assert text.count(mark) == len(values)


def test_statement_forms_have_equal_parameters() -> None:
    for statement in (*statements(jobs).values(), SPEND):
        assert statement.form(SQLITE).names == statement.form(POSTGRESQL).names


def test_statement_values_follow_placeholder_order_and_include_constants() -> None:
    text, values = SPEND.form(SQLITE).resolve({"at": 5, "digest": b"d"})
    assert values == (5, b"d", "recovery")
    assert text.endswith("RETURNING user")


def test_statement_form_is_compiled_once() -> None:
    assert SPEND.form(POSTGRESQL) is SPEND.form(POSTGRESQL)


ONE_PARAMETER = Statement(select(JOB.c.id).where(JOB.c.id == bindparam("job")))
NO_PARAMETER = Statement(select(JOB.c.id))
IN_LIST = Statement(select(JOB.c.id).where(JOB.c.id.in_(bindparam("ids", expanding=True))))


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        (SPEND, {"at": 5}),
        (SPEND, {"at": 5, "digest": b"d", "other": 1}),
        (SPEND, {"at": 5, "other": 1}),
        (ONE_PARAMETER, {}),
        (ONE_PARAMETER, {"other": 1}),
        (NO_PARAMETER, {"other": 1}),
        (IN_LIST, {}),
        (IN_LIST, {"ids": [1], "other": 1}),
    ],
)
def test_resolve_refuses_missing_or_unknown_parameter_with_names(
    statement: Statement, params: dict[str, object]
) -> None:
    with pytest.raises(StatementError, match=r"Takes .*; got"):
        statement.form(SQLITE).resolve(params)


@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3]])
def test_expanding_parameter_takes_as_many_placeholders_as_values(ids: list[int]) -> None:
    text, values = IN_LIST.form(SQLITE).resolve({"ids": ids})
    assert text.count("?") == len(values) == len(ids)


def test_compiled_insert_has_no_implicit_returning_on_postgresql() -> None:
    form = compile_form(insert(JOB).values(queue=bindparam("queue")), POSTGRESQL)
    assert "RETURNING" not in form.text


def test_schema_tables_have_primary_key() -> None:
    assert all(table.primary_key.columns for table in METADATA.sorted_tables)
