"""A request by API key: whose it is, and how many wrong ones an address may show.

Source: interface §1 "API key": 50 wrong keys from an address in 15 minutes, then 429; §8: sign-ins
are unaffected. While an address is shut out its right keys are refused as well: a throttle that
lets the right one through would not slow down who guesses.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fw_actors.errors import (
    AuthenticationError,
    FwError,
    OverloadedError,
    TooManyRequestsError,
)
from fw_actors.rules.addresses import counted_address
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, Budget
from fw_actors.rules.tokens import parse_api_key, record_id
from fw_actors.runtime import Entropy
from fw_actors.services import attempts
from fw_actors.services.access import Caller
from fw_actors.services.accounts import Accounts
from fw_actors.services.api_keys import ApiKeys
from fw_actors.services.sessions import SEEN_EVERY_MS
from fw_actors.store import Store, Tx

WRONG_KEYS: Final = Budget(50, ADDRESS_WINDOW_MS, locks=False)
_ID_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class _Found:
    caller: Caller
    last_used: int | None
    now: int


class KeyUse:
    """The use case."""

    def __init__(
        self,
        store: Store,
        keys: ApiKeys,
        accounts: Accounts,
        entropy: Entropy,
        installation_key: bytes,
    ) -> None:
        self._store, self._keys, self._accounts = store, keys, accounts
        self._entropy, self._key = entropy, installation_key

    async def caller(self, presented: str, address: str) -> Caller:
        """Return whose key it is, with the roles of now.

        Raises: AuthenticationError, the same for every cause; TooManyRequestsError.
        """
        counter = attempts.counter_key(self._key, "api key address", counted_address(address))
        found = await self._store.read(lambda tx: self._look(tx, presented, counter), reserved=True)
        if found is None:
            raise await self._store.write(lambda tx: self._count(tx, counter))
        if isinstance(found, FwError):
            raise found
        if found.last_used is None or found.now - found.last_used >= SEEN_EVERY_MS:
            with suppress(OverloadedError):  # a request is not refused for a note's sake
                await self._store.write(lambda tx: self._keys.used(tx, found.caller.api_key or ""))
        return found.caller

    def _look(self, tx: Tx, presented: str, counter: bytes) -> _Found | FwError | None:
        wait = attempts.wait_of(tx, counter, WRONG_KEYS)
        if wait is not None:
            return TooManyRequestsError(wait)
        key = parse_api_key(presented)
        live = None if key is None else self._keys.live(tx, key)
        if live is None:
            return None
        roles = frozenset(self._accounts.roles(tx, live.user))
        return _Found(Caller(live.user, roles, api_key=live.id), live.last_used, tx.now)

    def _count(self, tx: Tx, counter: bytes) -> FwError:
        charge = record_id(self._entropy.bytes(_ID_BYTES))
        wait = attempts.charge(tx, charge, counter, WRONG_KEYS)
        if wait is not None:
            return TooManyRequestsError(wait)
        attempts.settle_failure(tx, charge, counter, WRONG_KEYS)
        return AuthenticationError("This API key is not valid.")
