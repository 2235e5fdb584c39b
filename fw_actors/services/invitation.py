"""Invitation: an account without a password, and the link by which its owner chooses one.

Source: spec, Recovery and invitation; interface §2 (users.invite, users.resendInvite), §8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fw_actors.documents import rows
from fw_actors.documents.handle import Fw
from fw_actors.errors import ConflictError, PermissionDeniedError
from fw_actors.services import accounts
from fw_actors.services.access import LinkFacts, LinkKind
from fw_actors.services.link_mail import LinkMail, SentLink, addressed
from fw_actors.services.link_use import LinkUse
from fw_actors.services.users import add_user
from fw_actors.store import Tx


@dataclass(frozen=True, slots=True)
class Invited:
    """An account that was just made, and what its invitation is."""

    user: str
    email: str
    sent: SentLink


class Invitation:
    """Accepting an invitation."""

    def __init__(self, link_use: LinkUse, handle: Callable[[Tx, str], Fw]) -> None:
        """`handle` gives the handle of a user inside a transaction."""
        self._link_use, self._handle = link_use, handle

    async def accept(
        self,
        token: str,
        password: str,
        full_name: str | None,
        address: str,
        request_id: str = "",
    ) -> None:
        """Set the invited account's first password, and its full name where one is given.

        Raises: see `LinkUse.complete`; ValidationError for an unusable full name.
        """

        def further(tx: Tx, facts: LinkFacts) -> None:
            if full_name is not None:
                self._name(tx, facts.user, full_name)

        await self._link_use.complete(
            LinkKind.INVITATION, token, password, address, further, request_id
        )

    def _name(self, tx: Tx, user: str, full_name: str) -> None:
        """A user may not write the own User record but by such operations (spec)."""
        fw = self._handle(tx, user)
        doc = rows.load(fw.documents, fw, "User", user)
        doc.__dict__["fullName"] = full_name.strip() or None
        doc.save(ignore_permissions=True)


def invite(
    fw: Fw,
    link_mail: LinkMail,
    email: str,
    name: str | None = None,
    full_name: str = "",
    roles: Sequence[str] = (),
) -> Invited:
    """Make an account and send its invitation; without `name` it is the canonical e-mail.

    Raises: PermissionDeniedError; DuplicateError; ValidationError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    if name is None:
        name = accounts.judged_email(email)
    made = add_user(fw, name, email, full_name, roles)
    sent = link_mail.send(fw, LinkKind.INVITATION, made["name"])
    return Invited(made["name"], made["email"], sent)


def resend(fw: Fw, link_mail: LinkMail, user: str) -> SentLink:
    """Send an invitation again; the link before ends.

    Raises: PermissionDeniedError; NotFoundError; ConflictError for an account that is disabled
        or has a password.
    """
    account = addressed(fw, user)
    if not account.enabled:
        raise ConflictError(f"{user[:140]} is disabled; enable the account first.")
    if accounts.has_password(fw.tx, account.name):
        raise ConflictError(f"{user[:140]} has a password already; send a reset instead.")
    return link_mail.send(fw, LinkKind.INVITATION, account.name)
