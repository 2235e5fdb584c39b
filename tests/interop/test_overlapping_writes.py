"""Transactions that overlap on PostgreSQL end as they would one after another on SQLite.

Each test lets a first transaction do its work and hold it until the database says that the second
one waits for it: the order is forced, and no clock decides.

The module has more than 500 lines because each pair of operations that may overlap is a test.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from fw_actors.access import attempts
from fw_actors.access.accounts import lock_account
from fw_actors.access.administration import SelfService
from fw_actors.access.links import LinkKind, Links
from fw_actors.access.passwords import AdmittedChange, PasswordChange, PasswordChanges, set_password
from fw_actors.access.recovery import LinkMail, resend
from fw_actors.access.sessions import Caller
from fw_actors.access.sessions import begin as begin_session
from fw_actors.access.sign_in import Admitted, SignIn, SignInAttempt
from fw_actors.access.users import add_user, revoke_sessions, set_enabled
from fw_actors.config import ProcessPlace
from fw_actors.documents import rest
from fw_actors.errors import (
    AuthenticationError,
    ConflictError,
    NotFoundError,
    ValidationError,
)
from fw_actors.ops.audit import Action
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.ops.site import Site
from fw_actors.rules.lockout import Budget
from fw_actors.store import LeasedJob
from fw_actors.webhooks.subscriptions import SharedSubscriptions
from supervisors.service.processes import shared_memory
from tests.interop.overlap_kit import (
    OTHER,
    PASSWORD,
    Overlap,
    add_account,
    as_administrator,
    begin,
    patient_site,
)
from tests.site_kit import dependencies_of


async def order(site: Site, **fields: Any) -> str:
    made = await site.write(
        "Administrator", lambda fw: fw.new_doc("Sales Order", **fields).insert()
    )
    return str(made.name)


async def read(site: Site, doctype: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await site.read(
        "Administrator", lambda fw: fw.get_doc(doctype, name).as_dict()
    )
    return found


def change(name: str, **fields: Any) -> Callable[[Any], Any]:
    return lambda fw: rest.save(fw, "Sales Order", name, fields)


async def test_overlapping_saves_without_version_are_merged(site: Site, overlap: Overlap) -> None:
    """A save without `modified` wins (D-120): neither reverts the other's change."""
    name = await order(site, title="first", lines=[{"item": "a"}])
    second = partial(site.write, "Administrator", change(name, remark="second"))
    first = change(name, title="changed", lines=[{"item": "b"}, {"item": "c"}])
    await overlap(as_administrator(site, first), second)
    after = await read(site, "Sales Order", name)
    assert (after["title"], after["remark"]) == ("changed", "second")
    assert [row["item"] for row in after["lines"]] == ["b", "c"]


async def test_save_over_replaced_version_is_refused(site: Site, overlap: Overlap) -> None:
    name = await order(site, title="first")
    modified = (await read(site, "Sales Order", name))["modified"]
    second = change(name, title="late", modified=modified)
    _, refusal = await overlap(
        as_administrator(site, change(name, title="changed")),
        partial(site.write, "Administrator", second),
    )
    assert isinstance(refusal, ConflictError)
    assert (await read(site, "Sales Order", name))["title"] == "changed"


@pytest.mark.parametrize("act", ["submit", "cancel", "rename", "delete"])
async def test_act_on_replaced_version_is_refused(site: Site, overlap: Overlap, act: str) -> None:
    """The version is compared when the other change has ended, and not before (D-120, D-131)."""
    name = await order(site, title="first")
    if act == "cancel":
        await site.write("Administrator", partial(rest.submit, doctype="Sales Order", name=name))
    version = rest.version_of((await read(site, "Sales Order", name))["modified"])

    def second(fw: Any) -> Any:
        if act == "rename":
            return rest.rename(fw, "Sales Order", name, {"name": "Other"}, version)
        return getattr(rest, act)(fw, "Sales Order", name, version)

    first, refusal = await overlap(
        as_administrator(site, change(name, remark="unseen")),
        partial(site.write, "Administrator", second),
    )
    assert isinstance(refusal, ConflictError)
    assert "changed meanwhile" in str(refusal)
    after = await read(site, "Sales Order", name)
    assert (after["remark"], after["docstatus"]) == ("unseen", first["docstatus"])


async def test_save_after_overlapping_db_set_is_refused(site: Site, overlap: Overlap) -> None:
    name = await order(site, title="first", remark="old")

    def late(fw: Any) -> None:
        doc = fw.get_doc("Sales Order", name)
        doc.title = "late"
        doc.save()

    def direct(fw: Any) -> None:
        fw.get_doc("Sales Order", name).db_set("remark", "direct")

    _, refusal = await overlap(
        as_administrator(site, direct), partial(site.write, "Administrator", late)
    )
    assert isinstance(refusal, ConflictError)
    after = await read(site, "Sales Order", name)
    assert (after["title"], after["remark"]) == ("first", "direct")


async def test_overlapping_submit_is_refused(site: Site, overlap: Overlap) -> None:
    """Submit of a submitted document is a conflict (D-125)."""
    name = await order(site, title="once")
    submit = partial(rest.submit, doctype="Sales Order", name=name)
    first, second = await overlap(
        as_administrator(site, submit), partial(site.write, "Administrator", submit)
    )
    assert first["docstatus"] == 1
    assert isinstance(second, ConflictError)


async def test_overlapping_first_inserts_of_series_have_successive_names(
    site: Site, overlap: Overlap
) -> None:
    """`series:` gives each document a number of its own (D-101)."""

    def insert(fw: Any) -> str:
        return str(fw.new_doc("Sales Order", title="t").insert().name)

    names = await overlap(
        as_administrator(site, insert), partial(site.write, "Administrator", insert)
    )
    assert names == ("SO-00001", "SO-00002")


async def test_link_to_document_being_deleted_is_refused(site: Site, overlap: Overlap) -> None:
    """A Link to a missing document is 422, in either order (D-58, D-131)."""
    await site.write("Administrator", lambda fw: fw.new_doc("Customer", title="gone").insert())
    delete = partial(rest.delete, doctype="Customer", name="gone")
    _, refusal = await overlap(
        as_administrator(site, delete), partial(order, site, title="late", customer="gone")
    )
    assert isinstance(refusal, ValidationError)


async def test_deletion_of_document_being_linked_is_refused(site: Site, overlap: Overlap) -> None:
    """Deleting a linked document is 409 (D-128, D-131)."""
    await site.write("Administrator", lambda fw: fw.new_doc("Customer", title="kept").insert())
    delete = partial(rest.delete, doctype="Customer", name="kept")

    def link(fw: Any) -> Any:
        return fw.new_doc("Sales Order", title="first", customer="kept").insert()

    _, refusal = await overlap(
        as_administrator(site, link), partial(site.write, "Administrator", delete)
    )
    assert isinstance(refusal, ConflictError)


async def subscribe(site: Site) -> str:
    """Make a Webhook for `a.b`, and let the process know it; its name."""
    hook = {"url": "https://x.test", "event_type": "Custom", "custom_event": "a.b", "secret": "s"}
    made = await site.write("Administrator", lambda fw: fw.new_doc("Webhook", **hook).insert())
    await site.write("Administrator", emit)
    return str(made.name)


def emit(fw: Any) -> Any:
    return fw.webhooks.emit("a.b", {})


def rename_hook(name: str) -> Callable[[Any], Any]:
    return lambda fw: rest.rename(fw, "Webhook", name, {"name": "renamed"})


async def receivers(site: Site) -> set[tuple[str, str]]:
    """Return the Webhook of each delivery, and what its job is kept by."""
    text = (
        "SELECT d.webhook AS webhook, j.partition AS partition FROM doc_webhook_delivery d "
        "JOIN fw_job j ON j.subject = d.name"
    )
    found = await site.store.read(lambda tx: tx.raw(text))
    assert len(found) == 2
    return {(row["webhook"], row["partition"]) for row in found}


async def test_webhook_rename_includes_overlapping_emit(site: Site, overlap: Overlap) -> None:
    """A rename of a Webhook follows in its deliveries (B-30, B-45)."""
    name = await subscribe(site)
    await overlap(
        as_administrator(site, emit), partial(site.write, "Administrator", rename_hook(name))
    )
    assert await receivers(site) == {("renamed", "renamed")}


async def test_emit_during_webhook_rename_has_new_name(site: Site, overlap: Overlap) -> None:
    """A delivery with the old name would fail as one of a deleted Webhook."""
    name = await subscribe(site)
    await overlap(
        as_administrator(site, rename_hook(name)), partial(site.write, "Administrator", emit)
    )
    assert await receivers(site) == {("renamed", "renamed")}


@pytest.fixture
async def processes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Site, Site]]:
    """Two processes of one service, which share their subscriptions."""
    memory = shared_memory()
    async with AsyncExitStack() as stack:
        made = []
        for number in (1, 2):
            shared = SharedSubscriptions(os.dup(memory), ProcessPlace(number, 2))
            opened = patient_site(postgres_url, monkeypatch, shared)
            made.append(await stack.enter_async_context(opened))
        os.close(memory)
        yield made[0], made[1]


def watch_orders(fw: Any) -> str:
    fields = {"event_type": "Custom", "custom_event": "order.shipped", "secret": "s"}
    return str(fw.new_doc("Webhook", url="https://x.test", **fields).insert().name)


async def test_overlapping_webhook_saves_of_two_processes_apply_in_both(
    processes: tuple[Site, Site], postgres_url: str
) -> None:
    """The later of two saves publishes the subscriptions of both (B-46)."""
    one, other = processes
    await Overlap(one, postgres_url)(
        as_administrator(one, watch_orders), partial(other.write, "Administrator", watch_orders)
    )
    for site in processes:
        emitted = await site.write(
            "Administrator", lambda fw: fw.webhooks.emit("order.shipped", {})
        )
        assert len(emitted["deliveries"]) == 2


async def test_sign_in_during_password_change_is_refused(site: Site, overlap: Overlap) -> None:
    """Every path that sets a password ends the user's sessions (A-163)."""
    await add_account(site, "ada")
    sign_in = SignIn(dependencies_of(site, site.hasher))
    attempt = SignInAttempt("ada", PASSWORD, "192.0.2.1", "a browser", None, "request")
    admitted = await sign_in.admit(sign_in.identify(attempt))
    assert isinstance(admitted, Admitted)
    hashed = await site.hash_password(OTHER, "ada", "ada@x.test")
    _, refusal = await overlap(
        lambda tx: set_password(tx, "ada", hashed), partial(sign_in.verify, attempt, admitted)
    )
    assert isinstance(refusal, AuthenticationError)
    assert await site.store.read(lambda tx: tx.raw("SELECT id FROM fw_session")) == []


async def test_password_change_by_replaced_password_is_refused(
    site: Site, overlap: Overlap
) -> None:
    """A wrong `current` is 401, also when it was right before (A-244, A-51)."""
    await add_account(site, "ada")
    changes = PasswordChanges(dependencies_of(site, site.hasher), site.passwords)
    begin = partial(
        begin_session, handle="s1", sid="secret", user="ada", ip="", user_agent="", days=1
    )
    await site.store.write(begin)
    change = PasswordChange("ada", "s1", PASSWORD, "a third decent passphrase")
    admitted = await changes.admit(change, changes.counter("ada"))
    assert isinstance(admitted, AdmittedChange)
    hashed = await site.hash_password(OTHER, "ada", "ada@x.test")
    _, refusal = await overlap(
        lambda tx: set_password(tx, "ada", hashed, "s1"), partial(changes.verify, change, admitted)
    )
    assert isinstance(refusal, AuthenticationError)
    kept = await site.store.read(lambda tx: tx.raw("SELECT hash FROM fw_password"))
    assert kept == [{"hash": hashed}]


@pytest.mark.parametrize("by", ["manager", "owner"])
async def test_revocation_ends_the_session_of_an_overlapping_sign_in(
    site: Site, overlap: Overlap, by: str
) -> None:
    """`users.revokeUserSessions` (A-292) and `sessions.revokeMyOtherSessions` (A-252)."""
    await add_account(site, "ada")
    own = SelfService(site.config.auth, site.accounts, site.api_keys, site.mail_queue)
    await begin(site, "ada")

    def sign_in(tx: Any) -> None:
        lock_account(tx, "ada")
        begin_session(tx, handle="s2", sid="other", user="ada", ip="", user_agent="", days=1)

    def revoke(fw: Any) -> int:
        if by == "manager":
            return revoke_sessions(fw, "ada", 0) - 1
        return own.revoke_other_sessions(fw, Caller("ada", frozenset(), "s1"))

    user = "ada" if by == "owner" else "Administrator"
    assert (await overlap(sign_in, partial(site.write, user, revoke)))[1] == 1


async def test_revocation_during_rename_of_the_account_is_not_found(
    site: Site, overlap: Overlap
) -> None:
    """It ended no session, and said so as if there were none (A-292)."""
    await add_account(site, "ada")
    await begin(site, "ada")
    rename = as_administrator(site, lambda fw: fw.get_doc("User", "ada").rename("eve"))
    revoke = partial(site.write, "Administrator", lambda fw: revoke_sessions(fw, "ada", 0))
    assert isinstance((await overlap(rename, revoke))[1], NotFoundError)


async def test_overlapping_links_leave_one_valid_token(site: Site, overlap: Overlap) -> None:
    """A new link ends the older ones of the same user and kind (A-193)."""
    await add_account(site, "ada")
    links = Links(site.config.auth, site.entropy, "https://desk.example")
    mint = partial(links.mint, kind=LinkKind.RECOVERY, user="ada")
    await overlap(mint, partial(site.store.write, mint))
    (count,) = await site.store.read(lambda tx: tx.raw("SELECT count(*) AS tokens FROM fw_token"))
    assert count == {"tokens": 1}


async def test_overlapping_failure_at_limit_locks(site: Site, overlap: Overlap) -> None:
    """The failure that reaches `maxLoginAttempts` locks and reports the wait (A-69)."""
    key, budget = b"a counter", Budget(2, 900_000)
    for charge in ("one", "two"):
        waits = partial(attempts.charge, charge_id=charge, key=key, budget=budget)
        assert await site.store.write(waits) is None
    settle = partial(attempts.settle_failure, key=key, budget=budget)
    first, second = await overlap(
        partial(settle, charge_id="one"),
        partial(site.store.write, partial(settle, charge_id="two")),
    )
    assert (first, second) == (None, 900.0)


async def make_key(site: Site, name: str) -> Any:
    return await site.write(name, lambda fw: site.api_keys.make(fw, "a program", None, 0))


async def test_unlock_clears_overlapping_failure_at_limit(site: Site, overlap: Overlap) -> None:
    """An unlock clears all failures (A-76), also the one that is about to start the lock."""
    budget, key = Budget(2, 900_000), b"k" * 32

    def fail(charge: str) -> Callable[[Any], Any]:
        return lambda tx: attempts.settle_failure(tx, charge, key, budget)

    for charge in ("one", "two"):
        await site.store.write(partial(attempts.charge, charge_id=charge, key=key, budget=budget))
    assert await site.store.write(fail("one")) is None
    unlock = partial(site.store.write, lambda tx: attempts.unlock(tx, key))
    locked, _ = await overlap(fail("two"), unlock)
    assert locked == 900
    assert await site.store.read(lambda tx: attempts.wait_of(tx, key, budget)) is None


async def test_api_key_creation_during_disabling_is_refused(site: Site, overlap: Overlap) -> None:
    """Disabling ends sessions and keys at once, in either order (A-20)."""
    for name in ("ada", "bob"):
        await add_account(site, name)
    disable = partial(rest.save, doctype="User", body={"enabled": 0})
    _, refusal = await overlap(
        as_administrator(site, partial(disable, name="ada")), partial(make_key, site, "ada")
    )
    assert isinstance(refusal, AuthenticationError)
    await overlap(
        lambda tx: site.api_keys.make(site.handle(tx, "bob"), "a program", None, 0),
        partial(site.write, "Administrator", partial(disable, name="bob")),
    )
    kept = "SELECT name FROM doc_api_key UNION ALL SELECT id FROM fw_api_key"
    assert await site.store.read(lambda tx: tx.raw(kept)) == []


async def test_overlapping_api_key_revocation_is_not_found(site: Site, overlap: Overlap) -> None:
    """A key that is not there is 404 (A-271)."""
    await add_account(site, "ada")
    key = (await make_key(site, "ada")).name
    revoke = partial(site.api_keys.revoke, name=key)
    _, refusal = await overlap(
        lambda tx: revoke(site.handle(tx, "ada")), partial(site.write, "ada", revoke)
    )
    assert isinstance(refusal, NotFoundError)


async def test_overlapping_profile_changes_are_merged(site: Site, overlap: Overlap) -> None:
    """`profile.updateMyProfile` answers the profile; it knows no version (A-242)."""
    await add_account(site, "ada")
    own = SelfService(site.config.auth, site.accounts, site.api_keys, site.mail_queue)
    _, profile = await overlap(
        lambda tx: own.update_profile(site.handle(tx, "ada"), "Ada Lovelace", None),
        partial(site.write, "ada", lambda fw: own.update_profile(fw, None, "en")),
    )
    assert (profile.full_name, profile.language) == ("Ada Lovelace", "en")


async def test_account_is_disabled_during_profile_change(site: Site, overlap: Overlap) -> None:
    """`user disable` is done, or refused for a reason that lasts (C-114)."""
    await add_account(site, "ada")
    own = SelfService(site.config.auth, site.accounts, site.api_keys, site.mail_queue)
    _, name = await overlap(
        lambda tx: own.update_profile(site.handle(tx, "ada"), "Ada Lovelace", None),
        partial(
            site.write, "Administrator", lambda fw: set_enabled(fw, site.accounts, "ada", False)
        ),
    )
    after = await read(site, "User", "ada")
    assert (name, after["fullName"], after["enabled"]) == ("ada", "Ada Lovelace", 0)


async def test_invitation_resend_during_first_password_is_refused(
    site: Site, overlap: Overlap
) -> None:
    """A resend to an account with a password is 409 (A-235)."""
    await site.write("Administrator", lambda fw: add_user(fw, "eve", "eve@x.test", "", (), None))
    hashed = await site.hash_password(PASSWORD, "eve", "eve@x.test")
    links = Links(site.config.auth, site.entropy, "https://desk.example")
    by_mail = LinkMail(links, site.mail_queue, None)
    _, refusal = await overlap(
        lambda tx: set_password(tx, "eve", hashed),
        partial(site.write, "Administrator", lambda fw: resend(fw, by_mail, "eve")),
    )
    assert isinstance(refusal, ConflictError)


def lose(how: str, user: str) -> Callable[[Any], Any]:
    """Take a System Manager from the site."""
    if how == "deleted":
        return lambda fw: rest.delete(fw, "User", user)
    change: dict[str, Any] = {"enabled": 0} if how == "disabled" else {"roles": []}
    return lambda fw: rest.save(fw, "User", user, change)


@pytest.mark.parametrize("first", ["disabled", "deleted", "without the role"])
@pytest.mark.parametrize("second", ["disabled", "deleted"])
async def test_overlapping_removals_keep_one_system_manager(
    site: Site, overlap: Overlap, first: str, second: str
) -> None:
    """The last enabled System Manager stays one (A-22)."""
    roles = ["System Manager"]
    for name in ("ada", "bob"):
        adding = partial(add_user, name=name, email=f"{name}@x.test", roles=roles)
        await site.write("Administrator", adding)
    _, refusal = await overlap(
        as_administrator(site, lose(first, "ada")),
        partial(site.write, "Administrator", lose(second, "bob")),
    )
    assert isinstance(refusal, ConflictError)
    left = await read(site, "User", "bob")
    assert (left["enabled"], [row["role"] for row in left["roles"]]) == (1, roles)


async def test_overlapping_refusal_beyond_limit_is_counted(site: Site, overlap: Overlap) -> None:
    """docs/operating.md: twenty Denied events a minute of one user, and one that counts more."""
    await site.write("Administrator", partial(add_user, name="ann", email="ann@x.test"))

    def deny(fw: Any) -> None:
        fw.tx.now = 1_800_000_000_000  # all of them in one minute
        site.audit.deny(fw, "msg_1")

    for _ in range(19):
        await site.write("ann", deny)
    await overlap(lambda tx: deny(site.handle(tx, "ann")), partial(site.write, "ann", deny))
    rows = await site.read(
        "Administrator",
        lambda fw: fw.get_all("Audit Event", {"action": "Denied"}, ["target", "detail"]),
    )
    assert [row["detail"] for row in rows if row["target"] is None] == [{"more": 1}]
    assert len(rows) == 21


async def test_overlapping_flushes_of_defects_write_within_limit(
    site: Site, overlap: Overlap
) -> None:
    """At most 60 Error Logs are written in a minute, by all processes together (D-226)."""
    other = ErrorRecorder(site.entropy, site.config.scrubber, lambda: None)
    for number in range(40):
        for errors in (site.errors, other):
            errors.note(str(number), RuntimeError("out of tea"), "")
    results = await overlap(site.errors.flush, partial(site.store.write, other.flush))
    assert results == (40, 20)


def limit(user: str) -> Callable[[Any], Any]:
    """Give a user an access scope."""
    values = {"user": user, "allow": "Role", "for_value": "System Manager"}
    return lambda fw: rest.insert(fw, "User Permission", values)


@pytest.mark.parametrize("first", [limit("ada"), lose("deleted", "ada"), lose("disabled", "ada")])
async def test_overlapping_scopes_keep_one_unscoped_system_manager(
    site: Site, overlap: Overlap, first: Callable[[Any], Any]
) -> None:
    """A user with access scopes cannot lift them: overlapping changes must leave one without."""
    roles = ["System Manager"]
    for name in ("ada", "bob"):
        adding = partial(add_user, name=name, email=f"{name}@x.test", roles=roles)
        await site.write("Administrator", adding)
    _, refusal = await overlap(
        as_administrator(site, first), partial(site.write, "Administrator", limit("bob"))
    )
    assert isinstance(refusal, ConflictError)
    assert await site.read("bob", lambda fw: fw.rights.administers)


async def test_overlapping_first_password_prevents_an_invitation_link(
    site: Site, overlap: Overlap
) -> None:
    """A mail that waits for the account sees the password set meanwhile (A-194)."""
    await site.write("Administrator", lambda fw: add_user(fw, "ida", "ida@x.test"))
    links = Links(site.config.auth, site.entropy, "https://x.test")
    composer = MailComposer(links, "site")
    job = LeasedJob(
        id=1, queue="mail", partition="", subject="none", function="invitation", user="ida",
        lease="x",
    )  # fmt: skip
    hashed = await site.hash_password(PASSWORD, "ida", "ida@x.test")
    first = as_administrator(
        site, lambda fw: site.passwords.replace(fw, "ida", hashed, Action.ACCEPT_INVITE)
    )
    second = partial(site.store.write, lambda tx: composer.prepare(tx, job))
    assert (await overlap(first, second))[1] is None
