"""`new_password` of a User (A-294 to A-297)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.access import attempts
from fw_actors.documents import rest
from fw_actors.errors import BadRequestError, PasswordPolicyError
from fw_actors.hashing import PreparedPassword
from fw_actors.rules.lockout import Budget
from tests.fw_actors.office import Office
from tests.staff import PASSWORD

NEW = "battery staple horse"


async def opens(office: Office, user: str, password: str) -> bool:
    account = await office.site.store.read(lambda tx: office.site.accounts.find(tx, user))
    assert account is not None
    return (await office.site.hasher.verify(account.password_hash, password)).ok


async def save(office: Office, user: str, **body: Any) -> dict[str, Any]:
    return await office.do(lambda fw: rest.save(fw, "User", user, body))


async def test_new_password_is_set_and_never_shown(office: Office) -> None:
    await office.hire("ada")
    shown = await save(office, "ada", new_password=NEW)
    assert shown["new_password"] is None
    assert await opens(office, "ada", NEW)
    assert not await opens(office, "ada", PASSWORD)
    columns = await office.site.store.read(lambda tx: tx.columns("doc_user"))
    assert "email" in columns
    assert "new_password" not in columns


async def test_new_password_is_set_by_an_insert(office: Office) -> None:
    body = {"name": "bob", "email": "bob@x.test", "new_password": NEW}
    shown = await office.do(lambda fw: rest.insert(fw, "User", body))
    assert shown["new_password"] is None
    assert await opens(office, "bob", NEW)


async def test_new_password_is_set_as_an_attribute_by_app_code(office: Office) -> None:
    await office.hire("ada")

    def work(fw: Any) -> Any:
        user = fw.get_doc("User", "ada")
        user.new_password = NEW
        return user.save().new_password

    assert await office.do(work) is None
    assert await opens(office, "ada", NEW)


async def test_new_password_hashed_before_the_transaction_is_not_hashed_again(
    office: Office,
) -> None:
    """Over HTTP it is hashed before the transaction (A-295)."""
    await office.hire("ada")
    stored = await office.site.store.read(
        lambda tx: office.site.registry.tables["User"].fetch(tx, "ada")
    )
    assert stored is not None
    body = await office.site.new_passwords.prepare({"new_password": NEW}, stored)
    assert isinstance(body["new_password"], PreparedPassword)
    before = office.site.hasher.statistics().hashes
    await save(office, "ada", **body)
    assert office.site.hasher.statistics().hashes == before
    assert await opens(office, "ada", NEW)


REFUSED = [
    ("short", "tooShort"), ("", "blank"), ("        ", "blank"), ("x" * 257, "tooLong"),
    ("adalovelace", "equalsAccountName"), ("ADALOVELACE", "equalsAccountName"),
    ("ada@example.test", "equalsAccountName"),
]  # fmt: skip


@pytest.mark.parametrize(("password", "rule"), REFUSED)
async def test_new_password_must_meet_the_policy(office: Office, password: str, rule: str) -> None:
    """The policy holds (A-130); `new_password: \"\"` is 422 blank (A-296)."""
    await office.hire("adalovelace", email="ada@example.test")
    with pytest.raises(PasswordPolicyError) as refusal:
        await save(office, "adalovelace", new_password=password, fullName="Ada")
    assert refusal.value.extra == {"rule": rule}
    with pytest.raises(PasswordPolicyError):
        await office.site.new_passwords.prepare(
            {"new_password": password}, {"name": "adalovelace", "email": "ada@example.test"}
        )
    assert await opens(office, "adalovelace", PASSWORD)
    assert await office.do(lambda fw: fw.get_value("User", "adalovelace", "fullName")) != "Ada"


async def test_new_password_is_compared_with_the_new_e_mail(office: Office) -> None:
    await office.hire("ada")
    body = {"email": "lovelace@example.test", "new_password": "Lovelace@example.test"}
    with pytest.raises(PasswordPolicyError):
        await save(office, "ada", **body)


async def test_hashed_new_password_is_compared_with_the_account_as_it_is_saved(
    office: Office,
) -> None:
    """The account may be changed while a password is hashed (A-295, A-130)."""
    await office.hire("ada")
    body = await office.site.new_passwords.prepare(
        {"new_password": "lovelace@x.test"}, {"name": "ada", "email": "ada@x.test"}
    )
    await save(office, "ada", email="lovelace@x.test")
    with pytest.raises(PasswordPolicyError):
        await save(office, "ada", **body)
    assert await opens(office, "ada", PASSWORD)


async def test_new_password_null_changes_nothing(office: Office) -> None:
    await office.hire("ada")
    await save(office, "ada", new_password=None, fullName="Ada L.")
    assert await opens(office, "ada", PASSWORD)


async def test_new_password_ends_sessions_and_locks_and_mails_the_owner(office: Office) -> None:
    """Sessions end (A-162), the locks of name and e-mail are lifted (A-76), and
    the owner gets a mail (A-297)."""
    await office.hire("ada")

    def furnish(fw: Any) -> None:
        fw.db.sql(
            'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
            " VALUES ('s', :hash, 'ada', 0, 0, 9)",
            {"hash": b"h"},
        )
        for spelling in ("ada", "ada@x.test", "other"):
            key = attempts.counter_key(office.site.installation_key, attempts.IDENTIFIER, spelling)
            budget = Budget(1, 900_000)
            attempts.charge(fw.tx, spelling, key, budget)
            assert attempts.settle_failure(fw.tx, spelling, key, budget) == 900

    await office.do(furnish)
    await save(office, "ada", new_password=NEW)
    assert await office.sql("SELECT id FROM fw_session") == []
    assert await office.sql("SELECT id FROM fw_login_attempt") == [("other",)]
    mails = await office.sql("SELECT recipient, template FROM doc_email_delivery")
    assert mails == [("ada@x.test", "password_changed")]


async def test_new_password_accepts_any_character_but_lone_surrogates(office: Office) -> None:
    """Control characters pass, lone surrogates do not (H-14)."""
    await office.hire("ada")
    odd = "tab\t nul\x00 esc\x1b line\n"
    await save(office, "ada", new_password=odd)
    assert await opens(office, "ada", odd)
    with pytest.raises(BadRequestError):
        await save(office, "ada", new_password="half \ud800 of a pair")


async def test_new_password_is_refused_in_lists_filters_and_db_set(office: Office) -> None:
    await office.hire("ada")
    for verb in (
        lambda fw: fw.get_all("User", fields=["new_password"]),
        lambda fw: fw.get_all("User", [["new_password", "=", "x"]]),
        lambda fw: fw.get_doc("User", "ada").db_set("new_password", NEW),
        lambda fw: rest.save(fw, "User", "ada", {"password_hash": "x"}),
    ):
        with pytest.raises(BadRequestError):
            await office.do(verb)


async def test_new_password_is_absent_from_events_versions_and_exports(office: Office) -> None:
    """No event, Version or export holds it (A-294, B-92)."""
    await office.watch("User", "on_insert", "on_update")
    await office.hire("ada")
    await save(office, "ada", new_password=NEW, language="de")
    for delivery in await office.deliveries():
        assert delivery["payload"]["data"]["doc"]["new_password"] is None
    exported = await office.do(lambda fw: rest.export(fw, "User", "ada"))
    assert "new_password" not in exported
    assert [data for (data,) in await office.sql("SELECT data FROM doc_version")] == [
        '{"changed":{"language":[null,"de"]},"rows":[]}'
    ]
