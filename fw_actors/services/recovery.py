"""Recovery: a link for whoever forgot a password, and the password that comes with it.

Source: spec, Recovery and invitation; pitfalls, Recovery: the same work on every path, so that
nothing tells which accounts there are.
"""

from __future__ import annotations

from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import GUEST
from fw_actors.errors import ConflictError, TooManyRequestsError
from fw_actors.mail import Template
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.services import accounts, attempts
from fw_actors.services.access import LinkFacts, LinkKind
from fw_actors.services.link_mail import LinkMail, SentLink, addressed
from fw_actors.services.link_use import LinkUse
from fw_actors.services.mail import Outbox
from fw_actors.services.recovery_throttle import RecoveryThrottle
from fw_actors.store import Store, Tx


class Recovery:
    """The use cases of recovery links."""

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        throttle: RecoveryThrottle,
        link_use: LinkUse,
        installation_key: bytes,
    ) -> None:
        self._store, self._outbox, self._throttle = store, outbox, throttle
        self._link_use, self._key = link_use, installation_key

    async def ask(self, usr: str, address: str) -> None:
        """Queue a recovery mail for a typed identifier; says nothing about what came of it.

        One transaction with the same rows for every identifier, known, unknown or disabled; the
        Mailer finds out whose it is. Over a throttle nothing is written.

        Raises: OverloadedError.
        """
        form = _canonical_or_none(usr)

        def work(tx: Tx) -> None:
            if self._throttle.count_address(tx, address) is not None:
                return
            if self._throttle.count_mail(tx, form, usr) is None:
                self._outbox.to_identifier(tx, Template.RECOVERY, form or "", owner=GUEST)

        await self._store.write(work)

    async def admit_address(self, address: str) -> None:
        """Refuse an address that is over its requests, without counting one.

        Raises: TooManyRequestsError.
        """
        wait = await self._store.read(
            lambda tx: self._throttle.address_wait(tx, address), reserved=True
        )
        if wait is not None:
            raise TooManyRequestsError(wait)

    async def look(self, token: str, address: str) -> LinkFacts:
        """Return what a token of either kind is good for. See `LinkUse.look`."""
        return await self._link_use.look(token, address)

    async def reset(self, token: str, password: str, address: str, request_id: str = "") -> None:
        """Set a new password; all sessions end, and a lockout of name or e-mail is lifted.

        Raises: see `LinkUse.complete`.
        """
        await self._link_use.complete(
            LinkKind.RECOVERY, token, password, address, self._unlock, request_id
        )

    def _unlock(self, tx: Tx, facts: LinkFacts) -> None:
        attempts.unlock_account(tx, self._key, name=facts.user, email=facts.email)


def send_reset(fw: Fw, link_mail: LinkMail, user: str) -> SentLink:
    """Send a recovery link to an account, as a System Manager.

    Raises: PermissionDeniedError; NotFoundError; ConflictError for an invited or disabled one.
    """
    account = addressed(fw, user)
    if not account.enabled:
        raise ConflictError(f"{user[:140]} is disabled; enable the account first.")
    if not accounts.has_password(fw.tx, account.name):
        raise ConflictError(f"{user[:140]} was invited and has no password yet; invite again.")
    return link_mail.send(fw, LinkKind.RECOVERY, account.name)


def _canonical_or_none(usr: str) -> str | None:
    try:
        return canonical(usr)
    except UnusableIdentifierError:
        return None
