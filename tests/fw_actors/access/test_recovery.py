"""Recovery by links (A-180 to A-222).

The module has more than 500 lines because all its tests are about one unit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.access import attempts, links, recovery, sessions
from fw_actors.access.administration import SelfService
from fw_actors.access.api_keys import MadeKey
from fw_actors.access.links import LinkKind
from fw_actors.access.recovery import LinkMail
from fw_actors.access.sessions import Caller
from fw_actors.documents.handle import Fw
from fw_actors.errors import (
    ConflictError,
    InvalidTokenError,
    NotFoundError,
    PasswordPolicyError,
    PermissionDeniedError,
    TooManyRequestsError,
    ValidationError,
)
from fw_actors.rules.identifiers import canonical
from tests.accounts_kit import PASSWORD
from tests.mail_kit import ADDRESS, OTHER, MailSite, mail_site, token_of


@pytest.fixture
async def site(
    tmp_path: Path, on_both_stores: None, autojump_clock: MockClock
) -> AsyncIterator[MailSite]:
    async with mail_site(tmp_path) as made:
        yield made


async def password_is(site: MailSite, name: str, password: str) -> bool:
    (row,) = await site.rows('SELECT hash FROM fw_password WHERE "user" = :name', name=name)
    return (await site.site.hasher.verify(row["hash"], password)).ok


async def session(site: MailSite, user: str, handle: str) -> None:
    await site.rows(
        'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
        " VALUES (:id, :hash, :user, 0, 0, 9999999999999)",
        id=handle,
        hash=handle.encode(),
        user=user,
    )


async def test_recovery_link_sets_a_new_password(site: MailSite, autojump_clock: MockClock) -> None:
    await site.add_account("anna")
    token = await site.recover("ANNA@example.test")
    facts = await site.recovery.link_facts(token, ADDRESS)
    assert (facts.kind, facts.user, facts.full_name) == (LinkKind.RECOVERY, "anna", "Anna")
    assert facts.expires - site.site.clock.now() == pytest.approx(3_600_000, abs=5000)
    await site.recovery.reset(token, OTHER, ADDRESS)
    assert await password_is(site, "anna", OTHER)


async def test_reset_ends_all_sessions_and_mails_the_owner(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """All sessions end (A-221), and the owner gets a mail (A-297)."""
    await site.add_account("anna")
    await site.add_account("bert")
    for number, user in enumerate(("anna", "anna", "bert")):
        await session(site, user, f"s{number}")
    await site.recovery.reset(await site.recover("anna"), OTHER, ADDRESS)
    assert [row["user"] for row in await site.rows('SELECT "user" FROM fw_session')] == ["bert"]
    await trio.sleep(1)
    _, message = site.transport.taken[-1]
    assert (message.template, message.recipient, message.link) == (
        "password_changed", "anna@example.test", None,
    )  # fmt: skip


async def make_key(site: MailSite, user: str, label: str, address: str = "") -> MadeKey:
    """Make an API key in a session, as `api_keys.createMyAPIKey` does."""
    one = site.site
    own = SelfService(one.config.auth, one.accounts, one.api_keys, one.mail_queue)
    caller = Caller(user, frozenset(), session=f"of {user} for {label}")

    def work(fw: Fw) -> MadeKey:
        handle = caller.session or ""
        sessions.begin(fw.tx, handle=handle, sid=handle, user=user, ip="", user_agent="", days=1)
        return own.make_key(fw, caller, label, None, address)

    return await site.do(work, user)


async def test_reset_ends_api_keys_and_lists_them_in_the_mail(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """A thief with a session of the old password may have made keys (A-221)."""
    await site.add_account("anna")
    await site.add_account("bert")
    ended = [await make_key(site, "anna", label) for label in ("CI", "<the thief's>")]
    others = await make_key(site, "bert", "backup")
    await site.recovery.reset(await site.recover("anna"), OTHER, ADDRESS)
    assert await site.rows("SELECT id FROM fw_api_key") == [{"id": others.name}]
    await trio.sleep(1)
    _, message = site.transport.taken[-1]
    assert (message.template, message.recipient) == ("password_changed", "anna@example.test")
    for key in ended:
        assert f"“{key.label}” ({key.name})" in message.text
        assert key.key.rpartition("_")[2] not in message.text + message.html
    assert "backup" not in message.text


async def test_api_key_creation_is_mailed_to_its_owner(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """A key outlives the session that made it: its owner must get a mail about it (A-275)."""
    await site.add_account("anna")
    made = await make_key(site, "anna", "CI", address="192.0.2.7")
    await site.transport.wait(1)
    _, message = site.transport.taken[-1]
    assert (message.template, message.recipient, message.link) == (
        "api_key_made",
        "anna@example.test",
        None,
    )
    created = (
        f"“CI” ({made.name}), was created on 2027-01-15 08:00 UTC, by a request from 192.0.2.7"
    )
    assert created in message.text
    assert made.key.rpartition("_")[2] not in message.text + message.html


async def test_reset_lifts_the_locks_of_name_and_e_mail(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """A completed recovery clears name and e-mail (A-76)."""
    await site.add_account("anna")
    key = site.site.installation_key
    for number, spelling in enumerate(("anna", "anna@example.test", "bert")):
        counter = attempts.counter_key(key, attempts.IDENTIFIER, canonical(spelling))
        await site.rows(
            "INSERT INTO fw_login_attempt (id, key, at, state) VALUES (:id, :key, 0, 1)",
            id=f"try{number}",
            key=counter,
        )
    await site.recovery.reset(await site.recover("anna"), OTHER, ADDRESS)
    left = await site.rows("SELECT id FROM fw_login_attempt WHERE id LIKE 'try%'")
    assert [row["id"] for row in left] == ["try2"]


async def test_link_succeeds_once_if_submitted_in_parallel(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """A token is spent in one statement (A-181, A-182)."""
    await site.add_account("anna")
    token = await site.recover("anna")
    won: list[str] = []
    lost: list[Exception] = []

    async def submit(password: str) -> None:
        try:
            await site.recovery.reset(token, password, ADDRESS)
            won.append(password)
        except InvalidTokenError as refusal:
            lost.append(refusal)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(submit, f"parallel passphrase {number}")
    assert (len(won), len(lost)) == (1, 3)
    assert await password_is(site, "anna", won[0])
    with pytest.raises(InvalidTokenError):
        await site.recovery.link_facts(token, ADDRESS)


@pytest.mark.parametrize("password", ["short", "", " " * 10, "x" * 257, "anna@example.test"])
async def test_refused_password_leaves_the_link_valid(
    site: MailSite, autojump_clock: MockClock, password: str
) -> None:
    await site.add_account("anna")
    token = await site.recover("anna")
    with pytest.raises(PasswordPolicyError):
        await site.recovery.reset(token, password, ADDRESS)
    await site.recovery.reset(token, OTHER, ADDRESS)


async def test_reset_checks_the_token_before_the_password(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """The token is checked before the password that comes with it (A-186, A-187)."""
    with pytest.raises(InvalidTokenError):
        await site.recovery.reset("A" * 32, "short", ADDRESS)
    assert site.site.hasher.statistics().hashes == 0


async def test_link_of_the_wrong_kind_is_refused_and_not_spent(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """The kind is checked (A-184), before the password (A-186)."""
    await site.add_account("anna")
    await site.add_account("ida", password=None)
    token = await site.recover("anna")
    minted = await site.do(lambda fw: site.links.mint(fw.tx, LinkKind.INVITATION, "ida"))
    invitation = token_of(minted.url)
    for password in (OTHER, "x"):
        with pytest.raises(InvalidTokenError):
            await site.invitation.accept(token, password, None, ADDRESS)
        with pytest.raises(InvalidTokenError):
            await site.recovery.reset(invitation, password, ADDRESS)
    await site.recovery.reset(token, OTHER, ADDRESS)
    await site.invitation.accept(invitation, OTHER, None, ADDRESS)


async def test_link_expires_after_its_minutes(site: MailSite, autojump_clock: MockClock) -> None:
    """A link ends after `resetMinutes`; expiry is part of the read (A-183)."""
    await site.add_account("anna")
    token = await site.recover("anna")
    autojump_clock.jump(3590)
    await site.recovery.link_facts(token, ADDRESS)
    autojump_clock.jump(20)
    for use in (
        site.recovery.link_facts(token, ADDRESS),
        site.recovery.reset(token, OTHER, ADDRESS),
    ):
        with pytest.raises(InvalidTokenError):
            await use
    assert await password_is(site, "anna", PASSWORD)


async def test_link_spend_succeeds_once(site: MailSite, autojump_clock: MockClock) -> None:
    """A token is valid until used or expired; it is spent in one statement (A-181)."""
    await site.add_account("anna")
    token = await site.recover("anna")
    spend = partial(links.spend, kind=LinkKind.RECOVERY, token=token)
    assert await site.site.store.write(spend) == "anna"
    with pytest.raises(InvalidTokenError):
        await site.site.store.write(spend)
    with pytest.raises(InvalidTokenError):
        await site.recovery.link_facts(token, ADDRESS)


async def test_link_of_a_disabled_account_is_refused(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """A link works only for an account that may sign in with its result; checked at use (A-194)."""
    await site.add_account("anna")
    token = await site.recover("anna")
    await site.rows("UPDATE doc_user SET enabled = 0 WHERE name = 'anna'")
    with pytest.raises(InvalidTokenError):
        await site.recovery.reset(token, OTHER, ADDRESS)


async def test_reset_follows_a_rename_during_the_hash(
    site: MailSite, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A completed recovery clears name and e-mail: the name of by then (A-76)."""
    await site.add_account("anna")
    token = await site.recover("anna")
    hash_now = site.site.hasher.hash

    async def slow(password: str, **given: Any) -> str:
        hashed = await hash_now(password, **given)
        await site.do(lambda fw: fw.get_doc("User", "anna").rename("bertha"))
        counter = attempts.counter_key(site.site.installation_key, attempts.IDENTIFIER, "bertha")
        text = "INSERT INTO fw_login_attempt (id, key, at, state) VALUES ('t', :key, 0, 1)"
        await site.rows(text, key=counter)
        return hashed

    monkeypatch.setattr(site.site.hasher, "hash", slow)
    await site.recovery.reset(token, OTHER, ADDRESS)
    assert await password_is(site, "bertha", OTHER)
    assert await site.rows("SELECT id FROM fw_login_attempt WHERE id = 't'") == []


@pytest.mark.parametrize("change", ["password", "email", "disabled", "newer", "deleted"])
async def test_link_ends_with_a_change_of_its_account(
    site: MailSite, autojump_clock: MockClock, change: str
) -> None:
    """A password set, an e-mail changed, an account disabled, a newer link (A-194, A-193)."""
    await site.add_account("anna")
    token = await site.recover("anna")
    if change == "password":
        await site.recovery.reset(await site.recover("anna"), OTHER, ADDRESS)
    elif change == "newer":
        assert await site.recover("anna") != token
    elif change == "deleted":
        await site.do(lambda fw: fw.get_doc("User", "anna").delete())
        await site.add_account("anna")  # another one: what was for the first is not for this one
    else:
        field, value = ("enabled", 0) if change == "disabled" else ("email", "new@example.test")

        def write(fw: Fw, value: object) -> None:
            doc = fw.get_doc("User", "anna")
            setattr(doc, field, value)
            doc.save()

        await site.do(lambda fw: write(fw, value))
        if change == "disabled":  # and stays ended when the account is enabled again
            await site.do(lambda fw: write(fw, 1))
    with pytest.raises(InvalidTokenError):
        await site.recovery.link_facts(token, ADDRESS)


async def test_link_survives_an_unrelated_save_of_its_account(
    site: MailSite, autojump_clock: MockClock
) -> None:
    await site.add_account("anna")
    token = await site.recover("anna")

    def rename(fw: Fw) -> None:
        doc = fw.get_doc("User", "anna")
        doc.fullName = "Anna Two"
        doc.save()

    await site.do(rename)
    assert (await site.recovery.link_facts(token, ADDRESS)).full_name == "Anna Two"


@pytest.mark.parametrize(
    "usr", ["anna", "nobody@nowhere.test", "off", "ida", "\u202ejunk", "x" * 999]
)
async def test_recovery_writes_the_same_two_rows_for_any_identifier(
    site: MailSite, autojump_clock: MockClock, usr: str
) -> None:
    """The same two rows are written always, with no recipient (A-214)."""
    await site.add_account("anna")
    await site.add_account("ida", password=None)
    await site.add_account("off")
    await site.do(lambda fw: fw.get_doc("User", "off").db_set("enabled", 0))
    site.drain(0)  # nothing is leased any more
    await trio.sleep(1)
    before = site.site.store.statistics().committed
    await site.recovery.request_link(usr, ADDRESS)
    assert site.site.store.statistics().committed == before + 1
    (delivery,), (job,) = await site.deliveries(), await site.jobs()
    assert (delivery["recipient"], delivery["status"]) == (None, "Queued")
    user = usr if usr in ("anna", "ida", "off") else ""
    assert (job["queue"], job["function"], job["user"]) == ("mail", "recovery", user)


async def test_recovery_stores_the_typed_identifier_nowhere(site: MailSite) -> None:
    """Users type passwords into this field, too (A-80)."""
    await site.add_account("ann")
    typed = [f"my secret {number}" for number in range(2)] + ["ANN@example.test "]
    for usr in typed:
        await site.recovery.request_link(usr, ADDRESS)
    tables = ("fw_job", "doc_email_delivery", "fw_login_attempt")
    stored = repr([await site.rows(f"SELECT * FROM {table}") for table in tables]).lower()
    assert not [usr for usr in typed if usr.strip().lower() in stored]


@pytest.mark.parametrize("usr", ["nobody@nowhere.test", "off", "ida", "Administrator", "\u202e"])
async def test_recovery_of_an_unusable_account_leaves_no_rows(
    site: MailSite, autojump_clock: MockClock, usr: str
) -> None:
    """The mailer fills the recipient in, or deletes both for nobody (A-214, A-218)."""
    await site.add_account("ida", password=None)
    await site.add_account("off")
    await site.do(lambda fw: fw.get_doc("User", "off").db_set("enabled", 0))
    await site.recovery.request_link(usr, ADDRESS)
    await trio.sleep(1)
    assert site.transport.taken == []
    assert (await site.deliveries(), await site.jobs()) == ([], [])
    assert await site.rows("SELECT * FROM fw_token") == []


async def test_recovery_sends_three_mails_an_hour_per_identifier(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """At most 3 recovery mails an hour per typed identifier, known or not (A-97)."""
    await site.add_account("anna")
    for usr in ("anna", " ANNA ", "anna", "anna", "anna"):
        await site.recovery.request_link(usr, ADDRESS)
    await trio.sleep(1)
    assert len(site.transport.links()) == 3
    await site.recovery.request_link("anna@example.test", ADDRESS)  # another identifier
    await trio.sleep(1)
    assert len(site.transport.links()) == 4
    autojump_clock.jump(3600)
    await site.recovery.request_link("anna", ADDRESS)
    await trio.sleep(1)
    assert len(site.transport.links()) == 5


async def test_recovery_routes_share_the_budget_of_an_address(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The four routes share an address's budget (A-95); IPv6 is one per /64 (A-93)."""
    async with mail_site(tmp_path, recovery_attempts=4) as site:
        await site.add_account("anna")
        here = "2001:db8::1"
        await site.recovery.request_link("anna", here)
        for use in (
            site.recovery.link_facts("A" * 32, here),
            site.recovery.reset("A" * 32, OTHER, here),
            site.invitation.accept("A" * 32, OTHER, None, "2001:db8::2"),
        ):
            with pytest.raises(InvalidTokenError):
                await use
        with pytest.raises(TooManyRequestsError) as refusal:
            await site.recovery.link_facts("A" * 32, "2001:db8::3")
        assert refusal.value.retry_after == 900
        await site.recovery.request_link("anna", here)  # answers alike, and does nothing
        await trio.sleep(2)
        assert len(site.transport.links()) == 1
        with pytest.raises(InvalidTokenError):
            await site.recovery.link_facts("A" * 32, "2001:db8:0:1::1")
        await trio.sleep(900)
        with pytest.raises(InvalidTokenError):
            await site.recovery.link_facts("A" * 32, here)


async def test_recovery_requests_of_a_56_and_a_48_share_a_limit(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Four and sixteen times the budget of one address (A-94): one client may have all of them."""
    async with mail_site(tmp_path, recovery_attempts=1) as site:
        names = [f"anna{number}" for number in range(20)]
        for name in names:
            await site.add_account(name)

        async def mails_after(networks: Iterable[str]) -> int:
            for name, network in zip(names, networks, strict=False):
                await site.recovery.request_link(name, f"{network}::1")
            await trio.sleep(2)
            return len(site.transport.links())

        assert await mails_after(f"2001:db8:0:{n:x}" for n in range(6)) == 4
        assert await mails_after(f"2001:db8:0:{n << 8:x}" for n in range(1, 20)) == 16
        assert await mails_after(["2001:db8:1:0"]) == 17
        await trio.sleep(3600)
        assert await mails_after(["2001:db8:0:1"]) == 18


async def test_token_is_never_stored_in_plain_text(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Plain tokens rest nowhere (A-192)."""
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await site.add_account("ida", password=None)
        spent = await site.recover("anna")
        await site.recovery.reset(spent, OTHER, ADDRESS)
        tokens = [spent, await site.recover("anna")]
        by_hand = await site.do(lambda fw: site.by_log.send(fw, LinkKind.INVITATION, "ida"))
        tokens.append(token_of(str(by_hand.url)))
        await site.do(lambda fw: site.link_mail.send(fw, LinkKind.INVITATION, "ida"))
        await trio.sleep(1)
        tokens.append(token_of(site.transport.links("invitation")[0]))
        assert len(set(tokens)) == 4
        data = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())
    data += b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())
    assert b"anna@example.test" in data  # the data folder is the searched one
    for token in tokens:
        assert token.encode() not in data
        assert token[:12].encode() not in data
    assert URL_START not in data


URL_START = b"https://desk.example/"


async def test_send_reset_mails_a_link_for_a_manager(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """`users.sendPasswordReset` (A-291) is 409 for an invited or disabled account."""
    await site.add_account("anna")
    await site.add_account("ida", password=None)
    await site.add_account("off")
    await site.do(lambda fw: fw.get_doc("User", "off").db_set("enabled", 0))
    sent = await site.do(lambda fw: recovery.send_reset(fw, site.link_mail, "anna"))
    assert sent.url is None
    assert sent.expires - site.site.clock.now() == pytest.approx(3_600_000, abs=1000)
    await trio.sleep(1)
    await site.recovery.reset(token_of(site.transport.links()[0]), OTHER, ADDRESS)
    for user, error in (
        ("ida", ConflictError),
        ("off", ConflictError),
        ("nobody", NotFoundError),
    ):
        with pytest.raises(error):
            await site.do(partial(recovery.send_reset, link_mail=site.link_mail, user=user))
    with pytest.raises(PermissionDeniedError):
        await site.do(lambda fw: recovery.send_reset(fw, site.link_mail, "anna"), user="anna")


async def test_returned_link_equals_the_link_in_the_log(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """The request writes the `mail.sent` line after the commit, and leaves no job (A-196)."""
    await site.add_account("anna")
    sent = await site.do(lambda fw: recovery.send_reset(fw, site.by_log, "anna"))
    assert site.log.of("mail.sent") == [
        {"recipient": "anna@example.test", "template": "recovery", "link": sent.url}
    ]
    await trio.sleep(2)
    assert (site.transport.taken, await site.jobs()) == ([], [])
    (delivery,) = await site.deliveries()
    assert (delivery["status"], delivery["attempts"]) == ("Sent", 1)
    await site.recovery.reset(token_of(str(sent.url)), OTHER, ADDRESS)


async def test_send_reset_rolled_back_sends_no_mail(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """A message is queued only if the request commits (O-51)."""
    await site.add_account("anna")

    def refused(fw: Fw, link_mail: LinkMail) -> None:
        recovery.send_reset(fw, link_mail, "anna")
        raise ValidationError("no")

    for link_mail in (site.link_mail, site.by_log):
        with pytest.raises(ValidationError):
            await site.do(partial(refused, link_mail=link_mail))
    await trio.sleep(2)
    assert (site.transport.taken, site.log.of("mail.sent")) == ([], [])
    assert (await site.deliveries(), await site.jobs()) == ([], [])
