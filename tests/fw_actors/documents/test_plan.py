"""The plan of a DocType groups its fields by the treatment that verbs give them."""

from __future__ import annotations

from fw_actors.app import JSON, Check, Data, DocType, Int, Link, Password, Table, Vault
from fw_actors.documents.doctype import HOOKS


class PlanRow(DocType, name="Plan Row", child=True):
    """A row."""

    text = Data(permlevel=1)


class Planned(DocType):
    """One field of each kind that has its own treatment."""

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


def test_doctype_plan_groups_fields_by_treatment() -> None:
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


def test_child_plan_preserves_parent_columns() -> None:
    assert {"parent", "parenttype", "parentfield"} <= set(PlanRow.meta.groups.same)


def test_doctype_hooks_are_methods_not_fields() -> None:
    """A Webhook has fields such as on_insert, which are no hooks."""
    assert Planned.meta.hooks == {"validate"}

    class Ticked(DocType):
        on_insert = Check()

        def after_commit(self, fw: object) -> None: ...

    assert Ticked.meta.hooks == {"after_commit"}
    assert Ticked.meta.hooks <= set(HOOKS)
