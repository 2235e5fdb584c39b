"""At least one System Manager without access scopes always remains (A-22, A-23)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import ConflictError
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

SCOPE = "User Permission"
ROLE = "System Manager"


@pytest.fixture
async def populated(site: VirtualSite) -> VirtualSite:
    """Ada and Bob are System Managers; Bob has access scopes."""
    for name in ("ada", "bob"):
        await site.add_account(name, ROLE, password=None)
    await site.add_account("cid", password=None)
    await scope(site, "bob")
    return site


async def scope(site: VirtualSite, user: str, value: str = ROLE) -> str:
    values = {"user": user, "allow": "Role", "for_value": value}
    made = await site.do(lambda fw: rest.insert(fw, SCOPE, values))
    return str(made["name"])


async def refused(site: VirtualSite, fn: Callable[[Any], Any], user: str = "Administrator") -> None:
    before = await site.sql("SELECT * FROM doc_user ORDER BY name")
    with pytest.raises(ConflictError, match="without access scopes"):
        await site.do(fn, user)
    assert await site.sql("SELECT * FROM doc_user ORDER BY name") == before


LOSSES: list[Callable[[Any], Any]] = [
    lambda fw: rest.save(fw, "User", "ada", {"enabled": 0}),
    lambda fw: rest.save(fw, "User", "ada", {"roles": []}),
    lambda fw: rest.delete(fw, "User", "ada"),
    lambda fw: fw.get_doc("User", "ada").db_set("enabled", 0),
]


@pytest.mark.parametrize("lose", LOSSES)
async def test_last_unscoped_manager_cannot_be_disabled_deleted_or_demoted(
    populated: VirtualSite, lose: Callable[[Any], Any]
) -> None:
    """Bob is a System Manager too, but could not lift a scope."""
    await refused(populated, lose)
    await populated.add_account("eve", ROLE, password=None)
    await populated.do(lose)


async def test_last_unscoped_manager_cannot_be_scoped(populated: VirtualSite) -> None:
    values = {"user": "ada", "allow": "Role", "for_value": ROLE}
    for user in ("Administrator", "ada"):
        await refused(populated, lambda fw: rest.insert(fw, SCOPE, values), user)
    of_cid = await scope(populated, "cid")
    await refused(populated, lambda fw: rest.save(fw, SCOPE, of_cid, {"user": "ada"}))
    await refused(populated, lambda fw: fw.get_doc(SCOPE, of_cid).db_set("user", "ada"))
    await populated.add_account("eve", ROLE, password=None)
    await scope(populated, "ada")
    await refused(populated, lambda fw: rest.insert(fw, SCOPE, {**values, "user": "eve"}))


async def test_disabled_manager_does_not_count_as_unscoped_manager(populated: VirtualSite) -> None:
    await populated.add_account("eve", ROLE, password=None)
    await populated.do(lambda fw: rest.save(fw, "User", "eve", {"enabled": 0}))
    await refused(populated, LOSSES[0])
    await scope(populated, "eve")  # takes nothing from the site


async def test_managers_beyond_the_last_are_scoped_and_deleted_freely(
    populated: VirtualSite,
) -> None:
    await scope(populated, "bob", "Seller")
    await scope(populated, "cid")
    await populated.do(lambda fw: rest.save(fw, "User", "bob", {"roles": []}))
    await populated.do(lambda fw: rest.delete(fw, "User", "bob"))
    await populated.do(lambda fw: rest.delete(fw, "User", "cid"))


async def test_administrator_repairs_a_site_whose_managers_all_have_scopes(
    populated: VirtualSite,
) -> None:
    """An older site may be in this state; the command line runs as Administrator."""
    name = await scope(populated, "cid", "Seller")
    await populated.sql(
        "UPDATE doc_user_permission SET \"user\" = 'ada' WHERE name = :name", name=name
    )
    await populated.do(lambda fw: rest.save(fw, "User", "ada", {"fullName": "Ada"}))
    await populated.add_account("eve", password=None)
    await populated.do(lambda fw: rest.delete(fw, "User", "eve"))
    await populated.do(lambda fw: rest.delete(fw, SCOPE, name))
    assert await populated.do(lambda fw: fw.rights.administers, "ada")
    await refused(populated, LOSSES[0])


@pytest.mark.parametrize("lose", LOSSES)
async def test_last_manager_cannot_be_lost_even_with_scopes(
    populated: VirtualSite, lose: Callable[[Any], Any]
) -> None:
    """Without a manager nobody could sign in to give the role (A-22)."""
    name = await scope(populated, "cid", "Seller")
    await populated.sql(
        "UPDATE doc_user_permission SET \"user\" = 'ada' WHERE name = :name", name=name
    )
    await populated.do(lambda fw: rest.save(fw, "User", "bob", {"roles": []}))
    with pytest.raises(ConflictError, match="last enabled System Manager cannot"):
        await populated.do(lose)
