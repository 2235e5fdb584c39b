"""Password recovery and invitation: throttle, links by mail, redemption.

Every path does the same work (A-214), so that responses do not reveal which accounts exist (A-212).

An identifier is counted as typed, known or not (A-97); otherwise the limit would reveal which
accounts exist. The four routes share the budget of an address (A-95).

The order of checks is that of A-186: the address, then the token, then the new password. The hash
is computed before the single transaction that spends the token, sets the password and ends
sessions and API keys (A-181, A-221). If that transaction fails, the link stays valid.

`link` is returned only to a System Manager, and only with the `log` transport (A-195); such a
request writes the `mail.sent` line itself and adds no job (A-196).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from fw_actors.access import attempts, links
from fw_actors.access.accounts import (
    canonical_email,
    disabled_account,
    has_password,
    lock_account,
)
from fw_actors.access.attempts import AddressBudget
from fw_actors.access.links import LinkFacts, LinkKind, Links
from fw_actors.access.passwords import Passwords
from fw_actors.access.users import add_user
from fw_actors.config import AuthPolicy
from fw_actors.documents import permissions, rows
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import GUEST
from fw_actors.errors import (
    ConflictError,
    DuplicateError,
    FwError,
    InvalidTokenError,
    PermissionDeniedError,
    TooManyRequestsError,
)
from fw_actors.hashing import Hasher
from fw_actors.mail import LogTransport, Template
from fw_actors.ops.audit import Action, AuditLog
from fw_actors.ops.mail_queue import MailQueue
from fw_actors.rules.fair_queue import Requester
from fw_actors.rules.identifiers import (
    UnusableIdentifierError,
    canonical,
    digest,
    record_id,
    sharing_network,
)
from fw_actors.rules.lockout import RECOVERY_MAIL_WINDOW_MS, Budget
from fw_actors.runtime import Entropy
from fw_actors.store import Store, Tx

MAILS_AN_HOUR: Final = 3
_ID_BYTES: Final = 12
_MAILS: Final = Budget(MAILS_AN_HOUR, RECOVERY_MAIL_WINDOW_MS, locks=False)


class RecoveryThrottle:
    """Counts recovery requests regardless of their result, inside a transaction."""

    def __init__(self, policy: AuthPolicy, entropy: Entropy, installation_key: bytes) -> None:
        self._addresses = AddressBudget(policy.recovery_attempts, installation_key, "recovery ")
        self._entropy, self._key = entropy, installation_key

    def count_address(self, tx: Tx, address: str) -> float | None:
        """Count a request from an address and from the networks around it (A-94).

        Returns None, or the seconds to wait.
        """
        charge, counters = self._id(), self._addresses.counters(address)
        wait = self._addresses.charge(tx, charge, counters)
        if wait is None:
            self._addresses.settle_failure(tx, charge, counters)  # requests are never released
        return wait

    def address_wait(self, tx: Tx, address: str) -> float | None:
        """Return the seconds an address must wait, or None. Reads only."""
        return self._addresses.wait_of(tx, self._addresses.counters(address))

    def count_mail(self, tx: Tx, identifier: str | None, typed: str) -> float | None:
        """Count a mail to a canonical identifier, or to typed text that has no such form.

        Returns None, or the seconds to wait.
        """
        text = f"identifier {identifier}" if identifier is not None else digest(typed).hex()
        charge, key = self._id(), attempts.counter_key(self._key, "recovery mail", text)
        wait = attempts.charge(tx, charge, key, _MAILS)
        if wait is None:
            attempts.settle_failure(tx, charge, key, _MAILS)  # mails are never released
        return wait

    def _id(self) -> str:
        return record_id(self._entropy.bytes(_ID_BYTES))


OnRedeemed = Callable[[Tx, LinkFacts], None]
_ACTIONS: Final = MappingProxyType(
    {LinkKind.RECOVERY: Action.RESET_PASSWORD, LinkKind.INVITATION: Action.ACCEPT_INVITE}
)


class LinkUse:
    """Inspects and redeems links of both kinds."""

    def __init__(
        self,
        store: Store,
        hasher: Hasher,
        links: Links,
        passwords: Passwords,
        throttle: RecoveryThrottle,
        audit: AuditLog,
        handle: Callable[[Tx, str, str], Fw],
    ) -> None:
        """`handle` returns the handle of a user in a transaction, for a request id."""
        self._store, self._hasher, self._links = store, hasher, links
        self._passwords, self._throttle = passwords, throttle
        self._audit, self._handle = audit, handle

    async def facts(self, token: str, address: str) -> LinkFacts:
        """Return the details of a valid token without spending it; count the request against the
        address.

        Raises: TooManyRequestsError, InvalidTokenError, OverloadedError.
        """

        def work(tx: Tx) -> LinkFacts | FwError:
            wait = self._throttle.count_address(tx, address)
            if wait is not None:
                return TooManyRequestsError(wait)
            try:
                return self._links.facts(tx, token)
            except InvalidTokenError as error:
                return error  # not raised here, so that the count is committed

        result = await self._store.write(work)
        if isinstance(result, FwError):
            raise result
        return result

    async def complete(
        self,
        kind: LinkKind,
        token: str,
        password: str,
        address: str,
        on_redeemed: OnRedeemed,
        request_id: str,
    ) -> None:
        """Spend a token: set the password, end sessions and API keys, and run `on_redeemed`.

        Args:
            kind: the kind that the link must have.
            token: the secret of the link.
            password: the new password.
            address: the client's address, which is throttled.
            on_redeemed: called in the same transaction.
            request_id: the id of the request, for the Audit Event.

        Raises: TooManyRequestsError, InvalidTokenError, PasswordPolicyError, OverloadedError,
            and the errors of `on_redeemed`. The token stays valid after any of them.
        """
        facts = await self.facts(token, address)
        if facts.kind is not kind:
            raise InvalidTokenError
        password_hash = await self._hasher.hash(
            password,
            name=facts.user,
            email=facts.email,
            requester=Requester(sharing_network(address)),
        )

        def work(tx: Tx) -> None:
            lock_account(tx, facts.user)
            user = links.spend(tx, kind, token)  # the user may have been renamed
            if kind is LinkKind.INVITATION and has_password(tx, user):
                raise InvalidTokenError
            fw = self._handle(tx, user, request_id)
            self._passwords.replace(fw, user, password_hash, _ACTIONS[kind])
            with self._audit.suppressed(tx):  # covered by the event just recorded
                on_redeemed(tx, replace(facts, user=user))

        await self._store.write(work)


@dataclass(frozen=True, slots=True)
class SentLink:
    """The result of sending a link. `expires` in ms; `url` only if the link is returned."""

    expires: int
    url: str | None = field(default=None, repr=False)


class LinkMail:
    """Sends links by mail, inside a transaction."""

    def __init__(self, links: Links, mail_queue: MailQueue, log: LogTransport | None) -> None:
        """`log` is the transport if mail goes to the log, else None."""
        self._links, self._mail_queue, self._log = links, mail_queue, log

    def send(self, fw: Fw, kind: LinkKind, user: str) -> SentLink:
        """Send a link to a user; older links of that kind end when this one is created."""
        template = Template(kind.value)
        if self._log is None:
            self._mail_queue.to_user(fw.tx, template, user, owner=fw.user)
            return SentLink(self._links.expiry(kind, fw.tx.now))
        link = self._links.mint(fw.tx, kind, user)
        self._mail_queue.by_hand(fw.tx, self._log, template, user, link.url, owner=fw.user)
        return SentLink(link.expires, link.url)


def link_recipient(fw: Fw, user: str) -> Any:
    """Return the User document of a link's recipient, locked until the link is created.

    Raises: PermissionDeniedError unless a System Manager asks; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    lock_account(fw.tx, user)
    account = fw.get_doc("User", user)
    permissions.require_account(fw, account)
    return account


class Recovery:
    """Requests for recovery links, and their redemption."""

    def __init__(
        self,
        store: Store,
        mail_queue: MailQueue,
        throttle: RecoveryThrottle,
        link_use: LinkUse,
        installation_key: bytes,
    ) -> None:
        self._store, self._mail_queue, self._throttle = store, mail_queue, throttle
        self._link_use, self._key = link_use, installation_key

    async def request_link(self, usr: str, address: str) -> None:
        """Queue a recovery mail for a typed identifier, without reporting a result.

        One transaction does the same work for every identifier, known, unknown or disabled: it
        looks the account up and writes the same rows. Nothing is written beyond a limit.

        Raises: OverloadedError.
        """
        form = _canonical_or_none(usr)

        def work(tx: Tx) -> None:
            if self._throttle.count_address(tx, address) is not None:
                return
            if self._throttle.count_mail(tx, form, usr) is None:
                self._mail_queue.to_identifier(tx, Template.RECOVERY, form or "", owner=GUEST)

        await self._store.write(work)

    async def check_address(self, address: str) -> None:
        """Reject an address that is over its limit, without counting the request.

        Raises: TooManyRequestsError.
        """
        wait = await self._store.read(
            lambda tx: self._throttle.address_wait(tx, address), reserved=True
        )
        if wait is not None:
            raise TooManyRequestsError(wait)

    async def link_facts(self, token: str, address: str) -> LinkFacts:
        """Return the details of a valid token of either kind. See `LinkUse.facts`."""
        return await self._link_use.facts(token, address)

    async def reset(self, token: str, password: str, address: str, request_id: str = "") -> None:
        """Set a new password, end all sessions and lift lockouts of name and e-mail.

        Raises: as `LinkUse.complete`.
        """
        await self._link_use.complete(
            LinkKind.RECOVERY, token, password, address, self._unlock, request_id
        )

    def _unlock(self, tx: Tx, facts: LinkFacts) -> None:
        attempts.unlock_account(tx, self._key, name=facts.user, email=facts.email)


def send_reset(fw: Fw, link_mail: LinkMail, user: str) -> SentLink:
    """Send a recovery link to an account, on behalf of a System Manager.

    Raises: PermissionDeniedError; NotFoundError; ConflictError for an invited or disabled account.
    """
    account = link_recipient(fw, user)
    if not account.enabled:
        raise disabled_account(user)
    if not has_password(fw.tx, account.name):
        raise ConflictError(f"{user[:140]} has no password yet; send the invitation again.")
    return link_mail.send(fw, LinkKind.RECOVERY, account.name)


def _canonical_or_none(usr: str) -> str | None:
    try:
        return canonical(usr)
    except UnusableIdentifierError:
        return None


@dataclass(frozen=True, slots=True)
class Invited:
    """A new account and its invitation."""

    user: str
    email: str
    sent: SentLink


class Invitation:
    """Redeems invitations."""

    def __init__(self, link_use: LinkUse, handle: Callable[[Tx, str], Fw]) -> None:
        """`handle` returns the handle of a user in a transaction."""
        self._link_use, self._handle = link_use, handle

    async def accept(
        self, token: str, password: str, full_name: str | None, address: str, request_id: str = ""
    ) -> None:
        """Set the invited account's first password, and its full name if given.

        Raises: as `LinkUse.complete`; ValidationError for an unusable full name.
        """

        def on_redeemed(tx: Tx, facts: LinkFacts) -> None:
            if full_name is not None:
                self._name(tx, facts.user, full_name)

        await self._link_use.complete(
            LinkKind.INVITATION, token, password, address, on_redeemed, request_id
        )

    def _name(self, tx: Tx, user: str, full_name: str) -> None:
        """Set the full name; users may write their own User record only this way (A-24)."""
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
    """Create an account and send its invitation; `name` defaults to the canonical e-mail.

    Raises: PermissionDeniedError; DuplicateError; ValidationError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    account_name = canonical_email(email) if name is None else name
    try:
        account = add_user(fw, account_name, email, full_name, roles)
    except DuplicateError as refusal:
        if name is None:  # only the e-mail was given
            raise DuplicateError(refusal.message, field="email") from None
        raise
    sent = link_mail.send(fw, LinkKind.INVITATION, account["name"])
    return Invited(account["name"], account["email"], sent)


def resend(fw: Fw, link_mail: LinkMail, user: str) -> SentLink:
    """Send an invitation again; the previous link ends.

    Raises: PermissionDeniedError; NotFoundError; ConflictError for an account that is disabled
        or has a password.
    """
    account = link_recipient(fw, user)
    if not account.enabled:
        raise disabled_account(user)
    if has_password(fw.tx, account.name):
        raise ConflictError(f"{user[:140]} already has a password; send a reset instead.")
    return link_mail.send(fw, LinkKind.INVITATION, account.name)
