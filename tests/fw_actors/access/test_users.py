"""Accounts as an administrator makes and lists them (C-113, C-114)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.access.administration import UserAdministration, make_key_for
from fw_actors.access.links import Links
from fw_actors.access.users import add_user, list_users
from fw_actors.errors import DuplicateError, NotFoundError, PermissionDeniedError
from tests.fw_actors.office import Office
from tests.mail_kit import RecordingLog


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


async def hire_managers(office: Office) -> None:
    """Hire `root`, `sam`, who has access scopes, and `ann`, who has no role."""
    for name in ("root", "sam"):
        await office.hire(name, "System Manager")
    await office.hire("ann")

    def limit(fw: Any) -> None:
        fw.new_doc("Customer", title="Near").insert()
        fw.new_doc("User Permission", user="sam", allow="Customer", for_value="Near").insert()

    await office.do(limit)


@pytest.mark.parametrize(("actor", "owner"), [("ann", "ann"), ("ann", "sam"), ("sam", "root")])
async def test_key_for_an_account_requires_a_system_manager_within_its_scopes(
    office: Office, actor: str, owner: str
) -> None:
    """Only System Managers act on accounts (A-290), those with access scopes not on the
    accounts of System Managers (A-321)."""
    await hire_managers(office)
    site = office.site

    def make(fw: Any) -> None:
        make_key_for(fw, site.api_keys, site.mail_queue, site.config.auth, owner, "label", None)

    with pytest.raises(PermissionDeniedError):
        await office.do(make, actor)
    await office.do(make, "root")


@pytest.mark.parametrize(("actor", "owner"), [("ann", "ann"), ("ann", "sam"), ("sam", "root")])
async def test_end_of_a_session_requires_a_system_manager_within_its_scopes(
    office: Office, actor: str, owner: str
) -> None:
    """As for all sessions of an account (A-290, A-321)."""
    await hire_managers(office)
    site = office.site
    links = Links(site.registry, site.config.auth, site.entropy, "https://fw.example.test")
    users = UserAdministration(site, links, RecordingLog())

    def end(fw: Any) -> None:
        users.revoke_session(fw, owner, "no session", 0)

    with pytest.raises(PermissionDeniedError):
        await office.do(end, actor)
    with pytest.raises(NotFoundError):
        await office.do(end, "root")


async def test_add_user_with_a_taken_name_stores_nothing(office: Office) -> None:
    await office.hire("ada")
    with pytest.raises(DuplicateError):
        await office.do(lambda fw: add_user(fw, "ada", "new@x.test", password_hash="other"))
    assert (await office.sql("SELECT count(*) FROM fw_password WHERE hash = 'other'")) == [(0,)]
