"""A renamed User or Role (D-103, D-105, A-13)."""

from __future__ import annotations

from typing import Any

import pytest

from examples import notes
from fw_actors.errors import ConflictError, DuplicateError, ValidationError
from tests.fw_actors.office import Office

pytestmark = pytest.mark.usefixtures("on_both_stores")


async def rename(office: Office, doctype: str, old: str, new: str) -> None:
    await office.do(lambda fw: fw.get_doc(doctype, old).rename(new))


async def find(office: Office, key: str) -> str | None:
    account = await office.site.store.read(lambda tx: office.site.accounts.find(tx, key))
    return None if account is None else account.user


async def test_renamed_account_is_found_by_new_name_and_e_mail(office: Office) -> None:
    await office.hire("ada", email="ada@x.test")
    await rename(office, "User", "ada", "Lovelace")
    keys = ("ada", "lovelace", "ada@x.test")
    assert [await find(office, key) for key in keys] == [None, "Lovelace", "Lovelace"]


@pytest.mark.parametrize("name", ["BOB", "bob@x.test"])
async def test_rename_refuses_an_identifier_in_use(office: Office, name: str) -> None:
    """No user's name is another's e-mail (A-13)."""
    await office.hire("ada")
    await office.hire("bob")
    with pytest.raises(DuplicateError):
        await rename(office, "User", "ada", name)
    assert await find(office, "ada") == "ada"


async def test_rename_to_administrator_is_refused(office: Office) -> None:
    await office.hire("ada")
    with pytest.raises(ValidationError):
        await rename(office, "User", "ada", "administrator")


async def test_rename_to_the_own_e_mail_is_allowed(office: Office) -> None:
    await office.hire("ada", email="ada@x.test")
    await rename(office, "User", "ada", "ada@x.test")
    assert await find(office, "ada@x.test") == "ada@x.test"


async def test_rename_keeps_password_sessions_and_roles(office: Office) -> None:
    await office.hire("ada", "System Manager")

    def open_session(fw: Any) -> None:
        fw.db.sql(
            'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
            " VALUES ('s', :hash, 'ada', 0, 0, 9)",
            {"hash": b"h"},
        )

    await office.do(open_session)
    await rename(office, "User", "ada", "lovelace")
    assert await office.sql('SELECT "user" FROM fw_password') == [("lovelace",)]
    assert await office.sql('SELECT "user" FROM fw_session') == [("lovelace",)]
    assert await office.do(lambda fw: fw.rights.roles, "lovelace") == {"System Manager"}


async def test_queued_job_runs_as_the_renamed_user(office: Office) -> None:
    await office.hire("ada", password=None)
    await office.do(lambda fw: fw.enqueue(notes.share, note="n", with_whom="w"), "ada")
    await rename(office, "User", "ada", "lovelace")
    assert await office.sql('SELECT "user" FROM fw_job') == [("lovelace",)]


@pytest.mark.parametrize("role", ["System Manager", "Event Publisher", "Seller"])
async def test_role_defined_by_the_site_cannot_be_renamed(office: Office, role: str) -> None:
    """Permissions refer to its name: a renamed role would grant nothing, or be made again."""
    with pytest.raises(ConflictError):
        await rename(office, "Role", role, "Other")


async def test_renamed_role_stays_assigned_to_its_users(office: Office) -> None:
    await office.do(lambda fw: fw.new_doc("Role", name="Guide").insert())
    await office.hire("ada", "Guide", password=None)
    await rename(office, "Role", "Guide", "Leader")
    assert await office.do(lambda fw: fw.rights.roles, "ada") == {"Leader"}


async def test_account_named_like_a_built_in_role_can_be_renamed(office: Office) -> None:
    await office.hire("Event Publisher", email="eve@x.test", password=None)
    await rename(office, "User", "Event Publisher", "eve")
    assert await find(office, "eve@x.test") == "eve"
