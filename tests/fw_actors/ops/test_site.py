"""Opening a site: its store, its roles, its users (C-104, A-17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.errors import (
    ConfigurationError,
    NotFoundError,
    OverloadedError,
    PasswordPolicyError,
)
from fw_actors.ops import site as site_module
from fw_actors.store import StoreError
from tests.fw_actors.virtual_site_kit import APPS, VirtualSite, open_virtual_site
from tests.site_kit import database_of, inline_site

ROLES = ["Auditor", "Boss", "Event Publisher", "Exporter", "Note Chair", "Note Writer", "Reader"]
ROLES += ["Seller", "System Manager"]


async def test_site_start_makes_the_roles_of_framework_and_apps(
    site: VirtualSite, tmp_path: Path
) -> None:
    """The roles of the first start (A-17) and those that an app names (D-168)."""
    for given in (site, None):
        async with open_virtual_site(tmp_path) as again:
            opened = given or again
            rows = await opened.sql("SELECT name FROM doc_role ORDER BY name")
            assert [name for (name,) in rows] == ROLES


async def test_site_start_restores_a_deleted_role(site: VirtualSite, tmp_path: Path) -> None:
    await site.do(lambda fw: fw.get_doc("Role", "Reader").delete())
    async with open_virtual_site(tmp_path) as again:
        assert await again.do(lambda fw: fw.exists("Role", "Reader")) == "Reader"


async def test_site_keeps_documents_and_installation_key_over_a_restart(tmp_path: Path) -> None:
    async with open_virtual_site(tmp_path) as first:
        await first.do(lambda fw: fw.new_doc("Sales Order", title="kept").insert())
        key = first.site.installation_key
    async with open_virtual_site(tmp_path) as second:
        assert (await second.do(lambda fw: fw.get_doc("Sales Order", "SO-00001"))).title == "kept"
        assert second.site.installation_key == key


@pytest.mark.parametrize(("refusals", "opens"), [(5, True), (1000, False)])
async def test_site_start_waits_for_process_that_prepares_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, opens: bool
) -> None:
    """O-22: another node may make indexes for longer than a write waits for a lock."""
    left, began = [refusals], trio.current_time()

    def locked(*_given: object) -> None:
        if left[0]:
            left[0] -= 1
            raise OverloadedError("The database is locked by another process.")

    monkeypatch.setattr(site_module, "refuse_older_apps", locked)
    if opens:
        async with inline_site(tmp_path) as opened:
            assert await opened.write("Administrator", lambda fw: fw.count("Role")) > 0
        return
    with pytest.raises(OverloadedError, match="locked"):
        async with inline_site(tmp_path):
            pass
    assert 30 <= trio.current_time() - began < 31


async def test_site_start_waits_once_for_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-29: on PostgreSQL all other requests for the table wait behind each attempt."""
    attempts = []

    def locked(*_given: object) -> None:
        attempts.append(1)
        raise OverloadedError("The database is locked by another transaction.")

    monkeypatch.setattr(site_module, "are_made", lambda *_given: False)
    monkeypatch.setattr(site_module, "make_tables", locked)
    with pytest.raises(OverloadedError, match="locked"):
        async with inline_site(tmp_path):
            pass
    assert len(attempts) == 1


async def test_rollback_returns_the_result_and_stores_nothing(site: VirtualSite) -> None:
    """Writes are rolled back without `--commit` (C-120)."""

    def work(fw: Any) -> str:
        return str(fw.new_doc("Sales Order", title="t").insert().name)

    assert await site.site.rollback("Administrator", work) == "SO-00001"
    assert await site.do(lambda fw: fw.count("Sales Order")) == 0


async def test_rollback_raises_the_error_of_its_call(site: VirtualSite) -> None:
    with pytest.raises(ZeroDivisionError):
        await site.site.rollback("Administrator", lambda fw: 1 // 0)


async def test_write_that_raises_stores_nothing(site: VirtualSite) -> None:
    def work(fw: Any) -> None:
        fw.new_doc("Sales Order", title="t").insert()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await site.do(work)
    assert await site.do(lambda fw: fw.count("Sales Order")) == 0


@pytest.mark.parametrize("user", ["nobody", "Guest", "administrator", ""])
async def test_site_refuses_unknown_users(site: VirtualSite, user: str) -> None:
    with pytest.raises(NotFoundError):
        await site.do(lambda fw: None, user)


async def test_administrator_has_all_permissions_and_no_account(site: VirtualSite) -> None:
    """`Administrator` has every permission (C-103) and cannot sign in (A-16)."""
    await site.do(lambda fw: fw.new_doc("Sales Order", title="t").insert())
    assert await site.do(lambda fw: fw.exists("User", "Administrator")) is None


async def test_hash_password_applies_the_policy(site: VirtualSite) -> None:
    """The policy is obeyed by all call sites (A-130)."""
    with pytest.raises(PasswordPolicyError):
        await site.site.hash_password("ada@x.test", "ada", "ada@x.test")


async def test_site_reports_all_app_problems_before_it_opens_the_store(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    with pytest.raises(ConfigurationError) as refusal:
        async with inline_site(APPS, apps=("missing_one", "missing_two"), database=database):
            pytest.fail("it opened")
    assert len(refusal.value.problems) == 2
    assert not await trio.Path(tmp_path / "fw.db").exists()


async def test_site_refuses_an_unknown_database_without_its_url(tmp_path: Path) -> None:
    """Values that may hold a secret are not shown (C-86)."""
    with pytest.raises(ConfigurationError) as refusal:
        async with inline_site(tmp_path, database="mysql://user:secret@host/db"):
            pytest.fail("it opened")
    assert "secret" not in str(refusal.value)
    assert "FW_DATABASE" in str(refusal.value)


async def test_site_read_cannot_write(site: VirtualSite) -> None:
    with pytest.raises(StoreError):
        await site.site.read(
            "Administrator", lambda fw: fw.new_doc("Sales Order", title="t").insert()
        )
