"""In Python too, a user with access scopes cannot create, take over or remove a System Manager.

The refusal is part of the scope, so `ignore_permissions` does not lift it (A-321).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fw_actors.errors import PermissionDeniedError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ROLE = "System Manager"
AS_ROLE = [{"role": ROLE}]
SAM, CLERK = "sam", "clerk"  # a System Manager with scopes, and a user with scopes and no role


@pytest.fixture
async def populated(desk: ShopSite) -> ShopSite:
    for name in ("boss", "root", SAM):
        await desk.add_account(ROLE, name=name)
    for name in (CLERK, "ann"):
        await desk.add_account(name=name)

    def add_records(fw: Any) -> None:
        fw.new_doc("Customer", title="Near").insert()
        for user in (SAM, CLERK):
            fw.new_doc("User Permission", user=user, allow="Customer", for_value="Near").insert()

    await desk.do(add_records)
    return desk


def user(fw: Any, name: str) -> Any:
    return fw.get_doc("User", name)


VERBS: dict[str, Callable[[Any, bool], Any]] = {
    "make one": lambda fw, flag: fw.new_doc(
        "User", name="pip", email="pip@x.test", roles=AS_ROLE
    ).insert(ignore_permissions=flag),
    "make one by save": lambda fw, flag: fw.new_doc(
        "User", name="pip", email="pip@x.test", roles=AS_ROLE
    ).save(ignore_permissions=flag),
    "delete one": lambda fw, flag: user(fw, "root").delete(ignore_permissions=flag),
    "rename one": lambda fw, flag: user(fw, "root").rename("mine", ignore_permissions=flag),
    "take the address": lambda fw, flag: user(fw, "root").db_set(
        "email", "mine@x.test", ignore_permissions=flag
    ),
    "disable one": lambda fw, flag: user(fw, "root").db_set("enabled", 0, ignore_permissions=flag),
    "set a password": lambda fw, flag: changed(
        user(fw, "root"), new_password="a password of mine"
    ).save(ignore_permissions=flag),
    "take the role": lambda fw, flag: changed(user(fw, "root"), roles=[]).save(
        ignore_permissions=flag
    ),
    "grant the role": lambda fw, flag: changed(user(fw, "ann"), roles=AS_ROLE).save(
        ignore_permissions=flag
    ),
    "delete the role": lambda fw, flag: fw.get_doc("Role", ROLE).delete(ignore_permissions=flag),
    "save the role": lambda fw, flag: fw.get_doc("Role", ROLE).save(ignore_permissions=flag),
    "rename the role": lambda fw, flag: fw.get_doc("Role", ROLE).rename(
        "Clerk", ignore_permissions=flag
    ),
    "rename into the role": lambda fw, flag: fw.get_doc("Role", "Event Publisher").rename(
        ROLE, ignore_permissions=flag
    ),
}


def changed(doc: Any, **values: Any) -> Any:
    for key, value in values.items():
        setattr(doc, key, value)
    return doc


def without_flag(verb: Callable[[Any, bool], Any]) -> Callable[[Any], Any]:
    return lambda fw: verb(fw, False)


class PreloadingHandle:
    """A handle whose documents are read before the scopes apply, as app code may have them."""

    def __init__(self, desk: ShopSite, fw: Any, rights: Any) -> None:
        self._desk, self._fw, self._rights = desk, fw, rights

    def get_doc(self, doctype: str, name: str) -> Any:
        fw = type(self._fw)(self._desk.site.context, self._fw.tx, self._fw.rights)
        doc = fw.get_doc(doctype, name)
        fw.rights = self._rights
        return doc

    def new_doc(self, doctype: str, **values: Any) -> Any:
        return self.limited().new_doc(doctype, **values)

    def limited(self) -> Any:
        fw = self._fw
        return type(fw)(self._desk.site.context, fw.tx, self._rights)


@pytest.mark.parametrize("limited", [SAM, CLERK])
async def test_scoped_user_is_refused_verbs_on_system_managers(
    populated: ShopSite, limited: str
) -> None:
    """This holds with and without ignored permissions, also for a user without the role."""

    def work(fw: Any) -> set[tuple[str, bool]]:
        rights = populated.site.accounts.rights(fw.tx, limited)
        refused = set()
        for name, verb in VERBS.items():
            for flag in (False, True):
                try:
                    verb(PreloadingHandle(populated, fw, rights), flag)
                except PermissionDeniedError:
                    refused.add((name, flag))
        return refused

    assert await populated.do(work) == {(name, flag) for name in VERBS for flag in (False, True)}


async def test_unscoped_manager_may_use_verbs_on_system_managers(populated: ShopSite) -> None:
    """Verbs on built-in roles, which every user is refused, are left out."""
    refused_to_all = {"delete the role", "rename the role", "rename into the role"}
    for name in sorted(set(VERBS) - refused_to_all):
        await populated.site.rollback("boss", without_flag(VERBS[name]))


async def test_handle_as_user_grants_no_self_service_elsewhere(populated: ShopSite) -> None:
    """An app that acts as a System Manager for a scoped user cannot change even the name."""

    def work(fw: Any) -> None:
        for name in ("root", "Administrator"):
            borrowed = fw.as_user(name)
            doc = user(borrowed, "root")
            doc.fullName = "Mine"
            with pytest.raises(PermissionDeniedError, match="access scopes"):
                doc.save(ignore_permissions=True)

    await populated.do(work, SAM)


async def test_scoped_user_reassigns_no_api_key_to_system_manager(populated: ShopSite) -> None:
    """The holder of a reassigned key would act as the System Manager."""

    def work(fw: Any) -> None:
        as_ann = populated.site.handle(fw.tx, "ann")
        as_sam = populated.site.handle(fw.tx, SAM)
        of_boss = populated.site.api_keys.make(
            populated.site.handle(fw.tx, "boss"), "b", None, 0
        ).name
        of_ann = populated.site.api_keys.make(as_ann, "a", None, 0).name
        of_sam = populated.site.api_keys.make(as_sam, "s", None, 0).name
        for handle in (as_sam, as_sam.as_user("root"), as_sam.as_user("Administrator")):
            for name in (of_ann, of_sam):
                key = handle.get_doc("API Key", name)
                with pytest.raises(PermissionDeniedError):
                    key.db_set("user", "root", ignore_permissions=True)
                key.user = "root"
                with pytest.raises(PermissionDeniedError):
                    key.save(ignore_permissions=True)
            with pytest.raises(PermissionDeniedError):
                handle.get_doc("API Key", of_boss).delete(ignore_permissions=True)
        as_sam.get_doc("API Key", of_ann).delete()
        populated.site.api_keys.revoke(as_sam, of_sam)

    await populated.do(work)


async def test_scoped_user_writes_own_name_and_language_only(populated: ShopSite) -> None:
    """Self-service writes only name and language (A-242)."""

    def work(fw: Any) -> None:
        changed(user(fw, SAM), fullName="Sam", language="de").save(ignore_permissions=True)
        user(fw, SAM).db_set("fullName", "Samuel", ignore_permissions=True)
        changes: list[dict[str, Any]] = [
            {"email": "other@x.test"}, {"enabled": 0}, {"roles": []},
            {"roles": [*AS_ROLE, {"role": "Seller"}]}, {"new_password": "a password of mine"},
        ]  # fmt: skip
        for values in changes:
            with pytest.raises(PermissionDeniedError, match="access scopes"):
                changed(user(fw, SAM), fullName="Other", **values).save(ignore_permissions=True)

    await populated.do(work, SAM)
    assert await populated.do(lambda fw: user(fw, SAM).fullName) == "Samuel"
