"""Accounts as an administrator makes and lists them (C-113, C-114)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.access.administration import UserAdministration, make_key_for
from fw_actors.access.links import Links
from fw_actors.access.users import add_user, list_users
from fw_actors.errors import DuplicateError, NotFoundError, PermissionDeniedError
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.mail_kit import RecordingLog


async def test_add_user_makes_the_account_with_its_roles(site: VirtualSite) -> None:
    result = await site.do(
        lambda fw: add_user(fw, "ada", "ada@x.test", "Ada L.", ["Seller", "Reader", "Seller"])
    )
    assert result == {
        "name": "ada", "email": "ada@x.test", "fullName": "Ada L.", "enabled": True,
        "roles": ["Seller", "Reader"], "created": "2027-01-15T08:00:00.000Z",
    }  # fmt: skip


async def test_list_users_is_ordered_by_name(site: VirtualSite) -> None:
    for name in ("bob", "ada"):
        await site.add_account(name)
    listed = await site.do(lambda fw: list(list_users(fw)))
    assert [each["name"] for each in listed] == ["ada", "bob"]


async def test_add_user_and_list_users_require_a_system_manager(site: VirtualSite) -> None:
    """Accounts are a System Manager's business (A-290)."""
    ada = await site.add_account("ada", "Seller")
    with pytest.raises(PermissionDeniedError):
        await site.do(lambda fw: add_user(fw, "bob", "bob@x.test"), ada)
    with pytest.raises(PermissionDeniedError):
        await site.do(lambda fw: list(list_users(fw)), ada)


async def hire_managers(site: VirtualSite) -> None:
    """Hire `root`, `sam`, who has access scopes, and `ann`, who has no role."""
    for name in ("root", "sam"):
        await site.add_account(name, "System Manager")
    await site.add_account("ann")

    def limit(fw: Any) -> None:
        fw.new_doc("Customer", title="Near").insert()
        fw.new_doc("User Permission", user="sam", allow="Customer", for_value="Near").insert()

    await site.do(limit)


@pytest.mark.parametrize(("actor", "owner"), [("ann", "ann"), ("ann", "sam"), ("sam", "root")])
async def test_key_for_an_account_requires_a_system_manager_within_its_scopes(
    site: VirtualSite, actor: str, owner: str
) -> None:
    """Only System Managers act on accounts (A-290), those with access scopes not on the
    accounts of System Managers (A-321)."""
    await hire_managers(site)
    opened = site.site

    def make(fw: Any) -> None:
        make_key_for(
            fw, opened.api_keys, opened.mail_queue, opened.config.auth, owner, "label", None
        )

    with pytest.raises(PermissionDeniedError):
        await site.do(make, actor)
    await site.do(make, "root")


@pytest.mark.parametrize(("actor", "owner"), [("ann", "ann"), ("ann", "sam"), ("sam", "root")])
async def test_end_of_a_session_requires_a_system_manager_within_its_scopes(
    site: VirtualSite, actor: str, owner: str
) -> None:
    """As for all sessions of an account (A-290, A-321)."""
    await hire_managers(site)
    opened = site.site
    links = Links(opened.config.auth, opened.entropy, "https://fw.example.test")
    users = UserAdministration(opened, links, RecordingLog())

    def end(fw: Any) -> None:
        users.revoke_session(fw, owner, "no session")

    with pytest.raises(PermissionDeniedError):
        await site.do(end, actor)
    with pytest.raises(NotFoundError):
        await site.do(end, "root")


async def test_add_user_with_a_taken_name_stores_nothing(site: VirtualSite) -> None:
    await site.add_account("ada")
    with pytest.raises(DuplicateError):
        await site.do(lambda fw: add_user(fw, "ada", "new@x.test", password_hash="other"))
    assert (await site.sql("SELECT count(*) FROM fw_password WHERE hash = 'other'")) == [(0,)]
