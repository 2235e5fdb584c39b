"""Invitation: `users.invite` and `users.resendInvite` (A-230 to A-235)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.access import recovery
from fw_actors.access.links import LinkKind
from fw_actors.errors import (
    ConflictError,
    DuplicateError,
    InvalidTokenError,
    PermissionDeniedError,
    ValidationError,
)
from tests.mail_kit import ADDRESS, OTHER, MailSite, mail_site, token_of


@pytest.fixture
async def site(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[MailSite]:
    async with mail_site(tmp_path) as made:
        yield made


async def invited(site: MailSite, name: str = "ida") -> str:
    """Invite a user with a returned link; its token."""
    made = await site.do(
        partial(recovery.invite, link_mail=site.by_log, email=f"{name}@example.test", name=name)
    )
    return token_of(str(made.sent.url))


async def test_invitation_link_sets_password_and_name(
    site: MailSite, autojump_clock: MockClock
) -> None:
    token = await invited(site)
    assert await site.rows("SELECT * FROM fw_password") == []
    facts = await site.recovery.link_facts(token, ADDRESS)
    assert facts.expires - site.site.clock.now() == 72 * 3_600_000
    await site.invitation.accept(token, OTHER, " Ida Example ", ADDRESS)
    (user,) = await site.rows('SELECT "fullName", modified_by FROM doc_user')
    assert user == {"fullName": "Ida Example", "modified_by": "ida"}
    (row,) = await site.rows("SELECT hash FROM fw_password WHERE \"user\" = 'ida'")
    assert (await site.site.hasher.verify(row["hash"], OTHER)).ok
    assert await site.rows("SELECT * FROM fw_session") == []
    with pytest.raises(InvalidTokenError):
        await site.invitation.accept(token, "a third passphrase", None, ADDRESS)


async def test_first_password_sends_no_password_changed_mail(
    site: MailSite, autojump_clock: MockClock
) -> None:
    """`password_changed` is for an account that had a password (A-297)."""
    await site.invitation.accept(await invited(site), OTHER, None, ADDRESS)
    await trio.sleep(2)
    assert site.transport.taken == []


async def test_invitation_with_an_unusable_name_leaves_the_link_valid(
    site: MailSite, autojump_clock: MockClock
) -> None:
    token = await invited(site)
    with pytest.raises(ValidationError):
        await site.invitation.accept(token, OTHER, "x" * 141, ADDRESS)
    assert await site.rows("SELECT * FROM fw_password") == []
    await site.invitation.accept(token, OTHER, None, ADDRESS)


async def test_invitation_by_mail_returns_no_link(
    site: MailSite, autojump_clock: MockClock
) -> None:
    made = await site.do(
        partial(recovery.invite, link_mail=site.link_mail, email="Ida@Example.Test")
    )
    assert (made.user, made.email, made.sent.url) == ("ida@example.test", "Ida@Example.Test", None)
    await site.transport.wait(1)
    _, message = site.transport.taken[0]
    assert (message.recipient, message.template) == ("Ida@Example.Test", "invitation")
    await site.invitation.accept(token_of(str(message.link)), OTHER, None, ADDRESS)


async def test_invitation_sent_again_ends_the_first_link(
    site: MailSite, autojump_clock: MockClock
) -> None:
    first = await invited(site)
    sent = await site.do(partial(recovery.resend, link_mail=site.by_log, user="ida"))
    with pytest.raises(InvalidTokenError):
        await site.recovery.link_facts(first, ADDRESS)
    await site.invitation.accept(token_of(str(sent.url)), OTHER, None, ADDRESS)
    with pytest.raises(ConflictError, match="reset"):
        await site.do(partial(recovery.resend, link_mail=site.by_log, user="ida"))


@pytest.mark.parametrize(
    ("email", "name", "roles", "error"),
    [
        ("ANNA@example.test", None, (), DuplicateError),
        ("new@example.test", "Anna", (), DuplicateError),
        ("new@example.test", "anna@example.test", (), DuplicateError),
        ("new@example.test", None, ("No Such Role",), ValidationError),
        ("no-at-sign", None, (), ValidationError),
        ("a@b@c", None, (), ValidationError),
        ("\u202eann@example.test", None, (), ValidationError),
        ("", None, (), ValidationError),
    ],
)
async def test_refused_invitation_stores_and_sends_nothing(
    site: MailSite,
    autojump_clock: MockClock,
    email: str,
    name: str | None,
    roles: tuple[str, ...],
    error: type[Exception],
) -> None:
    await site.add_account("anna")
    invite = partial(recovery.invite, link_mail=site.link_mail, email=email, name=name, roles=roles)
    with pytest.raises(error):
        await site.do(invite)
    await trio.sleep(2)
    assert site.transport.taken == []
    assert len(await site.rows("SELECT * FROM doc_user")) == 1


@pytest.mark.parametrize(
    ("email", "name", "field"),
    [
        ("anna@example.test", None, "email"),
        ("anna@example.test", "ann", "email"),
        ("new@example.test", "anna", "name"),
        ("anna@example.test", "anna@example.test", "email"),
    ],
)
async def test_refused_invitation_names_the_field_that_is_taken(
    site: MailSite, autojump_clock: MockClock, email: str, name: str | None, field: str
) -> None:
    """A caller that gives no name is told of the e-mail (A-233)."""
    await site.add_account("anna")
    with pytest.raises(DuplicateError) as refusal:
        await site.do(partial(recovery.invite, link_mail=site.link_mail, email=email, name=name))
    assert refusal.value.extra == {"field": field}


async def test_disabled_account_is_not_invited_again(
    site: MailSite, autojump_clock: MockClock
) -> None:
    await invited(site)

    def disable(fw: Any) -> None:
        user = fw.get_doc("User", "ida")
        user.enabled = 0
        user.save()

    await site.do(disable)
    with pytest.raises(ConflictError, match="disabled"):
        await site.do(partial(recovery.resend, link_mail=site.link_mail, user="ida"))
    await trio.sleep(2)
    assert site.transport.taken == []


async def test_invitation_requires_a_system_manager(
    site: MailSite, autojump_clock: MockClock
) -> None:
    await site.add_account("anna")
    await site.add_account("maria", "System Manager")
    invite = partial(recovery.invite, link_mail=site.link_mail, email="ida@example.test")
    with pytest.raises(PermissionDeniedError):
        await site.do(invite, user="anna")
    with pytest.raises(PermissionDeniedError):
        await site.do(partial(recovery.resend, link_mail=site.link_mail, user="maria"), user="anna")
    await site.do(invite, user="maria")
    (delivery,) = await site.deliveries()
    assert delivery["owner"] == "maria"


async def test_invitation_link_of_an_account_with_a_password_is_refused(site: MailSite) -> None:
    """An invitation only sets a first password, whatever made its link (A-194)."""
    await site.add_account("ann")
    link = await site.site.store.write(lambda tx: site.links.mint(tx, LinkKind.INVITATION, "ann"))
    with pytest.raises(InvalidTokenError):
        await site.invitation.accept(token_of(link.url), OTHER, None, ADDRESS)


@pytest.mark.parametrize("name", [None, "other"])
async def test_invitation_to_a_used_email_names_the_email(site: MailSite, name: str | None) -> None:
    """A-233: without a name the e-mail is the name too, and only the e-mail was given."""
    await site.add_account("carl")
    email = await site.do(lambda fw: fw.get_doc("User", "carl").email)
    invite = partial(recovery.invite, link_mail=site.link_mail, email=email, name=name)
    with pytest.raises(DuplicateError) as refused:
        await site.do(invite, user="Administrator")
    assert refused.value.extra["field"] == "email"


async def test_invitation_to_an_invited_email_names_the_email(site: MailSite) -> None:
    """A-234: the invited account has the e-mail as its name, but only the e-mail was given."""
    invite = partial(recovery.invite, link_mail=site.link_mail, email="ida@example.test")
    await site.do(invite, user="Administrator")
    with pytest.raises(DuplicateError) as refused:
        await site.do(invite, user="Administrator")
    assert refused.value.extra == {"field": "email"}
