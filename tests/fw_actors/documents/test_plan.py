"""The plan of a DocType tells its fields apart by what verbs do with them."""

from __future__ import annotations

from fw_actors.app import JSON, Check, Data, DocType, Int, Link, Password, Table, Vault
from fw_actors.documents.doctype import HOOKS


class PlanRow(DocType, name="Plan Row", child=True):
    """A row."""

    text = Data(permlevel=1)


class Planned(DocType):
    """One field of each kind that is treated in a way of its own."""

    text = Data(required=True)
    count = Int(read_only=True)
    flag = Check()
    any = JSON()
    to = Link(options="Role")
    door = Password()
    token = Vault()
    rows = Table(PlanRow)

    def validate(self, fw: object) -> None:
        """A hook."""


def names(fields: object) -> list[str]:
    return [getattr(each, "name", None) or each[0] for each in fields]  # type: ignore[attr-defined]


def test_each_field_is_where_it_belongs() -> None:
    groups = Planned.meta.groups
    assert names(groups.accepted) == ["text", "count", "flag", "any", "to"]
    assert names(groups.secrets) == ["door", "token"]
    assert names(groups.checked) == ["text", "to", "rows"]
    assert groups.same == (
        "name", "owner", "modified_by", "docstatus", "idx", "text", "count", "flag", "to", "door",
    )  # fmt: skip
    assert names(groups.encoded) == ["any"]
    assert names(groups.sealed) == ["token"]
    assert names(groups.decoded) == ["flag", "any", "token"]
    assert names(groups.limited) == ["count"]
    assert names(groups.levelled) == []
    assert names(PlanRow.meta.groups.levelled) == ["text"]


def test_rows_keep_whose_they_are() -> None:
    assert {"parent", "parenttype", "parentfield"} <= set(PlanRow.meta.groups.same)


def test_hooks_are_methods_and_no_fields() -> None:
    """A Webhook has fields named on_insert and the like."""
    assert Planned.meta.hooks == {"validate"}

    class Ticked(DocType):
        on_insert = Check()

        def after_commit(self, fw: object) -> None: ...

    assert Ticked.meta.hooks == {"after_commit"}
    assert Ticked.meta.hooks <= set(HOOKS)
