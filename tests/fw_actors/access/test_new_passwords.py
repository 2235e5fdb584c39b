"""`new_password` of a User (A-294 to A-297)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.access import attempts
from fw_actors.documents import rest
from fw_actors.errors import BadRequestError, PasswordPolicyError
from fw_actors.hashing import PreparedPassword
from fw_actors.rules.lockout import Budget
from tests.accounts_kit import PASSWORD
from tests.fw_actors.virtual_site_kit import VirtualSite

NEW = "battery staple horse"


async def opens(site: VirtualSite, user: str, password: str) -> bool:
    account = await site.site.store.read(lambda tx: site.site.accounts.find(tx, user))
    assert account is not None
    return (await site.site.hasher.verify(account.password_hash, password)).ok


async def save(site: VirtualSite, user: str, **body: Any) -> dict[str, Any]:
    return await site.do(lambda fw: rest.save(fw, "User", user, body))


async def test_new_password_is_set_and_never_shown(site: VirtualSite) -> None:
    await site.add_account("ada")
    shown = await save(site, "ada", new_password=NEW)
    assert shown["new_password"] is None
    assert await opens(site, "ada", NEW)
    assert not await opens(site, "ada", PASSWORD)
    columns = await site.site.store.read(lambda tx: tx.columns("doc_user"))
    assert "email" in columns
    assert "new_password" not in columns


async def test_new_password_is_set_by_an_insert(site: VirtualSite) -> None:
    body = {"name": "bob", "email": "bob@x.test", "new_password": NEW}
    shown = await site.do(lambda fw: rest.insert(fw, "User", body))
    assert shown["new_password"] is None
    assert await opens(site, "bob", NEW)


async def test_new_password_is_set_as_an_attribute_by_app_code(site: VirtualSite) -> None:
    await site.add_account("ada")

    def work(fw: Any) -> Any:
        user = fw.get_doc("User", "ada")
        user.new_password = NEW
        return user.save().new_password

    assert await site.do(work) is None
    assert await opens(site, "ada", NEW)


async def test_new_password_hashed_before_the_transaction_is_not_hashed_again(
    site: VirtualSite,
) -> None:
    """Over HTTP it is hashed before the transaction (A-295)."""
    await site.add_account("ada")
    stored = await site.site.store.read(
        lambda tx: site.site.registry.tables["User"].fetch(tx, "ada")
    )
    assert stored is not None
    body = await site.site.new_passwords.prepare({"new_password": NEW}, stored)
    assert isinstance(body["new_password"], PreparedPassword)
    before = site.site.hasher.statistics().hashes
    await save(site, "ada", **body)
    assert site.site.hasher.statistics().hashes == before
    assert await opens(site, "ada", NEW)


REFUSED = [
    ("short", "tooShort"), ("", "blank"), ("        ", "blank"), ("x" * 257, "tooLong"),
    ("adalovelace", "equalsAccountName"), ("ADALOVELACE", "equalsAccountName"),
    ("ada@example.test", "equalsAccountName"),
]  # fmt: skip


@pytest.mark.parametrize(("password", "rule"), REFUSED)
async def test_new_password_must_meet_the_policy(
    site: VirtualSite, password: str, rule: str
) -> None:
    """The policy holds (A-130); `new_password: \"\"` is 422 blank (A-296)."""
    await site.add_account("adalovelace", email="ada@example.test")
    with pytest.raises(PasswordPolicyError) as refusal:
        await save(site, "adalovelace", new_password=password, fullName="Ada")
    assert refusal.value.extra == {"rule": rule}
    with pytest.raises(PasswordPolicyError):
        await site.site.new_passwords.prepare(
            {"new_password": password}, {"name": "adalovelace", "email": "ada@example.test"}
        )
    assert await opens(site, "adalovelace", PASSWORD)
    assert await site.do(lambda fw: fw.get_value("User", "adalovelace", "fullName")) != "Ada"


async def test_new_password_is_compared_with_the_new_e_mail(site: VirtualSite) -> None:
    await site.add_account("ada")
    body = {"email": "lovelace@example.test", "new_password": "Lovelace@example.test"}
    with pytest.raises(PasswordPolicyError):
        await save(site, "ada", **body)


async def test_hashed_new_password_is_compared_with_the_account_as_it_is_saved(
    site: VirtualSite,
) -> None:
    """The account may be changed while a password is hashed (A-295, A-130)."""
    await site.add_account("ada")
    body = await site.site.new_passwords.prepare(
        {"new_password": "lovelace@x.test"}, {"name": "ada", "email": "ada@x.test"}
    )
    await save(site, "ada", email="lovelace@x.test")
    with pytest.raises(PasswordPolicyError):
        await save(site, "ada", **body)
    assert await opens(site, "ada", PASSWORD)


async def test_new_password_null_changes_nothing(site: VirtualSite) -> None:
    await site.add_account("ada")
    await save(site, "ada", new_password=None, fullName="Ada L.")
    assert await opens(site, "ada", PASSWORD)


async def test_new_password_ends_sessions_and_locks_and_mails_the_owner(site: VirtualSite) -> None:
    """Sessions end (A-162), the locks of name and e-mail are lifted (A-76), and
    the owner gets a mail (A-297)."""
    await site.add_account("ada")

    def add_records(fw: Any) -> None:
        fw.db.sql(
            'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
            " VALUES ('s', :hash, 'ada', 0, 0, 9)",
            {"hash": b"h"},
        )
        for spelling in ("ada", "ada@x.test", "other"):
            key = attempts.counter_key(site.site.installation_key, attempts.IDENTIFIER, spelling)
            budget = Budget(1, 900_000)
            attempts.charge(fw.tx, spelling, key, budget)
            assert attempts.settle_failure(fw.tx, spelling, key, budget) == 900

    await site.do(add_records)
    await save(site, "ada", new_password=NEW)
    assert await site.sql("SELECT id FROM fw_session") == []
    assert await site.sql("SELECT id FROM fw_login_attempt") == [("other",)]
    mails = await site.sql("SELECT recipient, template FROM doc_email_delivery")
    assert mails == [("ada@x.test", "password_changed")]


async def test_new_password_accepts_any_character_but_lone_surrogates(site: VirtualSite) -> None:
    """Control characters pass, lone surrogates do not (H-14)."""
    await site.add_account("ada")
    odd = "tab\t nul\x00 esc\x1b line\n"
    await save(site, "ada", new_password=odd)
    assert await opens(site, "ada", odd)
    with pytest.raises(BadRequestError):
        await save(site, "ada", new_password="half \ud800 of a pair")


async def test_new_password_is_refused_in_lists_filters_and_db_set(site: VirtualSite) -> None:
    await site.add_account("ada")
    for verb in (
        lambda fw: fw.get_all("User", fields=["new_password"]),
        lambda fw: fw.get_all("User", [["new_password", "=", "x"]]),
        lambda fw: fw.get_doc("User", "ada").db_set("new_password", NEW),
        lambda fw: rest.save(fw, "User", "ada", {"password_hash": "x"}),
    ):
        with pytest.raises(BadRequestError):
            await site.do(verb)


async def test_new_password_is_absent_from_events_versions_and_exports(site: VirtualSite) -> None:
    """No event, Version or export holds it (A-294, B-92)."""
    await site.watch("User", "on_insert", "on_update")
    await site.add_account("ada")
    await save(site, "ada", new_password=NEW, language="de")
    for delivery in await site.deliveries():
        assert delivery["payload"]["data"]["doc"]["new_password"] is None
    exported = await site.do(lambda fw: rest.export(fw, "User", "ada"))
    assert "new_password" not in exported
    assert [data for (data,) in await site.sql("SELECT data FROM doc_version")] == [
        '{"changed":{"language":[null,"de"]},"rows":[]}'
    ]
