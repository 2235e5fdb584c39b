"""No sequence of calls by a scoped System Manager ends with an unscoped one.

A scoped System Manager is refused every permission on Webhook and Webhook Delivery
(A-314). A session or key that such a user comes by reads no Webhook either (A-322).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fw_actors.documents.handle import Fw
from fw_actors.ops.site import Site
from tests.fw_actors.access.intruder import CHOSEN, SCOPE, Intruder
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

STAFF = ("root", "off", "new", "sam", "tom", "ann", "ida", "zoe")
USERS = st.sampled_from([*STAFF, "pip", "Administrator"])
ROLES = st.sampled_from(["System Manager", "Seller", "Event Publisher", "Clerk"])
ROLE_ROWS = st.lists(ROLES, max_size=2).map(lambda roles: [{"role": role} for role in roles])
NUMBER = st.integers(0, 9)
FLAG = st.booleans()
ACCOUNT = st.fixed_dictionaries(
    {},
    optional={
        "roles": ROLE_ROWS,
        "new_password": st.just(CHOSEN),
        "enabled": st.integers(0, 1),
        "email": USERS.map(lambda name: f"{name}@else.test"),
        "fullName": st.just("Somebody"),
    },
)
SCOPE_ROW = st.fixed_dictionaries(
    {
        "user": USERS,
        "allow": st.sampled_from(["Customer", "Role", "User"]),
        "for_value": st.sampled_from(["Near", "Far", "System Manager", "ann"]),
    }
)


def calls(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Calls of one method of the intruder."""
    return st.tuples(*arguments).map(lambda given: _Call(method, given))


class _Call:
    """One call, which shows what it is when an example fails."""

    def __init__(self, method: str, given: tuple[Any, ...]) -> None:
        self._method, self._given = method, given

    def __repr__(self) -> str:
        return f"{self._method}{self._given!r}"

    def __call__(self, intruder: Intruder) -> None:
        given = [
            intruder.any_of(*each) if isinstance(each, tuple) else each for each in self._given
        ]
        getattr(intruder, self._method)(*given)


def some(doctype: str) -> st.SearchStrategy[tuple[str, int]]:
    """A document that is there when the call is made."""
    return st.tuples(st.just(doctype), NUMBER)


USER, KEY = st.just("User"), st.just("API Key")
NEW_USER = st.builds(
    lambda name, values: {"email": f"{name}@new.test", **values, "name": name}, USERS, ACCOUNT
)
OWNER = st.builds(lambda user: {"user": user}, USERS)
EVERY_CALL = st.one_of(
    calls("become", NUMBER),
    calls("borrow", st.none() | USERS),
    calls("insert", USER, NEW_USER, FLAG),
    calls("save", USER, USERS, ACCOUNT, FLAG),
    calls("db_set", USER, USERS, ACCOUNT, FLAG),
    calls("delete", USER, USERS, FLAG),
    calls("rename", USER, USERS, USERS, FLAG),
    calls("set_enabled", USERS, FLAG),
    calls("invite", USERS, st.lists(ROLES, max_size=2)),
    calls("resend", USERS),
    calls("reset", USERS),
    calls("unlock", USERS),
    calls("spend", NUMBER),
    calls("make_key"),
    calls("save", KEY, some("API Key"), OWNER, FLAG),
    calls("db_set", KEY, some("API Key"), OWNER, FLAG),
    calls("delete", KEY, some("API Key"), FLAG),
    calls("insert", st.just("Role"), st.builds(lambda name: {"name": name}, ROLES), FLAG),
    calls("rename", st.just("Role"), ROLES, ROLES, FLAG),
    calls("delete", st.just("Role"), ROLES, FLAG),
    calls("insert", st.just(SCOPE), SCOPE_ROW, FLAG),
    calls("save", st.just(SCOPE), some(SCOPE), SCOPE_ROW, FLAG),
    calls("db_set", st.just(SCOPE), some(SCOPE), SCOPE_ROW, FLAG),
    calls("delete", st.just(SCOPE), some(SCOPE), FLAG),
    calls("rename", st.just(SCOPE), some(SCOPE), st.just("other"), FLAG),
    calls("rename", st.just("Customer"), some("Customer"), st.just("Nearer"), FLAG),
    calls("delete", st.just("Customer"), some("Customer"), FLAG),
)


class _ExampleUndone(Exception):
    """Takes an example back."""


async def add_accounts_and_records(site: VirtualSite) -> None:
    """Only `root` becomes a System Manager without scopes that can sign in."""
    for name in ("root", "off", "sam", "tom"):
        await site.add_account(name, "System Manager")
    await site.add_account("new", "System Manager", password=None)
    for name in ("ann", "zoe"):
        await site.add_account(name, "Seller")
    await site.add_account("ida", password=None)

    def add_records(fw: Any) -> None:
        for title in ("Near", "Far"):
            fw.new_doc("Customer", title=title).insert()
        for user, value in (("sam", "Near"), ("tom", "Far"), ("zoe", "Far")):
            fw.new_doc(SCOPE, user=user, allow="Customer", for_value=value).insert()
        off = fw.get_doc("User", "off")
        off.enabled = 0
        off.save()

    await site.do(add_records)
    await site.subscribe()


async def test_scoped_manager_never_gains_a_reader_of_webhooks(
    site: VirtualSite,
) -> None:
    await add_accounts_and_records(site)
    chosen = await site.site.hash_password(CHOSEN, "x", "x@x.test")
    await site.site.rollback("Administrator", lambda fw: try_all(site.site, fw, chosen))


def try_all(site: Site, fw: Fw, chosen_hash: str) -> None:
    """Run sequences of calls, each from the same initial state."""

    @settings(max_examples=300, deadline=None)
    @given(st.lists(EVERY_CALL, min_size=1, max_size=15))
    def tried(sequence: list[Any]) -> None:
        try:
            with fw.tx.savepoint():
                intruder = Intruder(site, fw, "sam", chosen_hash)
                intruder.run(sequence)
                seen = {user for user in intruder.opened() if intruder.sees_webhooks(user)}
                assert seen == set()
                assert intruder.sees_webhooks("root")  # and `root` has kept its permission
                raise _ExampleUndone
        except _ExampleUndone:
            pass

    tried()


async def test_unscoped_intruder_gets_into_other_accounts(site: VirtualSite) -> None:
    """The same calls by a System Manager without scopes succeed, and the check detects them."""
    await add_accounts_and_records(site)
    chosen = await site.site.hash_password(CHOSEN, "x", "x@x.test")

    def work(fw: Fw) -> list[set[str]]:
        found = []
        for call in (
            _Call("save", ("User", "sam", {"new_password": CHOSEN}, False)),
            _Call("insert", ("User", {"name": "pip", "email": "pip@new.test",
                "roles": [{"role": "System Manager"}], "new_password": CHOSEN}, True)),
            _Call("resend", ("new",)),
            _Call("reset", ("tom",)),
        ):  # fmt: skip
            intruder = Intruder(site.site, fw, "root", chosen)
            intruder.run([call])
            found.append(intruder.opened() - {"root"})
        return found

    found = await site.site.rollback("Administrator", work)
    assert found == [{"sam"}, {"sam", "pip"}, {"sam", "pip", "new"}, {"sam", "pip", "tom"}]
