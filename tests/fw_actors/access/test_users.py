"""Accounts as an administrator makes and lists them (C-113, C-114)."""

from __future__ import annotations

import pytest

from fw_actors.access.users import add_user, list_users
from fw_actors.errors import DuplicateError, PermissionDeniedError
from tests.fw_actors.office import Office


async def test_add_user_makes_the_account_with_its_roles(office: Office) -> None:
    told = await office.do(
        lambda fw: add_user(fw, "ada", "ada@x.test", "Ada L.", ["Seller", "Reader", "Seller"])
    )
    assert told == {
        "name": "ada", "email": "ada@x.test", "fullName": "Ada L.", "enabled": True,
        "roles": ["Seller", "Reader"], "created": "2027-01-15T08:00:00.000Z",
    }  # fmt: skip


async def test_list_users_is_ordered_by_name(office: Office) -> None:
    for name in ("bob", "ada"):
        await office.hire(name)
    listed = await office.do(list_users)
    assert [each["name"] for each in listed] == ["ada", "bob"]


async def test_add_user_and_list_users_require_a_system_manager(office: Office) -> None:
    """Accounts are a System Manager's business (A-290)."""
    ada = await office.hire("ada", "Seller")
    with pytest.raises(PermissionDeniedError):
        await office.do(lambda fw: add_user(fw, "bob", "bob@x.test"), ada)
    with pytest.raises(PermissionDeniedError):
        await office.do(list_users, ada)


async def test_add_user_with_a_taken_name_stores_nothing(office: Office) -> None:
    await office.hire("ada")
    with pytest.raises(DuplicateError):
        await office.do(lambda fw: add_user(fw, "ada", "new@x.test", password_hash="other"))
    assert (await office.sql("SELECT count(*) FROM fw_password WHERE hash = 'other'")) == [(0,)]
