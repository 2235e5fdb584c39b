"""The history of a document shows its Versions (H-162)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.app import Check, Data, DocType, Password, Vault
from web.pages.history import FieldChange, changes_of


class Bill(DocType, submittable=True):
    """Something with secrets."""

    full_name = Data()
    paid = Check()
    token = Vault()
    pin = Password()


META = Bill.meta


def row(change: str, **changed: list[Any]) -> dict[str, Any]:
    return {"table": "order_lines", "row": "r1", "change": change, "changed": changed}


def test_history_shows_old_and_new_value_of_a_field() -> None:
    data = {"changed": {"full_name": [None, "Ada"]}, "rows": []}
    assert changes_of(data, META) == (FieldChange("Full name", "empty", "Ada"),)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            row("added", item=[None, "Nut"], count=[None, 3]),
            FieldChange("Order lines, row added", "", "Item: Nut, Count: 3"),
        ),
        (
            row("removed", item=["Nut", None], count=[3, None]),
            FieldChange("Order lines, row removed", "Item: Nut, Count: 3", "nothing"),
        ),
        (row("changed", count=[3, 4]), FieldChange("Order lines, Count", "3", "4")),
        (row("changed", idx=[1, 2]), FieldChange("Order lines, position", "1", "2")),
        (row("added"), FieldChange("Order lines, row added", "", "empty")),
    ],
    ids=["added", "removed", "changed", "moved", "added without values"],
)
def test_history_shows_added_removed_and_changed_rows(
    change: dict[str, Any], expected: FieldChange
) -> None:
    assert changes_of({"changed": {}, "rows": [change]}, META) == (expected,)


def test_history_shows_changed_secret_without_value() -> None:
    """A change of such a field alone writes a Version that names no field (D-224)."""
    expected = (FieldChange("Token or Pin", "", "changed"),)
    assert changes_of({"changed": {}, "rows": []}, META) == changes_of(None, META) == expected


def test_history_shows_ticks_and_states_in_words() -> None:
    data = {"changed": {"paid": [0, 1], "docstatus": [0, 1]}, "rows": []}
    assert changes_of(data, META) == (
        FieldChange("Paid", "No", "Yes"), FieldChange("State", "Draft", "Submitted"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        "not JSON", 7, [1],
        {"changed": {"full_name": ["Ada"]}}, {"changed": {"full_name": "Ada"}}, {"changed": [1]},
        {"rows": 7}, {"rows": [None]}, {"rows": [{"table": "lines"}]},
        {"rows": [row("changed") | {"changed": {"count": 3}}]},
        {"rows": [row("added") | {"table": []}]},
    ],
)  # fmt: skip
def test_history_shows_version_that_sql_has_damaged(data: object) -> None:
    """The page must not fail (H-162)."""
    assert changes_of(data, META) == (FieldChange("Changes that cannot be read", "", ""),)


def test_history_cuts_long_values_and_counts_further_changes() -> None:
    data = {"changed": {}, "rows": [row("added", item=[None, "x" * 500])] * 60}
    changes = changes_of(data, META)
    assert len(changes) == 50
    assert changes[-1] == FieldChange("And", "", "11 more")
    assert max(len(change.new) for change in changes) == 80
