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
def test_every_statement_of_the_store_compiles_for_both_databases(
    module: ModuleType, dialect: str
) -> None:
    found = statements(module)
    assert found
    for statement in found.values():
        form = statement.form(dialect)
        assert form.text
        text, values = form.resolve(dict.fromkeys(form.names, 1))
        mark = "?" if dialect == SQLITE else "%s"
        assert text.count(mark) == len(values)


def test_the_two_forms_ask_for_the_same_parameters() -> None:
    for statement in (*statements(jobs).values(), SPEND):
        assert statement.form(SQLITE).names == statement.form(POSTGRESQL).names


def test_values_come_in_the_order_of_the_places_and_constants_are_filled_in() -> None:
    text, values = SPEND.form(SQLITE).resolve({"at": 5, "digest": b"d"})
    assert values == (5, b"d", "recovery")
    assert text.endswith("RETURNING user")


def test_a_form_is_compiled_once() -> None:
    assert SPEND.form(POSTGRESQL) is SPEND.form(POSTGRESQL)


ONE_PLACE = Statement(select(JOB.c.id).where(JOB.c.id == bindparam("job")))
NO_PLACE = Statement(select(JOB.c.id))
IN_LIST = Statement(select(JOB.c.id).where(JOB.c.id.in_(bindparam("ids", expanding=True))))


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        (SPEND, {"at": 5}),
        (SPEND, {"at": 5, "digest": b"d", "other": 1}),
        (SPEND, {"at": 5, "other": 1}),
        (ONE_PLACE, {}),
        (ONE_PLACE, {"other": 1}),
        (NO_PLACE, {"other": 1}),
        (IN_LIST, {}),
        (IN_LIST, {"ids": [1], "other": 1}),
    ],
)
def test_a_missing_or_unknown_parameter_is_refused_with_the_names(
    statement: Statement, params: dict[str, object]
) -> None:
    with pytest.raises(StatementError, match=r"Takes .*; got"):
        statement.form(SQLITE).resolve(params)


@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3]])
def test_an_in_list_takes_as_many_places_as_it_has_values(ids: list[int]) -> None:
    text, values = IN_LIST.form(SQLITE).resolve({"ids": ids})
    assert text.count("?") == len(values) == len(ids)


def test_postgresql_returns_no_key_that_was_not_asked_for() -> None:
    form = compile_form(insert(JOB).values(queue=bindparam("queue")), POSTGRESQL)
    assert "RETURNING" not in form.text


def test_every_table_of_the_schema_has_a_key() -> None:
    assert all(table.primary_key.columns for table in METADATA.sorted_tables)
