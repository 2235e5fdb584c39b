"""Accounts: names, e-mails and their belongings (A-12 to A-24)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fw_actors.access import accounts
from fw_actors.access.links import LinkKind, Links
from fw_actors.access.passwords import set_password
from fw_actors.access.users import set_enabled
from fw_actors.errors import ConflictError, DuplicateError, NotFoundError, ValidationError
from fw_actors.store import Tx
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")


async def find(site: VirtualSite, key: str) -> str | None:
    account = await site.site.store.read(lambda tx: site.site.accounts.find(tx, key))
    return None if account is None else account.user


async def change(site: VirtualSite, user: str, **fields: Any) -> None:
    def work(fw: Any) -> None:
        doc = fw.get_doc("User", user)
        for field, value in fields.items():
            setattr(doc, field, value)
        doc.save()

    await site.do(work)


async def test_account_is_found_by_canonical_name_and_e_mail(site: VirtualSite) -> None:
    await site.add_account("Ada", email="Ada.L@X.test")
    assert [await find(site, key) for key in ("ada", "ada.l@x.test", "Ada", "l@x.test")] == [
        "Ada", "Ada", None, None,
    ]  # fmt: skip


async def test_role_that_is_given_twice_is_stored_once(site: VirtualSite) -> None:
    """A-26: the first row of a role stays."""
    roles = [{"role": role} for role in ("Event Publisher", "System Manager", "Event Publisher")]
    await site.do(
        lambda fw: fw.new_doc("User", name="ada", email="ada@x.test", roles=roles).insert()
    )
    await change(site, "ada", roles=[*roles, *roles])
    rows = await site.do(lambda fw: [(r.role, r.idx) for r in fw.get_doc("User", "ada").roles])
    assert rows == [("Event Publisher", 1), ("System Manager", 2)]


TAKEN = [  # name, e-mail, the field to blame
    ("ADA", "other@x.test", "name"),
    ("\uff21da", "other@x.test", "name"),
    ("other", "ADA@X.TEST", "email"),
    ("ada@x.test", "other@x.test", "name"),  # no user's name is another's e-mail
]


@pytest.mark.parametrize(("name", "email", "field"), TAKEN)
async def test_identifier_belongs_to_one_account(
    site: VirtualSite, name: str, email: str, field: str
) -> None:
    """Name and e-mail are unique in canonical form, and no name is another's e-mail (A-13)."""
    await site.add_account("ada", email="ada@x.test")
    with pytest.raises(DuplicateError) as refusal:
        await site.add_account(name, email=email, password=None)
    assert refusal.value.extra == {"field": field}


async def test_e_mail_may_not_be_a_name_in_use(site: VirtualSite) -> None:
    await site.add_account("info@x.test", email="boss@x.test")
    with pytest.raises(DuplicateError):
        await site.add_account("other", email="INFO@x.test", password=None)


async def test_name_may_equal_the_own_e_mail(site: VirtualSite) -> None:
    """`users.invite` without `name` takes the canonical e-mail (A-233)."""
    await site.add_account("ada@x.test", email="Ada@x.test")
    assert await find(site, "ada@x.test") == "ada@x.test"


UNUSABLE = [  # name, e-mail, the field to blame
    ("a\u202eb", "a@x.test", "name"),
    ("a\u200bb", "a@x.test", "name"),
    ("\u2065x", "a@x.test", "name"),
    ("ada", "a\u200bb@x.test", "email"),
    ("ada", "   ", "email"),
    ("ada", "", "email"),
    ("ada", "a b@x.test", "email"),
    ("ada", "no address", "email"),
    ("ada", "a@=?utf-8?q?x=0D=0ABcc=3Ab=40x?=", "email"),
    ("ada", "=?utf-8?q?b=40x=2C?=@x.test", "email"),
    ("Administrator", "a@x.test", "name"),
    ("ADMINISTRATOR", "a@x.test", "name"),
    ("\uff21dministrator", "a@x.test", "name"),
]


@pytest.mark.parametrize(("name", "email", "field"), UNUSABLE)
async def test_account_refuses_hidden_reserved_and_blank_identifiers(
    site: VirtualSite, name: str, email: str, field: str
) -> None:
    """A hidden character is 422 (A-14), and `Administrator` is reserved (A-16)."""
    with pytest.raises(ValidationError) as refusal:
        await site.do(lambda fw: fw.new_doc("User", name=name, email=email).insert())
    assert refusal.value.extra == {"field": field}


@pytest.mark.parametrize("act", ["disable", "rename", "name", "db_set"])
async def test_account_with_stored_encoded_word_can_be_changed(site: VirtualSite, act: str) -> None:
    """The rule for new addresses (A-15) must not keep such an account enabled."""
    word = "a@=?utf-8?q?x=0d=0abcc=3ab=40x?="
    await site.add_account("ada", email="ada@x.test")
    await site.do(lambda fw: fw.db.sql("UPDATE doc_user SET email = :word", {"word": word}))

    def work(fw: Any) -> None:
        ada = fw.get_doc("User", "ada")
        if act == "disable":
            set_enabled(fw, site.site.accounts, "ada", False)
        elif act == "rename":
            ada.rename("lovelace")
        elif act == "name":
            ada.fullName = "Ada L."
            ada.save()
        else:
            ada.db_set("enabled", 0)

    await site.do(work)
    users = 'SELECT name, "fullName", enabled FROM doc_user'
    [(name, full_name, enabled)] = await site.sql(users)
    assert (name, full_name, enabled) == {
        "disable": ("ada", "Ada", 0), "rename": ("lovelace", "Ada", 1),
        "name": ("ada", "Ada L.", 1), "db_set": ("ada", "Ada", 0),
    }[act]  # fmt: skip
    with pytest.raises(ValidationError):
        await change(site, name, email="b@=?utf-8?q?x?=")


async def test_e_mail_change_replaces_the_identifier(
    site: VirtualSite,
) -> None:
    await site.add_account("ada")
    await change(site, "ada", email="new@x.test")
    assert [await find(site, key) for key in ("ada", "new@x.test", "ada@x.test")] == [
        "ada", "ada", None,
    ]  # fmt: skip
    await site.add_account("bob", email="ada@x.test")


async def test_db_set_refuses_an_identifier_in_use(site: VirtualSite) -> None:
    await site.add_account("ada")
    await site.add_account("bob")
    with pytest.raises(DuplicateError):
        await site.do(lambda fw: fw.get_doc("User", "bob").db_set("email", "ADA@x.test"))
    await site.do(lambda fw: fw.get_doc("User", "bob").db_set("email", "new@x.test"))
    assert await find(site, "new@x.test") == "bob"


async def test_refused_change_keeps_the_identifiers(site: VirtualSite) -> None:
    await site.add_account("ada")
    await site.add_account("bob")
    with pytest.raises(DuplicateError):
        await change(site, "bob", email="ada@x.test")
    assert await find(site, "bob@x.test") == "bob"


async def test_account_deletion_removes_all_its_belongings(site: VirtualSite) -> None:
    """Deleting a User takes sessions, keys, tokens and scopes along (A-21)."""
    await site.add_account("boss", "System Manager")
    await site.add_account("ada")
    await sessions_of(site, "ada", 2)
    await site.do(lambda fw: fw.get_doc("User", "ada").delete())
    assert await find(site, "ada") is None
    for table in ("fw_password", "fw_session", "fw_identifier"):
        left = await site.sql(f'SELECT 1 FROM {table} WHERE "user" = :u', u="ada")
        assert left == [], table
    await site.add_account("ada")


async def test_account_deletion_ends_links_of_its_user_only(site: VirtualSite) -> None:
    """The link tokens of a deleted User are deleted (A-21): they would set the password of another
    account that is given its name."""
    opened = site.site
    links = Links(opened.config.auth, opened.entropy, "https://x.test")
    for name in ("ada", "bob"):
        await site.add_account(name)
        for kind in LinkKind:
            await opened.store.write(partial(links.mint, kind=kind, user=name))
    await site.do(lambda fw: fw.get_doc("User", "ada").delete())
    assert await site.sql('SELECT DISTINCT "user" FROM fw_token') == [("bob",)]


async def sessions_of(site: VirtualSite, user: str, number: int) -> None:
    for each in range(number):
        await site.sql(
            'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires) '
            "VALUES (:id, :hash, :user, 0, 0, 9000000000000)",
            id=f"{user}{each}", hash=f"{user}{each}".encode(), user=user,
        )  # fmt: skip


async def test_disabling_an_account_ends_its_sessions(site: VirtualSite) -> None:
    """Disabling ends sessions and keys at once (A-20)."""
    await site.add_account("ada")
    await sessions_of(site, "ada", 2)
    await change(site, "ada", language="de")
    assert await site.sql("SELECT count(*) FROM fw_session") == [(2,)]
    await change(site, "ada", enabled=0)
    assert await site.sql("SELECT count(*) FROM fw_session") == [(0,)]


async def test_set_password_ends_sessions_of_its_user_only(site: VirtualSite) -> None:
    """Every path that sets a password ends the user's other sessions (A-162)."""
    for name in ("ada", "bob"):
        await site.add_account(name)
        await sessions_of(site, name, 1)
    await site.site.store.write(lambda tx: set_password(tx, "ada", "a hash"))
    assert await site.sql('SELECT "user" FROM fw_session') == [("bob",)]


async def test_rehash_ends_no_session(site: VirtualSite) -> None:
    await site.add_account("ada")
    await sessions_of(site, "ada", 1)

    def rehash(tx: Tx) -> None:
        account = site.site.accounts.find(tx, "ada")
        assert account is not None
        accounts.rehash(tx, account, "a hash")

    await site.site.store.write(rehash)
    assert await site.sql("SELECT hash FROM fw_password") == [("a hash",)]
    assert await site.sql("SELECT count(*) FROM fw_session") == [(1,)]


async def test_invited_account_has_no_hash(site: VirtualSite) -> None:
    """An invited account has no hash, null (A-230)."""
    await site.add_account("ada", password=None)
    account = await site.site.store.read(lambda tx: site.site.accounts.find(tx, "ada"))
    assert account is not None
    assert account.password_hash is None


LOSSES: list[dict[str, Any]] = [{"enabled": 0}, {"roles": []}, {"roles": [{"role": "Seller"}]}]


@pytest.mark.parametrize("change_to", LOSSES)
async def test_last_system_manager_cannot_be_disabled_deleted_or_demoted(
    site: VirtualSite, change_to: dict[str, Any]
) -> None:
    """The last System Manager is not disabled, deleted or deprived of the role (A-22)."""
    await site.add_account("boss", "System Manager")
    await site.add_account("ada", "Seller")
    with pytest.raises(ConflictError):
        await change(site, "boss", **change_to)
    with pytest.raises(ConflictError):
        await site.do(lambda fw: fw.get_doc("User", "boss").delete())
    await site.add_account("second", "System Manager")
    await change(site, "boss", **change_to)
    with pytest.raises(ConflictError):
        await change(site, "second", **change_to)


async def test_last_system_manager_cannot_be_disabled_by_db_set(site: VirtualSite) -> None:
    await site.add_account("boss", "System Manager")
    with pytest.raises(ConflictError):
        await site.do(lambda fw: fw.get_doc("User", "boss").db_set("enabled", 0))


async def test_disabled_system_manager_does_not_count(site: VirtualSite) -> None:
    await site.add_account("boss", "System Manager")
    await site.add_account("second", "System Manager")
    await change(site, "second", enabled=0)
    with pytest.raises(ConflictError):
        await change(site, "boss", enabled=0)


async def test_last_system_manager_may_change_other_fields(site: VirtualSite) -> None:
    await site.add_account("boss", "System Manager")
    await change(
        site, "boss", language="de", roles=[{"role": "Seller"}, {"role": "System Manager"}]
    )


async def test_account_changes_freely_if_the_site_has_no_manager(site: VirtualSite) -> None:
    await site.add_account("ada", "Seller")
    await change(site, "ada", enabled=0)
    await site.do(lambda fw: fw.get_doc("User", "ada").delete())


async def test_rights_follow_the_current_roles_of_an_enabled_account(site: VirtualSite) -> None:
    await site.add_account("ada", "Seller", "Reader")
    opened = site.site
    rights = await opened.store.read(lambda tx: opened.accounts.rights(tx, "ada"))
    assert (rights.user, sorted(rights.roles)) == ("ada", ["Reader", "Seller"])
    await change(site, "ada", enabled=0)
    for name in ("ada", "nobody"):
        with pytest.raises(NotFoundError):
            await opened.store.read(lambda tx, name=name: opened.accounts.rights(tx, name))  # type: ignore[misc]


async def test_rights_ignore_roles_of_other_documents(site: VirtualSite) -> None:
    """The table `roles` holds the user's own rows, and no other document's (A-12)."""
    await site.add_account("ada", "Seller")
    await site.add_account("bob", "Reader", "System Manager")
    await site.add_account("eve", "Seller")
    await change(site, "eve", enabled=0)
    await site.sql(  # what an app's document of this name may have
        "INSERT INTO doc_has_role (name, parent, parenttype, parentfield, idx, role)"
        " VALUES ('row', 'ada', 'Customer', 'roles', 1, 'System Manager')"
    )
    store, known = site.site.store, site.site.accounts
    roles = {"ada": ["Seller"], "bob": ["Reader", "System Manager"]}
    for name, own in roles.items():
        rights = await store.read(partial(known.rights, user=name))
        listed = await store.read(partial(known.roles, user=name))
        assert (sorted(rights.roles), sorted(listed)) == (own, own)
    with pytest.raises(NotFoundError):
        await store.read(partial(known.rights, user="eve"))
    with pytest.raises(ConflictError):  # ada is no other System Manager
        await change(site, "bob", enabled=0)


async def test_document_deletion_spares_the_account_of_the_same_name(
    site: VirtualSite,
) -> None:
    """Deleting a User takes its own things along, and no other's (A-21)."""
    await site.add_account("ada")
    await site.sql(
        'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
        " VALUES ('s', :hash, 'ada', 0, 0, 9999999999999)",
        hash=b"h",
    )
    await site.do(lambda fw: fw.new_doc("Customer", title="ada").insert().delete())
    assert await find(site, "ada") == "ada"
    assert await site.sql('SELECT "user" FROM fw_password') == [("ada",)]
    assert await site.sql('SELECT "user" FROM fw_session') == [("ada",)]


async def test_set_password_and_delete_affect_one_account_only(site: VirtualSite) -> None:
    """Each account has a password hash of its own (A-12)."""
    for name in ("ada", "bob", "eve"):
        await site.add_account(name)

    async def hashes() -> dict[str, str]:
        return dict(await site.sql('SELECT "user", hash FROM fw_password'))

    before = await hashes()
    await site.site.store.write(partial(set_password, user="bob", password_hash="another"))
    assert await hashes() == {**before, "bob": "another"}
    await site.do(lambda fw: fw.get_doc("User", "bob").delete())
    assert await hashes() == {name: before[name] for name in ("ada", "eve")}


async def test_unknown_role_is_refused(site: VirtualSite) -> None:
    """An unknown role is 422 (A-234)."""
    with pytest.raises(ValidationError) as refusal:
        await site.add_account("ada", "Nothing")
    assert refusal.value.extra == {"field": "roles"}


@pytest.mark.parametrize("enabled", [True, False])
async def test_account_that_is_in_the_wanted_state_is_not_saved(
    site: VirtualSite, enabled: bool
) -> None:
    await site.add_account("ada")
    turn = partial(set_enabled, accounts=site.site.accounts, identifier="ada", enabled=enabled)
    await site.do(turn)
    await site.watch("User", "on_update")
    assert await site.do(turn) == "ada"
    assert await site.counts() == (0, 0)
