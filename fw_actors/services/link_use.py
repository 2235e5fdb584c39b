"""A link in the hands of whoever got it: looked at, and spent for a password.

The order is interface §8's: the address is judged first, then the token, then the password that
comes with it; the hash is made before the one transaction that spends the token, sets the
password and ends sessions and API keys. Whatever fails in that one leaves the link as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from fw_actors.documents.handle import Fw
from fw_actors.errors import FwError, InvalidTokenError, TooManyRequestsError
from fw_actors.hashing import Hasher
from fw_actors.rules.addresses import sharing_network
from fw_actors.rules.fair_queue import Requester
from fw_actors.services import links
from fw_actors.services.access import LinkFacts, LinkKind
from fw_actors.services.account_hold import hold
from fw_actors.services.audit import Action, AuditLog
from fw_actors.services.links import Links
from fw_actors.services.passwords import Passwords
from fw_actors.services.recovery_throttle import RecoveryThrottle
from fw_actors.store import Store, Tx

Further = Callable[[Tx, LinkFacts], None]
_ACTIONS: Final = MappingProxyType(
    {LinkKind.RECOVERY: Action.RESET_PASSWORD, LinkKind.INVITATION: Action.ACCEPT_INVITE}
)


class LinkUse:
    """What both kinds of links have in common."""

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
        """`handle` gives the handle of a user inside a transaction, for a request id."""
        self._store, self._hasher, self._links = store, hasher, links
        self._passwords, self._throttle = passwords, throttle
        self._audit, self._handle = audit, handle

    async def look(self, token: str, address: str) -> LinkFacts:
        """Return what a token is good for; it is not spent by that.

        Raises: TooManyRequestsError, InvalidTokenError, OverloadedError.
        """

        def work(tx: Tx) -> LinkFacts | FwError:
            wait = self._throttle.count_address(tx, address)
            if wait is not None:
                return TooManyRequestsError(wait)
            try:
                return self._links.facts(tx, token)
            except InvalidTokenError as refusal:
                return refusal  # not raised here: the request counts all the same

        found = await self._store.write(work)
        if isinstance(found, FwError):
            raise found
        return found

    async def complete(
        self,
        kind: LinkKind,
        token: str,
        password: str,
        address: str,
        further: Further,
        request_id: str,
    ) -> None:
        """Spend a token: the password is set, sessions and API keys end, and `further` runs along
        with it. (An invited account has no keys yet; the rule is one for both kinds.)

        Raises: TooManyRequestsError, InvalidTokenError, PasswordPolicyError, OverloadedError,
            and what `further` raises; the token is as good as before then.
        """
        facts = await self.look(token, address)
        if facts.kind is not kind:
            raise InvalidTokenError
        password_hash = await self._hasher.hash(
            password,
            name=facts.user,
            email=facts.email,
            requester=Requester(sharing_network(address)),
        )

        def work(tx: Tx) -> None:
            hold(tx, facts.user)
            user = links.spend(tx, kind, token)  # renamed meanwhile, perhaps
            fw = self._handle(tx, user, request_id)
            self._passwords.replace(fw, user, password_hash, _ACTIONS[kind])
            with self._audit.suppressed(tx):  # a part of the act that was just recorded
                further(tx, replace(facts, user=user))

        await self._store.write(work)
