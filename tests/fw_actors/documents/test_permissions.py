"""Permissions by role, and what scopes refuse (D-162, A-314)."""

from __future__ import annotations

import pytest

from fw_actors.app import Data, DocType
from fw_actors.documents.core import CORE, UserPermission
from fw_actors.documents.permissions import Rights
from fw_actors.errors import PermissionDeniedError


class Thing(DocType, permissions={"Clerk": "list read", "Boss": "write read:1 write:2"}):
    text = Data()


META = Thing.meta
SHUT = {"Webhook", "Webhook Delivery", "Version", "Audit Event", "Email Delivery", "Error Log"}
ACTIONS = ["list", "read", "create", "write", "delete", "submit", "cancel", "export"]


def rights(*roles: str, user: str = "ada", **scopes: frozenset[str]) -> Rights:
    return Rights(user, frozenset(roles), scopes)


ALLOWED = [
    ((), set()),
    (("Clerk",), {"list", "read"}),
    (("Boss",), {"write"}),
    (("Clerk", "Boss", "Stranger"), {"list", "read", "write"}),
    (("System Manager",), set(ACTIONS)),
]


@pytest.mark.parametrize(("roles", "allowed"), ALLOWED)
def test_rights_combine_actions_of_roles(roles: tuple[str, ...], allowed: set[str]) -> None:
    """System Manager has all actions (D-162)."""
    assert {action for action in ACTIONS if rights(*roles).allows(META, action)} == allowed


def test_administrator_rights_allow_every_action() -> None:
    """`Administrator` has every permission (C-103)."""
    assert all(rights(user="Administrator").allows(META, action) for action in ACTIONS)


def test_rights_require_refuses_action_not_allowed() -> None:
    rights("Clerk").require(META, "read")
    with pytest.raises(PermissionDeniedError, match="You may not write Thing"):
        rights("Clerk").require(META, "write")


def test_permlevels_above_0_are_granted_individually() -> None:
    boss, clerk, manager = rights("Boss"), rights("Clerk"), rights("System Manager")
    assert [boss.sees_level(META, level) for level in (0, 1, 2)] == [True, True, False]
    assert [boss.sees_level(META, level, "write") for level in (0, 1, 2)] == [True, False, True]
    assert [clerk.sees_level(META, level) for level in (0, 1)] == [True, False]
    assert manager.sees_level(META, 9, "write")


def test_scopes_exclude_system_manager_from_webhooks_and_records() -> None:
    """Scopes refuse Webhooks (A-314) and the records of hidden documents (A-320)."""
    scoped = rights("System Manager", Thing=frozenset({"a"}))
    shut = {doctype.meta.name for doctype in CORE if scoped.excludes(doctype.meta)}
    assert shut == SHUT
    assert not any(rights("System Manager").excludes(doctype.meta) for doctype in CORE)


def test_scoped_rights_refuse_write_of_user_permission() -> None:
    """A scoped user is refused every write of User Permission, whatever the roles (A-319)."""
    scoped = rights("System Manager", Thing=frozenset({"a"}))
    shut = set()
    for doctype in CORE:
        try:
            scoped.require_writable(doctype.meta)
        except PermissionDeniedError:
            shut.add(doctype.meta.name)
    assert shut == {*SHUT, "User Permission"}
    rights("System Manager").require_writable(UserPermission.meta)


def test_rights_administer_site_only_as_unscoped_system_manager() -> None:
    scoped = rights("System Manager", Thing=frozenset({"a"}))
    assert rights("System Manager").administers
    assert rights(user="Administrator").administers
    assert not rights("Clerk").administers
    assert not scoped.administers
    assert not rights(user="Administrator").within(scoped).administers


def test_scoped_rights_have_no_power_over_system_managers() -> None:
    rights("System Manager").require_power_over_managers()
    for limited in (
        rights("System Manager", Thing=frozenset({"a"})),
        rights("System Manager", Thing=frozenset()),
        rights(user="Administrator").within(rights(Thing=frozenset({"a"}))),
    ):
        with pytest.raises(PermissionDeniedError, match="access scopes"):
            limited.require_power_over_managers()


def test_rights_within_scopes_of_other_user_own_no_account() -> None:
    scoped = rights(Thing=frozenset({"a"}))
    assert rights(user="bob").owns("bob")
    assert not rights(user="bob").owns("ada")
    assert rights(user="bob").within(rights()).owns("bob")
    assert rights().within(scoped).owns("ada")
    borrowed = rights(user="bob").within(scoped)
    assert not borrowed.owns("bob")
    assert not rights().within(borrowed).owns("ada")


def test_scopes_of_nested_rights_intersect() -> None:
    one = rights(Thing=frozenset({"a", "b"}), Item=frozenset({"x"}))
    other = rights(user="bob", Thing=frozenset({"b", "c"}))
    both = other.within(one)
    assert both.user == "bob"
    assert both.scopes == {"Thing": {"b"}, "Item": {"x"}}
    assert not rights().within(rights()).scoped
