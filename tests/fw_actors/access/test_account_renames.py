"""A renamed User or Role (D-103, D-105, A-13)."""

from __future__ import annotations

from typing import Any

import pytest

from examples import notes
from fw_actors.errors import ConflictError, DuplicateError, ValidationError
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")


async def rename(site: VirtualSite, doctype: str, old: str, new: str) -> None:
    await site.do(lambda fw: fw.get_doc(doctype, old).rename(new))


async def find(site: VirtualSite, key: str) -> str | None:
    account = await site.site.store.read(lambda tx: site.site.accounts.find(tx, key))
    return None if account is None else account.user


async def test_renamed_account_is_found_by_new_name_and_e_mail(site: VirtualSite) -> None:
    await site.add_account("ada", email="ada@x.test")
    await rename(site, "User", "ada", "Lovelace")
    keys = ("ada", "lovelace", "ada@x.test")
    assert [await find(site, key) for key in keys] == [None, "Lovelace", "Lovelace"]


@pytest.mark.parametrize("name", ["BOB", "bob@x.test"])
async def test_rename_refuses_an_identifier_in_use(site: VirtualSite, name: str) -> None:
    """No user's name is another's e-mail (A-13)."""
    await site.add_account("ada")
    await site.add_account("bob")
    with pytest.raises(DuplicateError):
        await rename(site, "User", "ada", name)
    assert await find(site, "ada") == "ada"


async def test_rename_to_administrator_is_refused(site: VirtualSite) -> None:
    await site.add_account("ada")
    with pytest.raises(ValidationError):
        await rename(site, "User", "ada", "administrator")


async def test_rename_to_the_own_e_mail_is_allowed(site: VirtualSite) -> None:
    await site.add_account("ada", email="ada@x.test")
    await rename(site, "User", "ada", "ada@x.test")
    assert await find(site, "ada@x.test") == "ada@x.test"


async def test_rename_keeps_password_sessions_and_roles(site: VirtualSite) -> None:
    await site.add_account("ada", "System Manager")

    def open_session(fw: Any) -> None:
        fw.db.sql(
            'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
            " VALUES ('s', :hash, 'ada', 0, 0, 9)",
            {"hash": b"h"},
        )

    await site.do(open_session)
    await rename(site, "User", "ada", "lovelace")
    assert await site.sql('SELECT "user" FROM fw_password') == [("lovelace",)]
    assert await site.sql('SELECT "user" FROM fw_session') == [("lovelace",)]
    assert await site.do(lambda fw: fw.rights.roles, "lovelace") == {"System Manager"}


async def test_queued_job_runs_as_the_renamed_user(site: VirtualSite) -> None:
    await site.add_account("ada", password=None)
    await site.do(lambda fw: fw.enqueue(notes.share, note="n", with_whom="w"), "ada")
    await rename(site, "User", "ada", "lovelace")
    assert await site.sql('SELECT "user" FROM fw_job') == [("lovelace",)]


@pytest.mark.parametrize("role", ["System Manager", "Event Publisher", "Seller"])
async def test_role_defined_by_the_site_cannot_be_renamed(site: VirtualSite, role: str) -> None:
    """D-105: permissions refer to its name; renamed, it would grant nothing, or be made again."""
    with pytest.raises(ConflictError, match=f"{role} is a role of the service or an app"):
        await rename(site, "Role", role, "Other")


async def test_renamed_role_stays_assigned_to_its_users(site: VirtualSite) -> None:
    await site.do(lambda fw: fw.new_doc("Role", name="Guide").insert())
    await site.add_account("ada", "Guide", password=None)
    await rename(site, "Role", "Guide", "Leader")
    assert await site.do(lambda fw: fw.rights.roles, "ada") == {"Leader"}


async def test_account_named_like_a_built_in_role_can_be_renamed(site: VirtualSite) -> None:
    await site.add_account("Event Publisher", email="eve@x.test", password=None)
    await rename(site, "User", "Event Publisher", "eve")
    assert await find(site, "eve@x.test") == "eve"
