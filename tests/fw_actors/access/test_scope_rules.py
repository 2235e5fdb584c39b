"""User Permission rows (A-310, A-325, A-319)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import (
    ConflictError,
    DuplicateError,
    PermissionDeniedError,
    ValidationError,
)
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

SCOPE = "User Permission"


@pytest.fixture
async def populated(site: VirtualSite) -> VirtualSite:
    """Ada, a System Manager, is limited to the customer Near."""
    await site.add_account("ada", "System Manager", password=None)
    await site.add_account("boss", "System Manager", password=None)
    await site.add_account("root", "System Manager", password=None)

    def add_records(fw: Any) -> None:
        for title in ("Near", "Far"):
            fw.new_doc("Customer", title=title).insert()

    await site.do(add_records)
    await allow(site, "ada", "Customer", "Near")
    return site


async def allow(site: VirtualSite, user: str, doctype: str, value: str, by: str = "boss") -> str:
    values = {"user": user, "allow": doctype, "for_value": value}
    name: str = (await site.do(lambda fw: rest.insert(fw, SCOPE, values), by))["name"]
    return name


WRONG = [
    ("ada", "Customer", "Gone", "for_value"),
    ("ada", "Nothing", "Near", "allow"),
    ("ada", "OrderLine", "Near", "allow"),
    ("nobody", "Customer", "Near", "user"),
    ("Administrator", "Customer", "Near", "user"),
]


@pytest.mark.parametrize(("user", "doctype", "value", "field"), WRONG)
async def test_scope_requires_an_existing_user_doctype_and_document(
    populated: VirtualSite, user: str, doctype: str, value: str, field: str
) -> None:
    with pytest.raises(ValidationError) as refusal:
        await allow(populated, user, doctype, value)
    assert refusal.value.extra == {"field": field}


async def test_scope_cannot_name_an_api_key(populated: VirtualSite) -> None:
    """A key must be able to end at any time (A-325)."""
    with pytest.raises(ValidationError, match="keys expire and are revoked") as refusal:
        await allow(populated, "ada", "API Key", "0" * 12)
    assert refusal.value.extra == {"field": "allow"}


async def test_scope_refuses_a_duplicate(populated: VirtualSite) -> None:
    with pytest.raises(DuplicateError):
        await allow(populated, "ada", "Customer", "Near")


async def test_scope_denies_webhooks_from_the_next_call(populated: VirtualSite) -> None:
    """The refusal holds for System Managers as well (A-314)."""
    await populated.subscribe()
    assert await populated.do(lambda fw: len(fw.get_all("Webhook")), "boss") == 1
    await allow(populated, "boss", "Customer", "Near", by="Administrator")
    assert await populated.do(lambda fw: fw.get_all("Webhook"), "boss") == []
    for verb in (
        lambda fw: rest.list_documents(fw, "Webhook", {}),
        lambda fw: rest.read(fw, "Webhook", "no such"),
        lambda fw: rest.save(fw, "Webhook", "no such", {}),
        lambda fw: rest.delete(fw, "Webhook Delivery", "no such"),
        lambda fw: rest.rename(fw, "Webhook Delivery", "no such", {"name": "x"}),
        lambda fw: rest.export(fw, "Webhook Delivery", "no such"),
        lambda fw: rest.insert(fw, "Webhook", {}),
    ):
        with pytest.raises(PermissionDeniedError):
            await populated.do(verb, "boss")


async def test_scoped_user_cannot_write_scopes(populated: VirtualSite) -> None:
    """A scoped user is refused every write of User Permission, whatever the roles (A-319)."""
    name = (await populated.sql("SELECT name FROM doc_user_permission"))[0][0]
    values = {"user": "boss", "allow": "Customer", "for_value": "Near"}
    for verb in (
        lambda fw: fw.new_doc(SCOPE, **values).insert(ignore_permissions=True),
        lambda fw: fw.get_doc(SCOPE, name).save(ignore_permissions=True),
        lambda fw: fw.get_doc(SCOPE, name).delete(ignore_permissions=True),
        lambda fw: fw.get_doc(SCOPE, name).rename("x", ignore_permissions=True),
        lambda fw: fw.get_doc(SCOPE, name).db_set("for_value", "Far", ignore_permissions=True),
        lambda fw: fw.get_doc("User", "ada").delete(
            ignore_permissions=True
        ),  # its scopes would go along
    ):
        with pytest.raises(PermissionDeniedError, match="access scopes"):
            await populated.do(verb, "ada")


async def test_scopes_follow_a_renamed_document(populated: VirtualSite) -> None:
    """A rename carries User Permission values (D-103)."""
    await populated.do(lambda fw: fw.get_doc("Customer", "Near").rename("Here"))
    assert await populated.sql("SELECT for_value FROM doc_user_permission") == [("Here",)]


async def test_scopes_follow_a_renamed_user(populated: VirtualSite) -> None:
    await populated.do(lambda fw: fw.get_doc("User", "ada").rename("lovelace"))
    assert await populated.sql('SELECT "user" FROM doc_user_permission') == [("lovelace",)]
    assert await populated.do(lambda fw: fw.rights.scopes, "lovelace") == {"Customer": {"Near"}}


async def test_scopes_are_deleted_with_their_user(populated: VirtualSite) -> None:
    """Deleting a User takes sessions, keys, tokens and scopes along (A-21)."""
    await populated.add_account("bob")
    kept = await allow(populated, "bob", "Customer", "Near")
    await populated.do(lambda fw: fw.get_doc("User", "ada").delete())
    assert await populated.sql("SELECT name FROM doc_user_permission") == [(kept,)]


@pytest.mark.parametrize("doctype", ["Customer", "Gone", "API Key"])
async def test_scope_that_names_nothing_can_be_deleted(
    populated: VirtualSite, doctype: str
) -> None:
    """An app may be gone, and an older version let scopes name keys (A-325)."""
    await populated.sql(
        "UPDATE doc_user_permission SET allow = :of, for_value = 'Gone'", of=doctype
    )
    ((name,),) = await populated.sql("SELECT name FROM doc_user_permission")
    await populated.do(lambda fw: rest.delete(fw, SCOPE, name))
    assert await populated.sql("SELECT name FROM doc_user_permission") == []


async def test_api_key_that_an_older_scope_names_can_end(populated: VirtualSite) -> None:
    """Nothing prevents the end of a key (A-325)."""
    keys = populated.site.api_keys
    await populated.add_account("bob")
    made = await populated.do(lambda fw: keys.make(fw, "label", None, 0), "bob")
    await populated.sql(
        "UPDATE doc_user_permission SET allow = 'API Key', for_value = :key", key=made.name
    )
    await populated.do(lambda fw: keys.revoke(fw, made.name), "bob")
    assert await populated.sql("SELECT name FROM doc_api_key") == []


async def test_document_named_by_a_scope_cannot_be_deleted(populated: VirtualSite) -> None:
    with pytest.raises(ConflictError, match="names Customer Near"):
        await populated.do(lambda fw: fw.get_doc("Customer", "Near").delete())
    await populated.do(lambda fw: fw.get_doc("Customer", "Far").delete())


async def test_scoped_user_write_queues_deliveries(populated: VirtualSite) -> None:
    """The document writes of a scoped user still queue deliveries (A-318)."""
    await populated.watch("Customer", "on_update")
    await populated.do(lambda fw: rest.save(fw, "Customer", "Near", {"vat": "1"}), "ada")
    assert [row["event"] for row in await populated.deliveries()] == ["doc.on_update"]
