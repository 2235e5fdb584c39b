"""The state of accounts for System Managers (A-380, A-381)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from fw_actors.access import attempts, known_origins, sessions
from fw_actors.access.administration import AccountCondition, AccountState, AccountStates
from fw_actors.access.attempts import counter_key
from fw_actors.access.links import LinkKind
from fw_actors.documents.query import list_page
from fw_actors.rules.lockout import Budget
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import Tx
from fw_actors.store.schema import PASSWORD, TOKEN
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.plans import accesses, unsought

pytestmark = pytest.mark.usefixtures("on_both_stores")


async def user(site: VirtualSite, name: str, **fields: Any) -> str:
    values = {"name": name, "email": f"{name}@x.test", "roles": [], **fields}
    await site.do(lambda fw: fw.new_doc("User", **values).insert())
    return name


def states_of(site: VirtualSite, idle_days: int = 0) -> AccountStates:
    return AccountStates(site.site.installation_key, idle_days)


async def state(site: VirtualSite, name: str, idle_days: int = 0) -> AccountState:
    found = await site.site.store.read(partial(states_of(site, idle_days).of, names=[name]))
    return found[name]


def give_password(tx: Tx, name: str) -> None:
    tx.run(PASSWORD.insert().values(user=name, hash="a hash", changed=tx.now))


def invite(tx: Tx, name: str, expires: int) -> None:
    kind = LinkKind.INVITATION.value
    tx.run(TOKEN.insert().values(hash=b"h", kind=kind, user=name, created=tx.now, expires=expires))


def begin(tx: Tx, name: str, handle: str = "one") -> None:
    sessions.begin(tx, handle=handle, sid=handle, user=name, ip="", user_agent="", days=5)


async def test_invited_account_shows_the_expiry_of_its_link(site: VirtualSite) -> None:
    name, now = await user(site, "nina"), site.site.clock.now()
    await site.site.store.write(lambda tx: invite(tx, name, now + 1000))
    found = await state(site, name)
    assert (found.condition, found.invited_until) == ("invited", now + 1000)
    await trio.sleep(1)
    found = await state(site, name)
    assert (found.condition, found.invited_until) == ("no password", None)


@pytest.mark.parametrize("typed", ["Wendy", "WENDY@x.test"])
async def test_account_is_locked_by_its_name_or_e_mail(site: VirtualSite, typed: str) -> None:
    name, key = await user(site, "wendy"), site.site.installation_key
    budget = Budget(1, 60_000, locks=True)
    counter = counter_key(key, attempts.IDENTIFIER, typed.lower())

    def fail(tx: Tx) -> None:
        give_password(tx, name)
        attempts.charge(tx, "a charge", counter, budget)
        attempts.settle_failure(tx, "a charge", counter, budget)

    await site.site.store.write(fail)
    found = await state(site, name)
    assert found.condition == "locked"
    assert found.locked_until == site.site.clock.now() + 60_000
    await trio.sleep(60)
    assert (await state(site, name)).condition == "active"


async def test_account_state_omits_expired_and_idle_sessions(site: VirtualSite) -> None:
    name = await user(site, "ada")
    await site.site.store.write(lambda tx: begin(tx, name))
    began = site.site.clock.now()
    found = await state(site, name)
    assert (found.sessions, found.last_sign_in) == (1, began)
    await trio.sleep(2 * 24 * 3600)
    assert (await state(site, name)).sessions == 1
    assert (await state(site, name, idle_days=1)).sessions == 0


async def test_last_sign_in_outlives_its_session(site: VirtualSite) -> None:
    name = await user(site, "ada")
    assert (await state(site, name)).last_sign_in is None
    budget = attempts.AddressBudget(50, site.site.installation_key)
    key = budget.counters("192.0.2.1").known
    await site.site.store.write(lambda tx: known_origins.record_address(tx, name, key, None))
    noted = site.site.clock.now()
    await trio.sleep(MS_PER_DAY / 1000)
    assert (await state(site, name)).last_sign_in == noted


async def test_disabled_account_shows_its_condition_and_roles(site: VirtualSite) -> None:
    name = await user(site, "bea", enabled=0, roles=[{"role": "System Manager"}])
    found = await state(site, name)
    assert (found.condition, found.roles, found.keys) == ("disabled", ("System Manager",), 0)


async def test_account_states_are_read_by_indexes(site: VirtualSite) -> None:
    name = await user(site, "ada")
    states = states_of(site)

    found = await site.site.store.read(
        lambda tx: accesses(tx, lambda: states.of(tx, [name, "nobody"]))
    )
    columns = {
        "doc_user": "name", "doc_has_role": "parent", "fw_session": "user", "fw_token": "user",
        "fw_login_attempt": "key", "fw_known_address": "user", "doc_api_key": "user",
    }  # fmt: skip
    assert not unsought(found, **columns), found


async def fill(site: VirtualSite) -> None:
    """One account of each condition."""
    for name in ("ada", "lea", "nina", "oda"):
        await user(site, name)
    await user(site, "dora", enabled=0)
    key = counter_key(site.site.installation_key, attempts.IDENTIFIER, "lea@x.test")
    budget = Budget(1, 60_000, locks=True)

    def work(tx: Tx) -> None:
        for name in ("ada", "lea", "dora"):
            give_password(tx, name)
        invite(tx, "nina", tx.now + 60_000)
        attempts.charge(tx, "a charge", key, budget)
        attempts.settle_failure(tx, "a charge", key, budget)

    await site.site.store.write(work)


async def chosen(site: VirtualSite, condition: AccountCondition) -> list[str]:
    def names(fw: Any) -> list[str]:
        also = states_of(site).conditions(fw.tx, condition)
        page = list_page(
            fw, "User", [], ["name"], order_by="name asc", limit=50, start=0,
            further_conditions=also,
        )  # fmt: skip
        return [row["name"] for row in page.rows]

    return await site.do(names)


async def test_account_condition_filter_agrees_with_the_states(site: VirtualSite) -> None:
    """The filter finds exactly the accounts whose state has the condition (O-306)."""
    await fill(site)
    everybody = await site.do(lambda fw: [row["name"] for row in fw.get_all("User")])
    states = await site.site.store.read(partial(states_of(site).of, names=everybody))
    for condition in AccountCondition:
        expected = sorted(name for name, each in states.items() if each.condition == condition)
        assert await chosen(site, condition) == expected
        assert expected
    await trio.sleep(60)
    assert await chosen(site, AccountCondition.LOCKED) == []
    assert await chosen(site, AccountCondition.INVITED) == []
